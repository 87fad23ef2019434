"""How often children of a run may fail before the run ends: no endless respawning. Pure."""

from __future__ import annotations

__all__ = ["MAX_BLAMELESS_DEATHS", "MAX_FAILED_FEEDERS", "RespawnLimits"]

_MAX_BOOTS = 3
MAX_FAILED_FEEDERS = 3
MAX_BLAMELESS_DEATHS = 10


class RespawnLimits:
    """Counts failures in a row. Each method that records one returns whether these are too many."""

    def __init__(self) -> None:
        self._failed_feeders = self._blameless_deaths = 0

    def record_batch(self) -> None:
        """A feeder has sent a batch."""
        self._failed_feeders = 0

    def record_outcome(self) -> None:
        """The outcome of a batch is in the journal."""
        self._blameless_deaths = 0

    def failed_boot(self, tries: int) -> bool:
        """A process has exited before it was ready, for the ``tries``th time in a row."""
        return tries >= _MAX_BOOTS

    def failed_feeder(self) -> bool:
        """A feeder died without sending a batch."""
        self._failed_feeders += 1
        return self._failed_feeders >= MAX_FAILED_FEEDERS

    def worker_death(self, blamed: bool) -> bool:
        """A worker died; ``blamed``: it had files in flight, one of which may be the cause."""
        self._blameless_deaths = 0 if blamed else self._blameless_deaths + 1
        return self._blameless_deaths >= MAX_BLAMELESS_DEATHS
