"""Read every byte of a published shard, and say which of its samples are as they were published."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
import sys
import zlib
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol

from downloader.core.checksum import crc32
from downloader.core.extras import ZSTD
from downloader.core.frames import MAX_FRAME
from downloader.sinks.shards.parquet_batches import batches
from downloader.sinks.shards.samples import is_stated, metadata_member
from downloader.sinks.shards.ustar import BLOCK, END, Member, Readable, header, header_of, padding

__all__ = [
    "Bounded",
    "Copier",
    "DigestingFile",
    "SeenSample",
    "TarReading",
    "compression_of",
    "read_parquet",
    "read_tar",
]

_PIECE = 1 << 20


class SeenSample(NamedTuple):
    """Size and CRC-32 of a content; ``intact``: all else of the sample is as it was published."""

    size: int
    crc: int
    intact: bool


class TarReading:
    """What is in a tar. ``exact``: every byte is what we write around the samples, up to the end.

    ``cut``: it was not read to its end, as more came out of it than was allowed. A key that is there twice
    has its last sample.
    """

    def __init__(self) -> None:
        self.samples: dict[str, SeenSample] = {}
        self.count = 0
        self.exact = True
        self.cut = False


class DigestingFile:
    """A file that is read from its beginning to its end, and its digests.

    ``most``: no more bytes are read, -1 for all; ``size`` is one more in the end, if there are more.
    """

    def __init__(self, file: BinaryIO, most: int = -1) -> None:
        self._file = file
        self._most = most
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.crc32 = 0
        self.size = 0

    def read(self, most: int = -1) -> bytes:
        """Return the next bytes, at most ``most``."""
        if self._most >= 0:
            left = self._most - self.size
            most = left if most < 0 else min(most, left)
        piece = self._file.read(most)
        self._md5.update(piece)
        self.crc32 = crc32(piece, self.crc32)
        self.size += len(piece)
        return piece

    def finish(self) -> None:
        """Read what is left."""
        while self.read(_PIECE):
            pass
        if self.size == self._most and self._file.read(1):
            self.size += 1

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()

    # what readers of compressed files ask for

    def seekable(self) -> bool:
        return False

    def readable(self) -> bool:
        return True

    @property
    def closed(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing."""


def compression_of(name: str) -> str:
    """Return the compression of the tar ``name``: gz, zst or ""."""
    return name.rpartition(".")[2].replace("tar", "")


class Bounded:
    """A file of which no more than ``most`` bytes are read. ``reached``: more were asked for."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._left = most
        self.reached = False

    def read(self, most: int) -> bytes:
        """Return the next bytes, at most ``most``; none behind the bound."""
        piece = self._file.read(min(most, self._left))
        self._left -= len(piece)
        self.reached |= not self._left and len(piece) < most
        return piece


class Copier(Protocol):
    """Copies samples of a tar while it is read."""

    def begin(self, key: str) -> bool:
        """Begin the sample ``key``; return whether it is wanted."""

    def write(self, piece: bytes) -> None:
        """Write what is next of it. Raises OSError."""

    def end(self, key: str, seen: SeenSample) -> None:
        """End it: it is as it was published. One that is not is not ended."""


def read_tar(
    shard: Any,
    name: str,
    sums: Collection[int] | None,
    most: int = sys.maxsize,
    copier: Copier | None = None,
) -> TarReading:
    """Return what is in the open tar ``name``, which may be compressed; ``shard`` is a DigestingFile.

    ``sums``: of the samples that were published in it, None if they are not known. ``most``: no more bytes
    are decompressed. Of a damaged file, what can be decompressed counts. ``copier``: copies samples. Raises
    OSError.
    """
    reading = TarReading()
    compression = compression_of(name)
    if not compression:
        _read(shard, reading, sums, copier)
        return reading
    module: Any = gzip if compression == "gz" else importlib.import_module(ZSTD)
    damaged = zlib.error if compression == "gz" else module.ZstdError
    whole = False
    with contextlib.suppress(EOFError, OSError, damaged), module.open(shard, "rb") as file:
        bounded = Bounded(file, most)
        _read(bounded, reading, sums, copier)
        reading.cut = bounded.reached
        whole = True
    reading.exact &= whole and not reading.cut
    return reading


class _Copied:
    """A file that is read, and whose bytes go to ``copier`` while a sample that is wanted is read."""

    def __init__(self, file: Readable, copier: Copier) -> None:
        self._file = file
        self._copier = copier
        self.is_wanted = False

    def read(self, most: int) -> bytes:
        """Return the next bytes."""
        piece = self._file.read(most)
        if self.is_wanted:
            self._copier.write(piece)
        return piece

    def begin(self, key: str, header: bytes) -> None:
        """Begin the sample ``key``, whose first header was read already."""
        self.is_wanted = self._copier.begin(key)
        if self.is_wanted:
            self._copier.write(header)

    def end(self, key: str, seen: SeenSample | None) -> None:
        """End the sample ``key``, which may be damaged."""
        if self.is_wanted and seen is not None and seen.intact:
            self._copier.end(key, seen)
        self.is_wanted = False


def _read(file: Readable, reading: TarReading, sums: Collection[int] | None, copier: Copier | None) -> None:
    """Read the members of ``file``; a block that is no header of ours is passed over."""
    copied = _Copied(file, copier) if copier is not None else None
    file = copied or file
    at = 0
    zeros = 0
    sample: _Sample | None = None
    while len(block := file.read(BLOCK)) == BLOCK:
        at += BLOCK
        member = _exact_header(block, at)
        if member is None:
            sample = None
            if any(block):
                reading.exact, zeros = False, 0
            else:
                zeros += 1
            continue
        if zeros:
            reading.exact, zeros = False, 0
        key = member.name.partition(".")[0]
        if sample is None or sample.key != key:
            reading.exact &= sample is None
            sample = _Sample(key)
            if copied is not None:
                copied.begin(key, block)
        is_last = member.name == metadata_member(key)
        if not sample.take(file, member, kept=is_last):
            reading.exact = False
        at += member.size + len(padding(member.size))
        if is_last:
            seen = sample.seen(sums)
            if copied is not None:
                copied.end(key, seen)
            if seen is not None:
                reading.samples[key] = seen
                reading.count += 1
            reading.exact &= seen is not None and seen.intact
            sample = None
    reading.exact &= not block and sample is None and zeros * BLOCK == len(END)


def _exact_header(block: bytes, at: int) -> Member | None:
    """Return the member whose header is ``block``, None unless every byte of it is what we write."""
    member = header_of(block, at)
    if member is None:
        return None
    try:
        expected = header(member.name.encode(), member.size, int(block[136:147], 8))
    except ValueError:
        return None
    return member if expected == block else None


class _Sample:
    """A sample that is being read: its sum, and size, CRC-32 and SHA-256 of its first member."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._first = True
        self._sum = 0
        self._size = self._crc = 0
        self._sha256 = hashlib.sha256()
        self._whole = True
        self._metadata = b""

    def take(self, file: Readable, member: Member, *, kept: bool) -> bool:
        """Read the content of ``member``; return whether it is whole, with the zeros behind it."""
        kept = kept and member.size <= MAX_FRAME
        text = []
        left = member.size
        while left:
            piece = file.read(min(left, _PIECE))
            if not piece:
                break
            left -= len(piece)
            if self._first:
                self._crc = crc32(piece, self._crc)
                self._sha256.update(piece)
            else:
                self._sum = crc32(piece, self._sum)
            if kept:
                text.append(piece)
        if self._first:
            self._size = member.size
        self._first = False
        filled = padding(member.size)
        is_whole = not left and (not filled or file.read(len(filled)) == filled)
        self._whole &= is_whole
        self._metadata = b"".join(text)
        return is_whole

    def seen(self, sums: Collection[int] | None) -> SeenSample | None:
        """Return the sample, None if its content is not what its ``KEY.json`` says."""
        if not is_stated(self._metadata, self._size, self._crc, self._sha256.hexdigest):
            return None
        return SeenSample(self._size, self._crc, self._whole and (sums is None or self._sum in sums))


def read_parquet(shard: BinaryIO, *, vouched: bool) -> Iterator[tuple[str, SeenSample]]:
    """Yield the samples of the open Parquet file ``shard`` by key, up to where it can be read.

    ``vouched``: it is what was published.
    """
    from pyarrow import ArrowException, types

    damaged = ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError
    with contextlib.suppress(*damaged):
        for batch in batches(shard, ["key", "bytes"], vouched=vouched):
            kinds = batch.schema.field("key").type, batch.schema.field("bytes").type
            if not (types.is_string(kinds[0]) and types.is_binary(kinds[1])):
                return  # nothing that was published
            for key, content in zip(batch.column("key").to_pylist(), batch.column("bytes"), strict=True):
                body = content.as_buffer()
                if key is not None and body is not None:
                    yield key, SeenSample(body.size, crc32(body), intact=True)
