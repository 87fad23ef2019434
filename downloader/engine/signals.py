"""Turn signals into events: handlers only enqueue, the event loop acts (as gunicorn's arbiter does)."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from types import FrameType, TracebackType

__all__ = ["Signals"]

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """A context in which SIGINT, SIGTERM and SIGHUP wake ``selector`` and are queued."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._queue: list[int] = []
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector.register(self._reader, selectors.EVENT_READ, "signals")
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in _HANDLED:
            # nohup has SIGHUP ignored, so that the run outlives the terminal; keep that.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup)
        self._selector.unregister(self._reader)
        self._reader.close()
        self._writer.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._queue.append(number)

    def woke(self) -> None:
        """Make it possible to wake ``selector`` again, after it returned "signals"."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def pending(self) -> list[int]:
        """Return the signals since the last call, in order."""
        queue, self._queue = self._queue, []
        return queue
