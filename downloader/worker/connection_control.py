"""Adapt the number of connections of a worker, and give the slots of slow connection attempts away."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import gevent

from downloader.core.connection_limit import Climb, ConnectionLimit, Counters, adaptive, fixed
from downloader.core.scheduler import Scheduler
from downloader.http.connection_pool import SLOW_TO_OPEN
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.task import FetchTask
from downloader.process.cpu_demand import cpu_demand
from downloader.process.file_descriptors import Affordable
from downloader.worker.host_failures import HostFailures

__all__ = ["ConnectionControl", "first_limit"]

_FILLING = 2.0  # seconds in which connections are opened that a greater limit allows


def first_limit(chosen: int, afford: Affordable) -> ConnectionLimit:
    """Return the limit at the start; ``chosen``: --connections, 0 for auto."""
    return fixed(afford.connections) if chosen else adaptive(afford.connections, afford.ceiling)


class ConnectionControl:
    """The number of connections that a worker uses, in one greenlet.

    ``finished`` returns how many files were stored or have failed, ``dispatch`` starts what may start.
    ``peak``: the maximum of the limit so far.
    """

    def __init__(
        self,
        limit: ConnectionLimit,
        schedule: Scheduler[FetchTask],
        pipelined: PipelinedClient,
        hosts: HostFailures,
        finished: Callable[[], int],
        dispatch: Callable[[], None],
    ) -> None:
        self.census = pipelined.census
        self._schedule = schedule
        self._pipelined = pipelined
        self._hosts = hosts
        self._finished = finished
        self._dispatch = dispatch
        self._climb = Climb(limit, Counters(monotonic(), cpu_demand(), 0, 0))
        self.peak = limit.now
        self._full_at = 0.0

    @property
    def limit(self) -> ConnectionLimit:
        """Return the limit at present."""
        return self._climb.limit

    def run(self) -> None:
        """Regulate until the process ends."""
        while True:
            gevent.sleep(SLOW_TO_OPEN)
            changed = not self.limit.by_user and self._regulate()
            self.census.close_surplus()  # what a smaller limit has left open
            if self.census.park_slow() or changed:
                self._dispatch()

    def _regulate(self) -> bool:
        """Measure; return whether the limit has changed."""
        schedule, limit, origin_depths = self._schedule, self.limit, self._pipelined.origin_depths
        counted = Counters(monotonic(), cpu_demand(), self._finished(), self._hosts.refused)
        full = schedule.active >= schedule.most and schedule.unstarted > schedule.resting
        if full:
            self._full_at = counted.now
        many, together, steady = schedule.many_hosts, 1, False
        if not many:
            # One thing at a time: the depth of the pipeline, or the number of connections. Where responses
            # are slow, some connections try another depth meanwhile.
            recently = counted.now - self._full_at < _FILLING
            climbs = recently and not limit.stopped and limit.now < limit.most
            before = origin_depths.deepest
            if origin_depths.adapt(climbs=climbs):
                self._climb.depth_changed(faster=origin_depths.deepest > before)
            full = full and not origin_depths.deepen
            together, steady = self._pipelined.stored_together, origin_depths.by_trial
            if steady:
                # What is finished in bursts, minutes apart, is received in a steady stream.
                counted = counted._replace(finished=origin_depths.responses)
                together = origin_depths.deepest
        elif not self._climb.of_many_hosts:
            origin_depths.adapt_no_more()
        if not self._climb.observe(counted, full=full, many_hosts=many, together=together, steady=steady):
            return False
        connections = self.limit.now
        self.peak = max(self.peak, connections)
        schedule.resize(connections)
        self._pipelined.resize(connections)
        return True
