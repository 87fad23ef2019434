"""Make the list of URLs of the open web, the same for the same arguments, and compare what was stored."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.openweb.names import Kind, host
from downloader.testserver.content import name_of

__all__ = ["DEAD", "FILLER", "GONE", "SIZE", "Page", "body", "compare", "pages"]

SIZE: Final = 100
"""Bytes of each body."""
FILLER: Final = "0123456789" * 10
GONE: Final = 0.05
"""The part of the URLs that the server answers with 404, where there are dead hosts, too."""
DEAD: Final = {Kind.NX: 0.05, Kind.REFUSE: 0.05, Kind.VOID: 0.03, Kind.SERVFAIL: 0.02}
"""The part of the hosts of each kind that does not simply work."""
_SEED: Final = 20261123


@dataclass(frozen=True, slots=True)
class Page:
    """A URL of the list. ``name`` is its last segment, which is also the name of the file; ``content`` is
    what is to be stored, None where it cannot be had."""

    host: str
    path: str
    name: str
    content: bytes | None


def body(host_name: str, path: str) -> bytes:
    """Return what the server sends for a URL; ``origin.py`` tells nginx the same recipe."""
    return f"{host_name}{path} {FILLER}"[:SIZE].encode()


def pages(files: int, hosts: int, dead: bool = False, jpegs: Sequence[bytes] = ()) -> list[Page]:
    """Return ``files`` pages spread evenly over ``hosts`` hosts, in random order; each is one of ``jpegs``,
    where there are any."""
    chance = random.Random(_SEED)
    kinds = [Kind.LIVE] * hosts
    gone: set[int] = set()
    if dead:
        kinds = [kind for kind, part in DEAD.items() for _ in range(round(part * hosts))]
        kinds += [Kind.LIVE] * (hosts - len(kinds))
        chance.shuffle(kinds)
        gone = set(chance.sample(range(files), round(GONE * files)))
    names = [host(kind, number) for number, kind in enumerate(kinds)]
    order = [index % hosts for index in range(files)]
    chance.shuffle(order)
    found = []
    for index, which in enumerate(order):
        path, content = _served(index, names[which], jpegs)
        if index in gone:
            path, content = f"/gone/{name_of(index)}", None
        found.append(Page(names[which], path, name_of(index), content if kinds[which].serves else None))
    return found


def _served(index: int, host_name: str, jpegs: Sequence[bytes]) -> tuple[str, bytes | None]:
    if jpegs:
        which = index % len(jpegs)
        return f"/jpeg/{which}/{name_of(index)}", jpegs[which]
    path = f"/get/{name_of(index)}"
    return path, body(host_name, path)


def compare(expected: Sequence[Page], stored: Iterable[tuple[str, bytes]]) -> tuple[int, int, int]:
    """Return how many of the ``stored`` names and contents are right, how many files are missing, and how
    many are wrong: other than the server's, or of a page that cannot be had."""
    contents = {page.name: page.content for page in expected if page.content is not None}
    obtainable = len(contents)
    right = wrong = 0
    for name, content in stored:
        same = contents.pop(name, None) == content
        right += same
        wrong += not same
    return right, obtainable - right, wrong
