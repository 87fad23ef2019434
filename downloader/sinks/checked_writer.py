"""A FileWriter whose content is checked on its way in."""

from __future__ import annotations

from downloader.core.content_check import ContentCheck
from downloader.sinks.sink import FileWriter

__all__ = ["CheckedWriter"]


class CheckedWriter:
    """See ``FileWriter``: feeds ``check`` with what it writes to ``writer``."""

    __slots__ = ("_check", "_writer")

    def __init__(self, writer: FileWriter, check: ContentCheck) -> None:
        self._writer = writer
        self._check = check

    @property
    def size(self) -> int:
        """Bytes so far; after ``publish`` those of the file that has the name."""
        return self._writer.size

    @property
    def crc(self) -> int:
        """CRC-32 of the same."""
        return self._writer.crc

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``. Raises FetchError ``too-large``, DestinationError."""
        self._check.feed(chunk)
        self._writer.write(chunk)

    def finish(self) -> None:
        """Raise FetchError (``size-mismatch``, ``checksum-mismatch``) unless the body is as promised."""
        self._check.finish()

    def publish(self) -> int:
        """See ``FileWriter``; ``finish`` comes before it."""
        return self._writer.publish()

    def abort(self) -> None:
        """Leave nothing behind."""
        self._writer.abort()
