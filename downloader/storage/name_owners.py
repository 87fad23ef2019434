"""Resolve name conflicts at the end of a run: search the journal for the owner of each contested name.

A worker that finds a file with other bytes under the name of its item cannot know whether another item of
the job stored it, in another worker or in an earlier run. The item fails as ``name-taken``. This module
resolves the conflict: if another item is published under that name, the failure stands; if none is, the
item gets a claim (``core.item_states``) and is fetched once more.

One pass over the names in the journal resolves ``CHUNK`` items, so memory does not grow with failures.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Collection
from pathlib import Path

from downloader.core.item_states import IN_FLIGHT, OWNED, SKIPPED, UNOWNED, unpack
from downloader.core.name_list import decode_names
from downloader.sinks.stored import is_inside, place
from downloader.storage.journal import Journal

__all__ = ["CHUNK", "settle_contested"]

CHUNK = 100_000


def settle_contested(
    journal: Journal,
    root: Path,
    layout: str,
    lost_before_ns: int,
    earlier: Callable[[Collection[str]], Collection[str]],
) -> dict[int, dict[int, int]]:
    """Give a claim to each ``name-taken`` item whose name no other item owns; return all claims.

    The claims are by batch and index.

    ``lost_before_ns``: see ``core.ownership.Rules``. ``earlier``: returns those of some names under which
    an earlier pass over the source has stored a file, which is the job's own. Raises JournalError.
    """
    found: dict[int, dict[int, int]] = {}
    after = (-1, -1)
    while failures := journal.contested(after, CHUNK):
        after = (failures[-1][0], failures[-1][1].index)
        items: dict[str, tuple[int, int]] = {}
        for seq, failure in failures:
            items.setdefault(failure.name, (seq, failure.index))
        for name in _owned(journal, items):
            del items[name]
        ours = earlier(items.keys())
        for name, (seq, index) in items.items():
            if not is_inside(where := place(name, layout)):
                continue  # not written by this program
            path = root / where
            if not _has_other_spelling(path):
                claim = OWNED if name in ours else _claim(path, lost_before_ns)
                found.setdefault(seq, {})[index] = claim
    for seq, claims in found.items():
        journal.claim(seq, claims)
    return found


def _owned(journal: Journal, items: dict[str, tuple[int, int]]) -> set[str]:
    """Return the names in ``items`` under which another item is published."""
    owned: set[str] = set()
    wanted = items.keys()
    for row in journal.batches():
        names = decode_names(row.names)
        if not (hits := wanted & set(names)):
            continue
        states = unpack(row.marks)[0]
        for index, name in enumerate(names):
            if name in hits and index < len(states) and IN_FLIGHT < states[index] < SKIPPED:
                owned.add(name)
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


def _claim(path: Path, lost_before_ns: int) -> int:
    try:
        changed = os.lstat(path).st_ctime_ns
    except OSError:
        return UNOWNED
    return OWNED if changed < lost_before_ns else UNOWNED
