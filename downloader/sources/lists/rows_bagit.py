"""Parse the fetch.txt of a bag (RFC 8493, section 2.2.3): URL, length and path of each file.

If payload manifests stand beside it, the strongest of them gives the checksums. It is read into a temporary
database, which the system removes, so memory does not depend on its length.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import gevent

from downloader.core.content_check import ALGORITHMS
from downloader.errors import SourceError
from downloader.sources.lines import LONGEST_LINE, Lines
from downloader.sources.lists.columns import Columns
from downloader.sources.lists.rows import Numbered, Table

__all__ = ["BagitParser"]

_STRENGTH: Final = ("sha512", "sha384", "sha256", "sha224", "sha1", "md5")
_ENCODED = re.compile("%(0[AaDd]|25)")


class BagitParser:
    """See ``Parser``. ``path`` is that of fetch.txt, ``-`` if it is read from standard input."""

    unit = "line"
    longest = LONGEST_LINE
    comment = b""
    columns: Columns | None = Columns("url", "path", "length", checksums=(("", "checksum"),))
    fixed = True

    def __init__(self, path: str) -> None:
        self._manifest = _Manifest(path) if path != "-" and _manifest(path) else None

    def begin(self, sample: Sequence[bytes]) -> Sequence[str]:
        """See ``Parser``."""
        return ()

    def select(self, columns: Columns) -> None:
        """See ``Parser``."""

    def skip_header(self, lines: Lines) -> None:
        """See ``Parser``."""

    def table(self, lines: Numbered, following: Callable[[], bytes], more: Callable[[], Numbered]) -> Table:
        """See ``Parser``."""
        numbers: list[int] = []
        rows: list[list[str]] = []
        faults: dict[int, str] = {}
        for number, line in lines:
            fields = line.decode("utf-8", "surrogateescape").strip(" \t\r\n").split(None, 2)
            if not fields:
                continue
            if len(fields) < 3:
                faults[len(rows)] = "not a URL, a length and a path"
                fields = [fields[0], "-", ""]
            numbers.append(number)
            rows.append(fields)
        paths = [_decoded(path) for _, _, path in rows]
        columns: dict[str, Sequence[Any]] = {
            "url": [url for url, _, _ in rows],
            "length": [None if length == "-" else length for _, length, _ in rows],
            "path": paths,
            "checksum": [self._manifest.checksum(path) if self._manifest else None for path in paths],
        }
        return Table(numbers, columns, faults)


class _Manifest:
    """The checksums of the payload manifest beside ``path``. Raises SourceError if it cannot be read."""

    def __init__(self, path: str) -> None:
        self._algorithm, manifest = _manifest(path)  # type: ignore[misc]
        self._database = sqlite3.connect("")  # on disk, as far as it is large, and without a name
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE sums (path TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID"
        )
        try:
            with open(manifest, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                self._database.executemany("INSERT OR REPLACE INTO sums VALUES (?, ?)", _entries(file))
        except (OSError, sqlite3.Error) as error:
            raise SourceError(f"{manifest}: {error}") from error

    def checksum(self, path: str) -> str | None:
        """Return ALGORITHM:HEX of the file ``path``, None if it is not in the manifest."""
        row = self._database.execute("SELECT digest FROM sums WHERE path = ?", (_stored(path),)).fetchone()
        return f"{self._algorithm}:{row[0]}" if row else None


def _entries(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        digest, _, path = line.strip(" \t\r\n").partition(" ")
        if path:
            yield _stored(_decoded(path.lstrip(" \t*"))), digest.lower()
        if not number % 10_000:
            gevent.sleep(0)  # heartbeats must continue


def _stored(path: str) -> str:
    """Return ``path`` as text that SQLite can store."""
    return path.encode("utf-8", "surrogateescape").decode("latin-1")


def _manifest(path: str) -> tuple[str, str] | None:
    """Return algorithm and path of the strongest manifest beside the list ``path``, None without one."""
    directory = os.path.dirname(path)
    for algorithm in _STRENGTH:
        manifest = os.path.join(directory, f"manifest-{algorithm}.txt")
        if algorithm in ALGORITHMS and os.path.isfile(manifest):
            return algorithm, manifest
    return None


def _decoded(path: str) -> str:
    """Return a path without the encoding of CR, LF and ``%``, which is all that may be encoded."""
    return _ENCODED.sub(lambda hit: chr(int(hit[1], 16)), path)
