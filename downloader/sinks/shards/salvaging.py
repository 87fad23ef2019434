"""Take the samples of a damaged shard that are as they were published into the part of the same shard.

They need no request then, when the shard is published anew. The record of the shard says what they were; of
a shard without one, and of a Parquet file, which is not opened when it is damaged, nothing is taken.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Container
from typing import BinaryIO

from downloader.files.directory import Directory, Entry, UnsafeFile
from downloader.sinks.shards.reading import DigestingFile, SeenSample, compression_of, read_tar
from downloader.sinks.shards.records import ShardRecord, unpack_sums

__all__ = ["salvage"]


def salvage(
    directory: Directory, record: ShardRecord, part: Entry, keys: Container[str], most: int
) -> dict[str, tuple[int, int]]:
    """Append the samples that ``record`` says, and that have ``keys``, to ``part``; return size and CRC-32.

    ``directory`` has the files of the shard. ``most``: no more bytes of one are decompressed. What the part
    has already stays. Raises OSError.
    """
    found: dict[str, tuple[int, int]] = {}
    files = [file for file in record.files if record.sums and not file.name.endswith(".parquet")]
    if not files:
        return found
    sums = unpack_sums(record.sums)
    with open(part.open(os.O_WRONLY | os.O_CREAT, 0o666), "wb") as out:
        copier = _Copier(out, keys, found)
        try:
            for file in files:
                bound = most if compression_of(file.name) else sys.maxsize
                with (
                    contextlib.suppress(FileNotFoundError, UnsafeFile),
                    (directory / file.name).reader() as shard,
                ):
                    read_tar(DigestingFile(shard, file.size), file.name, sums, bound, copier)
        finally:
            out.truncate(copier.end_of_samples)  # what was begun and is not whole
    if not copier.end_of_samples:
        part.unlink()
    return found


class _Copier:
    """See ``reading.Copier``. Samples are added to ``found``; each key once."""

    def __init__(self, file: BinaryIO, keys: Container[str], found: dict[str, tuple[int, int]]) -> None:
        self._file = file
        self._keys = keys
        self._found = found
        self.end_of_samples = file.seek(0, os.SEEK_END)

    def begin(self, key: str) -> bool:
        if key not in self._keys or key in self._found:
            return False
        self._file.seek(self.end_of_samples)
        return True

    def write(self, piece: bytes) -> None:
        self._file.write(piece)

    def end(self, key: str, seen: SeenSample) -> None:
        self.end_of_samples = self._file.tell()
        self._found[key] = seen.size, seen.crc
