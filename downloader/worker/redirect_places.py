"""Let a redirected request wait until the host that it leads to takes another one.

A request counts for the host that it is sent to: that of its URL, then the one that a redirect leads to.
So it gives back its place at the host that has answered, and waits for one at the next, behind those that
came before it. It keeps its slot among all requests, or is parked while it waits.

It also waits while that host is paused, if others can use its slot: one that a host redirects to, and that
refuses many, would otherwise have the first one asked for each file again and again.

Where a redirect leads to may hold for some seconds only: signed URLs, hosts that are chosen by load. So
after a longer wait the first host is asked again, while the place that was waited for is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

import gevent
from gevent.event import Event

from downloader.core.host import Host
from downloader.core.scheduler import Scheduler
from downloader.http.requests_client import Turn
from downloader.http.task import FetchTask

__all__ = ["RedirectPlaces"]

_PATIENCE = 30.0  # seconds for which the end of a pause is waited for
_KEPT = 2.0  # seconds for which a place is kept until the first host takes the request again


class RedirectPlaces:
    """The places of redirected requests, by the greenlet that makes each.

    ``waiting``: the greenlets that wait for one, and at which host. ``gate`` returns when requests may be
    sent to a host, and raises FetchError if none may. ``fetching``: the tasks, by greenlet; they count as
    sent after their wait. ``freed`` is called when another request may be sent, ``answered`` when a host
    that a redirect has led to redirects further: it does what it is there for.
    """

    def __init__(
        self,
        schedule: Scheduler[FetchTask],
        gate: Callable[[str], float],
        fetching: Mapping[gevent.Greenlet, FetchTask],
        freed: Callable[[], None],
        answered: Callable[[Host, float], None],
    ) -> None:
        self._schedule = schedule
        self._gate = gate
        self._fetching = fetching
        self._freed = freed
        self._answered = answered
        self._places: dict[gevent.Greenlet, Host | None] = {}
        # Further places, and how many hops led to each.
        self._kept: dict[gevent.Greenlet, tuple[Host, int]] = {}
        self.waiting: dict[gevent.Greenlet, Host] = {}

    def move(self, before: str, after: str, hops: int, *, patient: bool = True) -> Turn:
        """Wait until a request that was sent to host ``before`` may be sent to ``after``, after ``hops``.

        If that takes too long, or would keep others from their turn, the request has a later turn. With
        ``patient``, a pause of ``after`` is waited for. Raises FetchError if ``after`` takes none.
        """
        began = monotonic()
        longest = began + _PATIENCE if patient else began
        if (until := self._gate(after)) > longest:
            return Turn(until)
        greenlet, schedule = gevent.getcurrent(), self._schedule
        left, target = self._places.get(greenlet) or schedule.host(before), schedule.host(after)
        left.leads_to = target
        if greenlet in self._places:
            self._answered(left, self._fetching[greenlet].sent)
        self._places[greenlet] = None
        schedule.leave(left)
        self._freed()
        self._places[greenlet] = self._use_kept(greenlet, target, hops)
        while True:
            now, until = monotonic(), self._gate(after)
            entered = self._places[greenlet] is target
            if until <= now:
                if entered:
                    return Turn(until, waited=now - began)
                if not schedule.enter(target):
                    self._await_place(greenlet, target)
                self._places[greenlet] = target  # which may be paused by now
                continue
            self._give_up_kept(greenlet)
            if entered:
                self._places[greenlet] = None
                schedule.leave(target)
            if until > longest:
                return Turn(until)
            with self._aside(greenlet, target) as parked:
                if not parked:
                    return Turn(until)
                schedule.stalled(target)  # it may have a mirror
                gevent.sleep(until - now)

    def _use_kept(self, greenlet: gevent.Greenlet, target: Host, hops: int) -> Host | None:
        """Return ``target`` if the request of ``greenlet`` has its kept place there, or gets one soon.

        On the way to a kept place it is before others, so that this is not kept for long. That is given
        back where the request has to wait all the same, or is led elsewhere.
        """
        kept, after = self._kept.get(greenlet, (None, 0))
        if kept is target:
            del self._kept[greenlet]
            return target
        if kept is not None and hops < after and self._enter_soon(greenlet, target):
            return target
        self._give_up_kept(greenlet)
        return None

    def _give_up_kept(self, greenlet: gevent.Greenlet) -> None:
        if greenlet in self._kept:
            self._schedule.leave(self._kept.pop(greenlet)[0])

    def back(self, first: str, hops: int) -> float:
        """Take a place at host ``first`` again, and keep the present one, to which ``hops`` have led.

        Returns when the request may be sent to ``first``; that is later if it is paused or has no place.
        Raises FetchError if it takes none.
        """
        if (until := self._gate(first)) > monotonic():
            return until
        greenlet, host = gevent.getcurrent(), self._schedule.host(first)
        if self._places[greenlet] is host:
            return until  # it was led back there
        kept, self._places[greenlet] = self._places[greenlet], None
        if kept is not None:
            self._kept[greenlet] = (kept, hops)
        if not self._enter_soon(greenlet, host):
            return monotonic() + _KEPT
        self._places[greenlet] = host
        return until

    def _enter_soon(self, greenlet: gevent.Greenlet, host: Host) -> bool:
        """Take a place at ``host``, before others that wait for one; return whether there was one soon."""
        return self._schedule.enter(host) or self._await_place(greenlet, host, _KEPT)

    def _await_place(self, greenlet: gevent.Greenlet, target: Host, most: float | None = None) -> bool:
        """Wait for a place at ``target``, for at most ``most`` seconds; return whether it was given."""
        schedule, entered = self._schedule, Event()
        call = entered.set
        schedule.await_place(target, call, first=most is not None)
        with self._aside(greenlet, target):
            try:
                return entered.wait(most) or not schedule.stop_waiting(target, call)
            except BaseException:
                if not schedule.stop_waiting(target, call):
                    schedule.leave(target)  # the place was given to it meanwhile
                raise

    @contextmanager
    def _aside(self, greenlet: gevent.Greenlet, target: Host) -> Iterator[bool]:
        """Note that ``greenlet`` waits for ``target``; give whether it leaves its slot to others."""
        parked, since = self._schedule.park(), monotonic()
        self.waiting[greenlet] = target
        try:
            yield parked
        finally:
            self._fetching[greenlet].sent += monotonic() - since
            del self.waiting[greenlet]
            if parked:
                self._schedule.unpark()

    def at(self, greenlet: gevent.Greenlet, first: Host) -> Host | None:
        """Return where the request of ``greenlet``, which began at host ``first``, has its place now."""
        return self._places.get(greenlet, first)

    def end(self, greenlet: gevent.Greenlet, first: Host) -> Host | None:
        """End the request of ``greenlet``; return where it had its place, None if it waited for one."""
        self._give_up_kept(greenlet)
        return self._places.pop(greenlet, first)
