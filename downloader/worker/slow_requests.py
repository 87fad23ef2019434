"""Observe the requests that hold slots, and preempt those that ``core.preemption`` chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from time import monotonic

import gevent

from downloader.core.host import Host
from downloader.core.preemption import SOONEST, Held, Preemption, Untaken
from downloader.core.scheduler import Scheduler
from downloader.http.exceptions import Preempted, Stranded
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.pipelined.connection import PipelinedConnection
from downloader.http.requests_client import RequestsClient
from downloader.http.task import FetchTask

__all__ = ["SlowRequests"]

_EVERY = 0.25  # seconds
_FEW = 4  # connections that a server can be expected to take at once


class SlowRequests:
    """The requests of all clients that hold slots, in one greenlet.

    ``clients``: those that make each request in a greenlet. ``fetching``: their tasks, by greenlet.
    ``waiting``: the greenlets that wait for the host that they were redirected to. A connection that is not
    open yet ends by ``connect_timeout``, unless its server holds up the TLS handshake. ``mirror`` returns
    the host at which a task, requested since a time, may be had sooner.
    """

    def __init__(
        self,
        schedule: Scheduler[FetchTask],
        pipelined: PipelinedClient,
        clients: Sequence[RequestsClient],
        fetching: Mapping[gevent.Greenlet, FetchTask],
        waiting: Container[gevent.Greenlet],
        connect_timeout: float,
    ) -> None:
        self._fetching = fetching
        self._schedule = schedule
        self._pipelined = pipelined
        self._clients = clients
        self._waiting = waiting
        self._connect_timeout = connect_timeout
        self._preemption = Preemption()
        self.mirror: Callable[[FetchTask, float], Host | None] = lambda task, since: None

    def run(self, finished: Callable[[], int]) -> None:
        """Observe until the process ends. ``finished()``: how many files were stored or have failed."""
        while True:
            gevent.sleep(_EVERY)
            schedule, now = self._schedule, monotonic()
            chosen = self._preemption.observe(
                now,
                self._held(),
                finished=finished(),
                slots=schedule.most,
                waiting=schedule.active >= schedule.most and schedule.unstarted > schedule.resting,
            )
            self._send_again(now)
            chosen += self._leave()
            openings = self._pipelined.budget.openings if chosen else {}
            for each in chosen:
                if not (each.received or each.key in openings):
                    schedule.went_silent(each.job.host, each.since)
                elif self._is_beaten(each):
                    schedule.doubt(each.job.host)  # what waits for it goes to the mirror, too
                self._preempt(each)

    def reads(self, greenlet: gevent.Greenlet) -> bool:
        """Return whether ``greenlet`` is sent a body."""
        return any(client.reads(greenlet) for client in self._clients)

    def received(self, greenlet: gevent.Greenlet) -> int:
        """Return how many bytes of a body ``greenlet`` has received, in whole chunks."""
        return sum(client.received(greenlet) for client in self._clients)

    def _leave(self) -> list[Held]:
        """Return the slow requests that end as their files go on at other mirrors, whatever slots are free.

        Of a robots.txt it is the files that wait for it.
        """
        leaving = []
        for each in self._preemption.overdue():
            task = each.job
            assert isinstance(task, FetchTask)
            if task.robots_txt:
                self._schedule.doubt(task.host)
            elif self.mirror(task, each.since) is not None:
                leaving.append(each)
        return self._preemption.leave(leaving)

    def _is_beaten(self, each: Held) -> bool:
        """Return whether a mirror has answered since ``each`` was sent, and its own host has not."""
        task = each.job
        assert isinstance(task, FetchTask)
        if task.host.answered > each.since:
            return False
        mirror = self.mirror(task, each.since)
        return mirror is not None and mirror.answered > each.since

    def _held(self) -> list[Held]:
        now, openings = monotonic(), self._pipelined.budget.openings
        held = []
        for connection in self._pipelined.awaiting:
            parser = connection.parser
            first = parser.outstanding[0]
            if first is not None and not first.solo:
                blocks = len(parser.outstanding) > 1 or bool(parser.completed)
                held.append(Held(connection, first, connection.since, parser.progress, blocks=blocks))
        for greenlet, task in self._fetching.items():
            storing = any(greenlet in client.storing for client in self._clients)
            if not (greenlet in openings or greenlet in self._waiting or task.solo or storing):
                held.append(Held(greenlet, task, task.sent, self.received(greenlet)))
        for greenlet, (since, parked) in openings.items():
            opens = self._fetching.get(greenlet) or self._pipelined.waiting.get(greenlet)
            if now - since > self._connect_timeout and opens is not None and not opens.solo:
                held.append(Held(greenlet, opens, since, 0, parked=parked))
        return held

    def _send_again(self, now: float) -> None:
        """Send the stranded requests again, and fewer at a time to their hosts from now on."""
        if not (untaken := list(self._untaken(now - SOONEST))):
            return
        found = self._preemption.stranded(untaken, self._pipelined.budget.count_idle())
        counts = Counter(each.job.host.key for each in found)
        for host in {each.job.host.key: each.job.host for each in found}.values():
            self._schedule.takes_at_most(host, max(host.active - counts[host.key], _FEW), now)
        for each in found:
            assert isinstance(each.job, FetchTask)
            each.job.stranded += 1
            if isinstance(each.key, gevent.Greenlet):
                each.key.kill(Stranded(), block=False)
            elif isinstance(each.key, PipelinedConnection):
                each.key.requeue_outstanding()

    def _untaken(self, before: float) -> Iterator[Untaken]:
        """Yield the requests that their servers have not taken, and that wait since ``before`` or more."""
        for connection in self._pipelined.awaiting:
            first = connection.parser.outstanding[0]
            if first is None or first.solo or connection.served or connection.since > before:
                continue
            if connection.is_untaken:
                yield Untaken(connection, first, connection.since, connection.key)
        for greenlet, since, peer in self._pipelined.budget.untaken(before):
            task = self._fetching.get(greenlet) or self._pipelined.waiting.get(greenlet)
            if task is not None and not (task.solo or greenlet in self._waiting):
                yield Untaken(greenlet, task, since, peer)

    def _preempt(self, held: Held) -> None:
        key = held.key
        if isinstance(key, gevent.Greenlet):
            key.kill(Preempted(), block=False)
        elif isinstance(key, PipelinedConnection) and key.slot is not None and key.since == held.since:
            key.preempt()
