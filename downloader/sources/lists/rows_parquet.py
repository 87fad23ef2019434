"""Read Parquet files with pyarrow, one row group after the other, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from downloader.errors import SourceError
from downloader.sources.lists.arrow_bounds import check_bounds
from downloader.sources.lists.arrow_values import fields_of, load_pyarrow
from downloader.sources.lists.binary_rows import BATCH
from downloader.sources.lists.nested import Fields

__all__ = ["ParquetBlocks"]

_BATCH_BYTES = 64 << 20  # of a record batch, as far as the averages tell
_BUFFER = 64 << 10  # bytes of each column that are read at a time, in place of whole column chunks


class ParquetBlocks:
    """See ``Blocks``. Raises SourceError if ``path`` is no Parquet file, or is cut off."""

    def __init__(self, path: str, shown: str) -> None:
        pyarrow = load_pyarrow()
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)
        except (OSError, pyarrow.ArrowException) as error:
            why = " ".join(str(error).split())[:200].rstrip(".")
            raise SourceError(f"{shown} is no complete Parquet file: {why}; write it again") from error
        self.schema = self._file.schema_arrow
        self.names: Sequence[str] = self.schema.names
        self.fields: Fields = fields_of(self.schema)
        self._columns: list[str] = []
        self.count = self._file.metadata.num_row_groups

    def select(self, paths: Sequence[Sequence[str]]) -> None:
        """See ``Blocks``."""
        self._columns = list(map(".".join, paths))

    def rows(self, block: int) -> int:
        """See ``Blocks``."""
        return self._file.metadata.row_group(block).num_rows if block < self.count else -1

    def batches(self, block: int) -> Iterator[Any]:
        """See ``Blocks``."""
        group = self._file.metadata.row_group(block)
        average = group.total_byte_size // max(group.num_rows, 1)  # of all columns, so at least enough
        found: Iterator[Any] = self._file.iter_batches(
            max(1, min(BATCH, _BATCH_BYTES // max(average, 1))),
            row_groups=[block],
            columns=self._columns,
            use_threads=False,
        )
        for batch in found:
            check_bounds(batch)  # the decoder does not look at indices of dictionaries
            yield batch

    def close(self) -> None:
        """See ``Blocks``."""
        self._file.close()
