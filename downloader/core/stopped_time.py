"""Tell that a process did not run for a while: it was stopped (Ctrl-Z), or its container or machine paused.

When it goes on, timers are due that say nothing about a server, and servers may have closed connections.
Pure.
"""

from __future__ import annotations

from typing import Final

__all__ = ["StoppedTime"]

_GAP: Final = 3.0
_MOST: Final = 100


class StoppedTime:
    """The last gap between signs of life; there is one each second. Times are in seconds.

    After ``_MOST`` gaps none counts any more: a process that gets no CPU time is to come to an end, too.
    """

    __slots__ = ("_gaps", "_last", "_resumed")

    def __init__(self, now: float) -> None:
        self._last, self._resumed, self._gaps = now, 0.0, 0

    def beat(self, now: float) -> None:
        """Note a sign of life."""
        if now - self._last > _GAP:
            self._gaps += 1
            self._resumed = now
        self._last = now

    def interrupted(self, began: float, now: float) -> bool:
        """Return whether the process has stopped since ``began``, or up to ``now``."""
        if self._gaps >= _MOST:
            return False
        return began < self._resumed or now - self._last > _GAP
