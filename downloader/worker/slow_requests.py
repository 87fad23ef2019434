"""Observe the requests that hold slots, and preempt those that ``core.preemption`` chooses."""

from __future__ import annotations

from collections.abc import Callable, Container
from time import monotonic

import gevent

from downloader.core.preemption import Held, Preemption
from downloader.core.scheduler import Scheduler
from downloader.http.exceptions import Preempted
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.pipelined.connection import PipelinedConnection
from downloader.http.requests_client import RequestsClient
from downloader.http.task import FetchTask

__all__ = ["SlowRequests"]

_EVERY = 0.25  # seconds


class SlowRequests:
    """The requests of both clients that hold slots, in one greenlet.

    ``waiting``: the greenlets that wait for a place at the host that they were redirected to.
    ``fetching``: the tasks of the requests client, by greenlet. A connection that is not open yet ends by
    ``connect_timeout``, unless its server holds up the TLS handshake.
    """

    def __init__(
        self,
        schedule: Scheduler[FetchTask],
        pipelined: PipelinedClient,
        client: RequestsClient,
        waiting: Container[gevent.Greenlet],
        connect_timeout: float,
    ) -> None:
        self.fetching: dict[gevent.Greenlet, FetchTask] = {}
        self._schedule = schedule
        self._pipelined = pipelined
        self._client = client
        self._waiting = waiting
        self._connect_timeout = connect_timeout
        self._preemption = Preemption()
        self._before = 0  # requests that had ended at the last observation

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
            openings = self._pipelined.census.openings if chosen else {}
            for each in chosen:
                if not (each.received or each.key in openings):
                    schedule.went_silent(each.job.host, each.since)
                self._preempt(each)

    def _held(self) -> list[Held]:
        now, openings = monotonic(), self._pipelined.census.openings
        held = []
        for connection in self._pipelined.awaiting:
            parser = connection.parser
            first = parser.outstanding[0]
            if first is not None and not first.solo:
                blocks = len(parser.outstanding) > 1 or bool(parser.completed)
                held.append(Held(connection, first, connection.since, parser.progress, blocks=blocks))
        for greenlet, task in self.fetching.items():
            storing = greenlet in self._client.storing
            if not (greenlet in openings or greenlet in self._waiting or task.solo or storing):
                held.append(Held(greenlet, task, task.sent, self._client.received(greenlet)))
        for greenlet, (since, parked) in openings.items():
            opens = self.fetching.get(greenlet) or self._pipelined.waiting.get(greenlet)
            if now - since > self._connect_timeout and opens is not None and not opens.solo:
                held.append(Held(greenlet, opens, since, 0, parked=parked))
        return held

    def _preempt(self, held: Held) -> None:
        key = held.key
        if isinstance(key, gevent.Greenlet):
            key.kill(Preempted(), block=False)
        elif isinstance(key, PipelinedConnection) and key.slot is not None and key.since == held.since:
            key.preempt()
