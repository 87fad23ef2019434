"""Fetch, count, throw away: for measuring, and for warming a cache."""

from __future__ import annotations

from downloader.core.checksum import crc32

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
        self.crc = crc32(chunk, self.crc)

    def publish(self) -> int:
        """Nothing to do; always new."""
        return 1

    def abort(self) -> None:
        """Nothing to undo."""


class NullSink:
    """See ``Sink``."""

    def open(self, name: str, seq: int, index: int, claim: int = 0) -> NullWriter:
        """A writer that counts."""
        return NullWriter()

    def put(self, name: str, body: bytes | bytearray) -> bool:
        """Nothing to do."""
        return True

    def standing(self, name: str) -> tuple[int, int] | None:
        """There is nothing."""
        return None

    def verify(self, name: str, size: int, crc: int) -> bool:
        """There is nothing on the disk that could disagree."""
        return True

    def close(self) -> None:
        """Nothing is held."""
