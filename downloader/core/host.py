"""Define the state of a host in the scheduler, and what the scheduler needs to know of a job."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from downloader.core.host_trouble import Trouble

__all__ = ["Host", "Schedulable"]

_FEW = 8
_GOLDEN = 0.618034  # multiples of it, modulo 1, are far apart


@dataclass(slots=True)
class Host:
    """The state of one scheme, host and port.

    ``allowed``: requests that it may have in flight now. ``takes``: how many it has taken at once, as it
    closed a connection beyond those; 0 if it closes none. ``tries_more``: so many more are tried, since
    ``tried_more``. No request starts before ``not_before`` (a pause
    after a failure) and ``paced`` (--rate, or ``gap``: seconds between two requests, 0 for none, where it
    refuses many). ``asked_until``: until when it asked for that pause itself, by Retry-After. ``trouble``:
    what its failures say, None if it had none. ``rounds``: failed rounds in a row. ``answered``: when it
    last answered a request, 0 if never. ``resting``: it is failing or paused, so its queue is not counted
    as work that could start. ``counted``: it has had a job. ``held``: jobs outside the queue, which wait
    until it is known whether they may start (``Scheduler.hold``). ``noted``: when it was last noted that it
    was reached (``core.reached_hosts``); ``noted_answer``: that it has answered. ``silent``: a request has
    taken too long. ``unknown``: its robots.txt is awaited. ``leads_to``: the host that it last redirected a
    request to, None if it has not. ``crowded_until``: until when another worker waits for a connection to
    it. ``guests``: redirected requests that wait for a place at it, by what is called when they have one.
    """

    key: str
    limit: int
    allowed: int
    # A list while it is short: an empty deque takes 620 bytes, and a list of URLs may name many hosts.
    queue: list[Schedulable] | deque[Schedulable] = field(default_factory=list)
    active: int = 0
    not_before: float = 0.0
    asked_until: float = 0.0
    paced: float = 0.0
    gap: float = 0.0
    wake: float = 0.0
    rounds: int = 0
    failed_at: float = 0.0
    trouble: Trouble | None = None
    failure: tuple[str, str] | None = None
    failed_until: float = 0.0
    listed: bool = False
    answered: float = 0.0
    resting: bool = False
    counted: bool = False
    held: int = 0
    noted: float = 0.0
    noted_answer: float = 0.0
    silent: bool = False
    unknown: bool = False
    leads_to: Host | None = None
    crowded_until: float = 0.0
    takes: int = 0
    tries_more: int = 0
    tried_more: float = 0.0
    guests: list[Callable[[], None]] = field(default_factory=list)

    @property
    def most(self) -> int:
        """Return how many requests it may have in flight while nothing fails."""
        return min(self.limit, self.takes + self.tries_more) if self.takes else self.limit

    def append(self, job: Schedulable) -> None:
        """Queue ``job``."""
        if len(self.queue) >= _FEW and isinstance(self.queue, list):
            self.queue = deque(self.queue)
        self.queue.append(job)

    def extend(self, jobs: Sequence[Schedulable]) -> None:
        """Queue ``jobs``."""
        if len(self.queue) + len(jobs) > _FEW and isinstance(self.queue, list):
            self.queue = deque(self.queue)
        self.queue.extend(jobs)

    def take_probe(self) -> Schedulable:
        """Remove and return a job from another place in the queue for each failed round.

        What the host does with it is to say whether the host is down. Neighbours in a list may have one
        fault in common. Every other time it is the first one, if another client is to try that than the
        rest: it may be let in, with a cookie.
        """
        queue = self.queue
        other = self.rounds % 2 == 1 and queue[0].path is None and queue[-1].path is not None
        index = 0 if other else int(len(queue) * (self.rounds * _GOLDEN % 1.0))
        job = queue[index]
        del queue[index]
        return job

    @property
    def popleft(self) -> Callable[[], Schedulable]:
        """Return the function that removes and returns the first job, until one is queued."""
        queue = self.queue
        return queue.popleft if isinstance(queue, deque) else partial(queue.pop, 0)


class Schedulable(Protocol):
    """A job. ``solo``: run it with nothing else in flight. Jobs with the same ``path``, by identity, may
    follow each other in one slot. ``demotions``: how often it was preempted, see ``core.preemption``."""

    host: Host
    solo: bool
    path: object
    demotions: int
