"""Let a redirected request wait until the host that it leads to takes another one.

A request counts for the host that it is sent to: that of its URL, then the one that a redirect leads to.
So it gives back its place at the host that has answered, and waits for one at the next, behind those that
came before it. It keeps its slot among all requests, or is parked while it waits.
"""

from __future__ import annotations

from collections.abc import Callable

import gevent
from gevent.event import Event

from downloader.core.host import Host
from downloader.core.scheduler import Scheduler
from downloader.http.task import FetchTask

__all__ = ["RedirectPlaces"]


class RedirectPlaces:
    """The places of redirected requests, by the greenlet that makes each.

    ``waiting``: the greenlets that wait for one, and at which host. ``freed`` is called when another
    request may be sent.
    """

    def __init__(self, schedule: Scheduler[FetchTask], freed: Callable[[], None]) -> None:
        self._schedule = schedule
        self._freed = freed
        self._places: dict[gevent.Greenlet, Host | None] = {}
        self.waiting: dict[gevent.Greenlet, Host] = {}

    def move(self, before: str, after: str) -> None:
        """Wait until a request that was sent to host ``before`` may be sent to host ``after``."""
        greenlet, schedule = gevent.getcurrent(), self._schedule
        left, target = self._places.get(greenlet) or schedule.host(before), schedule.host(after)
        left.leads_to = target
        self._places[greenlet] = None
        schedule.leave(left)
        self._freed()
        if not schedule.enter(target):
            self._wait(greenlet, target)
        self._places[greenlet] = target

    def _wait(self, greenlet: gevent.Greenlet, target: Host) -> None:
        schedule, entered = self._schedule, Event()
        call = entered.set
        schedule.await_place(target, call)
        parked = schedule.park()
        self.waiting[greenlet] = target
        try:
            entered.wait()
        except BaseException:
            if not schedule.stop_waiting(target, call):
                schedule.leave(target)  # the place was given to it meanwhile
            raise
        finally:
            del self.waiting[greenlet]
            if parked:
                schedule.unpark()

    def end(self, greenlet: gevent.Greenlet, first: Host) -> Host | None:
        """Return where the request of ``greenlet``, which began at host ``first``, has its place now.

        None if it was ended while it waited for one.
        """
        return self._places.pop(greenlet, first)
