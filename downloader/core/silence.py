"""Decide when a process that another one waits for has stopped working."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["FOR_DISK", "STOPPED", "WAITS_FOR_DISK", "Silence", "VitalSigns"]

STOPPED: Final = frozenset("Tt")
"""States of a process in Linux: stopped by a signal or by a debugger."""
WAITS_FOR_DISK: Final = "D"
_MAX_INTERVAL: Final = 1.0
FOR_DISK: Final = 10.0
"""How many times as long a process may be silent that waits for its disk."""
_FOR_SERVERS: Final = 10.0


class VitalSigns(NamedTuple):
    """What a process has done: CPU time in ticks, bytes read and written; and its state, a letter."""

    state: str
    cpu: int
    bytes: int


class Silence:
    """How long a process has given no sign of progress, in seconds.

    A message is a sign; so is a change of what it has done. Only time in which the watching process runs
    itself counts: after a SIGSTOP and SIGCONT, or a suspend to RAM, nothing is to be killed. A process that
    waits for its disk has ten times as long, since writing a full cache takes minutes and cannot be told
    from a disk that hangs; a ``patient`` one, which waits for servers with bounds of its own, has ten times
    as long, unless it is stopped.
    """

    def __init__(self, limit: float, now: float, *, patient: bool = False) -> None:
        self._limit = limit
        self._patient = patient
        self._last = now
        self._seen: VitalSigns | None = None
        self.seconds = 0.0

    def heard(self) -> None:
        """Record a sign of progress."""
        self.seconds = 0.0

    def look(self, now: float, signs: VitalSigns | None) -> bool:
        """Return whether the process is silent for too long; to be called once a second or more often.

        ``signs``: None where they cannot be known.
        """
        elapsed, self._last = min(max(now - self._last, 0.0), _MAX_INTERVAL), now
        before, self._seen = self._seen, signs
        if signs is not None and before is not None and signs[1:] != before[1:]:
            self.seconds = 0.0
            return False
        state = signs.state if signs else ""
        if self._patient and state not in STOPPED:
            elapsed /= _FOR_SERVERS
        elif state == WAITS_FOR_DISK:
            elapsed /= FOR_DISK
        self.seconds += elapsed
        return self.seconds > self._limit
