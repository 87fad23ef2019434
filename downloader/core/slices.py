"""Decide what becomes of the slices of a job: which run, which run again, which are set aside.

A slice is lost with its node and runs again as often as that happens: a lost node says nothing about the
slice. A slice whose own process dies, or whose run cannot go on, is tried ``MOST_TRIES`` times and then set
aside, so that it cannot hold up the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

__all__ = ["MOST_CRASHES", "MOST_TRIES", "End", "Shares", "SliceBook", "plan_digest", "shares"]

MOST_TRIES: Final = 3
"""A slice is set aside when so many of its processes have died, or could not go on."""
MOST_CRASHES: Final = 10
"""And when so many of the cluster's workers have died with it while their nodes lived on."""

End = Literal["done", "drained", "failed", "crashed", "lost"]
"""How an attempt ended: its record is there; asked to end; its process died or could not go on; the worker
of the cluster died; the node was lost."""


class Shares(NamedTuple):
    """What a slice may use of the limits of the job: connections to one host by each worker, workers."""

    running: int
    workers: int
    per_host: int


def shares(slots: int, workers: int, per_host: int) -> Shares:
    """Return how many slices may run at a time in ``slots``, and what each may use.

    ``per_host`` is for the whole job, 0 for no limit: fewer slices run where each could not have one
    connection for each of its ``workers``.
    """
    if not per_host:
        return Shares(max(slots, 1), workers, 0)
    workers = min(workers, per_host)
    running = max(1, min(slots, per_host // workers))
    return Shares(running, workers, per_host // (running * workers))


def plan_digest(facts: Mapping[str, object]) -> str:
    """Return the digest of what decides which files a job has, and where they go. ``facts`` is JSON."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


class SliceBook:
    """The slices of a run of a job that are not done."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._tries: Counter[str] = Counter()
        self._crashes: Counter[str] = Counter()
        self.running: set[str] = set()
        self.abandoned: dict[str, str] = {}
        self.attempts = 0
        self.done = 0

    @property
    def waiting(self) -> int:
        """Return how many slices wait for room."""
        return len(self._waiting)

    def add(self, name: str) -> None:
        """Add a slice that is to run."""
        self._waiting.append(name)

    def next(self) -> str | None:
        """Return the slice to start now, None if there is none; it counts as running."""
        if not self._waiting:
            return None
        name = self._waiting.popleft()
        self.running.add(name)
        self.attempts += 1
        return name

    def ended(self, name: str, how: End, reason: str = "") -> bool:
        """Record the end of an attempt; return whether the slice is set aside, for ``reason``."""
        self.running.discard(name)
        if how == "done":
            self.done += 1
            return False
        if how == "drained":
            self._waiting.append(name)
            return False
        self._tries[name] += how == "failed"
        self._crashes[name] += how == "crashed"
        if self._tries[name] >= MOST_TRIES or self._crashes[name] >= MOST_CRASHES:
            self.abandoned[name] = reason
            return True
        # One that was lost goes first, so that the end of the job does not wait for it.
        if how == "lost":
            self._waiting.appendleft(name)
        else:
            self._waiting.append(name)
        return False
