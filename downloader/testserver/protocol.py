"""Serve one connection of the file server: read requests, and send responses in the same order.

::

    socket ──► parser ──► pending ──► out ──► transport
                  │     (not yet due, or    │
                  └──────  too much out) ───┘  directly if nothing is queued

Memory is bounded whatever the client does: ``pending`` holds requests, never responses, and reading is
paused while it is long or while the client does not read. A body larger than a block is generated block
by block as the transport accepts it. All responses to one read are sent in one write.

The delay of a response starts with the arrival of its request. This also holds for pipelined requests:
their delays overlap, and their responses stay in order. A response has no Date.

A connection that reaches its limit of responses (``close_after``), or is cut by a drop, ends as with other
servers: the requests that follow in the pipeline get no response.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from random import uniform
from typing import Final, cast
from urllib.parse import unquote_to_bytes

import httptools

from downloader.testserver import content
from downloader.testserver.counters import BYTES, CLOSES, DROPS, GETS, LISTS, REQUESTS
from downloader.testserver.site import Site

__all__ = ["Connection"]

_FLUSH_AT: Final = 1 << 16  # bytes of responses that are sent without waiting for more
_HIGH_WATER: Final = 1 << 18
_MOST_PENDING: Final = 1024
_LONGEST_TARGET: Final = 8192
_LINGER: Final = 2.0  # seconds that a client has to read the last response before the connection is closed
_SILENCE: Final = 0.2  # seconds of silence after which a client is assumed to send no more
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER with timeout 0: closing sends a reset

_BYTES: Final = b"application/octet-stream"
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain"

# A pending request: due (loop time, 0 = at once), target, method (empty: the request could not be parsed),
# whether the connection is kept open, whether the response must say that it is.
_Request = tuple[float, bytes, bytes, bool, bool]


@lru_cache(maxsize=4096)
def _head(status: bytes, kind: bytes, length: int, fields: bytes = b"") -> bytes:
    """Return the head of a response; ``fields`` are complete lines."""
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (
        status,
        kind,
        length,
        fields,
    )


class _TargetTooLong(Exception):
    """The request target is too long; raised while it is parsed."""


class _End(Enum):
    """The reason why the connection ends after the last response."""

    REQUESTED = "the client requested it, or sent an invalid request"
    LIMIT = "it has reached the limit of responses per connection"
    CUT = "the last response is incomplete, and nothing follows"
    RESET = "the last response is incomplete, and a reset follows"


class Connection(asyncio.BufferedProtocol):
    """One client's connection, from its acceptance to its end."""

    __slots__ = (
        "_closing",
        "_end",
        "_eof",
        "_loop",
        "_out",
        "_out_bytes",
        "_parser",
        "_pending",
        "_reading_paused",
        "_received_late",
        "_rest",
        "_served",
        "_site",
        "_target",
        "_transport",
        "_wake",
        "_writing_paused",
    )

    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, site: Site) -> None:
        self._loop = loop
        self._site = site
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._pending: deque[_Request] = deque()
        self._rest: Iterator[bytes] | None = None  # the blocks of the body that are not sent yet
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._wake: asyncio.Handle | None = None
        self._writing_paused = False  # the client does not read
        self._reading_paused = False  # the server does not read
        self._closing = False  # no further request is accepted
        self._eof = False  # the client sends no more
        self._end = _End.REQUESTED
        self._served = 0  # requests that get a response; counted only if there is a limit
        self._received_late = False  # data arrived although no further request is accepted

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_HIGH_WATER)
        self._site.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._site.closed(self)
        self._closing = True
        self._pending.clear()
        self._rest = None
        if self._wake is not None:
            self._wake.cancel()
        del self._parser  # it refers to this object

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        # Not immediately: a transport may call this from within a write.
        if self._wake is None:
            self._wake = self._loop.call_soon(self._pump)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._site.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            self._received_late = True
            return
        data = self._site.buffer[:nbytes]
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # An upgrade that the server ignores is a plain request; the next one follows it.
                data = data[upgrade.args[0] :]
                if len(data) and not self._closing:
                    continue
            except httptools.HttpParserError as error:
                called = isinstance(error, httptools.HttpParserCallbackError)
                if called and not isinstance(error.__context__, _TargetTooLong):
                    raise  # a bug of the server, not an invalid request
                # After a request with `Connection: close` the parser rejects all further data.
                if not self._closing:
                    self._closing = True
                    self._site.counts[REQUESTS] += 1
                    self._pending.append((0.0, b"", b"", False, False))
            break
        if self._wake is None:
            self._pump()

    def eof_received(self) -> bool:
        outstanding = bool(self._pending) or self._rest is not None
        self._closing = self._eof = True
        return outstanding and not self._site.tls  # True: continue to write

    # Called by the parser

    def on_url(self, part: bytes) -> None:
        self._target += part
        if len(self._target) > _LONGEST_TARGET:
            raise _TargetTooLong

    def on_message_complete(self) -> None:
        if self._closing:
            return
        target = self._target
        self._target = b""
        parser = self._parser
        method = parser.get_method()
        keep = parser.should_keep_alive() and method != b"CONNECT"
        site = self._site
        if site.close_after:
            self._served += 1
            if keep and self._served == site.close_after:
                keep = False
                self._end = _End.LIMIT
        self._closing = not keep
        if not target.startswith(b"/"):
            target = _origin_form(target)
        due = 0.0
        counts = site.counts
        if target.startswith(b"/get/"):
            counts[REQUESTS] += 1
            counts[GETS] += 1
            if site.delayed:
                due = self._loop.time() + uniform(*site.delay)
        elif target.partition(b"?")[0] == b"/list":
            counts[REQUESTS] += 1
            counts[LISTS] += 1
        elif target.partition(b"?")[0] != b"/stats":
            counts[REQUESTS] += 1
        say_so = keep and parser.get_http_version() != "1.1"
        if due or self._pending or self._writing_paused or self._rest is not None:
            self._pending.append((due, target, method, keep, say_so))
        else:
            self._answer(target, method, keep, say_so)

    # Answering

    def _pump(self) -> None:
        """Send what can be sent now, and schedule the rest."""
        self._wake = None
        while not self._writing_paused:
            if self._rest is not None:
                block = next(self._rest, None)
                if block is None:
                    self._rest = None
                    continue
                self._site.counts[BYTES] += len(block)
                self._send(block)
                # One block, then let the other connections run.
                self._wake = self._loop.call_soon(self._pump)
                break
            if not self._pending:
                break
            due = self._pending[0][0]
            if due > self._loop.time():
                self._wake = self._loop.call_at(due, self._pump)
                break
            self._answer(*self._pending.popleft()[1:])
        self._flush()
        pause = self._writing_paused or len(self._pending) > _MOST_PENDING
        if pause is not self._reading_paused:
            self._reading_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if self._closing and not self._pending and self._rest is None:
            self._finish()

    def _answer(self, target: bytes, method: bytes, keep: bool, say_so: bool) -> None:
        fields = b""
        if say_so:
            fields = b"Connection: keep-alive\r\n"
        elif not keep:
            fields = b"Connection: close\r\n"
        site = self._site
        if method != b"GET" and method != b"HEAD":
            if method:
                self._refuse(b"405 Method Not Allowed", fields + b"Allow: GET, HEAD\r\n")
            else:
                self._refuse(b"400 Bad Request", fields)
            return
        whole = method == b"GET"
        path, _, query = target.partition(b"?")
        if path.startswith(b"/get/"):
            self._answer_file(path[5:], fields, whole)
            return
        body: bytes | None = None
        if path == b"/list":
            body = site.listing(query.decode("latin-1"))
            if body is None:
                self._refuse(b"400 Bad Request", fields, whole)
                return
        elif path == b"/stats":
            body = site.stats()
        if body is None:
            self._refuse(b"404 Not Found", fields, whole)
            return
        self._send(_head(b"200 OK", _JSON, len(body), fields))
        if whole:
            self._send(body)

    def _answer_file(self, name: bytes, fields: bytes, whole: bool) -> None:
        site = self._site
        if b"%" in name:
            name = unquote_to_bytes(name)
        if content.index_of(name, site.files) is None:
            self._refuse(b"404 Not Found", fields, whole)
            return
        size = content.size_of(name, *site.size)
        head = _head(b"200 OK", _BYTES, size, fields)
        if site.drops is not None and (cut := site.drops.draw(len(head), size if whole else 0)):
            site.counts[DROPS] += 1
            self._end = _End.RESET if cut.reset else _End.CUT
            self._closing = True
            self._pending.clear()
            # The beginning of a file equals a shorter file of the same name.
            size = max(cut.after - len(head), 0)
            head = head[: cut.after]
        self._send(head)
        if whole:
            blocks = content.blocks(name, size)
            if size > content.BLOCK:
                self._rest = blocks
            else:
                site.counts[BYTES] += size
                self._send(next(blocks, b""))

    def _refuse(self, status: bytes, fields: bytes, whole: bool = True) -> None:
        body = status + b"\n"
        self._send(_head(status, _TEXT, len(body), fields))
        if whole:
            self._send(body)

    def _send(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > _FLUSH_AT:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            # A closing transport logs a warning for writes.
            if not self._transport.is_closing():
                self._transport.write(b"".join(self._out))
            self._out.clear()
            self._out_bytes = 0

    def _finish(self) -> None:
        """End the connection so that the client receives the last response, or the part to be sent.

        Closing a socket with unread data resets the connection, and the reset can overtake the response.
        So only the sending direction is shut down, and incoming data is discarded for a while.
        """
        transport, end = self._transport, self._end
        raw = transport.get_extra_info("socket")
        tls = self._site.tls
        if end is _End.LIMIT:
            self._site.counts[CLOSES] += 1
        elif end is _End.RESET:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
            return
        if self._eof or transport.is_closing() or (tls and end is _End.REQUESTED):
            transport.close()
            return
        timeout = _LINGER
        if not tls:
            transport.write_eof()
        elif end is _End.CUT:
            # Shut down the socket below TLS, without close_notify. Data that the client's buffer had no
            # room for yet is lost, too.
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_WR)
        else:
            # asyncio cannot send close_notify and continue to read. The last response announced the
            # close, and most clients close; to the others, close_notify is sent once they are silent.
            timeout = _SILENCE
        self._received_late = False
        self._wake = self._loop.call_later(timeout, self._give_up, self._loop.time() + _LINGER)
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    def _give_up(self, latest: float) -> None:
        transport = self._transport
        now = self._loop.time()
        if transport.get_write_buffer_size():
            self._wake = self._loop.call_later(_LINGER, self._give_up, now + _LINGER)
        elif self._received_late and now < latest:
            self._received_late = False
            self._wake = self._loop.call_later(_SILENCE, self._give_up, latest)
        elif self._end is _End.CUT:
            transport.abort()
        else:
            transport.close()

    def abort(self) -> None:
        """End the connection immediately."""
        self._transport.abort()


def _origin_form(target: bytes) -> bytes:
    """Return ``/path`` of ``http://host/path``, as a client of a proxy sends it."""
    _, mark, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if mark else target
