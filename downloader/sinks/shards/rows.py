"""Read what the tables beside shards say about items, for a manifest that is made later."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from downloader.core.column_types import OTHER
from downloader.core.file_records import Record
from downloader.core.frames import MAX_FRAME
from downloader.errors import UNDECODABLE
from downloader.files.directory import Directory, open_regular
from downloader.sinks.shards.jobs import METADATA
from downloader.sinks.shards.parquet_batches import batches
from downloader.sinks.shards.reading import DigestingFile
from downloader.sinks.shards.records import OtherFile, read_record
from downloader.sinks.shards.stats import items_name

__all__ = ["ShardRows"]

_IN_MEMORY = 2  # tables
_LONGEST_ROW = MAX_FRAME  # bytes
_NO_TIME = 253402300800  # the first second that no datetime has
_MOST_UNKNOWN = 256 << 20  # bytes of a table that no record vouches for
_OURS = frozenset({*METADATA, "error", "error_message", "file", "member"})


class _Row(msgspec.Struct, frozen=True, gc=False):
    """The columns of a row that a manifest has; each of the type that it has in a table."""

    url: str | None = None
    final_url: str | None = None
    status: int | None = None
    etag: str | None = None
    last_modified: str | None = None
    content_type: str | None = None
    fetched_at: float | None = None
    sha256: str | None = None


class ShardRows:
    """The rows of the shards in the directory ``root``; see ``sinks.sink.Describes``.

    ``home``: of the tool's own files, with the records of the shards. A table that is missing, or is not
    what was published, has no rows; one that no record vouches for is read up to a bound. Calls raise
    DamagedRecord.
    """

    def __init__(self, root: Path, store: str, home: Directory) -> None:
        self._root = root
        self._store = store
        self._home = home
        self._tables: OrderedDict[str, dict[str, Record]] = OrderedDict()
        self.changed: list[str] = []
        """The tables that are not what was published."""

    def __call__(self, shard: str, key: str) -> Record | None:
        """Return what is known of the sample ``key`` of ``shard``, None if nothing is."""
        return self._table(shard).get(key)

    def _table(self, shard: str) -> dict[str, Record]:
        if shard not in self._tables:
            self._tables[shard] = self._read(int(shard))
            if len(self._tables) > _IN_MEMORY:
                self._tables.popitem(last=False)
        return self._tables[shard]

    def _read(self, number: int) -> dict[str, Record]:
        record = read_record(self._home, number)
        published = {other.name: other for other in record.others} if record is not None else {}
        for form, read in (("parquet", _parquet_rows), ("jsonl", _json_rows)):
            name = items_name(number, self._store, form)
            if published and name not in published:
                continue
            try:
                with open(open_regular(self._root / name), "rb") as file:
                    rows = read(file, vouched=_is_published(file, published.get(name)))
                    return {row["key"]: _record(row) for row in rows if not row.get("error")}
            except FileNotFoundError:
                continue
            except _DAMAGED:
                self.changed.append(name)
                return {}
        return {}


# A table may have columns of any name and type, and pyarrow raises what it likes.
_DAMAGED = OSError, ArithmeticError, LookupError, TypeError, MemoryError, *UNDECODABLE


def _is_published(file: BinaryIO, other: OtherFile | None) -> bool:
    """Return whether ``file`` is known to be what was published; raise ValueError if it is not that."""
    if other is None or other.size < 0:
        return False
    digesting = DigestingFile(file, other.size)
    digesting.finish()
    if (digesting.size, other.md5 and digesting.md5) != (other.size, other.md5):
        raise ValueError("it has changed since it was published")
    file.seek(0)
    return bool(other.md5)


def _record(row: dict[str, Any]) -> Record:
    """Return what a manifest has of ``row``. Raises what is in ``_DAMAGED``."""
    kept = {name: value for name, value in row.items() if name not in _OURS and value is not None}
    kept |= json.loads(kept.pop(OTHER, "{}"))
    known = msgspec.convert({name: row.get(name) for name in _Row.__struct_fields__}, _Row)
    fetched = known.fetched_at or 0
    if not 0 <= fetched < _NO_TIME:
        raise ValueError(f"{fetched} is no time")
    return Record(
        known.url or "",
        known.final_url or "",
        known.status or 0,
        known.etag or "",
        known.last_modified or "",
        known.content_type or "",
        int(fetched),
        f"sha256:{known.sha256}" if known.sha256 else "",
        msgspec.msgpack.encode(kept) if kept else b"",
    )


def _parquet_rows(file: BinaryIO, *, vouched: bool) -> Iterator[dict[str, Any]]:
    from pyarrow import ArrowException

    size = 0
    try:
        for batch in batches(file, None, vouched=vouched):
            size += batch.nbytes
            if size > _MOST_UNKNOWN and not vouched:
                raise ValueError("it is too large")
            yield from batch.to_pylist()
    except ArrowException as error:
        raise ValueError(str(error)) from error


def _json_rows(file: BinaryIO, *, vouched: bool) -> Iterator[dict[str, Any]]:
    if not vouched and os.fstat(file.fileno()).st_size > _MOST_UNKNOWN:
        raise ValueError("it is too large")
    while line := file.readline(_LONGEST_ROW):
        row = json.loads(line)
        if not isinstance(row, dict):
            raise TypeError("a row that is none")
        yield row
