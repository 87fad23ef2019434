"""Signals as events: handlers only enqueue, the one loop acts (as gunicorn's arbiter does)."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
from collections.abc import Iterator
from types import FrameType, TracebackType

__all__ = ["Interrupted", "Signals", "interruptible"]

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Within the ``with`` block SIGINT, SIGTERM and SIGHUP wake ``selector`` and are kept."""

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
            # nohup has it ignored, so that the run outlives the terminal.
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
        """``selector`` says "signals": be ready to wake it again."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def pending(self) -> list[int]:
        """The signals since the last call, in their order."""
        queue, self._queue = self._queue, []
        return queue


class Interrupted(BaseException):
    """SIGINT or SIGTERM, where nothing else handles them. Not KeyboardInterrupt: click prints for it."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends what has no loop of its own as Ctrl-C does: cleaned up, exit code 130."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = {}
    with contextlib.suppress(ValueError):  # not in the main thread
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
