"""Read Parquet files of shards, of which a few bytes can stand for gigabytes.

The footer must say what our writer writes: no dictionaries, and in each row group no more than such a file
may have; a record that vouches for the file may have been written by whoever wrote that. Where none does,
it is read a few rows at a time, as a footer may lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final

from downloader.sinks.shards.options import LARGEST_VALUE, MOST_SHARD_FILES

__all__ = ["batches"]

_ROWS_AT_A_TIME: Final = 1000
_DOUBTED_ROWS: Final = 16
_MOST_OF_GROUP: Final = 256 << 20  # bytes of several rows; a writer closes a group at 64 MiB of content
_DICTIONARIES: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})


def batches(file: BinaryIO, columns: Sequence[str] | None, *, vouched: bool) -> Iterator[Any]:
    """Yield the record batches of the open ``file``, of these columns, or of all.

    ``vouched``: it is what was published. Raises ValueError for one that is too large when it is read, and
    what pyarrow raises.
    """
    from pyarrow import parquet

    # No threads of pyarrow: one that lets go of `file`, an object of Python's, while the interpreter ends
    # aborts the process.
    with parquet.ParquetFile(file, pre_buffer=False) as table:
        _check(table.metadata)
        size = _ROWS_AT_A_TIME if vouched else _DOUBTED_ROWS
        yield from table.iter_batches(batch_size=size, columns=columns, use_threads=False)


def _check(footer: Any) -> None:
    """Raise ValueError if a file with this footer is not one that is written here."""
    if footer.num_rows > MOST_SHARD_FILES:
        raise ValueError(f"it has {footer.num_rows:,} rows")
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        most = _MOST_OF_GROUP + (LARGEST_VALUE if group.num_rows == 1 else 0)
        chunks = [group.column(at) for at in range(group.num_columns)]
        if sum(chunk.total_uncompressed_size for chunk in chunks) > most:
            raise ValueError(f"row group {number} is too large")
        if any(_DICTIONARIES.intersection(chunk.encodings) for chunk in chunks):
            raise ValueError(f"row group {number} has a dictionary")
