"""What a worker fetches next: hosts share alike, failing hosts rest, suspects go alone.

Pure state with the time passed in (seconds, monotonic); the worker's greenlets carry it out. Its size
is bounded by the leases that the worker holds.

Hosts share what is in flight, not only the turns: where several have work, the one with the fewest in
flight begins next, so that a host which answers slowly or never does not end up with all connections.

A host that fails (refused, 503, …) is paused with a growing backoff; afterwards one probe at a time
is let through, and each success doubles what the host gets, up to its limit (the "half-open" state of
a circuit breaker and TCP's slow start). After more failed rounds in a row than an item has attempts,
what waits for the host fails with the host's failure, for ``VERDICT`` seconds, instead of each item
finding out by itself.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Generic, Protocol, TypeVar

__all__ = ["VERDICT", "Host", "Schedulable", "Scheduler"]

VERDICT = 60.0
_REMEMBERED = 10_000  # hosts without work, and what is known of them
_LATE = 0.05  # seconds that a paced start may be made up for
_LOOK = 8  # so many hosts are compared when one is chosen


@dataclass(slots=True)
class Host:
    """One scheme, host and port. ``allowed`` is how many requests it may have in flight now.

    Nothing begins before ``not_before`` (a pause after a failure) and ``paced`` (--rate).
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


class Schedulable(Protocol):
    """What is scheduled. ``solo``: only with nothing else in flight. Those that have the same ``path``,
    by identity, may follow each other in one slot."""

    host: Host
    solo: bool
    path: object


J = TypeVar("J", bound=Schedulable)


class Scheduler(Generic[J]):
    """Jobs by host. ``most`` in flight in all, ``per_host`` to one host.

    ``interval``: seconds from one request to a host to the next (--rate), 0 for none. ``due``: when the
    job that was taken last was to begin, which under a rate may be a little earlier than it did.
    """

    def __init__(self, most: int, per_host: int) -> None:
        self.most = most
        self.per_host = per_host
        self.interval = 0.0
        self.due = 0.0
        self.active = 0
        self.unstarted = 0
        self._alone = False
        self._forget_at = _REMEMBERED
        self._hosts: dict[str, Host] = {}
        self._ready: deque[Host] = deque()
        self._solo: deque[J] = deque()
        self._timers: list[tuple[float, int, J | Host]] = []
        self._serial = count()

    def host(self, key: str) -> Host:
        """The state of host ``key``."""
        host = self._hosts.get(key)
        if host is None:
            if len(self._hosts) >= self._forget_at:
                self._forget_idle()
            host = self._hosts[key] = Host(key, self.per_host, self.per_host)
        return host

    def add(self, job: J) -> None:
        """``job`` waits for its turn."""
        self.unstarted += 1
        if job.solo:
            self._solo.append(job)
            return
        host = job.host
        host.queue.append(job)
        self._list(host)

    def add_all(self, jobs: list[J]) -> None:
        """Each of ``jobs`` waits for its turn. All are of one host, and none is ``solo``."""
        host = jobs[0].host
        self.unstarted += len(jobs)
        host.queue.extend(jobs)
        self._list(host)

    def add_later(self, job: J, at: float) -> None:
        """``job`` waits until ``at`` and then for its turn."""
        self.unstarted += 1
        heapq.heappush(self._timers, (at, next(self._serial), job))

    def take(self, now: float) -> J | None:
        """The next job to begin, or None when none may begin now; see ``wake_at``."""
        if self._timers and self._timers[0][0] <= now:
            self._ring(now)
        if self._alone or self.active >= self.most:
            return None
        if self._solo and (solo := self._next_solo(now)) is not None:
            if self.active:
                return None
            self._solo.remove(solo)
            self._alone = True
            self._start(solo.host, now)
            return solo
        host = self._next_host(now)
        if host is None:
            return None
        job: J = host.queue.popleft()  # type: ignore[assignment]
        self._start(host, now)
        if not host.queue or host.active >= host.allowed:
            self._ready.popleft()
            host.listed = False
        elif len(self._ready) > 1:
            self._ready.rotate(-1)
        return job

    def more(self, host: Host, most: int, path: object) -> list[J]:
        """Up to ``most`` jobs of ``host`` for one who has a slot of it and needs no other: the next
        requests on a connection, which is their ``path``. Nothing while the host is paced, recovers
        or is condemned, while a suspect waits to be alone, or where another host has fewer slots.

        What there is is shared: the last jobs do not all wait behind each other on one connection.
        """
        queue = host.queue
        if (
            not queue
            or self.interval
            or host.allowed < host.limit
            or host.verdict is not None
            or self._solo
            or self._alone
        ):
            return []
        if self._ready and self.active >= self.most and self._others_wait(host):
            return []
        most = min(most, 1 + len(queue) // (host.active or 1))
        jobs: list[J] = []
        for _ in range(min(most, len(queue))):
            job: J = queue.popleft()  # type: ignore[assignment]
            if job.path is not path:
                queue.appendleft(job)
                break
            jobs.append(job)
        self.unstarted -= len(jobs)
        return jobs

    def _others_wait(self, host: Host) -> bool:
        """Whether a host that has fewer slots than ``host`` could begin."""
        return any(
            other.queue and other.active < min(host.active, other.allowed)
            for other in islice(self._ready, _LOOK)
        )

    def again(self, job: J) -> None:
        """``job`` was begun and goes back to the front of its queue."""
        self.unstarted += 1
        if job.solo:
            self._solo.appendleft(job)
            return
        job.host.queue.appendleft(job)
        self._list(job.host)

    def _next_solo(self, now: float) -> J | None:
        """The first suspect whose host does not rest."""
        for job in self._solo:
            if not self._rests(job.host, now):
                return job
        return None

    def _next_host(self, now: float) -> Host | None:
        """The host that begins next, moved to the front of those that are ready."""
        ready = self._ready
        while ready:
            host = ready[0]
            if host.queue and host.active < host.allowed and not self._rests(host, now):
                break
            ready.popleft()
            host.listed = False
        else:
            return None
        if len(ready) > 1 and host.active:
            best = host
            for other in islice(ready, 1, _LOOK):
                if (
                    other.queue
                    and other.active < best.active
                    and other.active < other.allowed
                    and not self._rests(other, now)
                ):
                    best = other
            if best is not host:
                ready.remove(best)
                ready.appendleft(best)
            return best
        return host

    def _rests(self, host: Host, now: float) -> bool:
        """Whether ``host`` may begin nothing now; a timer is set for when it may."""
        until = max(host.not_before, host.paced)
        if until <= now:
            return False
        if host.wake != until:
            host.wake = until
            heapq.heappush(self._timers, (until, next(self._serial), host))
        return True

    def _start(self, host: Host, now: float) -> None:
        host.active += 1
        self.active += 1
        self.unstarted -= 1
        self.due = now
        if self.interval and (host.verdict is None or now >= host.verdict_until):
            self.due = self._reserve(host, now)

    def turn(self, key: str, now: float) -> float:
        """When one more request of a job that has begun, a redirect, may be sent to host ``key``; it counts
        as sent then."""
        return self._reserve(self.host(key), now) if self.interval else now

    def _reserve(self, host: Host, now: float) -> float:
        # A start that comes late moves no other, or the rate would never be reached.
        due = max(host.paced, now - _LATE) if host.paced else now
        host.paced = due + self.interval
        return due

    def release(self, host: Host) -> None:
        """A slot of ``host`` is free: what was in flight in it has come to some end."""
        host.active -= 1
        self.active -= 1
        self._alone = False  # a suspect has the only slot there is
        if host.queue and not host.listed:
            self._list(host)

    @property
    def wake_at(self) -> float:
        """When ``take`` may have something that it has not now; infinity for "after an event"."""
        return self._timers[0][0] if self._timers else math.inf

    def succeeded(self, host: Host, now: float) -> bool:
        """A request to ``host`` was answered as it should be; True when more may begin now."""
        if host.allowed == host.limit and not host.rounds:
            return False
        if now < host.not_before:
            # It was on its way before the host failed, and says nothing about afterwards.
            return False
        host.rounds = 0
        host.verdict = None
        host.allowed = min(host.limit, host.allowed * 2)
        self._list(host)
        return True

    def failed(self, host: Host, began: float, now: float) -> int:
        """A request, sent at ``began``, showed ``host`` itself failing; how many rounds in a row that
        makes.

        Requests that were sent before the last failure that counted belong to its round.
        """
        if began >= host.failed_at:
            host.rounds += 1
            host.failed_at = now
        host.allowed = 1
        return host.rounds

    def pause(self, host: Host, until: float) -> bool:
        """Nothing is sent to ``host`` before ``until``, and then one at a time at first; False when
        that was so already."""
        if until <= host.not_before:
            return False
        host.not_before = until
        host.allowed = 1
        return True

    def rests_until(self, key: str, now: float) -> float:
        """When host ``key`` may be sent to again; at most ``now`` when it may be."""
        host = self._hosts.get(key)
        return host.not_before if host is not None else now

    def condemn(self, host: Host, code: str, detail: str, now: float) -> None:
        """What waits for ``host`` is to fail with ``code`` for the next ``VERDICT`` seconds."""
        host.verdict = (code, detail)
        host.verdict_until = now + VERDICT
        host.not_before = now
        host.paced = 0.0  # what is not sent needs no pace; see ``_start``
        self._list(host)

    def verdict(self, host: Host, now: float) -> tuple[str, str] | None:
        """The failure that a job for ``host`` is to end with at once, if there is one."""
        if host.verdict is not None and now >= host.verdict_until:
            host.verdict = None
        return host.verdict

    def _list(self, host: Host) -> None:
        if not host.listed and host.queue and host.active < host.allowed:
            host.listed = True
            self._ready.append(host)

    def _ring(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, _, due = heapq.heappop(self._timers)
            if isinstance(due, Host):
                if due.wake == at:
                    due.wake = 0.0
                self._list(due)
            else:
                self.unstarted -= 1
                self.add(due)

    def _forget_idle(self) -> None:
        """Those without work, failing or not: a list may name any number of dead hosts."""
        later = {due.host.key for _, _, due in self._timers if not isinstance(due, Host)}
        later.update(job.host.key for job in self._solo)
        for key, host in list(self._hosts.items()):
            if not host.queue and not host.active and key not in later:
                del self._hosts[key]
        self._forget_at = max(_REMEMBERED, 2 * len(self._hosts))
