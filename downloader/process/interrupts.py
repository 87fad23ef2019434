"""Undo what a process inherited of signals; handle SIGINT, SIGTERM and SIGHUP where no event loop of ours
runs (``engine.signals`` is for those).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

__all__ = ["Interrupted", "inherit_none", "interruptible"]

_NEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


def inherit_none() -> None:
    """Have this process get the signals that it relies on, whatever the program that started it had set.

    A mask, and that a signal is ignored, are inherited, also through an exec. Where SIGCHLD is ignored, no
    child can be waited for. SIGHUP and SIGINT stay ignored until something handles them.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NEEDED)
    with contextlib.suppress(ValueError):  # not in the main thread
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


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
