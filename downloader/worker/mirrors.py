"""Send the files that would wait for a host to their mirrors.

A host has them wait that is paused, or whose requests take too long: in its queue, for its robots.txt, or
because another host redirects to it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from downloader.core.host import Host
from downloader.core.scheduler import Scheduler
from downloader.http.task import FetchTask
from downloader.process.long_work import Pauses
from downloader.worker.requests import TaskBuilder
from downloader.worker.robots import RobotsGate

__all__ = ["Mirrors"]


class Mirrors:
    """The choice of a mirror for the files of a worker that have some, by when it may be requested.

    ``schedule_new`` schedules a task at a URL that is new. ``spawn`` calls a function in the background,
    which gives an error to ``fatal``. ``wake`` is called when tasks may start that could not before.
    """

    def __init__(
        self,
        schedule: Scheduler[FetchTask],
        builder: TaskBuilder,
        gate: RobotsGate,
        schedule_new: Callable[[FetchTask], None],
        spawn: Callable[..., Any],
        wake: Callable[[], None],
        fatal: Callable[[Exception], None],
    ) -> None:
        self._schedule = schedule
        self._builder = builder
        self._gate = gate
        self._schedule_new = schedule_new
        self._spawn = spawn
        self._wake = wake
        self._fatal = fatal

    def soonest(self, task: FetchTask, at: float = 0.0) -> FetchTask:
        """Return the task for the mirror that may be requested before ``task``, or ``task`` itself.

        ``at``: when ``task`` may be, if not when its host may.
        """
        now = monotonic()
        return self._builder.soonest(task, at or self._schedule.opens_at(task.host, now), now)

    def admit(self, task: FetchTask) -> None:
        """Schedule ``task``, which is new, or the one for a mirror that may be requested before it."""
        self._schedule_new(self.soonest(task) if task.movable else task)

    def divert(self, task: FetchTask, at: float = 0.0) -> bool:
        """Schedule ``task`` at a mirror that may be requested before it; return False if there is none."""
        other = self.soonest(task, at) if task.movable else task
        if other is task:
            return False
        self._schedule_new(other)
        return True

    def stalled(self, host: Host) -> None:
        """Divert what waits for ``host``, whose files have to wait."""
        if self._builder.mirrored:
            self._spawn(self._divert, host)

    def _divert(self, host: Host) -> None:
        """Divert what waits for ``host``; it is held until it is known whether it has a mirror."""
        try:
            waiting = self._schedule.withdraw(host, _is_movable)
            waiting += self._gate.withdraw(host.key, _is_movable)
            pause = Pauses()
            for task in waiting:
                self.admit(task)
                self._schedule.hold(task, -1)
                pause()
        except Exception as error:
            self._fatal(error)
        self._wake()


def _is_movable(task: FetchTask) -> bool:
    return task.movable
