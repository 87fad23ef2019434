"""Limit the number of connections that a worker has open to all hosts together.

urllib3 limits connections per host. ``ConnectionBudget`` limits them over all hosts: when the limit is
reached and another connection is needed, an idle one of another host is closed. Each request in flight uses
one connection, and there are never more of those than the limit, so an idle connection always exists.

A connection to a host that does not answer takes seconds to fail. Meanwhile its request should not hold a
slot that another host could use, so the connection budget knows which connections are being opened, since
when and for which slot, and ``park_slow`` gives their slots away.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from itertools import takewhile
from time import monotonic
from typing import Protocol

import gevent

from downloader.core.host import Host
from downloader.http.dns import Resolver

__all__ = ["SLOW_TO_OPEN", "ConnectionBudget", "IdleConnection", "Slots"]

SLOW_TO_OPEN = 0.25
"""Seconds after which a request that waits for its connection gives its slot away, at least."""

# It is as many times what connections took to open. Where the CPU is the limit, handshakes are slow, and
# those that are begun in the place of others make all slower.
_TIMES_USUAL, _LONGEST_SLOT = 4, 2.0


class Slots(Protocol):
    """The slots of requests, ``most`` in all and ``per_host`` for one host; see ``core.scheduler``."""

    most: int

    @property
    def per_host(self) -> int:
        """Return the number of slots that one host may have."""

    def park(self) -> bool:
        """Free the slot of a request; return False if too many are parked already."""

    def unpark(self) -> None:
        """Take the slot back."""


class IdleConnection(Protocol):
    """An idle connection of either client, as the connection budget calls it."""

    @property
    def key(self) -> tuple[str, int]:
        """Return the host and the port that it is connected to."""

    @property
    def since(self) -> float:
        """Return when it last served a request that was not refused (seconds, monotonic)."""

    @property
    def refuses(self) -> bool:
        """Return whether its last request was refused."""

    @property
    def is_doubtful(self) -> bool:
        """Return whether it may be one of those on which all is refused; see ``RefusalRun``."""

    def close(self) -> None:
        """Close it, to make room for another."""

    def leave(self) -> None:
        """Close it; its machine is of no use now."""


class _Opened(Protocol):
    """A connection of urllib3's, as the budget asks it."""

    @property
    def key(self) -> tuple[str, int]:
        """Return the host and the port that it is connected to, or to be."""

    @property
    def is_untaken(self) -> bool:
        """Return whether nothing shows that the server's system has taken it, and what was sent on it."""


class _Opening:
    """A connection that ``greenlet`` has been opening since ``since``, in the slot of a request."""

    __slots__ = ("greenlet", "host", "parked", "since")

    def __init__(self, greenlet: gevent.Greenlet, host: Host, since: float) -> None:
        self.greenlet = greenlet
        self.host = host
        self.since = since
        self.parked = False


class ConnectionBudget:
    """The number of open connections: now (``open``) and the maximum so far (``peak``).

    At most ``connections`` are open, and to one host, until ``use_slots``. ``parked``: how many of them are
    being opened without a slot. ``waiting_for``: the host in whose slot a greenlet runs, for greenlets that
    may open connections. ``opened`` is called with that host when a connection is open, with TLS.
    """

    def __init__(self, connections: int, resolver: Resolver) -> None:
        self._connections = connections
        self.resolver = resolver
        self.open = 0
        self.peak = 0
        self.idle: dict[IdleConnection, None] = {}  # of both clients, the longest idle first
        self._of_host: dict[tuple[str, int], int] = {}
        self.parked = 0
        self.waiting_for: dict[gevent.Greenlet, Host] = {}
        self.opened: Callable[[Host], None] | None = None
        self._slots: Slots | None = None
        self._opening: dict[_Opened, _Opening] = {}
        # Since when greenlets wait for the first response of a connection of urllib3's, and whose.
        self.first_requests: dict[gevent.Greenlet, tuple[float, _Opened]] = {}
        self._usual = 0.0  # seconds that connections took to open, where no slot was given away

    def use_slots(self, slots: Slots) -> None:
        """Open as many connections as there are ``slots`` from now on, and park requests in them."""
        self._slots = slots

    @property
    def limit(self) -> int:
        """Return the maximum number of open connections."""
        return self._slots.most if self._slots is not None else self._connections

    def begin_opening(self, connection: _Opened) -> None:
        """Record that ``connection`` is being opened by the current greenlet."""
        greenlet = gevent.getcurrent()
        host = self.waiting_for.get(greenlet)
        if host is not None:
            self._opening[connection] = _Opening(greenlet, host, monotonic())

    def end_opening(self, connection: _Opened) -> None:
        """Record that ``connection`` is open, or could not be opened."""
        opening = self._opening.pop(connection, None)
        if opening is None or self._slots is None:
            return
        if opening.parked:
            self.parked -= 1
            self._slots.unpark()
        else:
            self._usual += (monotonic() - opening.since - self._usual) / 16

    def end_connecting(self) -> None:
        """Report that the current greenlet has opened a connection."""
        host = self.waiting_for.get(gevent.getcurrent())
        if host is not None and self.opened is not None:
            self.opened(host)

    @property
    def openings(self) -> dict[gevent.Greenlet, tuple[float, bool]]:
        """Return since when each greenlet has been opening a connection, and whether without a slot."""
        return {each.greenlet: (each.since, each.parked) for each in self._opening.values()}

    def untaken(self, before: float) -> Iterator[tuple[gevent.Greenlet, float, tuple[str, int]]]:
        """Yield the greenlets whose connection the server has not taken, since when, and to whom it is.

        Only those that have waited since ``before``, or longer.
        """
        for connection, opening in self._opening.items():
            if opening.since > before:
                break  # they are in the order in which they began
            if connection.is_untaken:
                yield opening.greenlet, opening.since, connection.key
        for greenlet, (since, connection) in self.first_requests.items():
            if since <= before and connection.is_untaken:
                yield greenlet, since, connection.key

    def count_idle(self) -> Counter[Hashable]:
        """Return how many idle connections there are by host and port, but those that refuse."""
        return Counter(each.key for each in self.idle if not each.refuses)

    def park_slow(self) -> int:
        """Park the requests that wait long for a connection; return how many were parked."""
        slow = min(max(SLOW_TO_OPEN, self._usual * _TIMES_USUAL), _LONGEST_SLOT)
        count, before = 0, monotonic() - slow
        for opening in self._opening.values():
            if opening.since > before:
                break  # they are in the order in which they began
            if not opening.parked and self._slots is not None:
                if not self._slots.park():
                    break
                opening.parked = True
                count += 1
        self.parked += count
        return count

    @property
    def slow_hosts(self) -> list[Host]:
        """Return the hosts that requests are parked for; one may be there several times."""
        return [opening.host for opening in self._opening.values() if opening.parked]

    def end_overdue(self, deadline: float, error: Callable[[], Exception]) -> None:
        """Raise ``error()`` in greenlets that have been opening a connection for ``deadline`` seconds."""
        before = monotonic() - deadline
        for opening in list(takewhile(lambda each: each.since < before, self._opening.values())):
            opening.greenlet.kill(error(), block=False)

    def enter(self, key: tuple[str, int]) -> None:
        """Count a connection to the host and port ``key``, about to be opened; make room for it."""
        per_host = self._slots.per_host if self._slots is not None else self._connections
        if self._of_host.get(key, 0) >= per_host:
            for idle in self._idle_of(key)[:1]:
                idle.close()
        limit = self.limit
        while self.open - self.parked >= limit and self.idle:
            next(iter(self.idle)).close()
        self._of_host[key] = self._of_host.get(key, 0) + 1
        self.open += 1
        self.peak = max(self.peak, self.open)

    def close_surplus(self) -> None:
        """Close idle connections while more are open than there are slots."""
        while self.idle and self.open - self.parked > self.limit:
            next(iter(self.idle)).close()

    def close_idle(self, key: tuple[str, int]) -> None:
        """Close the idle connections to ``key``."""
        for idle in self._idle_of(key):
            idle.close()

    def leave_idle(self, key: tuple[str, int], since: float) -> None:
        """Close the idle connections to ``key`` that have served no request ``since`` then.

        The next go to other machines, if there are.
        """
        for idle in self._idle_of(key):
            if idle.refuses or idle.since < since:
                idle.leave()

    def leave_doubtful(self, key: tuple[str, int]) -> None:
        """Close the idle connections to ``key`` on which requests are refused; see ``leave_idle``."""
        # All are chosen first: each that is left changes what is expected of the others.
        for idle in [each for each in self._idle_of(key) if each.is_doubtful]:
            if idle.refuses:
                idle.leave()
            else:
                idle.close()  # its machine serves others

    def _idle_of(self, key: tuple[str, int]) -> list[IdleConnection]:
        return [each for each in self.idle if each.key == key]

    def leave(self, key: tuple[str, int]) -> None:
        """Stop counting a connection to ``key``, which was closed."""
        self.open -= 1
        self._of_host[key] -= 1
        if not self._of_host[key]:
            del self._of_host[key]
