"""Keep a table of the files stored in an earlier pass over the source, for --relist.

When a source is read again, its items come in other batches. So the published items of the journal are
copied into a table, ``DEST/.downloader/known.sqlite``. Then the journal is emptied, and the feeder looks up
each listed item in the table. A known file is verified on the disk, as after a kill, and needs no request.

What is known belongs to an item: to its name, its URL, and the size and checksum that it is to have
(``core.item_digests``). A list that was edited may have another URL under the name of a file, and of
several items of one name any may have been stored. So an item that was not stored before is fetched, and
replaces the file of its name only if no other item owns that. Before the first such item the rest of the
list is read ahead, once: the file is its own if the list has none of those any more that owned it. Where
that is not known, ``storage.name_owners`` finds the owner when all is listed. Where nothing but the name is
known, of a source without URLs and in a journal of an earlier version, the name decides.

The table gets its name when it is complete, and is removed when the source has been read to its end. Each
entry is used for one item only.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from downloader.core.item_digests import Digest, may_be_of
from downloader.core.item_states import (
    FOREIGN,
    OWNED,
    REPLACED,
    UNOWNED,
    UNTOUCHED,
    ItemStates,
    decoded,
    intent,
    is_stored,
    unpack,
)
from downloader.core.name_list import decode_names
from downloader.core.naming import is_keyed
from downloader.errors import ConfigError, SourceError
from downloader.files.database import MOVE_AWAY, connect, has_table, replace, translated
from downloader.files.database import remove as remove_database
from downloader.files.directory import Directory
from downloader.messages import Item
from downloader.storage.former_files import FormerFiles
from downloader.storage.journal import Journal

__all__ = ["Known", "among", "exists", "has_keyed", "remove", "write"]

_NAME = "known.sqlite"
_RIVAL = -1  # in place of the digest of a URL: for those that had other bytes
_LISTED = -1  # in place of a batch: the rest of the list has the item
# `known` has what is known by name alone. A table of an earlier version has no `item`.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS known (
    name TEXT PRIMARY KEY, state INTEGER NOT NULL, crc INTEGER NOT NULL, seq INTEGER, idx INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS item (
    name TEXT NOT NULL, url INTEGER NOT NULL, checksum INTEGER NOT NULL,
    state INTEGER NOT NULL, crc INTEGER NOT NULL, seq INTEGER, idx INTEGER,
    PRIMARY KEY (name, url, checksum)
) WITHOUT ROWID;
"""


def exists(home: Directory) -> bool:
    """Return whether a source is being read again."""
    return (home / _NAME).exists()


def remove(home: Directory) -> None:
    """Remove the table, and what a killed run has left of one."""
    remove_database(home / _NAME)
    remove_database(home / f"{_NAME}.new")


def write(home: Directory, journal: Journal) -> None:
    """Write the table: the published items of ``journal``, and the entries of an existing table.

    A table exists if an earlier relist was interrupted. Raises JournalError.
    """
    temporary = home / f"{_NAME}.new"
    remove_database(temporary)
    with (
        translated(temporary),
        contextlib.closing(connect(temporary, _SCHEMA, create=True, passing=True)) as database,
    ):
        database.executescript(_SCHEMA)
        database.execute("BEGIN")
        if exists(home):
            with (
                translated(home / _NAME, MOVE_AWAY),
                contextlib.closing(connect(home / _NAME, _SCHEMA)) as older,
            ):
                for table in _tables(older):
                    key, marks = ("name", "?") if table == "known" else ("name, url, checksum", "?, ?, ?")
                    rows = older.execute(f"SELECT {key}, state, crc FROM {table}")
                    database.executemany(f"INSERT INTO {table} VALUES ({marks}, ?, ?, NULL, NULL)", rows)
        for entry in _published(journal):
            _add(database, *entry)
        database.execute("COMMIT")
    replace(home / _NAME, temporary)


def _tables(database: sqlite3.Connection) -> tuple[str, ...]:
    """Return the tables that are there: none in a file that a power cut has emptied."""
    return tuple(name for name in ("known", "item") if has_table(database, name))


def _published(journal: Journal) -> Iterator[tuple[str, Digest | None, int, int]]:
    for row in journal.batches():
        names = decode_names(row.names)
        digests: Sequence[Digest | None] = journal.digests(row) or [None] * len(names)
        for name, digest, state, crc in zip(names, digests, *unpack(row.marks), strict=False):
            if is_stored(state):
                yield name, digest, state & ~REPLACED, crc
            elif state == OWNED:
                yield name, digest, state, crc


def _add(database: sqlite3.Connection, name: str, digest: Digest | None, state: int, crc: int) -> None:
    """Add an entry. It takes the place of those of its name that have other bytes.

    Items of one name and the same bytes are one file. That a file is damaged says nothing about others.
    """
    if state == OWNED:
        for table in ("known", "item"):
            if database.execute(f"SELECT 1 FROM {table} WHERE name = ?", (name,)).fetchone():
                return
    else:
        database.execute("DELETE FROM known WHERE name = ?", (name,))
        same = f"(state & {~FOREIGN}, crc) = (?, ?)"
        other = (name, state & ~FOREIGN, crc)
        if database.execute(f"DELETE FROM item WHERE name = ? AND NOT {same}", other).rowcount:
            # Which of them has the file by now is not known: this one is not the only one of its name.
            rival = (name, _RIVAL, 0, state, crc)
            database.execute("INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?, ?, NULL, NULL)", rival)
    if digest is None:
        database.execute("INSERT INTO known VALUES (?, ?, ?, NULL, NULL)", (name, state, crc))
    else:
        database.execute(
            "INSERT OR REPLACE INTO item VALUES (?, ?, ?, ?, ?, NULL, NULL)", (name, *digest, state, crc)
        )


def has_keyed(home: Directory) -> bool:
    """Return whether a name in the table depends on the key of the job. Raises JournalError."""
    if not exists(home):
        return False
    path = home / _NAME
    with translated(path, MOVE_AWAY), contextlib.closing(connect(path, _SCHEMA)) as database:
        tables = _tables(database)
        return any(
            is_keyed(name)
            for table in tables
            for (name,) in database.execute(f"SELECT name FROM {table} WHERE name GLOB '*%~*'")
        )


def among(home: Directory, files: FormerFiles, names: Collection[str]) -> set[str]:
    """Return those of ``names`` under which a file is that an earlier pass has stored, not one of the user.

    Raises JournalError.
    """
    if not exists(home):
        return set()
    path = home / _NAME
    with translated(path, MOVE_AWAY), contextlib.closing(connect(path, _SCHEMA)) as database:
        tables = _tables(database)
        return {
            name
            for name in names
            for table in tables
            if any(
                not files.is_of_user(name, state, crc)
                for state, crc in database.execute(
                    f"SELECT state, crc FROM {table} WHERE name = ?", (name,)
                ).fetchall()
            )
        }


class Known:
    """An open table of names. Every method raises JournalError if SQLite fails.

    ``seq`` is the number of the next batch. Entries used for that batch and later ones become available
    again: the process that used them died before these batches were in the journal. ``ahead``: yields the
    names and digests of the items behind the batch that is looked up, once; it raises SourceError or
    ConfigError if it cannot. None: no two items have one name.
    """

    def __init__(
        self,
        home: Directory,
        seq: int,
        files: FormerFiles,
        ahead: Callable[[], Iterable[tuple[Sequence[str], Sequence[Digest]]]] | None,
    ) -> None:
        self._files = files
        self._ahead = ahead
        self._is_known_ahead: bool | None = True if ahead is None else None
        self._path = home / _NAME
        with translated(self._path, MOVE_AWAY):
            self._database = connect(self._path, _SCHEMA)
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_SCHEMA)
            for table in ("known", "item"):
                self._database.execute(
                    f"UPDATE {table} SET seq = NULL, idx = NULL WHERE seq >= ? OR seq = {_LISTED}", (seq,)
                )

    def close(self) -> None:
        """Close the table; it stays on the disk."""
        self._database.close()

    def marks_of_names(self, seq: int, names: Sequence[str]) -> bytes:
        """Return the packed states known for the items of batch ``seq``, which have nothing but names.

        They are b"" if none is known.
        """
        found = ItemStates(len(names))
        states, crcs = found.arrays
        with self._transaction():
            for index, name in enumerate(names):
                states[index], crcs[index] = self._by_name(seq, index, name)
        return found.packed() if any(states) else b""

    def marks_of_items(self, seq: int, items: Sequence[Item], digests: Sequence[Digest]) -> bytes:
        """Return the packed states known for the ``items`` of batch ``seq``; b"" if none is known."""
        result = ItemStates(len(items))
        states, crcs = result.arrays
        with self._transaction():
            for index, (item, digest) in enumerate(zip(items, digests, strict=True)):
                if item.fault:
                    continue
                found = self._known(seq, index, item, digest)
                if found is None and self._files.find(item.name):
                    if self._is_known_ahead is None:
                        self._look_ahead([each.name for each in items], digests)
                    found = self._superseding(seq, index, item.name)
                states[index], crcs[index] = found or (UNTOUCHED, 0)
        return result.packed() if any(states) else b""

    def _known(self, seq: int, index: int, item: Item, digest: Digest) -> tuple[int, int] | None:
        """Return what is known of an item: its state and the CRC-32 of its file. None: others had its name.

        One that is to have another size or checksum than before is OWNED: it is fetched, and replaces its
        file; UNOWNED, if that is not the job's. Where several items share a file, none is known to own it
        if it is not as it was.
        """
        rows = self._database.execute(
            "SELECT url, checksum, state, crc, seq, idx FROM item WHERE name = ?", (item.name,)
        ).fetchall()
        if not rows:
            return self._by_name(seq, index, item.name, item.size)
        free = ((None, None), (_LISTED, 0), (seq, index))
        mine = [row for row in rows if row[0] == digest.url and row[4:] in free]
        if not mine:
            return None
        url, checksum, state, crc = min(mine, key=lambda row: not may_be_of(row[1], item.checksum))[:4]
        self._database.execute(
            "UPDATE item SET seq = ?, idx = ? WHERE name = ? AND url = ? AND checksum = ?",
            (seq, index, item.name, url, checksum),
        )
        size, flags = decoded(state)
        has_sum = not item.checksum or may_be_of(checksum, item.checksum)
        agrees = has_sum and item.size in (-1, size)
        if state == OWNED or not agrees:
            if len(rows) > 1:
                return UNTOUCHED, 0
            lost = UNOWNED if self._files.is_of_user(item.name, state, crc) else OWNED
            return lost, self._files.find(item.name)
        return (state if len(rows) == 1 else intent(size, flags)), crc

    def _superseding(self, seq: int, index: int, name: str) -> tuple[int, int] | None:
        """Return the claim of an item on the file that others had stored, if the source has none of them.

        It is UNOWNED if it is not the job's, by all of them.
        """
        rows = self._database.execute(
            "SELECT state, crc, seq, idx FROM item WHERE name = ?", (name,)
        ).fetchall()
        if not self._is_known_ahead or any(row[2:] not in ((None, None), (seq, index)) for row in rows):
            return None
        self._database.execute("UPDATE item SET seq = ?, idx = ? WHERE name = ?", (seq, index, name))
        kept = all(self._files.is_of_user(name, *row[:2]) for row in rows)
        return UNOWNED if kept else OWNED, self._files.find(name)

    def _look_ahead(self, names: Sequence[str], digests: Sequence[Digest]) -> None:
        """Mark which items the source still has: those of this batch, ``names``, and of all behind it."""
        assert self._ahead is not None
        self._is_known_ahead = True
        try:
            for several, theirs in chain([(names, digests)], self._ahead()):
                self._database.executemany(
                    f"UPDATE item SET seq = {_LISTED}, idx = 0 WHERE name = ? AND url = ? AND seq IS NULL",
                    ((name, digest.url) for name, digest in zip(several, theirs, strict=True)),
                )
        except (SourceError, ConfigError):
            self._is_known_ahead = False  # whoever reads the list up to there says what is wrong

    def _by_name(self, seq: int, index: int, name: str, size: int = -1) -> tuple[int, int]:
        """Return what is known of an item by its name alone; ``size``: what it is to have, or -1."""
        row = self._database.execute("SELECT * FROM known WHERE name = ?", (name,)).fetchone()
        if row is None or row[3:] not in ((None, None), (seq, index)):
            return UNTOUCHED, 0
        state, crc = row[1:3]
        if state != OWNED and size not in (-1, decoded(state)[0]):
            return UNTOUCHED, 0
        self._database.execute("UPDATE known SET seq = ?, idx = ? WHERE name = ?", (seq, index, name))
        return state, crc

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with translated(self._path, MOVE_AWAY):
            self._database.execute("BEGIN")
            yield
            self._database.execute("COMMIT")
