"""Append samples to a part, the tar file that becomes a shard when it is whole.

A large content is copied in pieces, and other samples are appended meanwhile. So room is reserved for it
first: as a tar member that belongs to no sample. The header of the sample replaces that of this member in
the last step. Until then the part has the whole samples of all others, also after a kill.
"""

from __future__ import annotations

import contextlib
import os
import posix

from downloader.files.directory import Entry
from downloader.process.long_work import PIECE, in_thread
from downloader.sinks.failing import shard_error
from downloader.sinks.shards.samples import WholeSample, samples
from downloader.sinks.shards.ustar import BLOCK, header

__all__ = ["Part", "Room", "recover"]

# Unpatched, as in `sinks.directory`.
_pwrite = posix.pwrite
_pwritev = getattr(posix, "pwritev", None)
_COPY = 1 << 20  # stays in the cache of a core
_RESERVED = b".reserved"  # the member of room that is not filled: no key begins with a dot
# Pieces of at least so many bytes, on average, are written from where they are: below that, joining them
# costs less than the system's look at each.
_GATHERED = 1 << 10
_MOST_PIECES = 1020  # of one call; Linux takes 1,024, and a sample has three


def recover(path: Entry, expected: dict[str, tuple[int, int]]) -> list[WholeSample]:
    """Return the whole samples of the part at ``path``, and remove everything else from it.

    ``expected``: size and CRC-32 that are known of some keys; a sample that differs is removed, too. So is
    a second sample of one key. Raises DestinationError.
    """
    try:
        fd = path.open(os.O_RDWR)
        try:
            whole: dict[str, WholeSample] = {}
            with open(fd, "rb", closefd=False) as file:
                for sample in samples(file):
                    if expected.get(sample.key, (sample.size, sample.crc)) == (sample.size, sample.crc):
                        whole.setdefault(sample.key, sample)
            kept = list(whole.values())
            end = 0
            for sample in kept:
                if sample.start != end:
                    return _rewritten(fd, path, kept)
                end = sample.end
            os.ftruncate(fd, end)
            return kept
        finally:
            posix.close(fd)
    except OSError as error:
        raise shard_error(error, str(path)) from error


def _rewritten(fd: int, path: Entry, kept: list[WholeSample]) -> list[WholeSample]:
    """Write a part that has only the samples ``kept``, and return them as they are in it."""
    other = path.beside(f"{path.leaf}.new")
    moved: list[WholeSample] = []
    target = other.create(0o666)
    try:
        end = 0
        for sample in kept:
            length = sample.end - sample.start
            _copy(fd, sample.start, target, end, length)
            moved.append(sample._replace(start=end, end=end + length))
            end += length
    finally:
        posix.close(target)
    other.rename(path.leaf)
    return moved


def _copy(source: int, at: int, target: int, to: int, length: int) -> None:
    while length:
        chunk = os.pread(source, min(_COPY, length), at)
        if not chunk:
            raise OSError("the file became shorter while it was read")
        _write(target, chunk, to)
        at, to, length = at + len(chunk), to + len(chunk), length - len(chunk)


def _write(fd: int, data: bytes, at: int) -> None:
    written = _pwrite(fd, data, at)
    while written < len(data):
        written += _pwrite(fd, memoryview(data)[written:], at + written)


def _write_pieces(fd: int, pieces: list[bytes | bytearray], size: int, at: int) -> None:
    """Write ``pieces``, of ``size`` bytes in all, one behind the other."""
    if _pwritev is None or size < _GATHERED * len(pieces):
        _write(fd, b"".join(pieces), at)
        return
    for start in range(0, len(pieces), _MOST_PIECES):
        some = pieces[start : start + _MOST_PIECES]
        length = sum(map(len, some))
        written = _pwritev(fd, some, at)
        if written < length:
            _write(fd, b"".join(some)[written:], at + written)
        at += length


class Part:
    """A part, for appending; created with its first sample. Every method raises DestinationError.

    What is appended is written at the next ``flush``, or earlier when it is much.
    """

    __slots__ = ("_end", "_fd", "_path", "_pending", "_size", "_suspended", "_torn")

    _MANY = 1 << 20

    def __init__(self, path: Entry) -> None:
        self._path = path
        self._pending: list[bytes | bytearray] = []
        self._size = 0
        self._fd = -1
        self._end = -1  # not known yet
        self._suspended = False
        self._torn = False  # there is room that nothing will fill

    def _open(self) -> int:
        if self._fd < 0:
            self._fd = self._path.open(os.O_WRONLY | os.O_CREAT, 0o666)
            if self._end < 0:
                self._end = os.fstat(self._fd).st_size
        return self._fd

    def append(self, before: bytes, content: bytes | bytearray, after: bytes) -> None:
        """Append a sample."""
        self._pending += (before, content, after)
        self._size += len(before) + len(content) + len(after)
        if self._size >= self._MANY:
            self.flush()

    def reserve(self, before: bytes, size: int, after: bytes) -> Room:
        """Reserve room for a sample with ``size`` bytes of content; what is appended next stands behind it.

        Raises OSError, too: then nothing is reserved.
        """
        self.flush()
        try:
            fd = self._open()
        except OSError as error:
            raise shard_error(error, str(self._path)) from error
        room = Room(self._end, before, size, after)
        try:
            os.ftruncate(fd, room.end)
            _write(fd, header(_RESERVED, room.end - room.start - BLOCK, 0), room.start)
        except OSError:
            self.free(room)
            raise
        self._end = room.end
        self._written()
        return room

    def free(self, room: Room) -> None:
        """Give up ``room``, which is not filled. Raises nothing: until ``mend``, it stays as it is."""
        if self._end in (room.start, room.end):
            with contextlib.suppress(OSError):
                os.ftruncate(self._open(), room.start)
                self._end = room.start
                self._written()
                return
        self._torn = True

    def mend(self) -> None:
        """Remove room that was given up; call it in a greenlet, when nothing is appended any more."""
        if self._torn:
            self.close()
            in_thread(recover, self._path, {})
            self._torn = False
            self._end = -1

    def copy(self, room: Room, source: int) -> None:
        """Copy the content of ``room`` from the beginning of the file ``source``. Raises OSError.

        Call it in a greenlet: others run meanwhile.
        """
        target = os.dup(self._open())  # the part may be closed meanwhile
        try:
            self._written()
            for at in range(0, room.size, PIECE):
                in_thread(_copy, source, at, target, room.content + at, min(PIECE, room.size - at))
        finally:
            posix.close(target)

    def fill(self, room: Room) -> None:
        """Make ``room``, whose content was copied, a sample. Raises OSError."""
        fd = self._open()
        _write(fd, room.after, room.content + room.size)
        _write(fd, room.before, room.start)
        self._written()

    def _written(self) -> None:
        if self._suspended:
            self.close()

    def flush(self) -> None:
        """Write what was appended. After DestinationError a sample is written whole, or torn, or not."""
        if not self._size:
            return
        pieces, size = self._pending, self._size
        self._pending, self._size = [], 0
        try:
            self._open()
            _write_pieces(self._fd, pieces, size, self._end)
        except OSError as error:
            raise shard_error(error, str(self._path)) from error
        self._end += size
        self._written()

    def suspend(self) -> None:
        """Write what was appended, and from now on keep the file open only while writing to it."""
        self.flush()
        self._suspended = True
        self.close()

    def close(self) -> None:
        """Close the file; what was not flushed is lost. Raises DestinationError."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            posix.close(fd)
        except OSError as error:  # a file system over a network may tell only now what it could not write
            raise shard_error(error, str(self._path)) from error


class Room:
    """Room for a sample in a part, from ``start`` to ``end``; ``content`` is where its content begins."""

    __slots__ = ("after", "before", "content", "end", "size", "start")

    def __init__(self, start: int, before: bytes, size: int, after: bytes) -> None:
        self.start = start
        self.content = start + len(before)
        self.end = self.content + size + len(after)
        self.before = before
        self.size = size
        self.after = after
