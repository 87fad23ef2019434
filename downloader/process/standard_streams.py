"""Keep standard output and standard error from ending a run where they are closed or nobody reads them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from typing import IO, TYPE_CHECKING

from downloader.errors import DownloaderError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["has_no_reader", "outlive_stderr", "own_standard_streams", "silence"]


class _Discarding(io.FileIO):
    """A file of which a write never fails: what cannot be written is discarded."""

    def write(self, data: ReadableBuffer, /) -> int:
        written: int | None = None
        with contextlib.suppress(OSError):
            written = super().write(data)
        # None also where another process has made the terminal non-blocking, and it is full.
        return memoryview(data).nbytes if written is None else written


def own_standard_streams() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr.

    So no socket or journal gets its descriptor, and there is something to flush. Raises DownloaderError.
    """
    try:
        while (devnull := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(devnull, True)
    except OSError as error:
        raise DownloaderError(
            f"{os.devnull} cannot be opened: {error.strerror}; mount /dev in this container or chroot"
        ) from None
    os.close(devnull)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def outlive_stderr() -> None:
    """Discard from now on what stderr cannot take: its terminal or pipe is gone, its disk is full.

    The job continues, and its exit code tells the result. This is done once and below all that writes,
    since each library answers such an error in its own way (rich exits, print raises).
    """
    if sys.stderr is not sys.__stderr__ or sys.stderr is None:
        return  # a stand-in of the program that has called us
    raw = _Discarding(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), sys.stderr.encoding, "backslashreplace", line_buffering=True
    )


def silence(stream: IO[str]) -> None:
    """Redirect ``stream``, which cannot be written, to /dev/null, so that the flush at exit succeeds."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)


def has_no_reader(stream: IO[str], error: OSError) -> bool:
    """Return whether ``stream`` could not be written since nobody is left to read it.

    Its pipe or socket was closed, or its terminal is gone (EIO; of a file that is a disk that fails).
    """
    if isinstance(error, ConnectionError):  # BrokenPipeError is one
        return True
    if error.errno != errno.EIO:
        return False
    try:
        return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False
