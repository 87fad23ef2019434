"""Write columns to Parquet with pyarrow, or to JSON Lines without."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final, Protocol

import msgspec

from downloader.core.extras import is_installed
from downloader.sinks.shards.publisher.columns import Columns

__all__ = ["Table", "binary_array", "form_of_items", "load_pyarrow", "open_table"]

_encode = msgspec.json.Encoder().encode
_ARROW_TYPES: Final = {
    "text": "string",
    "json": "string",
    "int": "int64",
    "uint": "uint64",
    "float": "float64",
    "bool": "bool_",
    "bytes": "binary",
}


class Table(Protocol):
    """A table that is being written."""

    def write(self, columns: Columns | Mapping[str, Any]) -> None:
        """Append rows; a row group in Parquet."""


def form_of_items() -> str:
    """Return in which form the rows of all items are written here: parquet or jsonl."""
    return "parquet" if is_installed("pyarrow") else "jsonl"


def load_pyarrow() -> Any:
    """Import pyarrow and return it: with one thread, and an allocator that gives memory back."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import pyarrow

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    return pyarrow


@contextlib.contextmanager
def open_table(form: str, file: BinaryIO, kinds: Mapping[str, str], batch: int = 1024) -> Iterator[Table]:
    """Write a table of ``kinds``: text, json, int, uint, float, bool or bytes for each column.

    ``batch``: pyarrow appends so many values to a page, in memory, before it looks at the page's size.
    """
    table = _Parquet(file, kinds, batch) if form == "parquet" else _JsonLines(file)
    try:
        yield table
    except BaseException:
        # pyarrow would try it when the file is closed, and print that it failed.
        with contextlib.suppress(Exception):
            table.close()
        raise
    table.close()


class _JsonLines:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, columns: Columns | Mapping[str, Any]) -> None:
        names = list(columns)
        rows = zip(*columns.values(), strict=True)
        self._file.write(b"".join(_encode(dict(zip(names, row, strict=True))) + b"\n" for row in rows))

    def close(self) -> None:
        pass


class _Parquet:
    def __init__(self, file: BinaryIO, kinds: Mapping[str, str], batch: int) -> None:
        self._arrow = load_pyarrow()
        from pyarrow import parquet

        types = {name: getattr(self._arrow, _ARROW_TYPES[kind])() for name, kind in kinds.items()}
        self._schema = self._arrow.schema(list(types.items()))
        # Few values repeat, and dictionaries are held in memory. Content has no useful minimum and maximum.
        self._writer = parquet.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=False,
            write_batch_size=batch,
            write_statistics=[name for name, kind in kinds.items() if kind != "bytes"],
        )

    def write(self, columns: Columns | Mapping[str, Any]) -> None:
        arrow = self._arrow
        arrays = [
            columns[field.name]
            if isinstance(columns[field.name], arrow.Array)
            else arrow.array(columns[field.name], field.type)
            for field in self._schema
        ]
        rows = arrow.Table.from_arrays(arrays, schema=self._schema)
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def close(self) -> None:
        self._writer.close()


def binary_array(content: bytearray, ends: Sequence[int]) -> Any:
    """Return an Arrow array of binary values that lie behind each other in ``content``, without a copy."""
    import array

    arrow = load_pyarrow()
    offsets = array.array("i", [0, *ends])
    buffers = [None, arrow.py_buffer(offsets), arrow.py_buffer(content)]
    return arrow.Array.from_buffers(arrow.binary(), len(ends), buffers)
