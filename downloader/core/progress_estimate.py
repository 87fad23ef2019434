"""Compute the rates of a run, and how long it may still take, from counts at certain times."""

from __future__ import annotations

from collections import deque
from typing import Final

from downloader.messages import Receiving

__all__ = ["Rates", "seconds_left"]

_SPAN: Final = 10.0  # seconds; what happened before says little about now


class Rates:
    """Files and bytes a second in the last ten seconds, or since the observation before that."""

    def __init__(self, now: float) -> None:
        self.files = self.bytes = 0.0
        self._observed: deque[tuple[float, int, int]] = deque([(now, 0, 0)])

    def observe(self, now: float, files: int, size: int) -> None:
        """Record the counts at the time ``now`` (seconds, monotonic)."""
        observed = self._observed
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

    ``average``: files a second over the whole run. Where all these files are arriving, and their sizes are
    known, their bytes count. Otherwise files do, as long as any are finished: a few large files at the end
    take longer than all the small ones before them.
    """
    if left <= receiving.known and rates.bytes > 0:
        return receiving.missing / rates.bytes
    rate = min(average, rates.files)
    return left / rate if rate > 0 else None
