"""Keep what a slice has stored: size and checksum of each item, for ``verify``.

A file of frames (``core.frames``), one for each batch of the slice's journal in order: how many items the
batch has, their states, packed (``core.item_states``), and the sums of the samples of its shard
(``sinks.shards.records``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from downloader.core.frames import Unpacker, pack
from downloader.core.item_states import ItemState, published
from downloader.errors import UNDECODABLE, JournalError
from downloader.files.directory import Directory
from downloader.sinks.shards.records import read_record, unpack_sums
from downloader.storage.journal import Journal

__all__ = ["read_stored", "read_sums", "write_stored"]

_PIECE = 1 << 20


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    count: int
    states: bytes
    sums: bytes = b""


def write_stored(home: Directory, file: BinaryIO) -> None:
    """Write what the journal in ``home`` has stored. Raises JournalError, OSError."""
    journal = Journal(home, read_only=True)
    try:
        for row in journal.batches():
            shards = journal.shards.of(row.seq)
            record = read_record(home, shards[-1]) if shards else None
            batch = _Batch(row.count, row.marks, record.sums if record is not None else b"")
            file.write(pack(msgspec.msgpack.encode(batch)))
    finally:
        journal.close()


def read_stored(file: BinaryIO, where: str, count: int) -> Iterator[tuple[int, ItemState]]:
    """Yield each stored item of a slice of ``count`` items, in order: its number in the slice, its state.

    Raises JournalError if ``file``, which is at ``where``, is damaged.
    """
    before = 0
    try:
        for batch in _batches(file):
            for state in published(batch.states):
                yield before + state.index, state
            before += batch.count
        if before != count:
            raise ValueError(f"it has {before} items of {count}")
    except UNDECODABLE as error:
        raise JournalError(f"{where} is damaged ({error}); --restart begins anew") from error


def read_sums(file: BinaryIO, where: str) -> list[bytes]:
    """Return the sums of the samples of each batch, b"" where they are not known. Raises JournalError."""
    try:
        found = [batch.sums for batch in _batches(file)]
        for sums in found:
            unpack_sums(sums)
    except UNDECODABLE as error:
        raise JournalError(f"{where} is damaged ({error}); --restart begins anew") from error
    return found


def _batches(file: BinaryIO) -> Iterator[_Batch]:
    unpacker = Unpacker()
    while piece := file.read(_PIECE):
        for frame in unpacker.feed(piece):
            yield msgspec.msgpack.decode(frame, type=_Batch)
