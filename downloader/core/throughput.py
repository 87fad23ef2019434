"""Whether a body comes too slowly (--min-speed): a measurement every ``SPAN`` seconds."""

from __future__ import annotations

__all__ = ["SPAN", "Pace"]

SPAN = 10.0
"""Seconds over which the speed is averaged, as curl's --speed-time."""


class Pace:
    """The speed of one body after another; ``least`` in bytes a second."""

    __slots__ = ("_at", "_began", "_least", "_progress")

    def __init__(self, least: float) -> None:
        self._least = least
        self._began = self._at = 0.0
        self._progress = 0

    def too_slow(self, now: float, began: float, progress: int) -> bool:
        """Whether the body that began at ``began`` and has come to ``progress`` bytes by ``now`` (seconds)
        was slower than allowed since it was last measured, ``SPAN`` seconds ago or more."""
        if began != self._began:
            self._began = self._at = began
            self._progress = 0
        elapsed = now - self._at
        if elapsed < SPAN:
            return False
        slow = progress - self._progress < self._least * elapsed
        self._at, self._progress = now, progress
        return slow
