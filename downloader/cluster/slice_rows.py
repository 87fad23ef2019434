"""Make the rows of --manifest of a slice, from its own journal and records."""

from __future__ import annotations

from typing import BinaryIO

from downloader.config.config import Config
from downloader.reporting.manifest import JournalRows
from downloader.reporting.manifest_rows import RowsMade, write_rows
from downloader.storage.destination import home_of
from downloader.storage.journal import Journal
from downloader.storage.known_records import KnownRecords

__all__ = ["write_slice_rows"]


def write_slice_rows(config: Config, file: BinaryIO) -> RowsMade:
    """Write a row for each stored file of the slice that ``config`` ran; return how many there are.

    Raises JournalError, OSError.
    """
    home = home_of(config.journal_root)
    journal = Journal(home, read_only=True)
    try:
        known = KnownRecords(home)
        try:
            rows = JournalRows(config, journal, known, b"", lambda text: None)
            write_rows(file, rows.numbered())
            return rows.made
        finally:
            known.close()
    finally:
        journal.close()
