"""Marks: for each item of a batch, whether it is published, with what size and checksum.

Two arrays, states (u64) then CRC-32 (u32), little-endian, in the order of the items::

    state 0    not begun
    state 1    in flight
    state n    n >= 2: published, n - 2 bytes long

The same layout serves the ledger that a worker keeps in shared memory (``downloader.ledger``), the
journal's rows, and leases. A buffer of ``count`` items is ``12 * count`` bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

__all__ = [
    "IN_FLIGHT",
    "ITEM_BYTES",
    "UNTOUCHED",
    "Mark",
    "Marks",
    "merge",
    "pack",
    "published",
    "summed",
    "unpack",
    "without",
]

UNTOUCHED = 0
IN_FLIGHT = 1
ITEM_BYTES = 12


@dataclass(frozen=True, slots=True)
class Mark:
    """One published item: its index in the batch, size in bytes, CRC-32 of its bytes."""

    index: int
    size: int
    crc: int


class Marks:
    """Marks over a writable buffer of at least ``12 * count`` bytes, made or lent.

    Writing one costs two stores; ``publish`` writes the checksum first, so that a state never stands
    without it.
    """

    __slots__ = ("_crcs", "_states", "count")

    def __init__(self, count: int, buffer: memoryview | None = None) -> None:
        whole = memoryview(bytearray(ITEM_BYTES * count)) if buffer is None else buffer
        self.count = count
        self._states = whole[: 8 * count].cast("Q")
        self._crcs = whole[8 * count : ITEM_BYTES * count].cast("I")

    @property
    def arrays(self) -> tuple[memoryview, memoryview]:
        """States and checksums."""
        return self._states, self._crcs

    def begin(self, index: int) -> None:
        """Item ``index`` is in flight from now on."""
        self._states[index] = IN_FLIGHT

    def forget(self, index: int) -> None:
        """Item ``index`` is not in flight any more and not published."""
        self._states[index] = UNTOUCHED

    def publish(self, index: int, size: int, crc: int) -> None:
        """Item ``index`` stands under its final name, ``size`` bytes long."""
        self._crcs[index] = crc
        self._states[index] = size + 2

    def clear(self) -> None:
        """As new."""
        self._states.cast("B")[:] = bytes(8 * self.count)

    def in_flight(self) -> list[int]:
        """Indices that were begun and not finished."""
        return [index for index, state in enumerate(self._states) if state == IN_FLIGHT]

    def packed(self) -> bytes:
        """The arrays as they stand, compressed: for the journal and the way to another process."""
        return pack(self._states.tobytes(), self._crcs.tobytes())

    def release(self) -> None:
        """Let go of the buffer, so that a memory map under it can be closed."""
        self._states.release()
        self._crcs.release()


def pack(states: bytes, crcs: bytes) -> bytes:
    """Compress raw arrays; level 1, since checksums do not compress and states do at any level."""
    return zlib.compress(states + crcs, 1)


def unpack(packed: bytes) -> tuple[memoryview, memoryview]:
    """The two arrays of ``packed``; empty ones for ``b""``.

    Raises ValueError when the bytes are not marks.
    """
    if not packed:
        return memoryview(b"").cast("Q"), memoryview(b"").cast("I")
    try:
        raw = memoryview(zlib.decompress(packed))
    except zlib.error as error:
        raise ValueError(f"damaged marks: {error}") from None
    if len(raw) % ITEM_BYTES:
        raise ValueError(f"damaged marks: {len(raw)} bytes")
    count = len(raw) // ITEM_BYTES
    return raw[: 8 * count].cast("Q"), raw[8 * count :].cast("I")


def published(packed: bytes) -> Iterator[Mark]:
    """The published items of ``packed`` in ascending order of index."""
    states, crcs = unpack(packed)
    for index, state in enumerate(states):
        if state > IN_FLIGHT:
            yield Mark(index, state - 2, crcs[index])


def summed(packed: bytes) -> tuple[int, int]:
    """How many are published in ``packed``, and their bytes together."""
    states = unpack(packed)[0].tolist()
    begun = states.count(IN_FLIGHT)
    stored = len(states) - states.count(UNTOUCHED) - begun
    return stored, sum(states) - begun - 2 * stored


def merge(older: bytes, newer: bytes, count: int) -> bytes:
    """Marks of ``count`` items with all that is published in either; ``newer`` wins."""
    merged = Marks(count)
    for packed in (older, newer):
        for mark in published(packed):
            merged.publish(mark.index, mark.size, mark.crc)
    return merged.packed()


def without(packed: bytes, count: int, indices: Collection[int]) -> bytes:
    """Marks of ``count`` items as in ``packed``, but for ``indices``."""
    left = Marks(count)
    for mark in published(packed):
        if mark.index not in indices:
            left.publish(mark.index, mark.size, mark.crc)
    return left.packed()
