"""Keep a table of the files stored in an earlier pass over the source, by name, for --relist.

When a source is read again, its items come in other batches. So the published items of the journal are
copied into a table of names, ``DEST/.downloader/known.sqlite``. Then the journal is emptied, and the feeder
looks up each listed name in the table. A known file is verified on the disk, as after a kill, and needs no
request.

The table gets its name when it is complete, and is removed when the source has been read to its end. Each
entry is used for one item only: a second item of that name is fetched, and fails because the name is taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from downloader.core.item_states import IN_FLIGHT, OWNED, SKIPPED, ItemStates, unpack
from downloader.core.name_list import decode_names
from downloader.files.database import attach, connect, translated
from downloader.files.database import remove as remove_database
from downloader.files.directory import Directory
from downloader.storage.journal import Journal

__all__ = ["Known", "exists", "remove", "write"]

_NAME = "known.sqlite"
_SCHEMA = """
CREATE TABLE known (
    name TEXT PRIMARY KEY, state INTEGER NOT NULL, crc INTEGER NOT NULL, seq INTEGER, idx INTEGER
) WITHOUT ROWID
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
        contextlib.closing(connect(temporary, _SCHEMA, create=True)) as database,
    ):
        database.execute("PRAGMA journal_mode = OFF")
        database.execute(_SCHEMA)
        if exists(home):
            attach(database, home / _NAME, "older", _SCHEMA)
        database.execute("BEGIN")
        if exists(home):
            database.execute("INSERT INTO known SELECT name, state, crc, NULL, NULL FROM older.known")
        database.executemany(
            "INSERT OR REPLACE INTO known VALUES (?, ?, ?, NULL, NULL)", _published(journal)
        )
        database.execute("COMMIT")
    for suffix in ("-wal", "-shm"):  # of the table that is being replaced
        (home / f"{_NAME}{suffix}").unlink(missing_ok=True)
    temporary.rename(_NAME)


def _published(journal: Journal) -> Iterator[tuple[str, int, int]]:
    for row in journal.batches():
        names = decode_names(row.names)
        for name, state, crc in zip(names, *unpack(row.marks), strict=False):
            if IN_FLIGHT < state < SKIPPED or state == OWNED:
                yield name, state, crc


class Known:
    """An open table of names. Every method raises JournalError if SQLite fails.

    ``seq`` is the number of the next batch. Entries used for that batch and later ones become available
    again: the process that used them died before these batches were in the journal.
    """

    def __init__(self, home: Directory, seq: int) -> None:
        self._path = home / _NAME
        with translated(self._path):
            self._database = connect(self._path, _SCHEMA)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute("UPDATE known SET seq = NULL, idx = NULL WHERE seq >= ?", (seq,))

    def close(self) -> None:
        """Close the table; it stays on the disk."""
        self._database.close()

    def marks(self, seq: int, names: Sequence[str]) -> bytes:
        """Return the packed item states known for the items of batch ``seq``; b"" if none is known."""
        found = ItemStates(len(names))
        states, crcs = found.arrays
        some = False
        with translated(self._path):
            self._database.execute("BEGIN")
            for index, name in enumerate(names):
                row = self._database.execute("SELECT * FROM known WHERE name = ?", (name,)).fetchone()
                if row is None or row[3:] not in ((None, None), (seq, index)):
                    continue
                self._database.execute(
                    "UPDATE known SET seq = ?, idx = ? WHERE name = ?", (seq, index, name)
                )
                states[index], crcs[index] = row[1:3]
                some = True
            self._database.execute("COMMIT")
        return found.packed() if some else b""
