"""Tell whose a file is that an earlier pass over the source has stored, for --relist."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from downloader.core.checksum import MOST_READ
from downloader.core.item_states import FOREIGN, OWNED, decoded
from downloader.core.ownership import Rules, file_id, lost_claim
from downloader.sinks.stored import file_matches, is_inside, place
from downloader.storage.name_owners import is_left

__all__ = ["FormerFiles"]


class FormerFiles:
    """The files under ``root`` that an earlier pass has stored in ``layout``; see ``known_names``.

    ``pause`` is called before each file that is read.
    """

    def __init__(
        self, root: Path, layout: str, rules: Rules, pause: Callable[[], object] = lambda: None
    ) -> None:
        self._root = root
        self._layout = layout
        self._rules = rules
        self._pause = pause

    def find(self, name: str) -> int:
        """Return which file has the name of an item, if it was there before the source was read again.

        Else 0. See ``core.ownership.file_id``.
        """
        found = self._found(name) if self._rules.known_before_ns else None
        return (
            file_id(found) if found is not None and found.st_ctime_ns < self._rules.known_before_ns else 0
        )

    def is_of_user(self, name: str, state: int, crc: int) -> bool:
        """Return whether what has the name of an item is the user's: kept, put there, or edited.

        ``state`` and ``crc`` are those of the item when the source began to be read again.
        """
        self._pause()
        if state == OWNED:  # `crc`: which file or content is damaged
            where = place(name, self._layout)
            return bool(crc and is_inside(where)) and not is_left(self._root, where, crc | 1)
        size, flags = decoded(state)
        return bool(flags & FOREIGN) or self._is_changed(name, size, crc)

    def _is_changed(self, name: str, size: int, crc: int) -> bool:
        """Return whether somebody has changed the stored file. One of more than 1 GiB is not read."""
        found = self._found(name)
        if found is None or lost_claim(found, self._rules) == OWNED:
            return False
        if size > MOST_READ:
            return found.st_size != size
        try:
            return not file_matches(str(self._root / place(name, self._layout)), None, size, crc)
        except OSError:
            return False

    def _found(self, name: str) -> os.stat_result | None:
        try:
            return os.lstat(self._root / where) if is_inside(where := place(name, self._layout)) else None
        except OSError:
            return None
