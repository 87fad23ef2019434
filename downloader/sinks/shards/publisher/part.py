"""Find the samples in a part without Python's tarfile, which takes 30 µs for a member.

A part is plain USTAR (POSIX.1-1988): 512 bytes of header, the content, zeros up to a multiple of 512.
The two blocks of zeros at the end are missing, or incomplete, until the part is published.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Final

import msgspec

from downloader.core.checksum import crc32
from downloader.core.frames import MAX_FRAME
from downloader.files.directory import Entry
from downloader.sinks.shards.records import pack_sums
from downloader.sinks.shards.ustar import AFTER_CHECKSUM, BLOCK

__all__ = ["STEP", "Part", "PartError", "Sample", "member_size", "padded"]


STEP: Final = 1 << 20
"""Bytes that are hashed, copied or written at a time."""

# So much of a part may be in memory.
_IN_MEMORY: Final = 32 << 20
_PIECE: Final = 256 << 10  # bytes that are read at a time: they stay in the cache of a core
_LOOK: Final = 64 << 10  # bytes that are read where only headers are looked at
_MOST_PADDING: Final = 20 * BLOCK  # a record of tar
# Name, size, and what is behind the checksum, which is the same in all headers of ours.
_header: Final = struct.Struct(f"100s24x12s18x{len(AFTER_CHECKSUM)}s").unpack_from
# Name, type, magic, prefix.
_other_header: Final = struct.Struct("100s56xc100x5s83x155s12x").unpack_from
_size: Final = struct.Struct("124x12s").unpack_from


class PartError(Exception):
    """The part is damaged; the message says where and how."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """A sample of a part; positions and sizes are in bytes.

    ``start``, ``stop``: all its members, with headers. ``metadata``: the content of ``KEY.json``, which
    ``text`` has, unless it is b"". ``content``: that of its first member, whose name is ``member``.
    ``between``: the CRC-32 of the members between
    that and ``KEY.json``.
    """

    key: str
    start: int
    stop: int
    metadata: int
    metadata_size: int
    member: bytes
    content: int
    content_size: int
    text: bytes
    between: int


class Part:
    """An open part. ``samples`` are in the order of the file; ``end`` is the position behind the last.

    Raises OSError, and PartError if the file is not a sequence of whole samples. ``seen`` is called with
    consecutive pieces of the file up to ``end``.
    """

    def __init__(self, path: Entry, seen: Callable[[memoryview], object] | None = None) -> None:
        self.samples: list[Sample] = []
        self.end = 0
        self._used = 0
        self._map: mmap.mmap | None = None
        self._mapped = memoryview(b"")
        self._file = open(path.open(), "rb", buffering=0)  # noqa: SIM115 - closed by `close`
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            self._scan(_Window(self._file.fileno(), seen))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._mapped.release()
        if self._map is not None:
            self._map.close()
        self._file.close()

    @property
    def mapped(self) -> memoryview:
        """The whole file, mapped into memory: for what is not read from beginning to end."""
        if self._map is None and self.size:
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._mapped = memoryview(self._map)
        return self._mapped

    def metadata(self, samples: Sequence[Sample]) -> list[bytes]:
        """Return the content of ``KEY.json`` of each sample."""
        file = self._file.fileno()
        return [each.text or os.pread(file, each.metadata_size, each.metadata) for each in samples]

    def sums(self, samples: Sequence[Sample]) -> bytes:
        """Return the sums of ``samples``, packed; see ``records.ShardRecord``."""
        return pack_sums(map(crc32, self.metadata(samples), [sample.between for sample in samples]))

    def used(self, size: int) -> None:
        """Note that ``size`` bytes were read; gives memory back to the system from time to time.

        All of it: for a page that is needed, the system maps its neighbours too, also those given back.
        """
        self._used += size
        if self._map is not None and self._used > _IN_MEMORY and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._used = 0

    def _scan(self, window: _Window) -> None:
        size, add, room = self.size, self.samples.append, _IN_MEMORY
        data, begin, end = window.data, 0, 0
        at = start = between = 0
        first = b""  # the member that a sample begins with
        content = content_size = 0
        while at + BLOCK <= size:
            if at >= end:
                begin, end = window.move(at)
            name, digits, rest = _header(data, at - begin)
            name = name.partition(b"\0")[0]
            if rest != AFTER_CHECKSUM and not (name := _name(data[at - begin : at - begin + BLOCK])):
                break
            try:
                length = _number(digits)
            except ValueError:
                raise PartError(f"a header without a size at byte {at}") from None
            body = at + BLOCK
            at = body + (length + 511 & -512)
            if not first:
                first, content, content_size = name, body, length
                between = 0
            elif name.endswith(b".json") and first.startswith(name[:-4]):
                room -= length
                text = window.piece(body, length) if room >= 0 else b""
                key = name[:-5].decode()
                add(Sample(key, start, at, body, length, first, content, content_size, text, between))
                first, start = b"", at
            else:
                between = crc32(window.piece(body, length), between)
        window.finish(min(at, size))
        self.end = at
        if at > size:
            raise PartError(f"it ends in the middle of a member, at byte {size}")
        if first:
            raise PartError(f"the sample at byte {start} has no .json")
        if size - at > _MOST_PADDING or any(os.pread(self._file.fileno(), size - at, at)):
            raise PartError(f"no header at byte {at}")


class _Window:
    """The bytes of a file from ``begin`` to ``end``, which move on; ``data`` has them.

    They are read, not mapped: to map a page takes longer than to copy it. ``seen`` is called with all
    bytes up to ``finish``; without it those that nobody asks for are not read.
    """

    def __init__(self, file: int, seen: Callable[[memoryview], object] | None) -> None:
        self._file = file
        self._seen = seen
        self.data = bytearray(_PIECE if seen else _LOOK)
        self._view = memoryview(self.data)
        self.begin = self.end = 0

    def move(self, at: int) -> tuple[int, int]:
        """Move on until the byte ``at`` is in the window; return its new begin and end. Raises OSError."""
        while at >= self.end:
            if self._seen is not None:
                self._seen(self._view[: self.end - self.begin])
            self.begin = self.end = self.end if self._seen is not None else at
            while self.end - self.begin < len(self.data):
                count = os.preadv(self._file, [self._view[self.end - self.begin :]], self.end)
                if not count:
                    break
                self.end += count
            if self.end == self.begin:
                raise OSError("the part became shorter while it was read")
        return self.begin, self.end

    def piece(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes of the file, fewer at its end; ``start`` is not before the window."""
        stop = start + size
        if stop <= self.end:
            return bytes(self._view[start - self.begin : stop - self.begin])
        if size > MAX_FRAME:
            raise PartError(f"a member of {size} bytes at byte {start}, which is no text")
        return os.pread(self._file, size, start)

    def finish(self, stop: int) -> None:
        """Have seen all bytes up to ``stop``."""
        if self._seen is not None and stop > self.begin:
            self.move(stop - 1)
            self._seen(self._view[: stop - self.begin])


def _name(block: bytearray) -> bytes:
    """Return the name in a header that others may have written, b"" if it is none of a regular file."""
    name, kind, magic, prefix = _other_header(block)
    if kind != b"0" or magic != b"ustar":
        return b""
    name, prefix = name.rstrip(b"\0"), prefix.rstrip(b"\0")
    return b"%b/%b" % (prefix, name) if prefix else name


def member_size(header: bytes | bytearray | memoryview) -> int:
    """Return the size of a member's content."""
    return _number(_size(header)[0])


@lru_cache(4096)
def _number(digits: bytes) -> int:
    """Return the size that a header has; in base 256 where it is 8 GiB or more, as GNU tar has it."""
    size = int.from_bytes(digits[1:], "big") if digits[0] == 0x80 else int(digits[:11], 8)
    if size < 0:  # int() takes a sign
        raise ValueError("a size below 0")
    return size


def padded(size: int) -> int:
    """Return ``size`` rounded up to whole blocks."""
    return size + BLOCK - 1 & -BLOCK
