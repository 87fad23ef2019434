"""Write the same rows as a list of every format."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Rows = Sequence[Mapping[str, Any]]

TEXT = ("txt", "csv", "tsv", "jsonl", "aria2", "bagit")
SUFFIXED = (
    "l.txt", "l.txt.zst", "l.csv", "l.csv.gz", "l.tsv", "l.tsv.zst", "l.jsonl", "l.ndjson.gz",
    "l.jsonl.zst", "l.parquet", "l.arrow", "l.feather", "stream.arrow",
)  # fmt: skip
"""A name of each format that is recognized by its suffix; the txt forms have URLs only."""


def write(path: Path, rows: Rows, form: str = "") -> Path:
    """Write ``rows`` to ``path`` in the format of its suffixes, or in ``form``; return ``path``."""
    suffixes = [suffix[1:] for suffix in path.suffixes]
    form = form or suffixes[0]
    if form in ("parquet", "arrow", "feather"):
        _binary(path, form, rows)
        return path
    data = text(form, rows).encode()
    packed = {"gz": gzip.compress, "zst": zstd.compress}.get(suffixes[-1] if suffixes else "")
    path.write_bytes(packed(data) if packed else data)
    return path


def text(form: str, rows: Rows) -> str:
    """Return ``rows`` as text in one of the formats of text."""
    if form in ("csv", "tsv"):
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="," if form == "csv" else "\t")
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue()
    if form in ("jsonl", "ndjson"):
        return "".join(json.dumps(row) + "\n" for row in rows)
    if form == "aria2":
        return "".join(f"{row['url']}\n  out={row.get('name', '')}\n\n# next\n" for row in rows)
    if form == "bagit":
        return "".join(f"{row['url']} {row.get('size', '-')} {row['name']}\n" for row in rows)
    return "".join(f"{row['url']}\n" for row in rows)


def _binary(path: Path, form: str, rows: Rows) -> None:
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    if form == "parquet":
        pq.write_table(table, path, row_group_size=max(len(rows) // 5, 1))
        return
    kind = pa.ipc.new_stream if path.name.startswith("stream") else pa.ipc.new_file
    with kind(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=max(len(rows) // 7, 1))
