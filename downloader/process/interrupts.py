"""SIGINT and SIGTERM where no loop of ours runs that could act on them (that is ``signals``)."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["Interrupted", "interruptible"]


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
