"""Decide when so many children have failed that a run must end."""

from __future__ import annotations

__all__ = ["MAX_BLAMELESS_DEATHS", "MAX_FAILED_FEEDERS", "RespawnLimits"]

_MAX_BOOTS = 3
MAX_FAILED_FEEDERS = 3
MAX_BLAMELESS_DEATHS = 10


class RespawnLimits:
    """Count failures in a row.

    Each method that records a failure returns True when a run must end because of it.
    """

    def __init__(self) -> None:
        self._failed_feeders = self._blameless_deaths = 0

    def record_batch(self) -> None:
        """Record that a feeder has sent a batch."""
        self._failed_feeders = 0

    def record_outcome(self) -> None:
        """Record that the outcome of a batch is in the journal."""
        self._blameless_deaths = 0

    def failed_boot(self, tries: int) -> bool:
        """Judge the ``tries``th exit in a row of a process that was not ready yet."""
        return tries >= _MAX_BOOTS

    def failed_feeder(self) -> bool:
        """Record that a feeder died without sending a batch."""
        self._failed_feeders += 1
        return self._failed_feeders >= MAX_FAILED_FEEDERS

    def worker_death(self, blamed: bool) -> bool:
        """Record that a worker died; ``blamed``: one of its files in flight may be the cause."""
        self._blameless_deaths = 0 if blamed else self._blameless_deaths + 1
        return self._blameless_deaths >= MAX_BLAMELESS_DEATHS
