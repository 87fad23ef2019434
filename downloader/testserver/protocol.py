"""One connection of the file server: requests in, answers out in the order of the requests.

::

    socket ──► parser ──► pending ──► out ──► transport
                  │     (not yet due, or    │
                  └──────  too much out) ───┘  straight through when nothing is in the way

Memory is bounded whatever the client does: ``pending`` holds requests, never answers, and reading
pauses while it is long or while the client does not read; a body larger than a block is made block
by block as the transport takes it. All answers to one read go out in one write.

The delay of an answer runs from the arrival of its request, also for the requests of a pipeline:
their delays overlap, their answers stay in order. An answer carries no Date.

The limit of answers of a connection (``close_after``) and a drawn drop end it as they would with other
servers: the requests that follow in the pipeline get no answer.
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

_FLUSH_AT: Final = 1 << 16  # bytes of answers that are not held back for one larger write
_HIGH_WATER: Final = 1 << 18
_MOST_PENDING: Final = 1024
_LONGEST_TARGET: Final = 8192
_LINGER: Final = 2.0  # seconds in which a client may take in the last answer before the end
_QUIET: Final = 0.2  # seconds of silence after which a client is taken to send no more
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no time: to close is to reset

_BYTES: Final = b"application/octet-stream"
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain"

# What a request comes to until it is answered: due (loop time, 0 = at once), target, method (empty:
# the request could not be parsed), whether the connection is kept, whether it must be said so.
_Request = tuple[float, bytes, bytes, bool, bool]


@lru_cache(maxsize=4096)
def _head(status: bytes, kind: bytes, length: int, fields: bytes = b"") -> bytes:
    """The head of an answer; ``fields`` are whole lines."""
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (
        status,
        kind,
        length,
        fields,
    )


class _TargetTooLong(Exception):
    """The request is refused while it is parsed."""


class _End(Enum):
    """Why the connection ends after the last answer."""

    ASKED = "the client asked for it, or was not understood"
    LIMIT = "it has had as many answers as one connection gets"
    CUT = "the last answer is not whole, and nothing follows"
    RESET = "the last answer is not whole, and a reset follows"


class Connection(asyncio.BufferedProtocol):
    """One client's connection, from its acceptance to its end."""

    __slots__ = (
        "_closing",
        "_deaf",
        "_done",
        "_end",
        "_heard",
        "_loop",
        "_out",
        "_out_bytes",
        "_parser",
        "_paused",
        "_pending",
        "_rest",
        "_served",
        "_site",
        "_target",
        "_transport",
        "_wake",
    )

    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, site: Site) -> None:
        self._loop = loop
        self._site = site
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._pending: deque[_Request] = deque()
        self._rest: Iterator[bytes] | None = None  # of the body that is being sent
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._wake: asyncio.Handle | None = None
        self._paused = False  # the client does not read
        self._deaf = False  # we do not read
        self._closing = False  # no further request is taken
        self._done = False  # the client sends no more
        self._end = _End.ASKED
        self._served = 0  # requests answered or to be answered; counted where there is a limit
        self._heard = False  # something came although no further request is taken

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
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        # Not at once: a transport may call this from within a write.
        if self._wake is None:
            self._wake = self._loop.call_soon(self._pump)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._site.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            self._heard = True
            return
        data = self._site.buffer[:nbytes]
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # An upgrade that is not agreed to is a plain request; the next one follows it.
                data = data[upgrade.args[0] :]
                if len(data) and not self._closing:
                    continue
            except httptools.HttpParserError as error:
                called = isinstance(error, httptools.HttpParserCallbackError)
                if called and not isinstance(error.__context__, _TargetTooLong):
                    raise  # a defect of ours, not of the request
                # After a request with `Connection: close` the parser refuses all that follows.
                if not self._closing:
                    self._closing = True
                    self._site.counts[REQUESTS] += 1
                    self._pending.append((0.0, b"", b"", False, False))
            break
        if self._wake is None:
            self._pump()

    def eof_received(self) -> bool:
        outstanding = bool(self._pending) or self._rest is not None
        self._closing = self._done = True
        return outstanding and not self._site.tls  # True: we go on writing

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
        if due or self._pending or self._paused or self._rest is not None:
            self._pending.append((due, target, method, keep, say_so))
        else:
            self._answer(target, method, keep, say_so)

    # Answering

    def _pump(self) -> None:
        """Sends what can be sent now, and sees to it that the rest will be."""
        self._wake = None
        while not self._paused:
            if self._rest is not None:
                block = next(self._rest, None)
                if block is None:
                    self._rest = None
                    continue
                self._site.counts[BYTES] += len(block)
                self._send(block)
                # One block, then a turn for the other connections.
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
        deaf = self._paused or len(self._pending) > _MOST_PENDING
        if deaf is not self._deaf:
            self._deaf = deaf
            if deaf:
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
        body: bytes | None
        if path.startswith(b"/get/"):
            name = path[5:]
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
                # The beginning of a file is what a shorter file of that name has.
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
            return
        if path == b"/list":
            body = site.listing(query.decode("latin-1"))
            if body is None:
                self._refuse(b"400 Bad Request", fields, whole)
                return
        elif path == b"/stats":
            body = site.stats()
        else:
            self._refuse(b"404 Not Found", fields, whole)
            return
        self._send(_head(b"200 OK", _JSON, len(body), fields))
        if whole:
            self._send(body)

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
            # A transport that is closing complains about writes.
            if not self._transport.is_closing():
                self._transport.write(b"".join(self._out))
            self._out.clear()
            self._out_bytes = 0

    def _finish(self) -> None:
        """Ends the connection so that the client gets the last answer, or what is to be sent of it.

        To close a socket with unread data resets the connection, and the reset can overtake the
        answer: so only our direction is shut, and what still comes is thrown away for a while.
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
        if self._done or transport.is_closing() or (tls and end is _End.ASKED):
            transport.close()
            return
        patience = _LINGER
        if not tls:
            transport.write_eof()
        elif end is _End.CUT:
            # Under TLS's feet: an end without close_notify. What the client has not had room for
            # yet is lost, too.
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_WR)
        else:
            # asyncio cannot send close_notify and read on. The client has been told, and most close;
            # to the others it is sent as soon as they are silent.
            patience = _QUIET
        self._heard = False
        self._wake = self._loop.call_later(patience, self._give_up, self._loop.time() + _LINGER)
        if self._deaf:
            self._deaf = False
            transport.resume_reading()

    def _give_up(self, latest: float) -> None:
        transport = self._transport
        now = self._loop.time()
        if transport.get_write_buffer_size():
            self._wake = self._loop.call_later(_LINGER, self._give_up, now + _LINGER)
        elif self._heard and now < latest:
            self._heard = False
            self._wake = self._loop.call_later(_QUIET, self._give_up, latest)
        elif self._end is _End.CUT:
            transport.abort()
        else:
            transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._transport.abort()


def _origin_form(target: bytes) -> bytes:
    """``/path`` of ``http://host/path``, as a client of a proxy sends it."""
    _, mark, rest = target.partition(b"://")
    return b"/" + rest.partition(b"/")[2] if mark else target
