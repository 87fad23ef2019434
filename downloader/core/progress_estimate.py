"""Compute the rates of a run, and how long it may still take, from counts at certain times."""

from __future__ import annotations

from collections import deque
from typing import Final

from downloader.messages import Receiving

__all__ = ["Rates", "seconds_left"]

_SPAN: Final = 10.0  # seconds; what happened before says little about now
_OVERDUE: Final = 3.0  # files that were due and did not come, so that it is no chance


class Rates:
    """Files and bytes a second in the last ten seconds. ``idle``: seconds since a file was finished."""

    def __init__(self, now: float) -> None:
        self.files = self.bytes = self.idle = 0.0
        self._observed: deque[tuple[float, int, int]] = deque([(now, 0, 0)])
        self._finished = now

    def observe(self, now: float, files: int, size: int) -> None:
        """Record the counts at the time ``now`` (seconds, monotonic), about once a second."""
        observed = self._observed
        if files > observed[-1][1]:
            self._finished = now
        self.idle = now - self._finished
        observed.append((now, files, size))
        while len(observed) > 2 and observed[1][0] <= now - _SPAN:
            observed.popleft()
        then, files_then, size_then = observed[0]
        elapsed = max(now - then, 1e-6)
        # A count may fall: a body that did not arrive whole no longer counts.
        self.files = max(files - files_then, 0) / elapsed
        self.bytes = max(size - size_then, 0) / elapsed


def seconds_left(rates: Rates, average: float, left: float, receiving: Receiving) -> float | None:
    """Return how long ``left`` more files may take; None if nothing says so.

    ``average``: files a second over the whole run. Where all these files arrive already, what is missing of
    them counts, if that is known. Otherwise they take as long as others did, unless none of several that
    were due has been finished: a few large files at the end take longer than all small ones before them.
    """
    by_size = receiving.missing / rates.bytes if receiving.missing and rates.bytes > 0 else None
    if left <= receiving.files:
        return by_size if receiving.known == receiving.files else None
    rate = min(average, rates.files)
    if rate <= 0 or rates.idle * rate > _OVERDUE:
        return None
    return max(left / rate, by_size or 0.0)
