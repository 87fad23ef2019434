"""The journal's tables::

job        key, value           source, layout, …; what must agree on resume
           ended                "end N": the source was read to its end, N batches; "limit N": to --limit
           running              the boot during which a run is at work, or was cut off
           unsynced             a sync failed: what is in memory may not be on the disk
batch      seq, count           how many items
           done                 0 open, 1 done
           stored, failed, bytes, unverified   (a file of an earlier run is stored, too)
listing    seq, cursor          the position behind the batch
           names, origin        what the source needs to make its items again
published  seq, marks           sizes and checksums of what is published (core.marks)
failure    seq, idx, name, url, code, detail, attempts

``batch`` has nothing large, so that adding up a million of its rows, or looking for those that are open,
reads few pages; names and marks are each written once. ``sum``, of every row: the CRC-32 of the others of
its values (``row_sum``). SQLite itself does not notice a bit that has turned round.
"""

from __future__ import annotations

import zlib

import msgspec

__all__ = ["FORMAT", "OLDEST_FORMAT", "SCHEMA", "row_sum"]

FORMAT = 3
OLDEST_FORMAT = 2
"""Has the same tables; its marks know neither claims nor intents (``core.item_states``)."""

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


def row_sum(*values: int | str | bytes) -> int:
    """The ``sum`` of a row with these other values; of their kinds, too."""
    return zlib.crc32(msgspec.msgpack.encode(values))
