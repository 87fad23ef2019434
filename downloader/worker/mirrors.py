"""Send the files that would wait for a host to their mirrors.

A host has them wait that is paused, or whose requests take too long: in its queue, for its robots.txt, or
because another host redirects to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

import gevent
from cachetools import LRUCache

from downloader.core.host import Host
from downloader.core.scheduler import Scheduler
from downloader.http.requests_client import Postponed
from downloader.http.task import FetchTask
from downloader.process.long_work import Pauses
from downloader.worker.redirect_places import RedirectPlaces
from downloader.worker.requests import TaskBuilder, awaits
from downloader.worker.robots import RobotsGate

__all__ = ["Mirrors"]

_LEAST = 0.2  # seconds between two looks at all that waits for a host
_MOST_HOSTS = 1000


class Mirrors:
    """The choice of a mirror for the files of a worker that have some, by when it may be requested.

    ``fetching``: the tasks of the requests client, by greenlet. ``gate`` has the robots.txt, None without
    --robots. ``admit`` schedules a task at a URL that is new. ``spawn`` calls a function in the background,
    which gives an error to ``fatal``. ``wake`` is called when tasks may start that could not before.
    """

    def __init__(
        self,
        schedule: Scheduler[FetchTask],
        builder: TaskBuilder,
        places: RedirectPlaces,
        fetching: Mapping[gevent.Greenlet, FetchTask],
        gate: RobotsGate | None,
        admit: Callable[[FetchTask], None],
        spawn: Callable[..., object],
        wake: Callable[[], None],
        fatal: Callable[[Exception], None],
    ) -> None:
        self._schedule = schedule
        self._builder = builder
        self._places = places
        self._fetching = fetching
        self._gate = gate
        self._admit = admit
        self._spawn = spawn
        self._wake = wake
        self._fatal = fatal
        self._diverting: set[str] = set()
        self._diverted: LRUCache[str, float] = LRUCache(_MOST_HOSTS)

    def soonest(self, task: FetchTask) -> FetchTask:
        """Return the task for the mirror that may be requested before ``task``, or ``task`` itself."""
        now = monotonic()
        at = max(self._schedule.opens_at(task.host, now), awaits(task))
        return self._builder.soonest(task, at, now)

    def admit(self, task: FetchTask) -> None:
        """Schedule ``task``, which is new, or the one for a mirror that may be requested before it."""
        self.add(self.soonest(task) if task.movable else task)

    def add(self, task: FetchTask, at: float = 0.0) -> None:
        """Schedule ``task``, whose URL may be new, not before ``at``."""
        at = max(at, awaits(task))
        # One of which the robots.txt is not known waits for that, which takes a while, too.
        if at > monotonic() and (self._gate is None or self._gate.allows(task)):
            self._schedule.add_later(task, at)
        else:
            self._admit(task)

    def divert(self, task: FetchTask, at: float = 0.0) -> bool:
        """Schedule ``task`` at a mirror that may be requested before it; return False if there is none.

        ``at``: when ``task`` may be, if not when its host may.
        """
        if not task.movable:
            return False
        if at:
            _put_off(task, at)
        other = self.soonest(task)
        if other is task:
            return False
        self.add(other)
        return True

    def leave(self, task: FetchTask, at: float) -> bool:
        """Schedule ``task``, which was too slow, at another mirror; return False if there is none.

        ``at``: when its present one may be asked again.
        """
        if not task.movable:
            return False
        _put_off(task, at)
        other = self._elsewhere(task, monotonic())
        if other is None:
            return self.divert(task)
        self.add(other)
        return True

    def better(self, task: FetchTask, since: float) -> Host | None:
        """Return the host where ``task``, requested at ``since``, may be had sooner, None if there is none.

        It has answered meanwhile, or nothing was asked of it. Each mirror is left so once at most.
        """
        if not task.movable or task.demotions >= len(task.item.mirrors):
            return None
        other = self._elsewhere(task, monotonic())
        host = other.host if other is not None else None
        if host is None or host.active >= host.allowed:
            return None
        return host if host.answered > since or not (host.active or host.queue) else None

    def _elsewhere(self, task: FetchTask, now: float) -> FetchTask | None:
        """Return the task for a mirror at another host that may be asked at once, and has not failed."""
        other: FetchTask | None = task
        for _ in task.item.mirrors:
            other = other and self._builder.next_mirror(other, drop=False)
            if (
                other is not None
                and other.host is not task.host
                and other.item.url not in task.tried
                and max(self._schedule.opens_at(other.host, now), awaits(other)) <= now
            ):
                return other
        return None

    def stalled(self, host: Host) -> None:
        """Divert what waits for ``host``, whose files have to wait."""
        if self._builder.mirrored and host.key not in self._diverting:
            self._diverting.add(host.key)
            self._spawn(self._divert, host)

    def _divert(self, host: Host) -> None:
        """Divert what waits for ``host``; it is held until it is known whether it has a mirror."""
        try:
            gevent.sleep(self._diverted.get(host.key, 0.0) + _LEAST - monotonic())
            self._diverting.discard(host.key)
            self._diverted[host.key] = monotonic()
            self._recall(host)
            waiting = self._schedule.withdraw(host, _is_movable)
            if self._gate is not None:
                waiting += self._gate.withdraw(host.key, _is_movable)
            pause = Pauses()
            for task in waiting:
                self.admit(task)
                self._schedule.hold(task, -1)
                pause()
        except Exception as error:
            self._fatal(error)
        self._wake()

    def _recall(self, host: Host) -> None:
        """Give up the requests that were redirected to ``host``, and wait there, for a better mirror."""
        until = self._schedule.opens_at(host, monotonic())
        for greenlet, target in list(self._places.waiting.items()):
            task = self._fetching.get(greenlet)
            if target is not host or task is None:
                continue
            if task.movable and self.soonest(task) is not task:
                greenlet.kill(Postponed(until, 1), block=False)
            elif task.robots_txt and not task.host.resting:
                self._schedule.doubt(task.host)


def _put_off(task: FetchTask, at: float) -> None:
    task.until = {**(task.until or {}), task.item.url: at}


def _is_movable(task: FetchTask) -> bool:
    return task.movable
