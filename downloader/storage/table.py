"""Store rows in SQLite with a checksum each, to detect damage on the disk.

SQLite detects a malformed page, but neither a flipped bit in a value nor an old version of a page. Every
row ends with the CRC-32 of its other values, which is checked whenever the row is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from downloader.errors import JournalError
from downloader.storage.schema import ADDED, FORMAT, OLDEST_FORMAT, SCHEMA, row_sum

__all__ = ["Rows", "is_read_only"]

_CACHE_KIB = 512


class Rows:
    """The tables of ``schema`` in the file at ``path``.

    Every method raises JournalError if SQLite fails, or if a row is not what was written. ``durable``: data
    is on the disk when the method, or the transaction, ends.
    """

    def __init__(self, path: Path, *, read_only: bool, durable: bool) -> None:
        self.path = path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        with self._translated():
            if read_only:
                uri = self._uri_to_read()
            else:
                _make_private(path)
                uri = _uri(path, "mode=rwc")
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)
            try:
                self._db.create_function("row_sum", -1, row_sum, deterministic=True)
                self._prepare(read_only, durable)
            except BaseException:
                self.close()
                raise

    def _uri_to_read(self) -> str:
        """Return the URI for opening the file read-only.

        Even then, SQLite writes files in its directory. If that is read-only, open the file as immutable
        or, if it has a write-ahead log that is not checkpointed, open a copy.
        """
        if not is_read_only(self.path.parent):
            return _uri(self.path, "mode=ro")
        log = self.path.with_name(f"{self.path.name}-wal")
        if not log.exists() or not log.stat().st_size:
            return _uri(self.path, "mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="downloader-")
        for file in (self.path, log):
            shutil.copy(file, self._copy.name)
        return _uri(Path(self._copy.name, self.path.name), "mode=ro")

    def _prepare(self, read_only: bool, durable: bool) -> None:
        if not read_only:
            # A commit in WAL mode without a sync costs tens of microseconds. A power cut may lose the
            # last commits; the database stays consistent.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._synchronous = "FULL" if durable else "NORMAL"
            self._db.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._db.execute("PRAGMA secure_delete = ON")
            # Small, so that it is full soon: SQLite's default of 2 MB fills over a million files, which
            # looks like a leak.
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            if not self._has_schema():
                self._db.executescript(f"BEGIN; {SCHEMA} {ADDED} COMMIT;")
            elif not self._has_table("shard"):
                self._db.executescript(f"BEGIN; {ADDED} COMMIT;")
        elif not self._has_schema():
            raise JournalError(f"{self.path} is empty; the run that made it ended before it began")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (OLDEST_FORMAT, FORMAT):
            raise JournalError(
                f"{self.path} has format {version}, this version reads {FORMAT}; --restart begins anew"
            )
        if version != FORMAT and not read_only:
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _has_schema(self) -> bool:
        return self._has_table("batch")

    def _has_table(self, name: str) -> bool:
        row = self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        return bool(row[0])

    def close(self) -> None:
        """Close the file; SQLite checkpoints the write-ahead log."""
        with self._translated():
            self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def damaged(self, what: object) -> JournalError:
        """Return the error for a journal that is not as it was written."""
        return JournalError(f"{self.path} is damaged ({what}); --restart begins anew")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise JournalError(f"{self.path}: {error}; free space or mend the disk, then resume") from error
        except (sqlite3.DatabaseError, UnicodeError) as error:
            raise self.damaged(error) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction; roll back on any exception."""
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite may have rolled back by itself (disk full); then this fails, which is harmless.
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def add(self, table: str, *values: int | str | bytes, instead: str = "") -> None:
        """Insert a row; there must be none with the same key."""
        places = ", ".join("?" * (len(values) + 1))
        with self._translated():
            statement = f"INSERT {instead} INTO {table} VALUES ({places})"
            self._db.execute(statement, (*values, row_sum(*values)))

    def put(self, table: str, *values: int | str | bytes) -> None:
        """Insert a row, replacing the one with the same key."""
        self.add(table, *values, instead="OR REPLACE")

    @contextlib.contextmanager
    def synced(self) -> Iterator[None]:
        """Run the block so that its writes are on the disk at the end, whatever ``durable`` is."""
        with self._translated():
            self._db.execute("PRAGMA synchronous = FULL")
            yield
            self._db.execute(f"PRAGMA synchronous = {self._synchronous}")

    def delete(self, table: str, condition: str, *parameters: int) -> None:
        """Delete the rows that match ``condition``."""
        with self._translated():
            self._db.execute(f"DELETE FROM {table} WHERE {condition}", parameters)

    def select(self, table: str, rest: str = "", *parameters: int | str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of ``table`` without their sums; ``rest``: condition, order, limit."""
        with self._translated():
            for row in self._db.execute(f"SELECT * FROM {table} {rest}", parameters):
                if row_sum(*row[:-1]) != row[-1]:
                    raise self.damaged(f"a row of {table} is not what was written")
                yield row[:-1]

    def find(self, table: str, rest: str, *parameters: int | str) -> tuple[Any, ...] | None:
        """Return the first row that ``select`` yields, None if there is none."""
        return next(self.select(table, rest, *parameters), None)

    def figures(self, query: str, *parameters: int) -> tuple[int, ...]:
        """Return the single row of an aggregate query, with 0 for NULL."""
        with self._translated():
            row = self._db.execute(query, parameters).fetchone()
        return tuple(value or 0 for value in row)

    def inspect(self, table: str) -> None:
        """Raise JournalError if ``table`` is damaged so that a query could miss a row."""
        with self._translated():
            result = self._db.execute(f"PRAGMA quick_check('{table}')").fetchone()[0]
        if result != "ok":
            raise self.damaged(result.splitlines()[-1])

    def counted(self, query: str) -> dict[str, int]:
        """Return the rows of a query for values and their counts, as a dict."""
        with self._translated():
            return dict(self._db.execute(query))


def is_read_only(directory: Path) -> bool:
    """Return whether nothing can be written in ``directory``."""
    return not os.access(directory, os.W_OK)


def _uri(path: Path, options: str) -> str:
    # Not as_uri(): since Python 3.14 that imports urllib.request, and so ssl, before any patching.
    return f"file:{quote(os.fsencode(path.absolute()))}?{options}"


def _make_private(path: Path) -> None:
    """Create the file readable by its owner only, since the journal names every file."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
