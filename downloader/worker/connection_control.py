"""Adapt the number of connections of a worker, and give the slots of slow connection attempts away."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import gevent

from downloader.core.connection_limit import Climb, ConnectionLimit, Counters, adaptive, fixed
from downloader.core.scheduler import Scheduler
from downloader.core.worker_counts import Row, WorkerCounts, together
from downloader.http.connection_budget import SLOW_TO_OPEN
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
    ``peak``: the maximum of the limit so far. ``worker``: its number; ``counts``: of all workers.

    Where there are few hosts, all workers have one limit, by what they receive together. Where there are
    many, each has its own.
    """

    def __init__(
        self,
        limit: ConnectionLimit,
        schedule: Scheduler[FetchTask],
        pipelined: PipelinedClient,
        hosts: HostFailures,
        finished: Callable[[], int],
        dispatch: Callable[[], None],
        worker: int,
        counts: WorkerCounts,
    ) -> None:
        self.budget = pipelined.budget
        self._schedule = schedule
        self._pipelined = pipelined
        self._hosts = hosts
        self._finished = finished
        self._dispatch = dispatch
        self._climb = Climb(limit, Counters(monotonic(), cpu_demand(), 0, 0))
        self.peak = limit.now
        self._full_at = 0.0
        self._place = counts.place(worker)
        self._counts = counts
        self._steps = 0  # changes of a depth
        self._others: dict[int, float] = {}  # their steps

    @property
    def limit(self) -> ConnectionLimit:
        """Return the limit at present."""
        return self._climb.limit

    def run(self) -> None:
        """Regulate until the process ends."""
        while True:
            gevent.sleep(SLOW_TO_OPEN)
            changed = not self.limit.by_user and self._regulate()
            self.budget.close_surplus()  # what a smaller limit has left open
            if self.budget.park_slow() or changed:
                self._dispatch()

    def _regulate(self) -> bool:
        """Measure; return whether the limit has changed."""
        many = self._schedule.many_hosts
        changed = self._regulate_alone() if many else self._regulate_with_others()
        if changed:
            connections = self.limit.now
            self.peak = max(self.peak, connections)
            self._schedule.resize(connections)
            self._pipelined.resize(connections)
        return changed

    def _count(self) -> tuple[Counters, bool]:
        """Return what is counted so far, and whether others wait for those in flight."""
        schedule, received = self._schedule, self._finished() + self._pipelined.held
        counted = Counters(monotonic(), cpu_demand(), received, self._hosts.refused)
        return counted, schedule.active >= schedule.most and schedule.unstarted > schedule.resting

    def _regulate_alone(self) -> bool:
        if not self._climb.of_many_hosts:
            self._pipelined.origin_depths.adapt_no_more()
            self._counts.withdraw(self._place)
        counted, full = self._count()
        return self._climb.observe(counted, full=full, many_hosts=True)

    def _regulate_with_others(self) -> bool:
        schedule, limit, origin_depths = self._schedule, self.limit, self._pipelined.origin_depths
        counted, full = self._count()
        if full:
            self._full_at = counted.now
        # One thing at a time: the depth of the pipeline, or the number of connections. Where responses
        # are slow, some connections try another depth meanwhile.
        recently = counted.now - self._full_at < _FILLING
        climbs = recently and not limit.stopped and limit.now < limit.most
        before, rows = origin_depths.deepest, self._counts.living(counted.now)
        first = next(iter(rows), self._place)
        falls = rows[first].falls > 0 if first < self._place else limit.falls
        if stepped := origin_depths.adapt(climbs=climbs, falls=falls):
            self._steps += 1
            self._climb.depth_changed(faster=origin_depths.deepest > before)
        deepening, draining = origin_depths.deepen and not falls, schedule.active > schedule.most
        # Connections that have tried a greater depth in vain rest, and would make few seem to be too few.
        draining = draining or (bool(limit.stopped) and self._pipelined.ends_windows)
        decided = (limit.now, limit.reason, limit.falls)
        works = schedule.in_flight + schedule.unstarted > 0
        row = Row(*counted[:4], full, deepening, draining, self._steps, *decided, works)
        self._counts.write(self._place, row)
        if first < self._place:
            row = rows[first]
            return self._climb.follow(counted, int(row.limit), int(row.reason), full=full)
        rows.pop(self._place, None)
        all_ = together([row, *rows.values()], counted.now)
        others = {place: each.steps for place, each in rows.items()}
        if others.items() > self._others.items():
            self._climb.joined(all_.counted)
        elif others != self._others and not stepped:
            self._climb.depth_changed(faster=False)
        self._others = others
        steady = origin_depths.by_trial
        return self._climb.observe(
            all_.counted,
            full=all_.full,
            many_hosts=False,
            together=origin_depths.deepest if steady else self._pipelined.stored_together,
            steady=steady,
            deepening=all_.deepening,
            draining=all_.draining,
        )
