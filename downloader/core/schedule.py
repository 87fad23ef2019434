"""What a worker fetches next: hosts take turns, failing hosts rest, suspects go alone.

Pure state with the time passed in (seconds, monotonic); the worker's greenlets carry it out. Its size
is bounded by the leases that the worker holds.

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
from itertools import count
from typing import Generic, Protocol, TypeVar

__all__ = ["VERDICT", "Host", "Job", "Schedule"]

VERDICT = 60.0


@dataclass(slots=True)
class Host:
    """One scheme, host and port. ``allowed`` is how many requests it may have in flight now."""

    key: str
    limit: int
    allowed: int
    queue: deque[Job] = field(default_factory=deque)
    active: int = 0
    not_before: float = 0.0
    rounds: int = 0
    verdict: tuple[str, str] | None = None
    verdict_until: float = 0.0
    listed: bool = False


class Job(Protocol):
    """What is scheduled. ``solo``: only with nothing else in flight."""

    host: Host
    solo: bool


J = TypeVar("J", bound=Job)


class Schedule(Generic[J]):
    """Jobs by host. ``most`` in flight in all, ``per_host`` to one host."""

    def __init__(self, most: int, per_host: int) -> None:
        self.most = most
        self.per_host = per_host
        self.interval = 0.0
        self.active = 0
        self.unstarted = 0
        self._hosts: dict[str, Host] = {}
        self._ready: deque[Host] = deque()
        self._solo: deque[J] = deque()
        self._timers: list[tuple[float, int, J | Host]] = []
        self._serial = count()

    def host(self, key: str) -> Host:
        """The state of host ``key``."""
        host = self._hosts.get(key)
        if host is None:
            if len(self._hosts) > 10_000:
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

    def add_later(self, job: J, at: float) -> None:
        """``job`` waits until ``at`` and then for its turn."""
        self.unstarted += 1
        heapq.heappush(self._timers, (at, next(self._serial), job))

    def take(self, now: float) -> J | None:
        """The next job to begin, or None when none may begin now; see ``wake_at``."""
        if self._timers and self._timers[0][0] <= now:
            self._ring(now)
        if self.active >= self.most:
            return None
        if self._solo:
            if self.active:
                return None
            job = self._solo.popleft()
            self._start(job.host)
            return job
        while self._ready:
            host = self._ready[0]
            if host.not_before > now:
                self._ready.popleft()
                host.listed = False
                self._wake_host(host)
                continue
            job = host.queue.popleft()  # type: ignore[assignment]
            self._start(host)
            if self.interval:
                host.not_before = max(now, host.not_before) + self.interval
            if not host.queue or host.active >= host.allowed:
                self._ready.popleft()
                host.listed = False
            elif len(self._ready) > 1:
                self._ready.rotate(-1)
            return job
        return None

    def _start(self, host: Host) -> None:
        host.active += 1
        self.active += 1
        self.unstarted -= 1

    def finish(self, job: J) -> None:
        """``job`` is no longer in flight (whatever came of it)."""
        host = job.host
        host.active -= 1
        self.active -= 1
        if host.queue and not host.listed:
            self._list(host)

    @property
    def wake_at(self) -> float:
        """When ``take`` may have something that it has not now; infinity for "after an event"."""
        return self._timers[0][0] if self._timers else math.inf

    def succeeded(self, host: Host) -> bool:
        """A request to ``host`` was answered as it should be; True when more may begin now."""
        if host.allowed == host.limit and not host.rounds:
            return False
        host.rounds = 0
        host.verdict = None
        host.allowed = min(host.limit, host.allowed * 2)
        self._list(host)
        return True

    def failed(self, host: Host, now: float) -> int:
        """A request showed ``host`` itself failing; how many rounds in a row that makes.

        Failures of requests that were in flight together count as one round.
        """
        if now >= host.not_before:
            host.rounds += 1
        host.allowed = 1
        return host.rounds

    def pause(self, host: Host, until: float) -> bool:
        """Nothing is sent to ``host`` before ``until``; False when that was so already."""
        if until <= host.not_before:
            return False
        host.not_before = until
        return True

    def condemn(self, host: Host, code: str, detail: str, now: float) -> None:
        """What waits for ``host`` is to fail with ``code`` for the next ``VERDICT`` seconds."""
        host.verdict = (code, detail)
        host.verdict_until = now + VERDICT
        host.not_before = now
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

    def _wake_host(self, host: Host) -> None:
        heapq.heappush(self._timers, (host.not_before, next(self._serial), host))

    def _ring(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, due = heapq.heappop(self._timers)
            if isinstance(due, Host):
                self._list(due)
            else:
                self.unstarted -= 1
                self.add(due)

    def _forget_idle(self) -> None:
        for key, host in list(self._hosts.items()):
            if not host.queue and not host.active and not host.rounds:
                del self._hosts[key]
