"""Give a command its standard input each time that it is started.

A command is started more than once: for each remedy, or since the agent was not in its process. A file is
read again from where it was. A pipe can be read once, so what has been read of it is kept, up to a limit,
and comes first in the next start. A terminal is left to the user, and the command has no input.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator

from diagnostics.errors import ProbeError

__all__ = ["AT_A_TERMINAL", "StandardInput"]

AT_A_TERMINAL = "it had no standard input, since a terminal is not passed on; give it a file or a pipe"
_KEPT = 16 << 20  # bytes of a pipe that are kept for another start
_CHUNK = 65536
_ENDS = 2.0  # seconds in which a thread that passes a pipe on should end


class StandardInput:
    """The standard input of this process, as of descriptor ``descriptor``; None: there is none."""

    def __init__(self, descriptor: int | None, kept: int = _KEPT) -> None:
        self._descriptor = descriptor
        self.is_terminal = descriptor is not None and os.isatty(descriptor)
        mode = os.fstat(descriptor).st_mode if descriptor is not None else 0
        self._begins = 0
        if descriptor is not None and stat.S_ISREG(mode):
            self._begins = os.lseek(descriptor, 0, os.SEEK_CUR)
        self._is_file = stat.S_ISREG(mode)
        streams = (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and descriptor is not None
        self._stream = _Stream(descriptor, kept) if streams and descriptor is not None else None

    @classmethod
    def of_this_process(cls) -> StandardInput:
        """Return that of this process; where it was closed, its number may be another file's by now."""
        try:
            return cls(0 if sys.__stdin__ is not None else None)
        except OSError:
            return cls(None)

    @contextlib.contextmanager
    def given(self) -> Iterator[int]:
        """Yield what ``Popen`` is to have as ``stdin``, from the beginning, until the block ends.

        Raises ProbeError where a pipe cannot be read once more.
        """
        if self._descriptor is None or self.is_terminal:
            yield subprocess.DEVNULL
        elif self._stream is not None:
            with self._stream.passed_on() as reading:
                yield reading
        else:
            if self._is_file:
                os.lseek(self._descriptor, self._begins, os.SEEK_SET)
            yield self._descriptor


class _Stream:
    """A pipe or a socket, of which no more than ``most`` bytes are kept."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor = descriptor
        self._most = most
        self._kept = bytearray()  # what was read, but for what is ``lost``
        self._lost = 0
        self._ended = False

    @contextlib.contextmanager
    def passed_on(self) -> Iterator[int]:
        if self._lost:
            raise ProbeError(
                f"its standard input cannot be given to it once more: it has read more than"
                f" {self._most >> 20} MiB of a pipe; give it a file"
            )
        reading, writing = os.pipe()
        stopped, stop = os.pipe()
        thread = threading.Thread(
            target=self._pass_on, args=(writing, stopped), name="standard input", daemon=True
        )
        thread.start()
        try:
            yield reading
        finally:
            os.close(reading)
            os.close(stop)
            thread.join(_ENDS)

    def _pass_on(self, writing: int, stopped: int) -> None:
        """Write to ``writing`` until nobody reads there, or ``stopped`` has ended."""
        os.set_blocking(writing, False)
        sent = 0
        try:
            while not (self._ended and sent == self._lost + len(self._kept)):
                left = sent < self._lost + len(self._kept)
                poll = select.poll()
                poll.register(stopped, select.POLLIN)
                poll.register(writing, select.POLLOUT if left else 0)
                if not left:
                    poll.register(self._descriptor, select.POLLIN)
                events = dict(poll.poll())
                if stopped in events or events.get(writing, 0) & select.POLLERR:
                    return
                if left:
                    sent += self._write(writing, sent)
                else:
                    self._read()
        finally:
            os.close(writing)
            os.close(stopped)

    def _write(self, writing: int, sent: int) -> int:
        begins = sent - self._lost
        try:
            count = os.write(writing, self._kept[begins : begins + _CHUNK])
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return 0  # the next poll says so
        return count

    def _read(self) -> None:
        try:
            content = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a socket was reset
            content = b""
        if len(self._kept) > self._most or self._lost:  # all of it has been written
            self._lost += len(self._kept)
            self._kept.clear()
        self._kept += content
        self._ended = not content
