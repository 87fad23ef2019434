"""Append the records of a worker's files to a spool, ``DEST/.downloader/records-RUN-WORKER``.

A frame (``core.file_records``) is written before the names of its files appear, so no file is stored
without its record, whenever a process is killed. A spool is mapped into memory, as the ledger is: a frame
costs no system call. Whatever kills the process, the kernel keeps the pages; a frame that was being written
has a wrong checksum or the length 0, and nothing is behind it.

Layout: frames of a header (u32 length of the payload, u32 CRC-32 of it that starts with the halves of
the batch, u64 batch) and the payload. The rest of the file is zeros.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator

from downloader.core.checksum import crc32
from downloader.core.file_errors import advice
from downloader.core.frames import MAX_FRAME
from downloader.errors import DestinationError, JournalError
from downloader.files.directory import Directory, Entry, UnsafeFile

__all__ = ["SpoolWriter", "frames", "next_run", "read_frame", "remove", "spool_path", "spools"]

_HEADER = struct.Struct("<IIQ")
# What is allocated at first, and at most at a time: a worker that is killed leaves that unused.
_LEAST, _MOST = 64 << 10, 1 << 20
_MOST_BYTES = 2 * MAX_FRAME  # of a payload; see `core.file_records.unpack`
_NAME = re.compile(r"records-([0-9]{6,12})-([0-9]{4,12})").fullmatch


def spool_path(home: Directory, run: int, worker: int) -> Entry:
    """Return the path of the spool of a worker; the paths of later ones sort behind it."""
    return home / f"records-{run:06d}-{worker:04d}"


def spools(home: Directory) -> list[Entry]:
    """Return the spools under ``home``, the oldest first."""
    found = [(int(match[1]), int(match[2]), match[0]) for match in map(_NAME, home.names()) if match]
    return [home / name for _, _, name in sorted(found)]


def next_run(home: Directory) -> int:
    """Return the number of a new run."""
    numbers = [int(match[1]) for path in spools(home) if (match := _NAME(path.leaf))]
    return max(numbers, default=-1) + 1


def remove(home: Directory) -> None:
    """Remove all spools under ``home``."""
    for path in spools(home):
        path.unlink()


class SpoolWriter:
    """The spool of this process, created with its first frame."""

    def __init__(self, path: Entry) -> None:
        self._path = path
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._room = 0  # in the mapping
        self._start = self._at = 0  # of the mapping in the file; of the next frame in the mapping

    def write(self, seq: int, payload: bytes) -> None:
        """Append a frame of batch ``seq``. Raises DestinationError."""
        size = _HEADER.size + len(payload)
        if self._at + size > self._room:
            self._extend(size)
        at, target = self._at, self._map
        assert target is not None
        target[at + _HEADER.size : at + size] = payload
        _HEADER.pack_into(target, at, len(payload), _sum(seq, payload), seq)
        self._at = at + size

    def _extend(self, size: int) -> None:
        used = self._start + self._at
        start = used - used % mmap.ALLOCATIONGRANULARITY
        room = max(min(max(_LEAST, used), _MOST), used - start + size)
        room += -room % mmap.ALLOCATIONGRANULARITY
        try:
            if self._fd < 0:
                self._fd = self._path.open(os.O_RDWR | os.O_CREAT | os.O_EXCL)
            # At once: a disk that is full must be an error here, not a signal when a page is written.
            os.posix_fallocate(self._fd, start, room)
            self._map = mmap.mmap(self._fd, room, offset=start)
        except OSError as error:
            raise DestinationError(f"{self._path}: {advice(error)}") from error
        self._start, self._at, self._room = start, used - start, room

    def close(self) -> None:
        """Close the spool, and give back what is not used of it."""
        if self._fd >= 0:
            os.ftruncate(self._fd, self._start + self._at)
            os.close(self._fd)
            self._fd = -1


def frames(path: Entry) -> Iterator[tuple[int, int, int]]:
    """Yield batch, offset and length of each payload in a spool. Raises JournalError."""
    try:
        with path.reader() as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
                at = 0
                while at + _HEADER.size < size:
                    length, _, seq = _HEADER.unpack_from(content, at)
                    at += _HEADER.size
                    if not length or length > _MOST_BYTES or at + length > size:
                        return
                    yield seq, at, length
                    at += length
    except UnsafeFile:
        raise
    except OSError as error:
        raise JournalError(f"{path}: {advice(error)}") from error


def read_frame(fd: int, seq: int, at: int, length: int) -> bytes | None:
    """Return a payload of the spool ``fd``, None if it is not as it was written."""
    found = os.pread(fd, _HEADER.size + length, at - _HEADER.size)
    payload = found[_HEADER.size :]
    if len(payload) != length or _HEADER.unpack_from(found) != (length, _sum(seq, payload), seq):
        return None
    return payload


def _sum(seq: int, payload: bytes) -> int:
    return crc32(payload, (seq ^ seq >> 32) & 0xFFFFFFFF)
