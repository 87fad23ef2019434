"""Read the rows of a file that consists of blocks of columns: Parquet, Arrow IPC; see ``Rows``.

A position is the number of rows before it, the block it is in, the rows of that block before it, and the
identity of the file: its size and a checksum. A block is read in small batches, and of the
needed columns only, so memory does not depend on the size of the file or of its blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from downloader.config.machine import usable_memory
from downloader.core.checksum import crc32
from downloader.core.naming import shown as shorten
from downloader.core.units import show_size
from downloader.errors import SourceError
from downloader.process.long_work import give_way
from downloader.process.memory_bound import bounded_memory
from downloader.sources.lines import REMEDY
from downloader.sources.lists.arrow_sizes import size_of
from downloader.sources.lists.arrow_values import field_at, kind_at, values_of
from downloader.sources.lists.columns import Columns, Wanted, choose
from downloader.sources.lists.nested import Fields, path_of
from downloader.sources.lists.rows import Chunk, Table, joined

__all__ = ["BATCH", "BinaryRows", "Blocks", "RowPlace", "columns_of", "identify", "kinds_of"]

BATCH = 1000
"""Rows that are converted to Python objects at a time."""
_BLOCK = 1 << 20
_LARGE = 4 << 20  # bytes of rows that are converted at a time, unless one alone has more
_MEMORY = 4 << 30  # bytes that a batch may take, and a quarter of what the machine has
_LONGEST = 64 << 20  # bytes of one row: a file of some kB may have one of gigabytes

_encode = msgspec.msgpack.encode


class RowPlace(msgspec.Struct, frozen=True, array_like=True):
    """A position: ``row`` rows of the file precede it, ``within`` of them in ``block``.

    ``size``, ``crc``: the identity of the file.
    """

    row: int = 0
    block: int = 0
    within: int = 0
    size: int = 0
    crc: int = 0


class Blocks(Protocol):
    """The blocks of an open file, in their order. Methods raise whatever the library raises.

    ``schema`` is that of Arrow. ``names``: all columns; ``fields``: with those of their structs.
    ``count``: number of blocks; -1 if unknown.
    """

    schema: Any
    names: Sequence[str]
    fields: Fields
    count: int

    def select(self, paths: Sequence[Sequence[str]]) -> None:
        """Read only what is at these paths; see ``nested.path_of``."""

    def rows(self, block: int) -> int:
        """Return the number of rows of ``block``; -1 behind the last block."""

    def batches(self, block: int) -> Iterator[Any]:
        """Yield the rows of ``block`` as record batches."""

    def close(self) -> None:
        """Close the file."""


class BinaryRows:
    """The rows of the file ``path``, which is open as ``blocks``. Raises SourceError, ConfigError."""

    unit = "row"

    def __init__(self, path: str, shown: str, blocks: Blocks, wanted: Wanted) -> None:
        self._shown = shown
        self._blocks = blocks
        self._identity = identify(path)
        self.columns = columns_of(blocks, wanted, shown)
        self._paths = {name: path_of(name, blocks.fields) for name in self.columns.needed}
        blocks.select(list(self._paths.values()))
        self._at = RowPlace(0, 0, 0, *self._identity)
        self._batches: Iterator[Any] = iter(())
        self._open_block = -1
        self._batch: Any = None  # the record batch at ``_at``
        self._taken = 0  # rows of it that were returned
        self._rows = 0
        self._memory = min(_MEMORY, usable_memory() // 4)

    def kinds(self) -> dict[str, str]:
        """See ``Rows``."""
        return kinds_of(self._blocks, self.columns)

    @property
    def fraction(self) -> float:
        """See ``Rows``."""
        count = self._blocks.count
        return min(self._at.block / count, 1.0) if count > 0 else -1.0

    def close(self) -> None:
        """See ``Rows``."""
        self._blocks.close()

    def is_behind(self, position: bytes) -> bool:
        """See ``Rows``."""
        return _place(position).row < self._at.row

    def advance(self, to: bytes) -> None:
        """See ``Rows``."""
        if not to:
            return
        place = _place(to)
        if (place.size, place.crc) != self._identity:
            raise SourceError(
                f"{self._shown} has changed since this job read its first {place.row:,} rows, or is "
                f"another file; {REMEDY}"
            )
        if place != self._at:
            self._at, self._batch, self._taken, self._open_block = place, None, 0, -1

    def read(self, most: int) -> Chunk:
        """See ``Rows``."""
        try:
            with bounded_memory(self._memory):
                return self._read(most)
        except SourceError:
            raise
        except MemoryError:
            raise SourceError(
                f"{self._shown}: its rows behind row {self._at.row:,} take more than "
                f"{show_size(self._memory)} of memory; write it without what is that large"
            ) from None
        except Exception as error:
            why = shorten(" ".join(str(error).split())).rstrip(".")
            raise SourceError(
                f"{self._shown} cannot be read after row {self._at.row:,}: {why}; write it again"
            ) from error

    def again(self, start: bytes, end: bytes) -> Chunk:
        """See ``Rows``."""
        self.advance(start)
        chunks = []
        while (left := _place(end).row - self._at.row) > 0 and (chunk := self.read(left)).taken:
            chunks.append(chunk)
        if not chunks:
            return Chunk(Table((), {}), start, _encode(self._at), False)
        return joined(chunks)._replace(start=start)

    def _read(self, most: int) -> Chunk:
        start = self._at
        while self._batch is None or self._taken == self._batch.num_rows:
            if not self._next_batch():
                return Chunk(Table((), {}), _encode(start), _encode(self._at), False)
        rows = min(most, self._batch.num_rows - self._taken)
        batch = self._batch.slice(self._taken, rows)
        parts = {name: field_at(batch, path) for name, path in self._paths.items()}
        while (size := _size(parts, _LARGE if rows > 1 else _LONGEST)) > _LARGE and rows > 1:
            rows = max(1, min(rows - 1, rows * _LARGE // size))
            parts = {name: part.slice(0, rows) for name, part in parts.items()}
        columns, faults = dict[str, Sequence[Any]](), {}
        if size > _LONGEST and rows == 1:
            columns = {name: [None] for name in parts}
            faults = {0: f"it has {show_size(size)}, and {show_size(_LONGEST)} is the limit"}
        else:
            columns = {name: values_of(part) for name, part in parts.items()}
        self._taken += rows
        at = self._at
        self._at = RowPlace(at.row + rows, at.block, at.within + rows, at.size, at.crc)
        numbers = range(at.row + 1, at.row + rows + 1)
        return Chunk(Table(numbers, columns, faults), _encode(start), _encode(self._at), size=size)

    def _next_batch(self) -> bool:
        """Make the next record batch the current one; return whether there is one."""
        if self._open_block != self._at.block:
            self._open(self._at.block)
        while (batch := self._following()) is None:
            at = self._at
            if self._rows < 0:
                return False
            if at.within < self._rows:
                raise SourceError(
                    f"{self._shown}: block {at.block} has {self._rows:,} rows, and {at.within:,} are there"
                )
            self._at = RowPlace(at.row, at.block + 1, 0, at.size, at.crc)
            self._open(self._at.block)
        self._batch, self._taken = batch, 0
        return True

    def _following(self) -> Any:
        """Return the next record batch of the open block, None behind the last one."""
        return next(self._batches, None)

    def _open(self, block: int) -> None:
        """Begin to read ``block``, behind the rows that precede the current position."""
        self._open_block = block
        self._rows = self._blocks.rows(block)
        found = self._blocks.batches(block) if self._rows >= 0 else iter(())
        self._batches = _behind(found, self._at.within)


def columns_of(blocks: Blocks, wanted: Wanted, shown: str) -> Columns:
    """Return the columns of a file that is open as ``blocks``. Raises ConfigError."""
    return choose(wanted, blocks.names, shown, fields=blocks.fields)


def kinds_of(blocks: Blocks, columns: Columns) -> dict[str, str]:
    """Return the kinds of the columns to keep of a file that is open as ``blocks``."""
    return {name: kind_at(blocks.schema, path_of(name, blocks.fields)) for name in columns.keep or ()}


def _size(parts: Mapping[str, Any], most: int) -> int:
    """Return how many bytes the values of some columns take; of more than ``most``, at least how many."""
    size = 0
    for part in parts.values():
        size += size_of(part, most - size)
        if size > most:
            break
    return size


def _behind(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Yield ``batches`` without their first ``rows`` rows."""
    for batch in batches:
        if rows >= batch.num_rows:
            rows -= batch.num_rows
            give_way()  # a large block takes a while; heartbeats must continue
            continue
        yield batch.slice(rows) if rows else batch
        rows = 0


def identify(path: str) -> tuple[int, int]:
    """Return the size of a Parquet or Arrow file, and a CRC-32.

    Of a Parquet file it is that of the footer, which has place and statistics of every column in every row
    group. An Arrow file has nothing of the kind, so it is that of the whole file. Raises SourceError.
    """
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 8, 0))
            end = file.read()
            footer = int.from_bytes(end[:4], "little") + 8 if end[4:] == b"PAR1" else size
            file.seek(max(size - footer, 0))
            crc = 0
            while block := file.read(_BLOCK):
                crc = crc32(block, crc)
                give_way()  # heartbeats must continue
            return size, crc
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error


def _place(position: bytes) -> RowPlace:
    return msgspec.msgpack.decode(position, type=RowPlace)
