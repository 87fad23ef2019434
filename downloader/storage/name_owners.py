"""Resolve name conflicts at the end of a run: search the journal for the owner of each contested name.

A worker that finds a file with other bytes under the name of its item cannot know whether another item of
the job stored it, in another worker or in an earlier run. The item fails as ``name-taken``. This module
resolves the conflict: if another item is published under that name, the failure stands; if none is, the
item gets a claim (``core.item_states``) on the file that has the name, and is fetched once more.

``verify`` does the same for files that are not what was stored: they are the item's own, unless another
item has stored them.

One pass over the names in the journal resolves ``CHUNK`` items, so memory does not grow with failures.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path

from downloader.core.checksum import MOST_READ
from downloader.core.item_states import OWNED, UNOWNED, Claim, claims, published
from downloader.core.name_list import decode_names
from downloader.core.ownership import content_id, file_id, link_id, unsettled
from downloader.sinks.stored import crc_of, is_inside, open_below, place
from downloader.storage.journal import Journal

__all__ = [
    "CHUNK",
    "damaged_at",
    "is_left",
    "settle_contested",
    "settle_damaged",
]

CHUNK = 100_000


def settle_contested(
    journal: Journal,
    root: Path,
    layout: str,
    lost_before_ns: int,
    earlier: Callable[[Collection[str]], Collection[str]],
) -> dict[int, dict[int, Claim]]:
    """Give a claim to each ``name-taken`` item whose name no other item owns; return all claims.

    The claims are by batch and index.

    ``lost_before_ns``: see ``core.ownership.Rules``. ``earlier``: returns those of some names under which
    an earlier pass over the source has stored a file, which is the job's own. Raises JournalError.
    """
    found: dict[int, dict[int, Claim]] = {}
    known: dict[int, dict[int, Claim]] = {}
    after = (-1, -1)
    while failures := journal.contested(after, CHUNK):
        after = (failures[-1][0], failures[-1][1].index)
        items: dict[str, tuple[int, int]] = {}
        for seq, failure in failures:
            items.setdefault(failure.name, (seq, failure.index))
        for name in _owned(journal, items.keys()):
            del items[name]
        ours = earlier(items.keys())
        for name, (seq, index) in items.items():
            if not is_inside(where := place(name, layout)):
                continue  # not written by this program
            path = root / where
            if not _has_other_spelling(path):
                if seq not in known:
                    known[seq] = claims(journal.marks(seq))
                had = known[seq].get(index)
                if name in ours:
                    claim = Claim(OWNED, _file_at(path))
                else:
                    claim = _claim(root, where, lost_before_ns, had)
                found.setdefault(seq, {})[index] = claim
    for seq, given in found.items():
        journal.claim(seq, given)
    return found


def settle_damaged(journal: Journal, damaged: Mapping[str, tuple[int, int, int]]) -> None:
    """Make the claims valid of ``damaged`` items whose names no other item owns.

    They are batch, index and file by name, and have claims. Raises JournalError.
    """
    owned = _owned(journal, damaged.keys())
    found: dict[int, dict[int, Claim]] = {}
    known: dict[int, dict[int, Claim]] = {}
    for name, (seq, index, file) in damaged.items():
        if name in owned:
            continue
        if seq not in known:
            known[seq] = claims(journal.marks(seq))
        if (had := known[seq].get(index)) is not None:
            found.setdefault(seq, {})[index] = had._replace(file=file)
    for seq, given in found.items():
        journal.claim(seq, given)


def _owned(journal: Journal, wanted: Set[str]) -> set[str]:
    """Return the names in ``wanted`` under which an item is published, unless its file is a kept one."""
    owned: set[str] = set()
    for row in journal.batches():
        names = decode_names(row.names)
        if not (hits := wanted & set(names)):
            continue
        for mark in published(row.marks):
            if mark.index < len(names) and names[mark.index] in hits and not mark.foreign:
                owned.add(names[mark.index])
    return owned


def _has_other_spelling(path: Path) -> bool:
    """Return whether the file system has the file under another spelling, too.

    That is: of case, of Unicode form, with dots or blanks at the end, or the long name behind a short one
    (``NAME~1.EXT``). If so, another item may own it under that spelling.
    """
    name = path.name
    spellings = {
        name.swapcase(),
        unicodedata.normalize("NFC", name),
        unicodedata.normalize("NFD", name),
        name.rstrip(". "),
        f"{name}.",
        f"{name} ",
    }
    for spelling in spellings - {name, ""}:
        try:
            if os.path.samefile(path, path.with_name(spelling)):
                return True
        except OSError:
            continue
    return "~" in name and _is_short(path)


def _is_short(path: Path) -> bool:
    """Return whether ``path`` is there, and its directory does not have its name."""
    try:
        return path.exists() and path.name not in os.listdir(path.parent)
    except OSError:
        return False


def damaged_at(root: Path, where: str) -> int:
    """Return what a claim on the damaged file ``where`` below ``root`` is about, 0 if there is none.

    It is its bytes (``core.ownership.content_id``), or where it leads (``link_id``); or which file it is,
    if it cannot be read, or is too large to be read for that.
    """
    try:
        fd = open_below(root, where)
    except OSError:
        with contextlib.suppress(OSError):
            return link_id(os.fsencode(os.readlink(root / where)))
        return _file_at(root / where)
    try:
        found = os.fstat(fd)
        return file_id(found) if found.st_size > MOST_READ else content_id(found.st_size, crc_of(fd))
    except OSError:
        return _file_at(root / where)
    finally:
        os.close(fd)


def is_left(root: Path, where: str, file: int) -> bool:
    """Return whether what an item has a claim on is ``where`` below ``root`` still, or nothing is there.

    ``file``: which file or content that is. Anything else is not the item's: somebody has put it there.
    """
    found = _file_at(root / where)
    return not found or file == found or (file != 0 and file == damaged_at(root, where))


def _file_at(path: Path) -> int:
    """Return which file has ``path`` (``core.ownership.file_id``), 0 if none has."""
    try:
        return file_id(os.lstat(path))
    except OSError:
        return 0


def _claim(root: Path, where: str, lost_before_ns: int, had: Claim | None) -> Claim:
    """Return the claim on the file ``where`` below ``root``, of an item that ``had`` another one."""
    try:
        found = os.lstat(root / where)
    except OSError:
        return Claim(UNOWNED)
    file = file_id(found)
    if had is not None and had.file and had.file in (unsettled(file), unsettled(damaged_at(root, where))):
        return Claim(had.state, file)
    return Claim(OWNED if found.st_ctime_ns < lost_before_ns else UNOWNED, file)
