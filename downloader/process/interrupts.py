"""Handle SIGINT, SIGTERM and SIGHUP where no event loop of ours runs (``engine.signals`` is for those)."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["Interrupted", "interruptible"]


class Interrupted(BaseException):
    """A SIGINT, SIGTERM or SIGHUP where nothing else handles them.

    Not KeyboardInterrupt, since click prints something for that.
    """


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise Interrupted on SIGTERM, SIGHUP and Ctrl-C, so that the block cleans up and exits with 130."""

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = {}
    with contextlib.suppress(ValueError):  # not in the main thread
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # nohup has SIGHUP ignored, so that the run outlives the terminal; keep that.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
