"""Connections, counted: at most so many open in one worker, all hosts together.

urllib3 limits connections per host. ``Census`` limits them over all hosts: when one more is needed
and none is left, an idle one of another host is closed. Since each request in flight uses one
connection, and there are never more of those than the limit, an idle one is always found.
"""

from __future__ import annotations

from typing import Any

from downloader.process import patching

patching.require()

import http.client  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402  (only in a patched process)

from gevent.monkey import get_original  # noqa: E402
from urllib3.connection import HTTPConnection, HTTPSConnection  # noqa: E402
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool  # noqa: E402
from urllib3.exceptions import (  # noqa: E402
    ConnectTimeoutError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
)

from downloader.http.dns import Resolver  # noqa: E402
from downloader.http.exceptions import HandshakeCut  # noqa: E402
from downloader.http.response import StrictResponse  # noqa: E402

__all__ = ["Census", "pool_classes"]

_POLL = get_original("select", "poll")


class Census:
    """How many connections are open: now (``open``), at most at one time (``peak``)."""

    def __init__(self, limit: int, per_host: int, resolver: Resolver) -> None:
        self.limit = limit
        self.per_host = per_host
        self.resolver = resolver
        self.open = 0
        self.peak = 0
        # Those with nothing to do, of either lane, the longest idle first; each has a ``key``.
        self.idle: dict[Any, None] = {}
        self._of_host: dict[tuple[str, int], int] = {}

    def enter(self, key: tuple[str, int]) -> None:
        """A connection to the host and port ``key`` is about to be opened."""
        if self._of_host.get(key, 0) >= self.per_host:
            for idle in [each for each in self.idle if each.key == key][:1]:
                idle.close()
        while self.open >= self.limit and self.idle:
            next(iter(self.idle)).close()
        self._of_host[key] = self._of_host.get(key, 0) + 1
        self.open += 1
        self.peak = max(self.peak, self.open)

    def leave(self, key: tuple[str, int]) -> None:
        """A connection to ``key`` was closed."""
        self.open -= 1
        self._of_host[key] -= 1
        if not self._of_host[key]:
            del self._of_host[key]


class _Counted:
    """Mixed into urllib3's connections."""

    census: Census
    sock: Any
    _dns_host: str
    _entered = False
    served = False  # since it was opened
    response_class: Any = StrictResponse

    host: str
    port: int
    proxy: Any

    @property
    def key(self) -> tuple[str, int]:
        """The host and port it is for."""
        return self.host, self.port

    def connect(self) -> None:
        self.census.enter(self.key)
        self._entered = True
        self.served = False
        try:
            super().connect()  # type: ignore[misc]
        except (ssl.SSLEOFError, ConnectionError) as error:
            raise HandshakeCut(error.errno, "the connection was cut in the TLS handshake") from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "the TLS handshake took too long") from error
        if hasattr(self.sock, "suppress_ragged_eofs"):
            # Without close_notify nobody knows whether the end is the end.
            self.sock.suppress_ragged_eofs = False

    def _tunnel(self) -> None:
        try:
            super()._tunnel()  # type: ignore[misc]
        except (OSError, http.client.HTTPException) as error:
            raise ProxyError("no tunnel", error) from error

    def _new_conn(self) -> Any:
        try:
            return self._dialled()
        except (NewConnectionError, ConnectTimeoutError) as error:
            if self.proxy is None:
                raise
            raise ProxyError("no connection", error) from error

    def _dialled(self) -> Any:
        host, failure = self._dns_host, None
        try:
            for address in self.census.resolver.addresses(host):
                self._dns_host = address
                try:
                    return super()._new_conn()  # type: ignore[misc]
                except (NewConnectionError, ConnectTimeoutError) as error:
                    failure = error
        except socket.gaierror as error:
            raise NameResolutionError(host, self, error) from error  # type: ignore[arg-type]
        finally:
            self._dns_host = host
        self.census.resolver.forget(host)
        raise failure or NewConnectionError(self, "the name has no address")  # type: ignore[arg-type]

    def close(self) -> None:
        try:
            super().close()  # type: ignore[misc]
        finally:
            self.census.idle.pop(self, None)
            if self._entered:
                self._entered = False
                self.census.leave(self.key)

    @property
    def is_connected(self) -> bool:
        """Whether the idle connection is still usable: open, and nothing has arrived on it.

        urllib3 asks through gevent's poll, a trip through the hub for each request; the system's own
        poll with no timeout never waits.
        """
        if self.sock is None or (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()):
            # What is decrypted already no poll shows: it would be read as the next file's answer.
            return False
        poll = _POLL()
        poll.register(self.sock, 1)  # POLLIN
        return not poll.poll(0)


class _Watched:
    """Mixed into urllib3's pools: tells the census which connections are idle."""

    census: Census

    def _get_conn(self, timeout: float | None = None) -> Any:
        connection = super()._get_conn(timeout)  # type: ignore[misc]
        self.census.idle.pop(connection, None)
        return connection

    def _put_conn(self, conn: Any) -> None:
        super()._put_conn(conn)  # type: ignore[misc]
        if conn is not None and conn.sock is not None:
            conn.served = True
            self.census.idle[conn] = None

    def _make_request(self, conn: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._make_request(conn, *args, **kwargs)  # type: ignore[misc]
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            # It had served before and nothing of an answer came: closed by the server in the meantime.
            error.stale = conn.served  # type: ignore[union-attr]
            raise


def pool_classes(census: Census) -> dict[str, type[HTTPConnectionPool]]:
    """urllib3's pool classes whose connections ``census`` counts."""

    class CountedHTTP(_Counted, HTTPConnection):
        pass

    class CountedHTTPS(_Counted, HTTPSConnection):
        pass

    class HTTPPool(_Watched, HTTPConnectionPool):
        ConnectionCls = CountedHTTP

    class HTTPSPool(_Watched, HTTPSConnectionPool):
        ConnectionCls = CountedHTTPS

    for kind in (CountedHTTP, CountedHTTPS, HTTPPool, HTTPSPool):
        kind.census = census
    return {"http": HTTPPool, "https": HTTPSPool}
