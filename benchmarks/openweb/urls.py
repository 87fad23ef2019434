"""Make the list of URLs of the open web, the same for the same arguments, and compare what was stored."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
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
    """A URL of the list. ``name`` is its last segment, which is also the name of the file."""

    host: str
    path: str
    name: str
    obtainable: bool

    @property
    def content(self) -> bytes:
        """The body of the response."""
        return body(self.host, self.path)


def body(host_name: str, path: str) -> bytes:
    """Return what the server sends for a URL; ``origin.py`` tells nginx the same recipe."""
    return f"{host_name}{path} {FILLER}"[:SIZE].encode()


def pages(files: int, hosts: int, dead: bool = False, directory: str = "get") -> list[Page]:
    """Return ``files`` pages spread evenly over ``hosts`` hosts, in random order."""
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
    return [
        Page(
            host=names[which],
            path=f"/{'gone' if index in gone else directory}/{name_of(index)}",
            name=name_of(index),
            obtainable=kinds[which].serves and index not in gone,
        )
        for index, which in enumerate(order)
    ]


def compare(expected: list[Page], directory: Path) -> tuple[int, int, int]:
    """Return how many files are right, missing and wrong: other than the server's, or of no page that can
    be had."""
    right = wrong = 0
    where = {page.name: page for page in expected if page.obtainable}
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_file():  # ours keeps its journal in a directory
                continue
            page = where.get(entry.name)
            same = page is not None and Path(entry.path).read_bytes() == page.content
            right += same
            wrong += not same
    return right, len(where) - right, wrong
