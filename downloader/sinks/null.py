"""Fetch, count, throw away: for measuring, and for warming a cache."""

from __future__ import annotations

import zlib

__all__ = ["NullSink", "NullWriter"]


class NullWriter:
    """Counts and sums, keeps nothing."""

    __slots__ = ("crc", "size")

    def __init__(self) -> None:
        self.size = 0
        self.crc = 0

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Count ``chunk``."""
        self.size += len(chunk)
        self.crc = zlib.crc32(chunk, self.crc)

    def publish(self) -> bool:
        """Nothing to do; always new."""
        return True

    def abort(self) -> None:
        """Nothing to undo."""


class NullSink:
    """See ``Sink``."""

    def open(self, name: str, seq: int, index: int, *, replace: bool = False) -> NullWriter:
        """A writer that counts."""
        return NullWriter()

    def put(
        self, name: str, body: bytes | bytearray, seq: int, index: int, replace: bool = False
    ) -> tuple[int, bool]:
        """Sum it."""
        return zlib.crc32(body), True

    def verify(self, name: str, size: int, crc: int) -> bool:
        """There is nothing on the disk that could disagree."""
        return True

    def close(self) -> None:
        """Nothing is held."""
