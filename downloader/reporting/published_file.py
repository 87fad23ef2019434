"""Write a file of the run's own: whole or not at all, by default readable by its owner only."""

from __future__ import annotations

import errno
import io
import os
import select
import stat
from collections.abc import Callable
from typing import IO, Any, BinaryIO, cast

from downloader.errors import DestinationError
from downloader.files.below import descriptor_of, name_below
from downloader.files.directory import Entry, UnsafeFile, open_directory

__all__ = ["publish"]

Write = Callable[[BinaryIO], object]

_PATIENCE = 60.0  # seconds in which a reader of a named pipe must take something


def publish(path: str, write: Write, output: str = "", mark: str = "", mode: int = 0o600) -> None:
    """Let ``write`` write to ``path``: beside it, and then under its name.

    Below ``output``, the destination if there is one, no link is followed and nothing but a file is
    replaced. Elsewhere /dev/stderr and other descriptors (where they are), /dev/null or a named pipe are
    written to, never replaced. ``mark``
    makes the name beside it unique, by default the process; where it stays the same, what a killed process
    has left is replaced. ``mode``: of the new file, less the umask. Raises DestinationError.
    """
    try:
        name = name_below(path, output)
        descriptor = descriptor_of(path, output)
        if descriptor is not None or (not name and _is_stream(path)):
            with _open_stream(path, descriptor) as file:
                write(cast("BinaryIO", file))
            return
        above = output if name else os.path.dirname(os.path.realpath(path))
        with open_directory(above) as directory:
            entry = directory / (name or os.path.basename(os.path.realpath(path)))
            if name:
                entry.check(write=False)
            _replace(entry, write, f".downloader-{mark or os.getpid()}.tmp", mode)
    except UnsafeFile:
        raise
    except OSError as error:
        raise DestinationError(f"{path} cannot be written: {error.strerror or error}") from error


def _replace(entry: Entry, write: Write, leaf: str, mode: int) -> None:
    temporary = entry.beside(leaf)
    try:
        with temporary.writer(mode) as file:
            write(file)
        temporary.rename(entry.leaf)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_stream(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _open_stream(path: str, descriptor: int | None) -> IO[bytes]:
    """Return what is not replaced, open for writing: a named pipe without a reader would block for ever.

    ``descriptor``: which one ``path`` is. To open it by its path would begin its file anew, and a socket
    cannot be opened at all.
    """
    try:
        fd = (
            os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if descriptor is None
            else os.dup(descriptor)
        )
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(path).st_mode):
            raise OSError(error.errno, "nobody reads this named pipe") from error
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return open(fd, "wb")
    return io.BufferedWriter(_Stream(fd))


class _Stream(io.RawIOBase):
    """A pipe or the like, written to as its reader takes something, which may stop for a while only."""

    def __init__(self, fd: int) -> None:
        self._fd, self._is_stuck = fd, False

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        self._is_stuck = self._is_stuck or not poll.poll(_PATIENCE * 1000)
        if self._is_stuck:
            raise OSError(errno.ETIMEDOUT, "what reads this pipe takes nothing any more")
        # A descriptor of the user's may block, and does not for this much.
        return os.write(self._fd, memoryview(data)[: select.PIPE_BUF])

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()
