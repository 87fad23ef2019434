"""Parse the arguments of a peer, and store or count what it fetched.

``python -m benchmarks.peers.NAME URLS DEST CONNECTIONS CAFILE [OPTION …]``: URLS is a file of URLs, one per
line; DEST is ``-`` where nothing is to be stored, CAFILE is ``-`` for plain HTTP.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field

__all__ = ["Task"]


@dataclass
class Task:
    """The arguments, and the number of files stored."""

    urls: list[str]
    destination: str | None
    connections: int
    cafile: str | None
    options: list[str]
    files: int = field(default=0, init=False)

    @classmethod
    def given(cls) -> Task:
        """Return the task given on the command line."""
        urls, destination, connections, cafile, *options = sys.argv[1:]
        with open(urls) as file:
            lines = file.read().split()
        if destination != "-":
            os.makedirs(destination, exist_ok=True)
        return cls(
            lines,
            None if destination == "-" else destination,
            int(connections),
            None if cafile == "-" else cafile,
            options,
        )

    def store(self, url: str, body: bytes) -> None:
        """Write the file under the last segment of its URL, or discard it."""
        if self.destination is not None:
            with open(f"{self.destination}/{url.rpartition('/')[2]}", "wb") as file:
                file.write(body)
        self.files += 1

    def say(self, **figures: float) -> None:
        """Print the number of files, and ``figures``, as JSON."""
        sys.stdout.write(json.dumps({"files": self.files, **figures}) + "\n")
