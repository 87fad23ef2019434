"""Parse the arguments of a strategy, and read the listing page by page.

``python -m benchmarks.strategies.NAME URL DEST FILES [OPTION …]``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import requests

__all__ = ["Job", "pages"]


@dataclass(frozen=True)
class Job:
    """The arguments."""

    url: str
    destination: str
    files: int
    options: tuple[str, ...] = ()

    @classmethod
    def given(cls) -> Job:
        """Return the job given on the command line."""
        url, destination, files, *options = sys.argv[1:]
        os.makedirs(destination, exist_ok=True)
        return cls(url, destination, int(files), tuple(options))

    def names(self) -> Iterator[str]:
        """Yield the first ``files`` names."""
        return islice(chain.from_iterable(pages(self.url)), self.files)

    def address(self, name: str) -> str:
        """Return the URL of the file ``name``."""
        return f"{self.url}/get/{name}"

    def store(self, name: str, body: bytes) -> None:
        """Write the file."""
        with open(os.path.join(self.destination, name), "wb") as file:
            file.write(body)


def pages(url: str) -> Iterator[list[str]]:
    """Yield the names, one page after another: each page names the next."""
    with requests.Session() as session:
        marker = None
        while True:
            answer = session.get(f"{url}/list", params={"next-marker": marker} if marker else None)
            answer.raise_for_status()
            page = answer.json()
            yield page["FileNames"]
            marker = page.get("NextMarker")
            if marker is None:
                return
