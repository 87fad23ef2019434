"""Check the content of a file while it is written."""

from __future__ import annotations

from downloader.core.content_check import ContentCheck
from downloader.sinks.sink import FileWriter, Prepares

__all__ = ["CheckedWriter"]


class CheckedWriter:
    """A wrapper of a ``FileWriter`` that feeds ``check`` with all data written to ``writer``."""

    __slots__ = ("_check", "_writer")

    def __init__(self, writer: FileWriter, check: ContentCheck) -> None:
        self._writer = writer
        self._check = check

    @property
    def size(self) -> int:
        """Bytes written so far; after ``publish``, the size of the published file."""
        return self._writer.size

    @property
    def crc(self) -> int:
        """CRC-32 of these bytes."""
        return self._writer.crc

    @property
    def hash(self) -> bytes:
        """The digest that --hash asks for, of these bytes; b"" without the option."""
        return self._check.hash

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``. Raises FetchError ``too-large``, DestinationError."""
        self._check.feed(chunk)
        self._writer.write(chunk)

    def finish(self) -> None:
        """Raise FetchError (``size-mismatch``, ``checksum-mismatch``) unless size and checksum match."""
        self._check.finish()

    def publish(self) -> int:
        """See ``FileWriter``; call ``finish`` first."""
        return self._writer.publish()

    def prepare(self) -> None:
        """See ``Prepares``; only a writer that has it raises Unprepared."""
        if isinstance(self._writer, Prepares):
            self._writer.prepare()

    def abort(self) -> None:
        """See ``FileWriter``."""
        self._writer.abort()
