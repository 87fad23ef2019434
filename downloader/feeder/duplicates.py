"""Skip or number items whose name an earlier item has, for --on-duplicate.

The names are kept in a table, ``DEST/.downloader/names.sqlite``, so memory does not grow with them. It is
changed before a batch is sent, and set back to the last batch of the journal before a feeder is forked. So
what is a duplicate depends on the list alone, however often a run is killed.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Literal

import msgspec

from downloader.config.config import Config
from downloader.core.name_list import decode_names
from downloader.core.naming import numbered
from downloader.errors import JournalError
from downloader.files.database import connect, translated
from downloader.files.directory import Directory, open_home
from downloader.messages import DUPLICATE, Item, Page
from downloader.process.long_work import Pauses
from downloader.storage.homes import home_of
from downloader.storage.journal import Journal

__all__ = ["Duplicates", "follow_journal", "open_duplicates"]

_NAME = "names.sqlite"
_OPTION = "on_duplicate"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, seq INTEGER NOT NULL, idx INTEGER NOT NULL)
WITHOUT ROWID
"""


def open_duplicates(config: Config) -> Duplicates | None:
    """Return the table of names, None where the options of the source do not ask for one.

    Raises JournalError.
    """
    if config.slice or all(option.name != _OPTION for option in config.source_kind.options):
        return None
    mode = config.source_option(_OPTION)
    if mode == "fail":
        return None
    if config.dry_run:
        return Duplicates(None, mode, config.naming)
    with open_home(home_of(config.journal_root)) as home:
        return Duplicates(home, mode, config.naming)


def follow_journal(config: Config, journal: Journal) -> None:
    """Make the table of names, if there is to be one, that of the batches in ``journal``.

    The supervisor does this: SQLite knows what the process has open, and believes that of a forked child,
    too, which therefore must not open the journal. Raises JournalError.
    """
    if (duplicates := open_duplicates(config)) is not None:
        with contextlib.closing(duplicates):
            duplicates.follow(journal)


class Duplicates:
    """The names of all items so far, by batch and index. ``home``: see ``home_of``; None: of this run only.
    ``naming``: see ``storage.records.JobSpec``.

    Every method raises JournalError if SQLite fails.
    """

    def __init__(self, home: Directory | None, mode: Literal["skip", "number"], naming: int) -> None:
        self._mode = mode
        self._naming = naming
        self._path = str(home / _NAME) if home else _NAME
        with translated(self._path):
            # Without a name it is a temporary file, which the system removes.
            self._database = (
                connect(home / _NAME, _SCHEMA, create=True)
                if home
                else sqlite3.connect("", isolation_level=None)
            )
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute(_SCHEMA)

    def follow(self, journal: Journal) -> None:
        """Make the table that of the batches in ``journal``."""
        with translated(self._path):
            (known,) = self._database.execute("PRAGMA user_version").fetchone()
            seq = journal.position().seq
            if known > seq:
                with self._transaction(seq):
                    self._database.execute("DELETE FROM names WHERE seq >= ?", (seq,))
            for row in journal.batches() if known < seq else ():
                # The option is new, or a power cut took the end of the table.
                if row.seq >= known:
                    with self._transaction(row.seq + 1):
                        for index, name in enumerate(decode_names(row.names)):
                            self._add(name, row.seq, index)

    def close(self) -> None:
        """Close the table; it stays on the disk, if it has a place there."""
        self._database.close()

    def go_on(self, seq: int) -> None:
        """Forget the names of batches from ``seq`` on, which are about to be read.

        A job over many machines has no journal that would tell of them. Raises JournalError if the table
        has not all batches before.
        """
        with translated(self._path):
            (known,) = self._database.execute("PRAGMA user_version").fetchone()
            if known > seq:
                with self._transaction(seq):
                    self._database.execute("DELETE FROM names WHERE seq >= ?", (seq,))
        if known < seq:
            raise JournalError(
                f"{self._path} has not all names that were read before; --restart begins anew"
            )

    def settle(self, seq: int, page: Page) -> Page:
        """Return ``page``, which is batch ``seq``, with its duplicates marked or numbered."""
        with translated(self._path), self._transaction(seq + 1):
            items = self._all_settled(seq, page)
        return msgspec.structs.replace(page, items=items)

    def _all_settled(self, seq: int, page: Page) -> list[Item]:
        items = []
        pause = Pauses()  # to number an item of a name that many have takes 40 queries
        for index, item in enumerate(page.items):
            items.append(self._settled(item, seq, index))
            pause()
        return items

    def recall(self, seq: int, page: Page) -> Page:
        """Return ``page``, made again for batch ``seq``, with the same duplicates as before."""
        with translated(self._path):
            if page.cursor:  # it was corrected, and has other names
                with self._transaction(None):
                    self._database.execute("DELETE FROM names WHERE seq = ?", (seq,))
                    items = self._all_settled(seq, page)
                return msgspec.structs.replace(page, items=items)
            if self._mode == "number":
                return page  # its names are those in the journal
            items = [
                _duplicate(item) if self._owner(item.name) not in (None, (seq, index)) else item
                for index, item in enumerate(page.items)
            ]
            return msgspec.structs.replace(page, items=items)

    def _settled(self, item: Item, seq: int, index: int) -> Item:
        if item.fault or self._add(item.name, seq, index):
            return item
        if self._mode == "skip":
            return _duplicate(item)
        name = self._numbered(item, self._free(item))
        self._add(name, seq, index)
        return msgspec.structs.replace(item, name=name)

    def _numbered(self, item: Item, number: int) -> str:
        return numbered(item.name, number, item.url if self._naming > 1 else "")

    def _free(self, item: Item) -> int:
        """Return a number from 2 on that is free, and the next lower one is not.

        Numbers are given in sequence, so all below it are taken: a million items of one name need 40 steps
        each. A name in the list that looks numbered may leave a gap; the result is the same each time.
        """
        low, high = 1, 2
        while self._owner(self._numbered(item, high)) is not None:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            if self._owner(self._numbered(item, middle)) is None:
                high = middle
            else:
                low = middle
        return high

    def _add(self, name: str, seq: int, index: int) -> bool:
        """Add ``name``; return whether it is new."""
        query = "INSERT OR IGNORE INTO names VALUES (?, ?, ?)"
        return self._database.execute(query, (name, seq, index)).rowcount == 1

    def _owner(self, name: str) -> tuple[int, int] | None:
        row = self._database.execute("SELECT seq, idx FROM names WHERE name = ?", (name,)).fetchone()
        return None if row is None else (row[0], row[1])

    @contextlib.contextmanager
    def _transaction(self, upto: int | None) -> Iterator[None]:
        """Commit what the block does, and that the table has all batches before ``upto``."""
        self._database.execute("BEGIN")
        yield
        if upto is not None:
            self._database.execute(f"PRAGMA user_version = {upto}")
        self._database.execute("COMMIT")


def _duplicate(item: Item) -> Item:
    return item if item.fault else msgspec.structs.replace(item, fault=DUPLICATE)
