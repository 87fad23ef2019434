"""Discard the files after counting them, for measurements and for warming a cache."""

from __future__ import annotations

from downloader.core.checksum import crc32
from downloader.core.item_states import NO_CLAIM, Claim
from downloader.messages import Item, Lease, ResponseInfo
from downloader.sinks.sink import NEW, BatchContent, Written

__all__ = ["NullSink", "NullWriter"]


class NullWriter:
    """A writer that computes size and CRC-32, and discards the data."""

    __slots__ = ("crc", "size")

    def __init__(self) -> None:
        self.size = 0
        self.crc = 0

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Count ``chunk``."""
        self.size += len(chunk)
        self.crc = crc32(chunk, self.crc)

    def publish(self) -> int:
        """Do nothing; the file is always new."""
        return NEW

    def abort(self) -> None:
        """Do nothing: there is nothing to undo."""


class NullSink:
    """A sink that discards all files; it is its own BatchWriter, since batches have no state."""

    wants_records = shards = False
    recovered = None

    def begin(self, lease: Lease) -> NullSink:
        """Return itself."""
        return self

    def put(
        self, item: Item, index: int, body: bytes | bytearray, crc: int, response: ResponseInfo | None
    ) -> int:
        """Do nothing; return NEW."""
        return NEW

    def flush(self) -> None:
        """Do nothing."""

    def open(
        self, item: Item, index: int, claim: Claim = NO_CLAIM, response: ResponseInfo | None = None
    ) -> NullWriter:
        """Return a writer that counts."""
        return NullWriter()

    def commit(self, content: BatchContent) -> None:
        """Do nothing: nothing is written."""

    def abort(self) -> None:
        """Do nothing."""

    def find_existing(self, name: str) -> tuple[int, int] | None:
        """Return None: there are no files."""
        return None

    def verify(self, written: Written) -> bool:
        """Return True: there is nothing on the disk to compare."""
        return True

    def close(self) -> None:
        """Do nothing: nothing is open."""
