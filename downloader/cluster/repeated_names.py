"""Find the names that rows have more than once, in memory that does not grow with the number of rows.

The hashes of all names are spread over files, each small enough to be sorted in memory. Those that are
there more than once are kept in a table, on disk, too.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from downloader.errors import DestinationError
from downloader.reporting.manifest_formats import Row

__all__ = ["RepeatedNames"]

_PARTS: Final = 256
_BUFFERED: Final = 8192  # hashes of a part
_BYTES: Final = 8


class RepeatedNames:
    """The names that are there several times; see ``find``. Raises DestinationError."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="downloader-")
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.execute("CREATE TABLE repeated (hash INTEGER PRIMARY KEY)")
        self._table.execute("CREATE TABLE seen (name TEXT PRIMARY KEY) WITHOUT ROWID")
        self._any = False

    def __enter__(self) -> RepeatedNames:
        return self

    def __exit__(self, *error: object) -> None:
        self._table.close()
        self._directory.cleanup()

    def find(self, names: Iterable[str]) -> None:
        """Take up all ``names``."""
        parts = [array("q") for _ in range(_PARTS)]
        try:
            for name in names:
                found = _hash(name)
                part = parts[found % _PARTS]
                part.append(found)
                if len(part) == _BUFFERED:
                    self._spill(found % _PARTS, part)
            for number, part in enumerate(parts):
                self._search(number, part)
        except OSError as error:
            raise DestinationError(f"{self._directory.name}: {error.strerror}; free some space") from error

    def _path(self, number: int) -> Path:
        return Path(self._directory.name, str(number))

    def _spill(self, number: int, part: array[int]) -> None:
        with open(self._path(number), "ab") as file:
            part.tofile(file)
        del part[:]

    def _search(self, number: int, part: array[int]) -> None:
        path = self._path(number)
        if path.exists():
            with open(path, "rb") as file:
                part.fromfile(file, path.stat().st_size // _BYTES)
            path.unlink()
        in_order = sorted(part)
        del part[:]
        repeated = {one for one, next_ in pairwise(in_order) if one == next_}
        if repeated:
            self._any = True
            self._table.executemany("INSERT INTO repeated VALUES (?)", ((one,) for one in repeated))

    def first(self, rows: Iterable[list[Row]]) -> Iterator[list[Row]]:
        """Yield ``rows`` without those whose name an earlier one has."""
        if not self._any:
            yield from rows
            return
        self._table.execute("DELETE FROM seen")
        for some in rows:
            yield [row for row in some if self._is_first(row.name)]

    def _is_first(self, name: str) -> bool:
        if self._table.execute("SELECT 1 FROM repeated WHERE hash = ?", (_hash(name),)).fetchone() is None:
            return True
        return self._table.execute("INSERT OR IGNORE INTO seen VALUES (?)", (name,)).rowcount == 1


def _hash(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_BYTES).digest()
    return int.from_bytes(digest, "little", signed=True)
