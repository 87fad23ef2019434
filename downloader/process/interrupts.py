"""Handle SIGINT and SIGTERM where no event loop of ours runs (one that does uses ``engine.signals``)."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["Interrupted", "interruptible"]


class Interrupted(BaseException):
    """A SIGINT or SIGTERM where nothing else handles them.

    Not KeyboardInterrupt, since click prints something for that.
    """


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted on SIGTERM as on Ctrl-C, so that the block cleans up and exits with code 130."""

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
