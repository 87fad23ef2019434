"""The wire lane: small files at little more than what the wire costs.

The requests session stays the authority: urllib3 writes one request of its own for each origin, and
those bytes are the template of all; urllib3's connection object opens and verifies each connection,
and the census counts it. What is left here is to send the template with another target, and to let
llhttp (``httptools``) read the answer from a buffer that all connections share.

Only a plain 200 with a Content-Length is stored here. An error status is a failure with its code; any
other answer is handed over (``HandOver``): the requests lane asks again, and does what a user of
requests expects. One request at a time is in flight on a connection.
"""

from __future__ import annotations

from downloader import patching

patching.require()

import math  # noqa: E402
from time import monotonic, time  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
import httptools  # noqa: E402

from downloader.config import Config  # noqa: E402
from downloader.core.retry import parse_retry_after  # noqa: E402
from downloader.core.units import show_size, show_time  # noqa: E402
from downloader.errors import DestinationError, FetchError  # noqa: E402
from downloader.lanes.fetch import Fetched  # noqa: E402
from downloader.lanes.reading import BUFFER, LONGEST_HEAD, Connection, HandOver  # noqa: E402
from downloader.lanes.session import LaneSession, Origin  # noqa: E402
from downloader.lanes.translate import translate  # noqa: E402
from downloader.sinks import Sink, Writer  # noqa: E402

__all__ = ["WireLane"]

_WHOLE = 256 << 10  # a body up to this size is put into the sink in one piece
_SWEEP = 0.25
# So many answers in a row that were not for this lane, and it leaves the origin alone.
_MISFITS = 3
_ODD = frozenset((b"content-encoding", b"set-cookie"))


class _Stale(Exception):
    """A connection that had served before ended without a byte: the server had closed it."""


class _Route:
    """What the lane knows of one origin: the template, idle connections, and whether it fits."""

    __slots__ = ("head", "idle", "misfits", "origin", "tail")

    def __init__(self, origin: Origin, head: bytes, tail: bytes) -> None:
        self.origin = origin
        self.head = head
        self.tail = tail
        self.idle: list[Connection] = []
        self.misfits = 0


class WireLane:
    """Fetches over connections of its own, which ``session`` describes, into ``sink``."""

    def __init__(self, config: Config, session: LaneSession, sink: Sink) -> None:
        self._config = config
        self._session = session
        self._sink = sink
        self._secrets = config.secrets
        self.buffer = memoryview(bytearray(BUFFER))
        self._routes: dict[Origin, _Route] = {}
        self._busy: set[Connection] = set()
        self._routes_of: dict[Connection, _Route] = {}
        self.enabled = config.lane == "auto" and not config.compressed

    def takes(self, origin: Origin) -> bool:
        """Whether a file of ``origin`` may go this way: straight, and without cookies."""
        if not self.enabled or origin.proxies or origin.jar is not None:
            return False
        route = self._routes.get(origin)
        return route is None or route.misfits < _MISFITS

    def fetch(
        self,
        url: str,
        origin: Origin,
        name: str,
        seq: int,
        index: int,
        *,
        size: int = -1,
        replace: bool = False,
    ) -> Fetched:
        """Store the file at ``url``, of ``origin``, as ``name``; as ``RequestsLane.fetch``.

        Raises FetchError, DestinationError, HandOver.
        """
        route = self._routes.get(origin) or self._add_route(origin)
        request = route.head + _target(url) + route.tail

        def open_writer() -> Writer:
            return self._sink.open(name, seq, index, replace=replace)

        while True:
            connection = self._connect(route)
            try:
                answer = self._exchange(connection, request, open_writer)
                break
            except _Stale:
                continue
            except HandOver:
                route.misfits += 1
                raise
        route.misfits = 0
        writer = answer.writer
        try:
            if answer.status != 200:
                raise self._refusal(answer)
            if size >= 0 and answer.received != size:
                raise FetchError(
                    "size-mismatch", f"{answer.received} bytes arrived, the source says {size}"
                )
            if writer is None:
                crc, new = self._sink.put(name, answer.body, seq, index, replace=replace)
                return Fetched(answer.received, crc, new, True, 1, 1)
            answer.writer = None
            return Fetched(writer.size, writer.crc, writer.publish(), True, 1, 1)
        finally:
            self._end(route, answer)

    def sweep(self) -> None:
        """End what has been silent or has taken too long; one greenlet for all connections."""
        silence, limit = self._config.read_timeout, self._config.deadline
        pause = min(_SWEEP, silence / 4, limit / 4)
        while True:
            gevent.sleep(pause)
            now = monotonic()
            for connection in list(self._busy):
                if now - connection.since > limit:
                    text = f"took longer than --deadline {show_time(limit)}"
                    connection.expire(FetchError("timeout", text))
                elif now - connection.heard > silence:
                    text = f"nothing came for --read-timeout {show_time(silence)}"
                    connection.expire(FetchError("read-timeout", text))

    # connections

    def _connect(self, route: _Route) -> Connection:
        while route.idle:
            connection = route.idle.pop()
            self._session.census.idle.pop(connection, None)
            if connection.usable():
                return connection
            connection.close()
        made = self._session.new_connection(route.origin)
        limit = self._config.deadline
        text = f"took longer than --deadline {show_time(limit)}"
        try:
            with gevent.Timeout(limit, FetchError("timeout", text)):
                made.connect()
        except Exception as error:
            made.close()
            raise _as_wire(translate(error, self._secrets)) from error
        except BaseException:
            made.close()
            raise
        connection = Connection(self, made)
        self._routes_of[connection] = route
        return connection

    def _exchange(self, connection: Connection, request: bytes, open_writer: Any) -> Connection:
        """Send ``request`` and read its answer; the connection holds it."""
        connection.begin()
        connection.open_writer = open_writer
        connection.since = connection.heard = monotonic()
        self._busy.add(connection)
        good = False
        try:
            connection.send(request)
            self._read(connection)
            good = True
            return connection
        except FetchError as error:
            raise _as_wire(error) from None
        except (DestinationError, HandOver, _Stale):
            raise
        except Exception as error:
            if connection.expired is not None:
                raise _as_wire(connection.expired) from None
            if self._unheard(connection):
                raise _Stale from None
            raise _as_wire(translate(error, self._secrets)) from error
        finally:
            self._busy.discard(connection)
            connection.open_writer = None
            if not good:
                self._drop(connection)

    def _read(self, connection: Connection) -> None:
        feed, buffer = connection.parser.feed_data, self.buffer
        while not connection.complete:
            count = connection.receive()
            if not count:
                raise self._cut(connection)
            connection.heard, connection.heard_any = monotonic(), True
            try:
                feed(buffer[:count])
            except httptools.HttpParserError as error:
                connection.excess = True  # when the answer is complete: rubbish behind it
                if connection.problem is None and not connection.complete:
                    if not connection.answered:
                        # llhttp is stricter than what a user of requests expects; let that decide.
                        raise HandOver from None
                    connection.problem = FetchError("protocol", f"the body is not valid HTTP: {error}")
            if connection.problem is not None:
                raise connection.problem
            if not connection.answered:
                connection.head += count
                if connection.head > LONGEST_HEAD:
                    raise FetchError("protocol", "the headers are too long")
            if connection.status >= 400 and connection.received > LONGEST_HEAD:
                connection.complete = connection.excess = True  # enough of an error's page
        connection.keep &= not connection.excess
        connection.served += 1

    def judge(self, connection: Connection) -> None:
        """The headers are here: is this answer for us, and where does its body go?"""
        status, fields = connection.status, connection.fields
        if status >= 400:
            return
        if status != 200 or not _ODD.isdisjoint(fields):
            raise HandOver
        coding = fields.get(b"transfer-encoding")
        if coding is not None:
            # A chunked body tells its own end; llhttp refuses one that has a length as well.
            if coding.lower() != b"chunked":
                raise HandOver
            return
        if b"content-length" not in fields:
            raise HandOver
        length = int(fields[b"content-length"])  # llhttp has checked that it is a number
        self.check_size(length)
        if length > _WHOLE:
            connection.divert()

    def check_size(self, size: int) -> None:
        """FetchError ``too-large`` when a body of ``size`` bytes is more than --max-size."""
        most = self._config.max_size
        if most and size > most:
            raise FetchError("too-large", f"{show_size(size)}, --max-size is {show_size(most)}")

    def next_check(self, received: int) -> float:
        """After how many bytes of a body something has to be looked at."""
        most = self._config.max_size or math.inf
        return min(most, _WHOLE) if received < _WHOLE else most

    def _refusal(self, connection: Connection) -> FetchError:
        value = connection.fields.get(b"retry-after")
        wait = parse_retry_after(value.decode("latin-1") if value is not None else None, time())
        return _as_wire(FetchError(f"http-{connection.status}", "", wait))

    def _cut(self, connection: Connection) -> Exception:
        """The connection ended before the answer did."""
        if connection.expired is not None:
            return _as_wire(connection.expired)
        if self._unheard(connection):
            return _Stale()
        if connection.answered:
            return _as_wire(FetchError("truncated", f"the body ends after {connection.received} bytes"))
        if connection.heard_any:
            return _as_wire(FetchError("truncated", "the answer ends in its headers"))
        return _as_wire(FetchError("reset", "the server closed the connection"))

    def _unheard(self, connection: Connection) -> bool:
        """Whether an old connection ended before it answered anything: then nothing was refused."""
        return bool(connection.served) and not connection.heard_any

    def _end(self, route: _Route, connection: Connection) -> None:
        """The answer is used: keep the connection, or close it."""
        if connection.writer is not None:
            connection.writer.abort()
            connection.writer = None
        connection.body = b""
        if connection.keep:
            route.idle.append(connection)
            self._session.census.idle[connection] = None
        else:
            connection.close()

    def _drop(self, connection: Connection) -> None:
        if connection.writer is not None:
            connection.writer.abort()
            connection.writer = None
        connection.close()

    def forget(self, connection: Connection) -> None:
        self._session.census.idle.pop(connection, None)
        route = self._routes_of.pop(connection, None)
        if route is not None and connection in route.idle:
            route.idle.remove(connection)

    def _add_route(self, origin: Origin) -> _Route:
        if len(self._routes) > 1000:
            for old in [each for each, route in self._routes.items() if not route.idle]:
                del self._routes[old]
        head, tail = self._session.template(origin)
        route = self._routes[origin] = _Route(origin, head, tail)
        return route


def _target(url: str) -> bytes:
    """Path and query of a URL that requests has normalized."""
    start = url.find("/", 8)
    target = url[start:] if start > 0 else "/"
    return target.partition("#")[0].encode("ascii")


def _as_wire(error: FetchError) -> FetchError:
    error.wire = 1
    return error
