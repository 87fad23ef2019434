"""Make the rows of --manifest of a slice, from its own journal and records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import msgspec

from downloader.cluster.plan.staging import has_shards
from downloader.config.config import Config
from downloader.files.directory import open_home
from downloader.reporting.manifest import JournalRows
from downloader.reporting.manifest_formats import Row
from downloader.reporting.manifest_rows import RowsMade, write_rows
from downloader.sources.slice_file import read_items
from downloader.storage.homes import home_of
from downloader.storage.journal import Journal
from downloader.storage.known_records import KnownRecords

__all__ = ["write_slice_rows"]

_Numbered = Iterable[tuple[list[int], list[Row]]]


def write_slice_rows(config: Config, file: BinaryIO) -> RowsMade:
    """Write a row for each stored file of the slice that ``config`` ran; return how many there are.

    Raises JournalError, OSError.
    """
    with (
        open_home(home_of(config.journal_root)) as home,
        contextlib.closing(Journal(home, read_only=True)) as journal,
        contextlib.closing(KnownRecords(home)) as known,
    ):
        rows = JournalRows(config, journal, known, b"", lambda text: None)
        numbered = rows.numbered()
        again = config.slice.again and has_shards(config)
        write_rows(file, _in_further_shards(config, numbered) if again else numbered)
        return rows.made


def _in_further_shards(config: Config, numbered: _Numbered) -> Iterator[tuple[list[int], list[Row]]]:
    """Yield the rows of items that have failed before with the shards and the keys that they have now."""
    places = [
        (f"{shard:05d}", item.earlier.key)
        for shard, items in enumerate(read_items(config.slice.path), config.slice.first_shard)
        for item in items
        if item.earlier
    ]
    for numbers, rows in numbered:
        yield (
            numbers,
            [
                msgspec.structs.replace(row, shard=places[number][0], key=places[number][1])
                for number, row in zip(numbers, rows, strict=True)
            ],
        )
