"""Ask a bucket again while it does not answer, for as long as an outage is waited for.

obstore repeats a request itself for some seconds, whatever the reason: it cannot tell a certificate that is
refused from a server that is started again. Whether to wait for longer is decided here.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final, TypeVar

from downloader.sinks.bucket_store import BucketError, translated

__all__ = ["RUN", "START", "Patience", "end_waiting", "pause", "say_on_stderr"]

START: Final = 20.0
"""How many seconds somebody waits at a terminal for a bucket that has not answered yet."""
RUN: Final = 300.0
"""How many seconds a run waits that the bucket has answered before."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
_LOOK_EVERY: Final = 0.2
_T = TypeVar("_T")


def say_on_stderr(text: str) -> None:
    """Write a line for the user at the terminal."""
    print(f"downloader: {text}", file=sys.stderr, flush=True)  # noqa: T201


class _Process:
    ending = False


def end_waiting(ending: bool) -> None:
    """Let nothing in this process wait for a bucket any more, or again; for handlers of signals, too."""
    _Process.ending = ending


def pause(seconds: float) -> bool:
    """Wait for so many seconds; return False at once when nothing is to wait any more."""
    until = monotonic() + seconds
    while not _Process.ending and (left := until - monotonic()) > 0:
        sleep(min(left, _LOOK_EVERY))
    return not _Process.ending


class Patience:
    """How long a bucket is waited for that does not answer.

    ``first``: the seconds until it has answered once, None if it has; ``then``: those of each outage
    afterwards, from the first request that has failed. ``say`` gets a line about each outage.
    """

    def __init__(
        self, first: float | None = None, then: float = RUN, say: Callable[[str], None] | None = None
    ) -> None:
        self._first = first
        self._then = then
        self._say = say
        self._said = False
        self.since: float | None = None
        """Since when a request or a pause lasts, by ``monotonic``; for one thread that asks."""

    def __call__(self, ask: Callable[[], _T]) -> _T:
        """Return what ``ask`` returns, which is called again as long as the bucket does not answer.

        Raises BucketError, and what else ``ask`` raises. What was asked for may have been done though the
        answer was lost: ``ask`` has to be something that can be repeated.
        """
        began = monotonic() if self._first is not None else None
        longest = _FIRST_PAUSE
        try:
            while True:
                self.since = monotonic()
                try:
                    with translated():
                        found = ask()
                except BucketError as error:
                    began = began or monotonic()
                    left = began + self._limit - monotonic()
                    if not self._waits(error) or left <= 0:
                        raise
                    self._tell()
                    if not pause(min(longest * random.uniform(0.5, 1.0), left)):
                        raise
                    longest = min(2 * longest, _LONGEST_PAUSE)
                else:
                    self._first, self._said = None, False
                    return found
        finally:
            self.since = None

    @property
    def _limit(self) -> float:
        return self._then if self._first is None else self._first

    def _waits(self, error: BucketError) -> bool:
        if error.doubtful:  # a mistake in the command, if the bucket was never there
            return self._first is None
        return error.passing

    def _tell(self) -> None:
        if self._say is not None and not self._said:
            self._said = True
            self._say(f"the bucket does not answer; waiting for it, for up to {self._limit:.0f} s")
