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

from downloader.core.file_errors import advice
from downloader.errors import JournalError
from downloader.files.database import connect, damaged, failure, has_table
from downloader.files.directory import Directory, Entry, UnsafeFile, open_directory, without_copy
from downloader.storage.schema import ADDED, FORMAT, OLDEST_FORMAT, SCHEMA, AnyRow, Row, Table, row_sum

__all__ = ["Rows"]

_SCHEMA = f"{SCHEMA}{ADDED}"
_CACHE_KIB = 512
_MOST_COPIED = 4 << 30  # of a file
_COPIES = 10
_LOG_HEADER = 32


class Rows:
    """The tables of ``schema`` in the file ``database``.

    Every method raises JournalError if SQLite fails, or if a row is not what was written. ``durable``: data
    is on the disk when the method, or the transaction, ends. ``alone``: nothing is written beside the file,
    which nobody else writes.
    """

    def __init__(self, database: Entry, *, read_only: bool, durable: bool, alone: bool = False) -> None:
        self._alone = alone
        self._log = database.beside(f"{database.leaf}-wal")
        self._log_seen: os.stat_result | None = None
        self._is_lost = False
        self.path = Path(database)
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        with self._translated(), contextlib.ExitStack() as stack:
            stack.callback(self._remove_copy)
            self._db = self._connect(database, read_only)
            stack.callback(self._db.close)
            self._db.create_function("row_sum", -1, row_sum, deterministic=True)
            self._prepare(read_only, durable)
            stack.pop_all()

    def _connect(self, database: Entry, read_only: bool) -> sqlite3.Connection:
        """Open the file; one to write is made if it is not there, readable by its owner only.

        Even read-only, SQLite writes files in its directory, and maps one of them. If that is read-only or
        full, or copies on write, open the file as immutable or, if it has a write-ahead log that is not
        checkpointed, open a copy. Nobody writes the file itself without such a log.
        """
        if not read_only:
            return connect(database, _SCHEMA, create=True)
        home = database.directory
        if not (self._alone or home.is_read_only() or home.copies_on_write()):
            return connect(database, _SCHEMA, options="mode=ro")
        log = database.beside(f"{database.leaf}-wal")
        if log.size() <= 0:
            return connect(database, _SCHEMA, options="mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="downloader-")
        with open_directory(self._copy.name) as directory:
            _copy(database, log, directory)
            return connect(directory / database.leaf, _SCHEMA)

    def _prepare(self, read_only: bool, durable: bool) -> None:
        if not read_only:
            # A commit with a log without a sync costs tens of microseconds. A power cut may lose the
            # last commits; the database stays consistent.
            self._synchronous = "FULL" if durable else "NORMAL"
            self._db.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._db.execute("PRAGMA secure_delete = ON")
            # Small, so that it is full soon: SQLite's default of 2 MB fills over a million files, which
            # looks like a leak.
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            if not has_table(self._db, "batch"):
                self._db.executescript(f"BEGIN; {SCHEMA} {ADDED} COMMIT;")
            elif not has_table(self._db, "digest"):  # the last that was added
                self._db.executescript(f"BEGIN; {ADDED} COMMIT;")
        elif not has_table(self._db, "batch"):
            raise JournalError(f"{self.path} is empty; the run that made it ended before it began")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (OLDEST_FORMAT, FORMAT):
            raise JournalError(
                f"{self.path} has format {version}, this version reads {FORMAT}; --restart begins anew"
            )
        if version != FORMAT and not read_only:
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def close(self) -> None:
        """Close the file; SQLite checkpoints the write-ahead log."""
        with self._translated():
            self._db.close()
        self._remove_copy()

    def _remove_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()

    def damaged(self, what: object) -> JournalError:
        """See ``files.database.damaged``."""
        return damaged(self.path, what)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise JournalError(f"{self.path}: {failure(error, self.path)}") from error
        except (sqlite3.DatabaseError, UnicodeError) as error:
            raise self.damaged(error) from error
        except UnsafeFile as error:
            raise without_copy(error) from None
        except OSError as error:
            raise JournalError(f"{self.path}: {advice(error)}") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction; roll back on any exception."""
        self._is_lost = self.lost() is not None
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
                self._log_seen = self._log.stat()
            except BaseException:
                # SQLite may have rolled back by itself (disk full); then this fails, which is harmless.
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def lost(self) -> Entry | None:
        """Return the write-ahead log if somebody has cut, removed or replaced it, unseen by SQLite.

        The run itself goes on: what it says at the end is the reason, and what became of each file.
        """
        seen, found = self._log_seen, self._log.stat()
        is_kept = seen is None or (
            found is not None and os.path.samestat(found, seen) and found.st_size >= seen.st_size
        )
        return self._log if self._is_lost or not is_kept else None

    def add(self, table: Table[Row], row: Row, instead: str = "") -> None:
        """Insert a row; there must be none with the same key."""
        places = ", ".join("?" * (len(row) + 1))
        with self._translated():
            statement = f"INSERT {instead} INTO {table.name} VALUES ({places})"
            self._db.execute(statement, (*row, row_sum(*row)))

    def put(self, table: Table[Row], row: Row) -> None:
        """Insert a row, replacing the one with the same key."""
        self.add(table, row, instead="OR REPLACE")

    @contextlib.contextmanager
    def synced(self) -> Iterator[None]:
        """Run the block so that its writes are on the disk at the end, whatever ``durable`` is."""
        with self._translated():
            self._db.execute("PRAGMA synchronous = FULL")
            yield
            self._db.execute(f"PRAGMA synchronous = {self._synchronous}")

    def delete(self, table: Table[AnyRow], condition: str, *parameters: int) -> None:
        """Delete the rows that match ``condition``."""
        with self._translated():
            self._db.execute(f"DELETE FROM {table.name} WHERE {condition}", parameters)

    def select(self, table: Table[Row], rest: str = "", *parameters: int | str) -> Iterator[Row]:
        """Yield the rows of ``table``; ``rest``: condition, order, limit."""
        types = tuple(table.types.values())
        with self._translated():
            for *values, stated in self._db.execute(f"SELECT * FROM {table.name} {rest}", parameters):
                if (*map(type, values), type(stated)) != types or row_sum(*values) != stated:
                    raise self.damaged(f"a row of {table.name} is not what was written")
                yield table.row(*values)

    def find(self, table: Table[Row], rest: str, *parameters: int | str) -> Row | None:
        """Return the first row that ``select`` yields, None if there is none."""
        return next(self.select(table, rest, *parameters), None)

    def figures(self, query: str, *parameters: int) -> tuple[int, ...]:
        """Return the single row of an aggregate query, with 0 for NULL."""
        with self._translated():
            row = self._db.execute(query, parameters).fetchone()
        return tuple(value or 0 for value in row)

    def has(self, table: Table[AnyRow]) -> bool:
        """Return whether there is ``table``; one that is only read may be of an earlier version."""
        with self._translated():
            return has_table(self._db, table.name)

    def inspect(self, table: Table[AnyRow]) -> None:
        """Raise JournalError if ``table`` is damaged so that a query could miss a row."""
        with self._translated():
            result = self._db.execute(f"PRAGMA quick_check('{table.name}')").fetchone()[0]
        if result != "ok":
            raise self.damaged(result.splitlines()[-1])

    def counted(self, query: str) -> dict[str, int]:
        """Return the rows of a query for values and their counts, as a dict."""
        with self._translated():
            return dict(self._db.execute(query))


def _copy(database: Entry, log: Entry, target: Directory) -> None:
    """Copy ``database`` with its write-ahead ``log``, as of one moment; somebody may be writing them.

    A checkpoint copies pages of the log into the database, and these stay in the log until it is begun
    anew, with another header. So both are of one moment if the log is copied last and was not begun anew
    meanwhile. Raises OSError, JournalError.
    """
    for _ in range(_COPIES):
        header = _header(log)
        for file in (database, log):
            if file.size() > _MOST_COPIED:
                raise JournalError(f"{file} is too large to be copied, and cannot be read in place")
            with (
                (target / file.leaf).writer() as copy,
                contextlib.suppress(FileNotFoundError),
                file.reader() as source,
            ):
                shutil.copyfileobj(source, copy)
        if _header(log) == header:
            return
    raise JournalError(f"{database} is written faster than it can be copied; try again")


def _header(log: Entry) -> bytes:
    try:
        with log.reader() as file:
            return file.read(_LOG_HEADER)
    except FileNotFoundError:
        return b""
