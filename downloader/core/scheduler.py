"""Choose what a worker fetches next: share slots among hosts, pause failing hosts, isolate suspects.

This is pure state; the time (seconds, monotonic) is passed in, and the worker's greenlets carry out the
decisions. Its size is bounded by the leases that the worker holds.

Hosts share the requests in flight, not only the turns: of several hosts with work, the one with the
fewest requests in flight starts the next. So a host that responds slowly or never does not end up with
all connections.

A host that is down (``core.host_trouble`` says when) or asks for a pause is paused, with a growing
backoff. Then one probe at a time is sent, and each success doubles the number of requests that the host
may have in flight, up to its limit (the "half-open" state of a circuit breaker and TCP's slow start).
After more failed rounds in a row than an item has attempts, a host that cannot be reached is condemned:
all jobs that wait for it fail with the host's failure, for ``VERDICT`` seconds, instead of each one
trying by itself. One that can be reached is given up: its jobs are started, a quarter as many at a time
as otherwise.

A job whose host is paused rests: it does not count as work that is there to be started, so that a worker
with many dead hosts goes on to ask for more. A job that waits long for its connection is parked: it gives
its slot to another one until the connection is open.

A job that was preempted (``core.preemption``) is demoted: it starts when no other one can.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from itertools import count, islice
from typing import Generic, TypeVar

from downloader.core.host import Host, Schedulable
from downloader.core.host_table import HostTable

__all__ = ["TRY_MORE", "VERDICT", "Scheduler"]

VERDICT = 60.0
TRY_MORE = 1.0
"""Seconds until a host that closes connections beyond a number is tried with more."""

_LATE = 0.05  # maximum seconds of delay that a paced start makes up for
_LOOK = 8  # hosts that are compared when one is chosen
# Requests in flight to a host that is given up: a share of its limit, and at least so many.
_GIVEN_UP_SHARE, _GIVEN_UP_LEAST = 4, 8
_RESERVE = 8  # one in so many slots is for jobs that are not demoted
# Seconds until a host is known to work or not: it is sent a request after its pause, or after silence.
_PROBED = 1.0
_MOST_HOPS = 5  # from host to host that are followed
_AGAIN = 1.0  # seconds until a demoted job is considered again whose host has all its requests in flight


J = TypeVar("J", bound=Schedulable)


class Scheduler(Generic[J]):
    """The jobs of a worker, by host: at most ``most`` in flight in all, ``per_host`` to one host.

    If ``chosen_per_host`` is 0, ``per_host`` depends on ``most`` and on the number of hosts.

    Not counted in ``most`` are ``parked`` jobs, at most ``most_parked``. ``unstarted``: jobs that are
    queued, of which ``resting`` ones wait for a pause or a backoff to end. ``interval``: seconds between
    two requests to a host (--rate), 0 for none. ``due``: when the job that was taken last was to start;
    under a rate this may be slightly before it did. ``stalled`` is called with a host whose jobs have to
    wait now, or longer than was known.
    """

    def __init__(self, most: int, chosen_per_host: int = 0, most_parked: int = 0) -> None:
        self.most = most
        self.most_parked = most_parked
        self.parked = 0
        self.resting = 0
        self.interval = 0.0
        self.due = 0.0
        self.active = 0
        self.unstarted = 0
        self.stalled: Callable[[Host], None] = lambda host: None
        self._alone = False
        self._hosts = HostTable(most, chosen_per_host)
        self._ready: deque[Host] = deque()
        self._solo: deque[J] = deque()
        self._demoted: deque[J] = deque()
        self._timers: list[tuple[float, int, J | Host]] = []
        self._serial = count()

    def host(self, key: str) -> Host:
        """Return the state of host ``key``."""
        host = self._hosts.get(key)
        if host is None:
            if self._hosts.full:
                later = {due.host.key for _, _, due in self._timers if not isinstance(due, Host)}
                later.update(job.host.key for job in (*self._solo, *self._demoted))
                self._hosts.forget_idle(later)
            host = self._hosts.add(key)
        return host

    def resize(self, most: int) -> None:
        """Let at most ``most`` jobs be in flight from now on; those in flight already go on."""
        self.most = most
        for host in self._hosts.resize(most):
            self._list(host)

    @property
    def per_host(self) -> int:
        """Return how many jobs of one host may be in flight."""
        return self._hosts.per_host

    @property
    def ready_hosts(self) -> int:
        """Return the number of hosts that have jobs and could start more."""
        return len(self._ready)

    @property
    def many_hosts(self) -> bool:
        """Return whether the jobs have been for many hosts."""
        return self._hosts.many

    def add(self, job: J) -> None:
        """Queue ``job``."""
        self.unstarted += 1
        if job.solo:
            self._solo.append(job)
            return
        host = job.host
        host.append(job)
        self.resting += host.resting
        self._list(host)

    def add_all(self, jobs: list[J]) -> None:
        """Queue ``jobs``, all of one host and none of them ``solo``."""
        host = jobs[0].host
        self.unstarted += len(jobs)
        host.extend(jobs)
        if host.resting:
            self.resting += len(jobs)
        self._list(host)

    def add_later(self, job: J, at: float) -> None:
        """Queue ``job`` at the time ``at``."""
        self.unstarted += 1
        self.resting += 1
        heapq.heappush(self._timers, (at, next(self._serial), job))

    def hold(self, job: J, change: int = 1) -> None:
        """Count ``job``, which the caller keeps, as resting; with ``change`` -1 stop counting it."""
        job.host.held += change
        self.unstarted += change
        self.resting += change

    def withdraw(self, host: Host, wanted: Callable[[J], object]) -> list[J]:
        """Remove and return the ``wanted`` jobs of the queue of ``host``, which are held; see ``hold``."""
        jobs: list[J] = []
        rest: list[Schedulable] = []
        for job in host.queue:
            (jobs if wanted(job) else rest).append(job)  # type: ignore[arg-type]
        if jobs:
            host.queue = []
            host.extend(rest)
            host.held += len(jobs)
            if not host.resting:
                self.resting += len(jobs)
        return jobs

    def take(self, now: float) -> J | None:
        """Return the next job to start, None if none may start now; see ``wake_at``."""
        if self._timers and self._timers[0][0] <= now:
            self._fire_timers(now)
        if self._alone or self.active >= self.most:
            return None
        if self._solo and (solo := self._next_solo(now)) is not None:
            if self.in_flight:
                return None
            self._solo.remove(solo)
            self._alone = True
            self._start(solo.host, now)
            return solo
        host = self._next_host(now)
        if host is None:
            return self._take_demoted(now) if self._demoted else None
        job: J = host.take_probe() if host.rounds and host.resting else host.popleft()  # type: ignore[assignment]
        self.resting -= host.resting
        self._start(host, now)
        if not host.queue or host.active >= host.allowed:
            self._ready.popleft()
            host.listed = False
        elif len(self._ready) > 1:
            self._ready.rotate(-1)
        return job

    def next_jobs(self, host: Host, most: int, path: object, *, stay: bool = False) -> list[J]:
        """Return up to ``most`` further jobs of ``host`` with this ``path``, to follow in an occupied slot.

        A pipelined client sends them on the connection that has the slot. Returns none while the host is
        paced, failing or condemned, while a suspect waits to run alone, while there are more jobs in flight
        than slots, or, unless it may ``stay``, if another host with work has fewer slots.

        The jobs are divided among the slots of the host, so that the last ones do not all wait behind
        each other on one connection.
        """
        queue = host.queue
        if (
            not queue
            or self.active > self.most
            or self.interval
            or host.gap
            or host.resting
            or host.failure is not None
            or self._solo
            or self._alone
        ):
            return []
        if not stay and self._ready and self.active >= self.most and self._others_wait(host):
            return []
        if host.allowed < host.most:
            most = min(most, 1)  # as many in flight as before
        most = min(most, 1 + len(queue) // (host.active or 1))
        jobs: list[J] = []
        popleft = host.popleft
        while queue and len(jobs) < most and queue[0].path is path:
            jobs.append(popleft())  # type: ignore[arg-type]
        self.unstarted -= len(jobs)
        return jobs

    def _others_wait(self, host: Host) -> bool:
        """Return whether a host that has fewer slots than ``host`` could start a job."""
        return any(
            other.queue and other.active < min(host.active, other.allowed)
            for other in islice(self._ready, _LOOK)
        )

    def requeue(self, job: J) -> None:
        """Put ``job``, which was started, back at the front of its queue."""
        if job.demotions:
            self.demote(job)
            return
        self.unstarted += 1
        if job.solo:
            self._solo.appendleft(job)
            return
        job.host.queue.insert(0, job)
        self.resting += job.host.resting
        self._list(job.host)

    def demote(self, job: J) -> None:
        """Queue ``job``, which was started, behind all others."""
        self.unstarted += 1
        self.resting += 1
        self._demoted.append(job)

    def _take_demoted(self, now: float) -> J | None:
        """Return the next demoted job, None if there is none that may start.

        The last slots are for jobs that come later.
        """
        if self.active >= self.most - self.most // _RESERVE:
            return None
        while self._demoted:
            job = self._demoted.popleft()
            host = job.host
            if host.active < host.allowed and not self._is_paused(host, now):
                self.resting -= 1
                self._start(host, now)
                return job
            at = max(host.not_before, host.paced, now + _AGAIN)
            heapq.heappush(self._timers, (at, next(self._serial), job))
        return None

    def _next_solo(self, now: float) -> J | None:
        """Return the first suspect whose host is not paused."""
        return next((job for job in self._solo if not self._is_paused(job.host, now)), None)

    def _next_host(self, now: float) -> Host | None:
        """Return the host that starts the next job, moved to the front of the ready hosts."""
        ready = self._ready
        while ready:
            host = ready[0]
            if host.queue and host.active < host.allowed and not self._is_paused(host, now):
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
                    and not self._is_paused(other, now)
                ):
                    best = other
            if best is not host:
                ready.remove(best)
                ready.appendleft(best)
            return best
        return host

    def _is_paused(self, host: Host, now: float) -> bool:
        """Return whether ``host`` may start nothing now; if so, set a timer for when it may."""
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
        if (self.interval or host.gap) and (host.failure is None or now >= host.failed_until):
            self.due = self._reserve(host, now)

    def turn(self, key: str, now: float) -> float:
        """Return when a job that has started may send another request (a redirect) to host ``key``.

        The request counts as sent at that time.
        """
        host = self.host(key)
        return self._reserve(host, now) if self.interval or host.gap else now

    def _reserve(self, host: Host, now: float) -> float:
        # A late start does not delay the following ones, or the rate would never be reached.
        due = max(host.paced, now - _LATE) if host.paced else now
        host.paced = due + max(self.interval, host.gap)
        return due

    def occupy(self, host: Host) -> None:
        """Use one more slot of ``host``, until ``release``: for a job that goes on without its request."""
        host.active += 1
        self.active += 1

    def release(self, host: Host | None) -> None:
        """Free a slot of ``host``, whose last request has ended in some way.

        None: it had a place at no host, since it waited for one.
        """
        self.active -= 1
        self._alone = False  # a suspect has the only slot in use
        if host is not None:
            self.leave(host)

    # A request that is redirected takes its slot along, from one host to another.

    def leave(self, host: Host) -> None:
        """Free a place at ``host``, not the slot."""
        host.active -= 1
        if host.queue or host.guests:
            self._list(host)

    def enter(self, host: Host) -> bool:
        """Take a place at ``host``; return False if none is free, or others wait for one."""
        if host.guests or host.active >= host.allowed:
            return False
        host.active += 1
        return True

    def await_place(self, host: Host, entered: Callable[[], None], *, first: bool = False) -> None:
        """Wait for a place at ``host``, before its queue; ``entered`` is called when it is taken.

        ``first``: also before others that wait so.
        """
        if first:
            host.guests.insert(0, entered)
        else:
            host.guests.append(entered)

    def stop_waiting(self, host: Host, entered: Callable[[], None]) -> bool:
        """Wait no longer; return False if the place was taken already."""
        if entered not in host.guests:
            return False
        host.guests.remove(entered)
        return True

    @property
    def in_flight(self) -> int:
        """Return the number of jobs that have started and not ended."""
        return self.active + self.parked

    def park(self) -> bool:
        """Free the slot of a job that waits for its connection; ``unpark`` takes it back.

        Returns False if too many are parked already.
        """
        if self.parked >= self.most_parked or self._alone:
            return False
        self.active -= 1
        self.parked += 1
        return True

    def unpark(self) -> None:
        """Take a slot for a parked job, even if none is free."""
        self.parked -= 1
        self.active += 1

    @property
    def wake_at(self) -> float:
        """Time when ``take`` may return a job that it does not return now; infinity: after an event."""
        return self._timers[0][0] if self._timers else math.inf

    def succeeded(
        self, host: Host, began: float, now: float, count: int = 1, *, again: bool = False
    ) -> bool:
        """Record ``count`` successful requests to ``host``; return True if more may start now.

        ``began``: when the last of them was sent; ``again``: it was a retry.
        """
        host.answered = now
        trouble = host.trouble
        if trouble is None and host.allowed == host.limit and not host.resting:
            return False
        if trouble is not None:
            trouble.succeeded(count, began, now, again=again)
            host.gap = trouble.throttle.gap
        if now < host.asked_until:
            # It was sent before the host asked for the pause, so it says nothing about the time since.
            return False
        host.not_before = min(host.not_before, now)
        if host.allowed == host.most and not host.resting and not host.rounds:
            return False
        host.rounds = 0
        host.failure = None
        host.allowed = min(host.most, host.allowed * 2)
        self._rouse(host)
        self._list(host)
        return True

    def failed(self, host: Host, began: float, now: float) -> int:
        """Record a failure of ``host`` itself, by a request sent at ``began``.

        Returns the number of failed rounds in a row. Requests that were sent before the last failure that
        started a round belong to that round.
        """
        if began >= host.failed_at:
            host.rounds += 1
            host.failed_at = now
        host.allowed = 1
        self._rest(host)
        return host.rounds

    def give_up(self, host: Host) -> None:
        """Start the jobs of ``host``, which is down, a quarter as many at a time as otherwise."""
        host.not_before = host.asked_until = 0.0
        host.allowed = min(host.most, max(host.limit // _GIVEN_UP_SHARE, _GIVEN_UP_LEAST))
        self._rouse(host)
        self._list(host)

    def pause(self, host: Host, until: float, *, asked: bool = True) -> bool:
        """Pause ``host`` until ``until``, then start with one request at a time.

        ``asked``: the host asks for that, so a success before does not end the pause. Returns False if it
        was paused that long already.
        """
        if asked:
            host.asked_until = max(host.asked_until, until)
        if until <= host.not_before:
            return False
        host.not_before = until
        host.allowed = 1
        self._rest(host)
        self.stalled(host)
        return True

    def went_silent(self, host: Host, began: float) -> None:
        """Record that a request to ``host``, sent at ``began``, took too long; see ``doubt``."""
        host.silent = True
        if host.answered <= began:
            self.doubt(host)

    def doubt(self, host: Host) -> None:
        """Take ``host`` as one that may not work, until something succeeds.

        Its jobs are started as before, but do not count as work that is there to be started, so that those
        of others are asked for.
        """
        self._rest(host)
        self.stalled(host)

    def rests_until(self, key: str, now: float) -> float:
        """Return when requests to host ``key`` may be sent again; at most ``now`` if they may be sent."""
        host = self._hosts.get(key)
        return host.not_before if host is not None else now

    def opens_at(self, host: Host, now: float) -> float:
        """Return when a job that is queued for ``host`` now may start, and those that it leads to take it.

        ``now``: at once, unless the host has all its requests in flight. Infinity: it would fail.
        """
        at = now
        following: Host | None = host
        for _ in range(_MOST_HOPS):
            if following is None:
                break
            if following.failure is not None and now < following.failed_until:
                return math.inf
            if following.not_before > now:
                at = max(at, following.not_before)
            elif following.resting and (following.queue or following.active or following.unknown):
                at = max(at, now + _PROBED)
            following = following.leads_to
        return at

    def fail_host(self, host: Host, code: str, detail: str, now: float) -> None:
        """Have all jobs for ``host`` fail with ``code`` for the next ``VERDICT`` seconds."""
        host.failure = (code, detail)
        host.failed_until = now + VERDICT
        host.not_before = host.asked_until = now
        host.paced = 0.0  # nothing is sent, so there is no rate to keep; see ``_start``
        self._rouse(host)
        self._list(host)

    def failure(self, host: Host, now: float) -> tuple[str, str] | None:
        """Return the failure that a job for ``host`` must end with at once, None if there is none."""
        if host.failure is not None and now >= host.failed_until:
            host.failure = None
        return host.failure

    def acquit(self, host: Host) -> None:
        """Let jobs for ``host``, which was condemned, be started again, one at a time at first."""
        host.failure = None
        host.rounds = 0

    def takes_at_most(self, host: Host, requests: int, now: float) -> None:
        """Let ``host`` have so many ``requests`` in flight: it has closed a connection beyond those."""
        host.takes, host.tries_more, host.tried_more = max(1, requests), 0, now
        host.allowed = min(host.allowed, host.takes)

    def serves(self, host: Host, requests: int, now: float) -> None:
        """Try more requests of ``host``, which has closed connections, and serves so many ``requests``.

        One more after ``TRY_MORE`` seconds, then twice as many each time, until it closes one again.
        """
        host.takes = max(host.takes, requests)
        if now - host.tried_more >= TRY_MORE:
            host.tries_more, host.tried_more = max(1, 2 * host.tries_more), now
        if host.most == host.limit:
            self.takes_any(host)

    def takes_any(self, host: Host) -> None:
        """Forget how many requests ``host`` has taken: it takes all, or closed some as it went down."""
        host.takes = host.tries_more = 0

    def crowded(self, host: Host, until: float) -> None:
        """Pause ``host`` until ``until``: it answers others, and takes no connection now.

        That is no failed round of the host.
        """
        host.rounds = 1
        self.pause(host, until, asked=False)

    def make_roomy(self, host: Host) -> None:
        """Start the jobs of ``host`` as before: it was ``crowded``, and others use it no more."""
        host.rounds = 0
        host.not_before = 0.0
        host.allowed = host.most
        self._rouse(host)
        self._list(host)

    @property
    def resting_hosts(self) -> list[Host]:
        """Return the hosts that are failing or paused and have jobs, or had."""
        return self._hosts.resting

    def _rest(self, host: Host) -> None:
        if not host.resting:
            host.resting = True
            self.resting += len(host.queue)

    def _rouse(self, host: Host) -> None:
        if host.resting:
            host.resting = False
            self.resting -= len(host.queue)

    def _list(self, host: Host) -> None:
        while host.guests and host.active < host.allowed:
            host.active += 1
            host.guests.pop(0)()
        if not host.listed and host.queue and host.active < host.allowed:
            host.listed = True
            self._ready.append(host)
            if not host.counted:
                for other in self._hosts.count(host):
                    self._list(other)

    def _fire_timers(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, _, due = heapq.heappop(self._timers)
            if isinstance(due, Host):
                if due.wake == at:
                    due.wake = 0.0
                self._list(due)
            elif due.demotions:
                self._demoted.append(due)
            else:
                self.unstarted -= 1
                self.resting -= 1
                self.add(due)
