"""The journal's tables::

job      key, value            source, layout, …; what must agree on resume
         ended                 the source was read to its end (1), or to --limit
         running               the boot during which a run is at work, or was cut off
         unsynced              a sync failed: what is in memory may not be on the disk
batch    seq, count, cursor    the position behind it
         names, origin         what the source needs to make its items again
         done                  0 open, 1 done
         stored, failed, bytes, unverified   (a file of an earlier run is stored, too)
         marks                 sizes and checksums of what is published (core.marks)
failure  seq, idx, name, url, code, detail, attempts
"""

from __future__ import annotations

__all__ = ["FORMAT", "SCHEMA"]

FORMAT = 1

SCHEMA = """
CREATE TABLE job (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batch (
    seq INTEGER PRIMARY KEY, count INTEGER NOT NULL, cursor BLOB NOT NULL,
    names BLOB NOT NULL, origin BLOB NOT NULL, done INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0, unverified INTEGER NOT NULL DEFAULT 0,
    marks BLOB NOT NULL DEFAULT x''
);
CREATE TABLE failure (
    seq INTEGER NOT NULL, idx INTEGER NOT NULL, name TEXT NOT NULL, url TEXT NOT NULL,
    code TEXT NOT NULL, detail TEXT NOT NULL, attempts INTEGER NOT NULL,
    PRIMARY KEY (seq, idx)
) WITHOUT ROWID;
CREATE INDEX batch_unfinished ON batch (seq) WHERE done = 0 OR failed > 0;
"""
