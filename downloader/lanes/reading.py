"""A connection of the wire lane: llhttp reads one answer at a time from it.

urllib3 has opened and verified it; here are the socket underneath, waited for on a watcher that is made
once, and the parser's callbacks.
"""

from __future__ import annotations

from downloader import patching

patching.require()

import contextlib  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402  (only in a patched process)
from collections.abc import Callable  # noqa: E402
from typing import Any, Protocol  # noqa: E402

import gevent  # noqa: E402
import httptools  # noqa: E402

from downloader.errors import DestinationError, FetchError  # noqa: E402
from downloader.sinks import Writer  # noqa: E402

__all__ = ["BUFFER", "LONGEST_HEAD", "Connection", "HandOver", "Lane"]

BUFFER = 256 << 10
LONGEST_HEAD = 64 << 10
_LINES = 100  # of a head; http.client has the same limit
_READ = 1
_HEADERS = frozenset(
    (b"content-length", b"content-encoding", b"set-cookie", b"transfer-encoding", b"retry-after")
)


class HandOver(Exception):
    """The answer is not one for this lane; ask again through the requests lane."""


class Lane(Protocol):
    """What a connection asks of the lane that it belongs to."""

    buffer: memoryview

    def judge(self, connection: Connection) -> None:
        """The headers are here. Raises HandOver, FetchError, DestinationError."""

    def check_size(self, size: int) -> None:
        """Raises FetchError when a body of ``size`` bytes is too large."""

    def next_check(self, received: int) -> float:
        """After how many bytes of a body something has to be looked at."""

    def forget(self, connection: Connection) -> None:
        """It is being closed."""


class Connection:
    """One connection: the answer that is being read, and the parser's callbacks."""

    __slots__ = (
        "_connection",
        "_raw",
        "_tls",
        "answered",
        "body",
        "complete",
        "excess",
        "expired",
        "fields",
        "head",
        "heard",
        "heard_any",
        "keep",
        "key",
        "lane",
        "lines",
        "most",
        "open_writer",
        "parser",
        "problem",
        "received",
        "served",
        "since",
        "status",
        "watcher",
        "writer",
    )

    def __init__(self, lane: Lane, connection: Any) -> None:
        self.lane = lane
        self._connection = connection
        self.key = connection.key
        sock = connection.sock
        # gevent's sockets are non-blocking underneath; waiting is done here, on one watcher.
        self._tls = getattr(sock, "_sslobj", None)
        self._raw = sock._sock
        self.watcher = gevent.get_hub().loop.io(sock.fileno(), _READ)
        self.parser = httptools.HttpResponseParser(self)
        self.served = 0
        self.since = self.heard = 0.0
        self.expired: FetchError | None = None
        self.open_writer: Callable[[], Writer] | None = None
        self.writer: Writer | None = None
        self.begin()

    def begin(self) -> None:
        """Nothing of the next answer is here yet."""
        self.status = 0
        self.fields: dict[bytes, bytes] = {}
        self.body: bytes | bytearray = b""
        self.head = self.lines = 0
        self.received = 0
        self.answered = self.complete = self.keep = self.excess = self.heard_any = False
        self.problem: Exception | None = None
        self.most = self.lane.next_check(0)

    # callbacks of the parser; what they raise it would wrap, so they note it

    def on_message_begin(self) -> None:
        if self.complete:
            self.excess = True  # an answer that was not asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _HEADERS and not self.complete:
            self.fields[name] = value
        if not self.answered:
            self.lines += 1
            self.head += len(name) + len(value)
            if self.lines > _LINES:
                self.problem = HandOver()
            elif self.head > LONGEST_HEAD:
                self.problem = FetchError("protocol", "the headers are too long")

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self.parser.get_status_code()
        if self.status == 101:
            self.problem = HandOver()
        elif self.status >= 200:
            self.answered = True
            try:
                self.lane.judge(self)
            except (FetchError, DestinationError, HandOver) as error:
                self.problem = error

    def on_body(self, chunk: bytes) -> None:
        if self.complete or self.problem is not None:
            return
        self.received += len(chunk)
        if self.status != 200:
            return
        if self.writer is not None:
            try:
                self.writer.write(chunk)
            except (FetchError, DestinationError) as error:
                self.problem = error
        elif not self.body:
            self.body = chunk
        else:
            if not isinstance(self.body, bytearray):
                self.body = bytearray(self.body)
            self.body += chunk
        if self.received > self.most:
            self._too_long()

    def _too_long(self) -> None:
        """More than may be kept in memory, or more than --max-size; a chunked body says so only now."""
        try:
            self.lane.check_size(self.received)
            if self.writer is None:
                self.divert()
                assert self.writer is not None
                self.writer.write(self.body)
                self.body = b""
            self.most = self.lane.next_check(self.received)
        except (FetchError, DestinationError) as error:
            self.problem = error

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if self.status < 200:
            # 100, 103: the answer is still to come.
            self.fields = {}
            return
        self.complete = True
        self.keep = self.parser.should_keep_alive()

    def divert(self) -> None:
        """The body goes to the sink as it comes. Raises FetchError, DestinationError."""
        assert self.open_writer is not None
        self.writer = self.open_writer()

    # the socket

    def send(self, request: bytes) -> None:
        """Send the whole of a request; it fits into the socket's buffer but for odd cases."""
        if self._tls is None:
            sent = self._raw.send(request)
            if sent == len(request):
                return
            request = request[sent:]
        self._connection.sock.sendall(request)

    def receive(self) -> int:
        """Wait for bytes and read them into the shared buffer; 0 at the end."""
        hub, buffer = gevent.get_hub(), self.lane.buffer
        if self._tls is None:
            hub.wait(self.watcher)
            return int(self._raw.recv_into(buffer))
        while True:
            try:
                return int(self._tls.read(BUFFER, buffer))
            except ssl.SSLWantReadError:
                hub.wait(self.watcher)

    def usable(self) -> bool:
        """Whether it is open and nothing has arrived that nobody asked for."""
        return bool(self._connection.is_connected)

    def expire(self, error: FetchError) -> None:
        """End the answer that is being waited for: the reader finds the connection closed."""
        self.expired = error
        with contextlib.suppress(OSError):
            self._raw.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Also called by the census, when room is needed for another."""
        self.lane.forget(self)
        self.watcher.close()
        self._connection.close()
