"""Detect bodies that arrive too slowly (--min-speed), with a measurement every ``SPAN`` seconds."""

from __future__ import annotations

__all__ = ["SPAN", "Pace"]

SPAN = 10.0
"""Seconds over which the speed is averaged, as curl's --speed-time."""


class Pace:
    """A measurement of the speed of one body after another; ``least``: the minimum in bytes per second."""

    __slots__ = ("_at", "_began", "_least", "_progress")

    def __init__(self, least: float) -> None:
        self._least = least
        self._began = self._at = 0.0
        self._progress = 0

    def too_slow(self, now: float, began: float, progress: int) -> bool:
        """Return whether a body was too slow since its last measurement, at least ``SPAN`` seconds ago.

        The body began at ``began`` and has ``progress`` bytes at ``now``. Returns False if no measurement
        is due.
        """
        if began != self._began:
            self._began = self._at = began
            self._progress = 0
        elapsed = now - self._at
        if elapsed < SPAN:
            return False
        slow = progress - self._progress < self._least * elapsed
        self._at, self._progress = now, progress
        return slow
