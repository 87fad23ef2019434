"""Find the record of a stored file: in the spools by its batch and index, or by name.

A source that is read again (--relist) has other batches. So the records of what is stored are first copied
into a table by name, and by URL where the journal tells items of one name apart (``core.item_digests``):
``DEST/.downloader/records-known.sqlite``. The spools are removed.

Whatever a record says about where it belongs, it is used only for a file with its size and CRC-32, and for
the name of which it has the CRC-32. Of several the newest is used: an item may have been fetched again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence

import msgspec

from downloader.core import item_states
from downloader.core.file_records import Record, records, unpack
from downloader.core.item_digests import Digest
from downloader.core.item_states import ItemState
from downloader.core.name_list import decode_names
from downloader.errors import UNDECODABLE
from downloader.files.database import MOVE_AWAY, connect, has_table, replace, translated
from downloader.files.database import remove as remove_database
from downloader.files.directory import Directory
from downloader.storage.journal import BatchRow, Journal
from downloader.storage.record_spool import frames, read_frame, remove, spools

__all__ = ["KnownRecords", "forget", "write"]

_TABLE, _INDEX = "records-known.sqlite", "records-index.sqlite"
# As in `known_names`: `known` is by name alone, and a table of an earlier version has no `item`.
_KNOWN = """
CREATE TABLE IF NOT EXISTS known (
    name TEXT PRIMARY KEY, size INTEGER NOT NULL, crc INTEGER NOT NULL, record BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS item (
    name TEXT NOT NULL, url INTEGER NOT NULL,
    size INTEGER NOT NULL, crc INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (name, url)
) WITHOUT ROWID;
"""
_FRAMES = """
CREATE TABLE frame (
    seq INTEGER NOT NULL, spool INTEGER NOT NULL, at INTEGER NOT NULL, length INTEGER NOT NULL,
    PRIMARY KEY (seq, spool, at)
) WITHOUT ROWID
"""
_MOST_OPEN = 64
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Record).decode


class KnownRecords:
    """All records under ``home``, which it does not own; close it at the end. Raises JournalError.

    The places of the frames are in a table on disk, so memory does not grow with their number.
    """

    def __init__(self, home: Directory) -> None:
        self.home = home
        self._spools = spools(home)
        self._open: dict[int, int] = {}
        self._path = home / _INDEX
        with translated(self._path):
            remove_database(self._path)
            self._index = connect(self._path, _FRAMES, create=True, passing=True)
            self._index.execute("PRAGMA synchronous = OFF")
            self._index.execute(_FRAMES)
            self._index.execute("BEGIN")
            for number, path in enumerate(self._spools):
                rows = ((seq, number, at, length) for seq, at, length in frames(path))
                self._index.executemany("INSERT INTO frame VALUES (?, ?, ?, ?)", rows)
            self._index.execute("COMMIT")
        self._table = home / _TABLE
        with translated(self._table, MOVE_AWAY):
            known = connect(self._table, _KNOWN) if self._table.exists() else None
            if known is not None and not has_table(known, "known"):
                known.close()  # a power cut has left an empty file
                known = None
            self._known = known
            self._has_items = known is not None and has_table(known, "item")

    def find(
        self, batch: BatchRow, names: Sequence[str], digests: Callable[[BatchRow], list[Digest] | None]
    ) -> dict[int, Record]:
        """Return the records of stored items of ``batch`` that are known, by index.

        ``digests``: returns those of its items (``Journal.digests``).
        """
        states, crcs = (array.tolist() for array in item_states.unpack(batch.marks))
        found: dict[int, Record] = {}
        if len(states) != len(names):
            return found
        with translated(self._path):
            places = self._index.execute(
                "SELECT spool, at, length FROM frame WHERE seq = ? ORDER BY spool, at", (batch.seq,)
            )
            for spool, at, length in places:
                payload = read_frame(self._fd(spool), batch.seq, at, length)
                if payload is None:
                    continue
                with contextlib.suppress(*UNDECODABLE):  # of another version: as if it were not there
                    found |= records(unpack(payload), names, states, crcs)
        if self._known is not None:
            of_items = digests(batch) if self._has_items else None
            for mark in item_states.published(batch.marks):
                at = mark.index
                if at not in found and (
                    record := self._of_item(names[at], of_items[at] if of_items else None, mark)
                ):
                    found[at] = record
        return found

    def _of_item(self, name: str, digest: Digest | None, mark: ItemState) -> Record | None:
        assert self._known is not None
        row = None
        with translated(self._table, MOVE_AWAY):
            if digest is not None:
                row = self._known.execute(
                    "SELECT record FROM item WHERE name = ? AND url = ? AND size = ? AND crc = ?",
                    (name, digest.url, mark.size, mark.crc),
                ).fetchone()
            if row is None:
                row = self._known.execute(
                    "SELECT record FROM known WHERE name = ? AND size = ? AND crc = ?",
                    (name, mark.size, mark.crc),
                ).fetchone()
        with contextlib.suppress(TypeError, *UNDECODABLE):  # damaged: as if it were not there
            return None if row is None else _decode(row[0])
        return None

    def copy_table(self, database: sqlite3.Connection) -> None:
        """Add all rows of the table of names to that in ``database``."""
        if self._known is None:
            return
        for name in ("known", "item") if self._has_items else ("known",):
            rows = self._known.execute(f"SELECT * FROM {name}")
            marks = ", ".join("?" * len(rows.description))
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

    def _fd(self, number: int) -> int:
        fd = self._open.get(number)
        if fd is None:
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            fd = self._open[number] = self._spools[number].open()
        return fd

    def close(self) -> None:
        """Close all files, and remove the table of places."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        self._index.close()
        if self._known is not None:
            self._known.close()
        remove_database(self._path)


def write(home: Directory, journal: Journal, *, keep: bool) -> None:
    """Write the table of names from all records of what ``journal`` has as stored; remove the spools.

    ``keep``: keep the records of the table as well that the journal does not have, since it has begun anew
    already. Raises JournalError.
    """
    table = home / _TABLE
    if not (spools(home) or table.exists()):
        return
    temporary = home / f"{_TABLE}.new"
    remove_database(temporary)
    known = KnownRecords(home)
    try:
        with (
            translated(temporary),
            contextlib.closing(connect(temporary, _KNOWN, create=True, passing=True)) as database,
        ):
            database.executescript(_KNOWN)
            database.execute("BEGIN")
            if keep:
                with translated(table, MOVE_AWAY):
                    known.copy_table(database)
            for name, digest, *stored in _stored(known, journal):
                key = (name,) if digest is None else (name, digest.url)
                table_of = "known" if digest is None else "item"
                places = ", ".join("?" * (len(key) + len(stored)))
                database.execute(f"INSERT OR REPLACE INTO {table_of} VALUES ({places})", (*key, *stored))
            database.execute("COMMIT")
    finally:
        known.close()
    replace(table, temporary)
    remove(home)


def forget(home: Directory) -> None:
    """Remove all records: they belong to another job."""
    remove(home)
    remove_database(home / _TABLE)


def _stored(known: KnownRecords, journal: Journal) -> Iterator[tuple[str, Digest | None, int, int, bytes]]:
    for row in journal.batches():
        names = decode_names(row.names)
        found = known.find(row, names, journal.digests)
        digests: Sequence[Digest | None] = journal.digests(row) or [None] * len(names)
        for mark in item_states.published(row.marks):
            if record := found.get(mark.index):
                yield names[mark.index], digests[mark.index], mark.size, mark.crc, _encode(record)
