"""Read what the tables beside shards say about items, for a manifest that is made later."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import msgspec

from downloader.core.column_types import OTHER
from downloader.core.file_records import Record
from downloader.core.frames import MAX_FRAME
from downloader.files.directory import open_regular
from downloader.sinks.shards.jobs import METADATA
from downloader.sinks.shards.stats import items_name

__all__ = ["ShardRows"]

_IN_MEMORY = 2  # tables
_LONGEST_ROW = MAX_FRAME  # bytes
_OURS = frozenset({*METADATA, "error", "error_message", "file", "member"})


class ShardRows:
    """The rows of the shards in the directory ``root``; see ``sinks.sink.Describes``.

    A table that is missing or damaged has no rows.
    """

    def __init__(self, root: Path, store: str) -> None:
        self._root = root
        self._store = store
        self._tables: OrderedDict[str, dict[str, dict[str, Any]]] = OrderedDict()

    def __call__(self, shard: str, key: str) -> Record | None:
        """Return what is known of the sample ``key`` of ``shard``, None if nothing is."""
        row = self._table(shard).get(key)
        if row is None or row.get("error"):
            return None
        kept = {name: value for name, value in row.items() if name not in _OURS and value is not None}
        kept |= json.loads(kept.pop(OTHER, "{}"))
        return Record(
            row.get("url") or "",
            row.get("final_url") or "",
            row.get("status") or 0,
            row.get("etag") or "",
            row.get("last_modified") or "",
            row.get("content_type") or "",
            int(row.get("fetched_at") or 0),
            f"sha256:{row['sha256']}" if row.get("sha256") else "",
            msgspec.msgpack.encode(kept) if kept else b"",
        )

    def _table(self, shard: str) -> dict[str, dict[str, Any]]:
        if shard not in self._tables:
            self._tables[shard] = {row["key"]: row for row in self._read(int(shard))}
            if len(self._tables) > _IN_MEMORY:
                self._tables.popitem(last=False)
        return self._tables[shard]

    def _read(self, number: int) -> list[dict[str, Any]]:
        path = self._root / items_name(number, self._store, "parquet")
        if os.path.lexists(path):
            from pyarrow import ArrowException, parquet

            try:
                with open(open_regular(path), "rb") as file:
                    rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
            except (ArrowException, OSError):
                return []
            return rows
        found: list[dict[str, Any]] = []
        try:
            with open(open_regular(self._root / items_name(number, self._store, "jsonl")), "rb") as file:
                while line := file.readline(_LONGEST_ROW):
                    found.append(json.loads(line))
        except (OSError, ValueError):
            return []
        return found
