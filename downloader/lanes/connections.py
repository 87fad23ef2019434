"""Connections, counted: at most so many open in one worker, all hosts together.

urllib3 limits connections per host. ``Census`` limits them over all hosts: when one more is needed
and none is left, an idle one of another host is closed. Since each request in flight uses one
connection, and there are never more of those than the limit, an idle one is always found.
"""

from __future__ import annotations

from typing import Any

from downloader import patching

patching.require()

import queue  # noqa: E402

import urllib3  # noqa: E402
from gevent.monkey import get_original  # noqa: E402
from urllib3.connection import HTTPConnection, HTTPSConnection  # noqa: E402
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool  # noqa: E402

__all__ = ["Census", "pool_classes"]

_POLL = get_original("select", "poll")


class Census:
    """How many connections are open: now (``open``), at most at one time (``peak``), ever (``made``)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.peak = 0
        self.made = 0
        self._managers: list[urllib3.PoolManager] = []

    def watch(self, pools: urllib3.PoolManager) -> None:
        """Idle connections of ``pools`` may be closed to make room."""
        self._managers.append(pools)

    def enter(self) -> None:
        """A connection is about to be opened."""
        while self.open >= self.limit and self._close_idle():
            pass
        self.open += 1
        self.made += 1
        self.peak = max(self.peak, self.open)

    def leave(self) -> None:
        """A connection was closed."""
        self.open -= 1

    def _close_idle(self) -> bool:
        for manager in self._managers:
            for key in list(manager.pools.keys()):
                pool = manager.pools.get(key)
                if pool is not None and _close_one(pool):
                    return True
        return False


def _close_one(pool: Any) -> bool:
    try:
        connection = pool.pool.get(block=False)
    except (queue.Empty, AttributeError):
        return False
    found = connection is not None and connection.sock is not None
    if found:
        connection.close()
    pool.pool.put(connection, block=False)
    return found


class _Counted:
    """Mixed into urllib3's connections."""

    census: Census
    sock: Any
    _entered = False

    def connect(self) -> None:
        self.census.enter()
        self._entered = True
        super().connect()  # type: ignore[misc]

    def close(self) -> None:
        try:
            super().close()  # type: ignore[misc]
        finally:
            if self._entered:
                self._entered = False
                self.census.leave()

    @property
    def is_connected(self) -> bool:
        """Whether the idle connection is still usable: open, and nothing has arrived on it.

        urllib3 asks through gevent's poll, a trip through the hub for each request; the system's own
        poll with no timeout never waits.
        """
        if self.sock is None:
            return False
        poll = _POLL()
        poll.register(self.sock, 1)  # POLLIN
        return not poll.poll(0)


def pool_classes(census: Census) -> dict[str, type[HTTPConnectionPool]]:
    """urllib3's pool classes whose connections ``census`` counts."""

    class CountedHTTP(_Counted, HTTPConnection):
        pass

    class CountedHTTPS(_Counted, HTTPSConnection):
        pass

    CountedHTTP.census = CountedHTTPS.census = census

    class HTTPPool(HTTPConnectionPool):
        ConnectionCls = CountedHTTP

    class HTTPSPool(HTTPSConnectionPool):
        ConnectionCls = CountedHTTPS

    return {"http": HTTPPool, "https": HTTPSPool}
