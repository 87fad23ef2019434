"""Define the state of a host in the scheduler, and what the scheduler needs to know of a job."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Host", "Schedulable"]


@dataclass(slots=True)
class Host:
    """The state of one scheme, host and port.

    ``allowed``: requests that it may have in flight now. No request starts before ``not_before`` (a pause
    after a failure) and ``paced`` (--rate). ``answered``: it has answered a request. ``resting``: it is
    failing or paused, so its queue is not counted as work that could start. ``counted``: it has had a job.
    ``held``: jobs outside the queue, which wait until it is known whether they may start
    (``Scheduler.hold``).
    """

    key: str
    limit: int
    allowed: int
    queue: deque[Schedulable] = field(default_factory=deque)
    active: int = 0
    not_before: float = 0.0
    paced: float = 0.0
    wake: float = 0.0
    rounds: int = 0
    failed_at: float = 0.0
    verdict: tuple[str, str] | None = None
    verdict_until: float = 0.0
    listed: bool = False
    answered: bool = False
    resting: bool = False
    counted: bool = False
    held: int = 0


class Schedulable(Protocol):
    """A job. ``solo``: run it with nothing else in flight. Jobs with the same ``path``, by identity, may
    follow each other in one slot."""

    host: Host
    solo: bool
    path: object
