"""Read Arrow IPC files (Feather version 2) and IPC streams with pyarrow, a record batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from downloader.errors import SourceError
from downloader.sources.lists.arrow_bounds import check_bounds
from downloader.sources.lists.arrow_values import fields_of, load_pyarrow
from downloader.sources.lists.binary_rows import BATCH
from downloader.sources.lists.nested import Fields

__all__ = ["ArrowBlocks"]

_MAGIC = b"ARROW1"


class ArrowBlocks:
    """See ``Blocks``. Raises SourceError if ``path`` has neither form, or is cut off."""

    def __init__(self, path: str, shown: str) -> None:
        pyarrow = load_pyarrow()
        self._library = pyarrow
        self._path = path
        self._block: tuple[int, Any] = (-1, None)  # the one that was read last
        try:
            with open(path, "rb") as file:
                self._is_file = file.read(len(_MAGIC)) == _MAGIC
            self._reader = self._open(None)
        except (OSError, pyarrow.ArrowException) as error:
            raise SourceError(
                f"{shown} is no complete Arrow IPC file or stream: {' '.join(str(error).split())[:200]}; "
                "write it again (Feather: version 2)"
            ) from error
        self.schema = self._reader.schema
        self.names: Sequence[str] = self.schema.names
        self.fields: Fields = fields_of(self.schema)
        self.count = self._reader.num_record_batches if self._is_file else -1

    def _open(self, options: Any) -> Any:
        source = self._library.OSFile(self._path, "rb")
        if self._is_file:
            return self._library.ipc.open_file(source, options=options)
        return self._library.ipc.open_stream(source, options=options)

    def select(self, paths: Sequence[Sequence[str]]) -> None:
        """See ``Blocks``."""
        needed = {path[0] for path in paths}
        fields = [index for index, name in enumerate(self.names) if name in needed]
        self._reader = self._open(
            self._library.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        )

    def rows(self, block: int) -> int:
        """See ``Blocks``."""
        batch = self._read(block)
        return -1 if batch is None else int(batch.num_rows)

    def batches(self, block: int) -> Iterator[Any]:
        """See ``Blocks``."""
        batch = self._read(block)
        for start in range(0, batch.num_rows, BATCH):
            yield batch.slice(start, BATCH)

    def _read(self, block: int) -> Any:
        """Return record batch number ``block``, None behind the last one."""
        if self._is_file:
            if block >= self.count:
                return None
            if block != self._block[0]:
                self._block = (-1, None)  # two at a time would take twice the memory
                batch = self._reader.get_batch(block)
                check_bounds(batch)
                self._block = (block, batch)
            return self._block[1]
        while self._block[0] < block:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
            check_bounds(batch)
            self._block = (self._block[0] + 1, batch)
        return self._block[1]

    def close(self) -> None:
        """See ``Blocks``."""
        self._block = (-1, None)
