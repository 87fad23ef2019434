"""Read standard input as a stream of lines, and detect pauses of the producer.

It is read in a thread, so that heartbeats continue, and lines already read are fetched while a slow
producer pauses.
"""

from __future__ import annotations

from time import monotonic

from downloader.process.standard_input import beginning

__all__ = ["Pipe"]

_BLOCK = 64 << 10
_AHEAD = 1 << 20


class Pipe:
    """The stream of file descriptor ``fd``, behind what is taken from it; about one MiB is read ahead."""

    def __init__(self, fd: int) -> None:
        # Here: a process that reads a list from a file needs no gevent.
        import gevent
        from gevent.event import Event

        self._fd = fd
        self._buffer = bytearray(beginning())
        self._searched = 0  # no line ends before this position
        self._ended = False
        self._error: OSError | None = None
        self._more = Event()
        self._room = Event()
        self._reader = gevent.spawn(self._run)

    def _run(self) -> None:
        from gevent.os import tp_read

        while not self._ended:
            try:
                block = tp_read(self._fd, _BLOCK)
            except OSError as error:
                self._error, block = error, b""
            self._ended = not block
            self._buffer += block
            self._more.set()
            if len(self._buffer) > _AHEAD:
                self._room.clear()
                self._room.wait()

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; none at the end. Raises OSError."""
        while not self._buffer and not self._ended:
            self._wait(None)
        return self._take(size)

    def readline(self, size: int) -> bytes:
        """Return the next line, at most ``size`` bytes of it; none at the end. Raises OSError."""
        while not self._has_line(size) and not self._ended:
            self._wait(None)
        end = self._buffer.find(b"\n", self._searched, size)
        return self._take(size if end < 0 else end + 1)

    def peek(self, size: int) -> bytes:
        """Return the next bytes without taking them, ``size`` at most; none at the end. Raises OSError."""
        while not self._buffer and not self._ended:
            self._wait(None)
        if not self._buffer and self._error is not None:
            raise self._error
        return bytes(self._buffer[:size])

    def sample(self, size: int, *, whole: bool = False) -> bytes:
        """Return what has arrived, a line (or ``size`` bytes) at least, without taking it.

        ``whole``: return ``size`` bytes, unless the stream ends before.
        """
        while not self._ended and not (len(self._buffer) >= size if whole else self._has_line(size)):
            self._wait(None)
        return bytes(self._buffer[:size] if whole else self._buffer)

    def silent(self, size: int, patience: float) -> bool:
        """Return whether no complete line (or ``size`` bytes) arrives within ``patience`` seconds.

        Returns False at the end of the stream.
        """
        give_up = monotonic() + patience
        while not self._has_line(size):
            if self._ended or (left := give_up - monotonic()) <= 0:
                return not self._ended
            self._wait(left)
        return False

    def _has_line(self, size: int) -> bool:
        if self._buffer.find(b"\n", self._searched, size) >= 0:
            return True
        self._searched = min(len(self._buffer), size)
        return len(self._buffer) >= size

    def _wait(self, seconds: float | None) -> None:
        self._more.clear()
        self._more.wait(seconds)

    def _take(self, size: int) -> bytes:
        if not self._buffer and self._error is not None:
            raise self._error
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._searched = 0
        if len(self._buffer) <= _AHEAD:
            self._room.set()
        return taken
