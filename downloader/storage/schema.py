"""Define the tables of the journal::

job        key, value           source, layout, …; these must match on resume
           ended                "end N": the source was read to its end, N batches; "limit N": to --limit
           running              the boot during which a run is active, or was interrupted
           unsynced             a sync failed: files in memory may not be on the disk
batch      seq, count           number of items
           done                 0 open, 1 done
           stored, failed, bytes, unverified   (files of earlier runs count as stored)
listing    seq, cursor          the position after the batch
           names, origin        the data from which the source recreates its items
published  seq, marks           sizes and checksums of published items (core.item_states)
failure    seq, idx, name, url, code, detail, attempts
shard      number, seq          the shards of a batch, where the sink has shards
           done                 0 open, 1 its outcome is in the other tables, 2 damaged since then
digest     seq, digests         of the items of a batch, if they have URLs (core.item_digests)
           names                CRC-32 of ``listing.names``: whose digests they are

The rows of ``batch`` are small, so that adding up a million of them, or finding the open ones, reads few
pages. Names and marks are each written once. Every row has a ``sum``, the CRC-32 of its other values
(``row_sum``), since SQLite itself does not detect a flipped bit.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec

__all__ = [
    "ADDED",
    "BATCH",
    "DIGEST",
    "FAILURE",
    "FORMAT",
    "JOB",
    "LISTING",
    "OLDEST_FORMAT",
    "PUBLISHED",
    "SCHEMA",
    "SHARD",
    "AnyRow",
    "BatchFigures",
    "DigestRow",
    "FailureRow",
    "JobRow",
    "Listing",
    "PublishedRow",
    "Row",
    "ShardRow",
    "Table",
    "row_sum",
]

FORMAT = 3
OLDEST_FORMAT = 2
"""The oldest readable format: the same tables, without claims and intents (``core.item_states``)."""

SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE job (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE batch (
    seq INTEGER PRIMARY KEY, count INTEGER NOT NULL, done INTEGER NOT NULL,
    stored INTEGER NOT NULL, failed INTEGER NOT NULL, bytes INTEGER NOT NULL,
    unverified INTEGER NOT NULL, sum INTEGER NOT NULL
);
CREATE TABLE listing (
    seq INTEGER PRIMARY KEY, cursor BLOB NOT NULL, names BLOB NOT NULL, origin BLOB NOT NULL,
    sum INTEGER NOT NULL
);
CREATE TABLE published (seq INTEGER PRIMARY KEY, marks BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE failure (
    seq INTEGER NOT NULL, idx INTEGER NOT NULL, name TEXT NOT NULL, url TEXT NOT NULL,
    code TEXT NOT NULL, detail TEXT NOT NULL, attempts INTEGER NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (seq, idx)
) WITHOUT ROWID;
"""

ADDED = """
CREATE TABLE IF NOT EXISTS shard (
    number INTEGER PRIMARY KEY, seq INTEGER NOT NULL, done INTEGER NOT NULL, sum INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS shard_of_batch ON shard (seq);
CREATE TABLE IF NOT EXISTS digest (
    seq INTEGER PRIMARY KEY, names INTEGER NOT NULL, digests BLOB NOT NULL, sum INTEGER NOT NULL
);
"""
"""What later versions of this program have added to a format; earlier ones ignore it."""


class JobRow(NamedTuple):
    """A fact of the job."""

    key: str
    value: str


class BatchFigures(NamedTuple):
    """A batch: how many items it has, and what has become of them."""

    seq: int
    items: int
    done: int = 0
    stored: int = 0
    failed: int = 0
    bytes: int = 0
    unverified: int = 0


class Listing(NamedTuple):
    """What the source has said of a batch."""

    seq: int
    cursor: bytes
    names: bytes
    origin: bytes


class PublishedRow(NamedTuple):
    """The packed item states of a batch."""

    seq: int
    marks: bytes


class FailureRow(NamedTuple):
    """A failed item."""

    seq: int
    idx: int
    name: str
    url: str
    code: str
    detail: str
    attempts: int


class ShardRow(NamedTuple):
    """A shard of a batch. ``done``: see above."""

    number: int
    seq: int
    done: int


class DigestRow(NamedTuple):
    """The digests of the items of a batch, and whose they are."""

    seq: int
    names: int
    digests: bytes


AnyRow = tuple[int | str | bytes, ...]
Row = TypeVar("Row", bound=AnyRow)
Row_co = TypeVar("Row_co", bound=AnyRow, covariant=True)


@dataclass(frozen=True)
class Table(Generic[Row_co]):
    """A table and the record of its rows; a row in the file has its sum behind that."""

    name: str
    row: type[Row_co]

    @cached_property
    def types(self) -> dict[str, type]:
        """The types of the values in the file, by column; SQLite itself keeps what it is given."""
        hints = {_COLUMNS.get(name, name): kind for name, kind in get_type_hints(self.row).items()}
        return {**hints, "sum": int}


_COLUMNS = {"items": "count"}  # a tuple has a method of that name


JOB: Final = Table("job", JobRow)
BATCH: Final = Table("batch", BatchFigures)
LISTING: Final = Table("listing", Listing)
PUBLISHED: Final = Table("published", PublishedRow)
FAILURE: Final = Table("failure", FailureRow)
SHARD: Final = Table("shard", ShardRow)
DIGEST: Final = Table("digest", DigestRow)


def row_sum(*values: int | str | bytes) -> int:
    """Return the ``sum`` of a row with these other values; it depends on their types, too."""
    return zlib.crc32(msgspec.msgpack.encode(values))
