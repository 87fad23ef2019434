"""Have urllib3's connections count in a connection budget, and note what becomes of each."""

from __future__ import annotations

from typing import Any

from downloader.process import patching

patching.require()

import errno
import fcntl
import http.client
import queue
import select
import socket
import ssl
import sys
import termios
from collections.abc import Collection, Mapping
from functools import cached_property
from http import HTTPStatus
from time import monotonic
from typing import Protocol

import gevent
from gevent.monkey import get_original
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
)

from downloader.core.spent_connections import Patience, RefusalRun
from downloader.errors import FetchError
from downloader.http.connecting import connect
from downloader.http.connection_budget import ConnectionBudget
from downloader.http.exceptions import HandshakeCut, is_reset, is_tls_end, refusal_of
from downloader.http.name_lookup import NoAnswer
from downloader.http.response import StrictResponse
from downloader.process.private_parts import tls_object, tunnel_target

__all__ = ["UrllibConnection", "is_unacknowledged", "pool_classes", "system_poll"]

_POLL = get_original("select", "poll")
_UNACKNOWLEDGED = termios.TIOCOUTQ if sys.platform == "linux" else None  # SIOCOUTQ of tcp(7)
# Behind a name, of which each may fail in its own way: a name server may name any number.
_MOST_MACHINES = 8
_TUNNEL_OPEN = range(200, 300)
_CUT = "the connection was cut in the TLS handshake"


class UrllibConnection(Protocol):
    """A connection of urllib3's that the budget counts, as the pipelined client uses it.

    ``key``: its host and port, once it is connected; ``address``: which of the host's that is; ``opened``:
    when it began to be opened; ``good``: a request through it has succeeded.
    """

    host: str
    port: int
    timeout: float
    key: tuple[str, int]
    sock: Any
    address: str
    opened: float
    good: bool

    def set_tunnel(self, host: str, port: int, headers: Mapping[str, str]) -> None:
        """Request a tunnel to ``host`` of the proxy that it is to."""

    @property
    def is_connected(self) -> bool:
        """Return whether it is open, and nothing has arrived on it."""

    def connect(self) -> None:
        """Connect, with TLS if the scheme asks for it."""

    def close(self) -> None:
        """Close the socket."""

    def request(self, method: str, url: str, *, headers: Mapping[str, str]) -> None:
        """Write a request."""


class _CountedConnection:
    """A mixin for urllib3's connections: counts them in the connection budget."""

    budget: ConnectionBudget
    sock: Any
    _dns_host: str
    _entered = False
    served = 0  # responses since it was opened
    since = 0.0  # when the last request was served that was not refused
    opened = 0.0  # when it began to be opened
    refusals: RefusalRun | None = None  # from the first response on
    key = ("", 0)  # host and port, once it is connected
    good = False  # whether a request through it has succeeded, or failed for a reason of the file's
    address = ""  # of its host that it is connected to
    _connecting = False  # to an address, which has not answered yet
    _failed: Collection[str] = ()  # addresses at which TLS has failed while it was opened
    response_class: Any = StrictResponse

    host: str
    port: int
    proxy: Any
    timeout: Any

    def connect(self) -> None:
        """Connect; where TLS with a machine behind the name fails, to another one, if there is.

        No attempt is charged for that: a wrong certificate would end it for good. Each is tried once.
        """
        self._failed: set[str] = set()
        failed: ssl.SSLError | None = None
        late: ConnectTimeoutError | None = None
        while True:
            try:
                return self._connect()
            except ssl.SSLError as error:
                if self.proxy is not None:
                    raise  # not closed yet: urllib3 would take it for a failure of the proxy
                failed = error
            except (NewConnectionError, ConnectTimeoutError) as error:
                if failed is None:
                    raise
                if not self.address:  # nobody answers at the other addresses
                    raise late or failed from None
                late = error  # the handshake took too long, which may pass
            self._failed.add(self.address)
            self.close()
            if len(self._failed) >= _MOST_MACHINES or not self._has_others(self._failed):
                raise late or failed

    def _has_others(self, tried: Collection[str]) -> bool:
        try:
            return self.budget.resolver.has_others(self._dns_host, tried)
        except socket.gaierror:
            return False

    def _untried(self, addresses: list[str]) -> list[str]:
        """Return those of ``addresses`` at which TLS has not failed, all if there are none."""
        if not self._failed:
            return addresses
        return [each for each in addresses if each not in self._failed] or addresses

    def _connect(self) -> None:
        key = self.key = self.host, self.port
        self.budget.enter(key)
        self._entered = True
        self.served, self.good, self.opened = 0, False, monotonic()
        self.refusals = None
        self.address = ""
        self.budget.begin_opening(self)
        try:
            super().connect()  # type: ignore[misc]
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "the TLS handshake took too long") from error
        except OSError as error:
            if not (is_reset(error) or is_tls_end(error)):
                raise
            raise HandshakeCut(error.errno, _CUT) from error
        finally:
            self.budget.end_opening(self)
        if isinstance(self.sock, ssl.SSLSocket) and tls_object(self.sock) is None:
            # ssl leaves out the handshake where the connection was reset just before it.
            raise HandshakeCut(errno.ENOTCONN, _CUT)
        if hasattr(self.sock, "suppress_ragged_eofs"):
            # Without close_notify, a truncated body cannot be told from a complete one.
            self.sock.suppress_ragged_eofs = False
        self.budget.end_connecting()

    def _tunnel(self) -> None:
        try:
            self._open_tunnel()
        except (OSError, http.client.HTTPException) as error:
            raise ProxyError("no tunnel", error) from error

    def _open_tunnel(self) -> None:
        """Request a tunnel of the proxy, in HTTP/1.1 and with a Host, which some proxies insist on.

        http.client does so from 3.12 on, and takes 200 only; any 2xx opens one (RFC 9110 §9.3.6).
        """
        host, port, fields = tunnel_target(self)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        sender = http.client.HTTPConnection(self.host, self.port)  # as this one is in the midst of opening
        sender.sock = self.sock
        sender.putrequest("CONNECT", target, skip_host=True, skip_accept_encoding=True)
        for name, value in {"Host": target, **fields}.items():
            sender.putheader(name, value)
        sender.endheaders()
        response = self.response_class(self.sock, method="CONNECT")
        try:
            response.begin()
        finally:
            response.close()
        if response.status not in _TUNNEL_OPEN:
            self.close()
            raise OSError(f"Tunnel connection failed: {response.status} {response.reason.strip()}")

    def _new_conn(self) -> socket.socket:
        try:
            return self._connect_to_any_address()
        except (NewConnectionError, ConnectTimeoutError) as error:
            if self.proxy is None:
                raise
            raise ProxyError("no connection", error) from error

    def _connect_to_any_address(self) -> socket.socket:
        host, resolver = self._dns_host, self.budget.resolver
        try:
            addresses = self._untried(resolver.addresses(host))
            self._connecting = True
            try:
                sock, self.address = connect(addresses, self.port, self.timeout)
            except TimeoutError:
                raise
            except OSError:
                # The name may have another address by now. No attempt is charged for the old one.
                if not resolver.has_others(host, {*addresses, *self._failed}):
                    raise
                others = self._untried(resolver.addresses(host))
                sock, self.address = connect(others, self.port, self.timeout)
            return sock
        except socket.gaierror as error:
            failed: Exception = NameResolutionError(host, self, error)  # type: ignore[arg-type]
            failed.unreachable = isinstance(error, NoAnswer)  # type: ignore[attr-defined]
            raise failed from error
        except TimeoutError as error:
            resolver.forget(host)
            failed = ConnectTimeoutError(self, "the host does not answer")
            # The kernel has repeated its SYN several times, ever more rarely.
            failed.unreachable = True  # type: ignore[attr-defined]
            raise failed from error
        except OSError as error:
            resolver.forget(host)
            raise NewConnectionError(self, str(error)) from error  # type: ignore[arg-type]
        finally:
            self._connecting = False

    @property
    def is_untaken(self) -> bool:
        """Return whether nothing shows that the server's system has taken it, and what was sent on it."""
        return self._connecting or (self.sock is not None and is_unacknowledged(self.sock))

    def close(self) -> None:
        try:
            super().close()  # type: ignore[misc]
        finally:
            self.budget.idle.pop(self, None)
            if self._entered:
                self._entered = False
                self.budget.leave(self.key)
                if self.address and not self.good:
                    self.budget.resolver.try_others(self._dns_host, self.address)

    def leave(self) -> None:
        """Close the connection to a machine that is of no use, whatever it has served before."""
        if self.refusals is not None:
            self.refusals.left(monotonic(), served=self.good)
        self.good = False
        self.close()

    @property
    def refuses(self) -> bool:
        """Return whether its last request was refused."""
        return self.refusals is not None and self.refusals.count > 0

    @property
    def is_doubtful(self) -> bool:
        """See ``RefusalRun``."""
        return self.refusals is not None and self.refusals.is_doubtful(self.served)

    @property
    def is_connected(self) -> bool:
        """Return whether the idle connection is still usable: open, and nothing has arrived on it.

        urllib3 uses gevent's poll, which switches to the hub for every request.
        """
        if self.sock is None or (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()):
            # poll does not show decrypted data; it would be read as the next file's response.
            return False
        return not system_poll(self.sock).poll(0)


class _IdleConnections:
    """The idle connections of a pool, the one used last first; at most ``most``, as urllib3's queue.

    urllib3 fills its queue with None when the pool is made, to count the connections in use, although a
    pool that does not block needs no count. For each host that would take longer than a connection.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._connections: list[_CountedConnection] = []

    def get(self, block: bool = False, timeout: float | None = None) -> _CountedConnection:
        """Return the connection that was used last. Raises queue.Empty."""
        if not self._connections:
            raise queue.Empty
        return self._connections.pop()

    def put(self, connection: _CountedConnection | None, block: bool = False) -> None:
        """Keep ``connection``. Raises queue.Full."""
        if connection is None:
            return
        if len(self._connections) >= self._most:
            raise queue.Full
        # One that the server has closed is used after those that are open: it would be opened again. So is
        # one whose last request was refused.
        last = connection.sock is None or connection.refuses
        at = 0 if last else len(self._connections)
        self._connections.insert(at, connection)

    def qsize(self) -> int:
        """Return the number of connections."""
        return len(self._connections)


class _IdleTrackingPool:
    """A mixin for urllib3's pools: registers idle connections in the connection budget."""

    budget: ConnectionBudget
    QueueCls: Any = _IdleConnections
    _served_at = 0.0  # when a request was last served that was not refused

    def _get_conn(self, timeout: float | None = None) -> Any:
        connection = super()._get_conn(timeout)  # type: ignore[misc]
        self.budget.idle.pop(connection, None)
        return connection

    def _put_conn(self, conn: Any) -> None:
        super()._put_conn(conn)  # type: ignore[misc]
        if conn is not None and conn.sock is not None:
            conn.served += 1
            self.budget.idle[conn] = None
            if conn.refuses and conn.refusals.is_spent(self._served_at):
                conn.leave()

    def _make_request(
        self, conn: Any, method: str, url: str, *args: Any, target: str = "", **kwargs: Any
    ) -> Any:
        """Make the request for ``target``, which is ``url`` as urllib3 has not normalized it."""
        greenlet = gevent.getcurrent()
        if not conn.served:
            self.budget.first_requests[greenlet] = monotonic(), conn
        try:
            response = super()._make_request(  # type: ignore[misc]
                conn, method, target or url, *args, **kwargs
            )
            if conn.served and response.status == http.client.REQUEST_TIMEOUT:
                # Some servers send one before they close a connection that is idle (RFC 9110 §15.5.9).
                raise http.client.RemoteDisconnected("the idle connection has ended with 408")
            # http.client closes the socket at once where the response is the last one of the connection.
            response.only_one = conn.sock is None and not conn.served
            self._note_answer(conn, response)
            return response
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            # It had served before, and no part of a response arrived: the server closed it while idle.
            error.stale = conn.served > 0  # type: ignore[union-attr]
            error.turned_away = not conn.served  # type: ignore[union-attr]
            raise
        finally:
            self.budget.first_requests.pop(greenlet, None)

    def _note_answer(self, conn: Any, response: Any) -> None:
        """Record whether ``response`` refuses its request, on ``conn`` and of this host."""
        failed = _refusal(response)
        # Its machine is well, and does not ask to try again.
        conn.good = conn.good or failed is None or failed.of_file
        if not conn.served:
            conn.refusals = RefusalRun(self._patience, conn.address, conn.opened)
        if failed is not None and failed.refuses:
            conn.refusals.refused(monotonic(), conn.served)
            return
        conn.refusals.ended()
        conn.since = self._served_at = monotonic()
        if not conn.served:
            conn.refusals.began_well()

    @cached_property
    def _patience(self) -> Patience:
        return Patience()


def system_poll(sock: Any) -> Any:
    """Return a poll for data or an end at ``sock``, of the system: with timeout 0 it never waits.

    gevent's own switches to the hub.
    """
    poll = _POLL()
    poll.register(sock, select.POLLIN)
    return poll


def is_unacknowledged(sock: Any) -> bool:
    """Return whether something was sent that the peer's system has not acknowledged; False if not known.

    The systems of servers acknowledge it within a round trip, however long the servers take.
    """
    if _UNACKNOWLEDGED is None:
        return False
    try:
        return fcntl.ioctl(sock.fileno(), _UNACKNOWLEDGED, bytes(4)) != bytes(4)
    except (OSError, ValueError):  # it was closed
        return False


def _refusal(response: Any) -> FetchError | None:
    """Return the failure that ``response`` means, None if it means none."""
    return refusal_of(response) if response.status >= HTTPStatus.BAD_REQUEST else None


def pool_classes(budget: ConnectionBudget) -> dict[str, type[HTTPConnectionPool]]:
    """Return urllib3's pool classes, with connections that ``budget`` counts."""

    class CountedHTTP(_CountedConnection, HTTPConnection):
        pass

    class CountedHTTPS(_CountedConnection, HTTPSConnection):
        pass

    class HTTPPool(_IdleTrackingPool, HTTPConnectionPool):
        ConnectionCls = CountedHTTP

    class HTTPSPool(_IdleTrackingPool, HTTPSConnectionPool):
        ConnectionCls = CountedHTTPS

    for kind in (CountedHTTP, CountedHTTPS, HTTPPool, HTTPSPool):
        kind.budget = budget
    return {"http": HTTPPool, "https": HTTPSPool}
