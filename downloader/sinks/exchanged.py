"""Undo the exchange of two files that a kill has left half done (``sinks.directory``).

A worker exchanges an existing file with the one that is to replace it, under a temporary name, and looks at
what it has replaced. If it is killed before that, the file that had the name has the temporary one, and
nobody knows whether it may be replaced. So it gets its name back, and the item is fetched again.

The ledger has size and checksum of the new file: it is what the item was about to be published as. What was
not whole when the worker was killed has a temporary name, too, on file systems without O_TMPFILE. It is
removed: the item may never be stored.
"""

from __future__ import annotations

import contextlib
import posix
from collections.abc import Callable
from pathlib import Path

from downloader.files.directory import Entry, open_directory
from downloader.sinks.sink import Written
from downloader.sinks.stored import is_inside, matches, place

__all__ = ["temporary_name", "undo_exchange"]


def temporary_name(prefix: str, seq: int, index: int) -> str:
    """Return the name that the file of an item has until it is published."""
    return f".downloader-{prefix}{seq}-{index}"


def undo_exchange(root: Path, layout: str, prefix: str) -> Callable[[Written], None]:
    """Return a function that gives the file which an item was about to replace its name back (``Undo``).

    ``prefix``: ``core.ownership.Rules.temporary``. The function is given what the item was about to be
    published as; no worker may have the item. What cannot be done is left as it is.
    """

    def undo(written: Written) -> None:
        where = place(written.name, layout)
        if not is_inside(where):
            return
        with contextlib.suppress(OSError), open_directory(root) as directory:
            file = directory / where
            spare = file.beside(temporary_name(prefix, written.seq, written.index))
            if not spare.exists():
                return
            if written.size >= 0 and not _is(spare, written):
                if not _is(file, written):
                    return  # somebody has changed it since
                spare.exchange(file.leaf)
            spare.unlink()

    return undo


def _is(entry: Entry, written: Written) -> bool:
    """Return whether that is the file that was about to be published."""
    with contextlib.suppress(OSError):
        fd = entry.open()
        try:
            return matches(fd, written.size, written.crc)
        finally:
            posix.close(fd)
    return False
