"""Compute what identifies the files of a list that a job has read, to detect that they have changed."""

from __future__ import annotations

from collections.abc import Sequence

from downloader.core.checksum import crc32
from downloader.errors import SourceError
from downloader.process.long_work import give_way
from downloader.sources.lists.files import BINARY, ListFile

__all__ = ["Fingerprints"]

_BLOCK = 1 << 20


class Fingerprints:
    """The CRC-32 of names and contents of ``files``, as far as they were asked for.

    Of a text file every byte counts, as it is stored; of a Parquet or Arrow file its size and its footer.
    """

    def __init__(self, files: Sequence[ListFile]) -> None:
        self._files = files
        self._before = [0]

    def before(self, number: int) -> int:
        """Return the checksum of all files before ``number``. Raises SourceError."""
        while len(self._before) <= number:
            file = self._files[len(self._before) - 1]
            crc = crc32(f"{file.name}\0".encode("utf-8", "surrogateescape"), self._before[-1])
            self._before.append(_add(file, crc))
        return self._before[number]


def _add(file: ListFile, crc: int) -> int:
    if file.form in BINARY:
        from downloader.sources.lists.binary_rows import identify

        return crc32(repr(identify(file.path)).encode(), crc)
    try:
        with open(file.path, "rb") as stream:
            while block := stream.read(_BLOCK):
                crc = crc32(block, crc)
                give_way()  # heartbeats must continue
    except OSError as error:
        raise SourceError(f"{file.path}: {error.strerror}") from error
    return crc
