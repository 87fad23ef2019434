"""Parse the responses of one pipelined connection, with the callbacks of llhttp (``httptools``).

llhttp puts the header fields into a dict without running Python code for each. The meaning of a set of
field names is computed once (``header_shape``): a server sends the same names with nearly every response.

Each response becomes an entry of ``completed``: its task, and either the body, a writer that has the body,
or the exception that says why it is not a file.

Once its length is known, a large body bypasses llhttp: its bytes go from the receive buffer to the writer,
without the copy that llhttp makes for its callback.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections import deque
from collections.abc import Callable
from typing import Protocol

import httptools

from downloader.core.content_check import check_length
from downloader.errors import DestinationError, FetchError
from downloader.http.cookies import change_of
from downloader.http.exceptions import PROXY_LOGIN, refusal
from downloader.http.pipelined.header_shape import MAX_USUAL, HeaderShape, shape_of
from downloader.http.response import STORED
from downloader.http.task import FetchTask
from downloader.sinks.checked_writer import CheckedWriter

__all__ = [
    "MAX_BLANK",
    "MAX_HEAD",
    "Body",
    "NeedsRequestsClient",
    "ParserOwner",
    "ResponseParser",
    "discard_body",
]

MAX_HEAD = 64 << 10
MAX_BLANK = 8
"""Bytes of empty lines that are skipped before a status line, as RFC 9112 §2.2 has it for requests."""

_LINE_ENDS = b"\r\n"
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_SLICE = 16 << 10
_WHOLE = 256 << 10  # a body up to this size is put into the sink in one piece
_SHAPES = 256
_NEEDS_NEW_PARSER = -1  # llhttp has not seen the end of its last body, so the next response needs a new one
_HEAD_ONLY = -1  # of the present body nothing has been looked at
_NONE = b""  # no chunk of the body has arrived; compared by identity


class NeedsRequestsClient(Exception):
    """The pipelined client cannot handle the response; the requests client must repeat the request."""


Body = bytes | bytearray | Exception | CheckedWriter


class ParserOwner(Protocol):
    """The connection of a parser, as the parser calls it."""

    max_size: int

    def large(self, task: FetchTask, length: int) -> CheckedWriter:
        """Return the writer for the large body of ``task``; ``length`` is 0 if it is not known.

        Raises FetchError, DestinationError.
        """

    def proxied(self) -> None:
        """Handle that the response came through a proxy."""


class ResponseParser:
    """The callbacks of llhttp, and the received data.

    ``outstanding``: the tasks that wait for a response, oldest first (None: discard the response).
    ``completed``: the tasks whose response is complete, with their bodies. ``in_message``: a response has
    begun; ``headers_complete``: its headers are complete; ``closing``: the last response announced that no
    other follows; ``surplus``: there was a response without a request, or what is none; ``problem``: the
    connection cannot be used any more, because what is received for the oldest task is not valid.

    What arrives must bring a response on: at most ``MAX_HEAD`` bytes without the end of a head, more of a
    body, or the end of a response. Otherwise a server could send for ever, and no timeout would end it.
    """

    __slots__ = (
        "_before",
        "_big",
        "_blank",
        "_fields",
        "_idle",
        "_interim",
        "_left",
        "_plain",
        "_received",
        "_status",
        "body",
        "closing",
        "completed",
        "extra",
        "headers_complete",
        "in_message",
        "max_in_memory",
        "on_header",
        "outstanding",
        "owner",
        "parser",
        "problem",
        "shapes",
        "surplus",
    )

    def __init__(self, owner: ParserOwner, shapes: dict[tuple[bytes, ...], HeaderShape]) -> None:
        self.owner = owner
        self.shapes = shapes
        self.outstanding: deque[FetchTask | None] = deque()
        self.completed: list[tuple[FetchTask, Body]] = []
        self.in_message = self.closing = self.surplus = self.headers_complete = self._big = False
        self.problem: Exception | None = None
        self.body: Body = _NONE
        self.extra: Body | None = None
        self._status = self._received = 0
        self._idle = 0  # bytes without progress: of a head, of several 1xx, of trailers, …
        self._blank = 0  # bytes of them that are empty lines before a status line
        self._before = 0  # bytes of the body when it last made progress
        self._left = 0  # remaining bytes of a body that bypasses llhttp
        self._interim = False  # llhttp is to go on behind the last response, whatever that says
        self.max_in_memory = min(owner.max_size, _WHOLE) if owner.max_size else _WHOLE
        self._plain: tuple[bytes, ...] | None = (
            None  # not (), which are the names of a response without fields
        )
        self._fields: dict[bytes, bytes] = {}
        # Keeps the first of several fields of one name; `_check_head` has the case where that matters.
        self.on_header: Callable[[bytes, bytes], bytes] = self._fields.setdefault
        self.renew()

    def renew(self) -> None:
        """Use a new llhttp, at the beginning of a response."""
        self.parser = httptools.HttpResponseParser(self)
        # Some servers pad the size of a chunk. Nothing can be hidden in blanks.
        self.parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)

    def feed(self, data: memoryview) -> None:
        """Parse ``data``, which has arrived."""
        if not self._left and (self.headers_complete or len(data) <= _SLICE):
            taken = self._feed(data)
            if taken == len(data):
                return
            data = data[taken:]
        while data and self.problem is None and not self.closing:
            if self._left > 0:
                taken = min(self._left, len(data))
                self._append(data[:taken])
                self._left -= taken
                if not self._left and self.problem is None:
                    self.on_message_complete()
                    self._left = _NEEDS_NEW_PARSER
            else:
                if self._left:
                    self.renew()
                    self._left = 0
                # In slices, to bound the size of a head without counting it field by field.
                taken = self._feed(data if self.headers_complete else data[:_SLICE])
            data = data[taken:]

    def _feed(self, data: memoryview) -> int:
        """Pass ``data`` to llhttp and return the number of bytes that were consumed.

        The beginning of a large body is not consumed, to be written together with what follows it.
        """
        size = len(data)
        if not self.in_message and data[0] in _LINE_ENDS and not self.closing:
            self._blank += _blanks(data)
            if self._blank > MAX_BLANK:
                if self.outstanding:
                    self.problem = FetchError("protocol", "empty lines instead of a response")
                else:
                    self.surplus = True
                return size
        self._big = self._idle > 0
        self._idle += size
        try:
            self.parser.feed_data(data)
        except Exception:  # those of httptools have no base class of their own
            if self.closing or self.problem is not None:
                return size
            if not self.outstanding:
                self.surplus = True  # garbage after the last response
            else:
                # llhttp is stricter than a user of requests expects; let the requests client decide, unless
                # the status has decided.
                self.problem = self.body if isinstance(self.body, FetchError) else NeedsRequestsClient()
            return size
        if self.headers_complete:
            return size - self._inside(size)
        if self._idle > MAX_HEAD:
            self.problem = FetchError("protocol", "the headers are too long")
        return size

    def _inside(self, size: int) -> int:
        """Let the rest of the body bypass llhttp if its length is known.

        Returns how many of ``size`` bytes belong to a large body that begins in them. If the length is not
        known, the body must make progress, since trailers may be endless.
        """
        body, refused = self.body, self.refusal
        # None where the fields of a trailer have come, or more fields than are usual.
        shape = None if refused else self.shapes.get(tuple(self._fields))
        if shape is not None and shape.length and not shape.chunked:
            length, here = int(self._fields[shape.length]), 0
            large = length > self.max_in_memory
            if large and isinstance(body, bytes):  # a single chunk, so it is part of these bytes
                here, self.body = len(body), _NONE
            self._left = length - self.progress
            if large:
                self._append(b"", length)
            return here
        progress = 0 if refused else self.progress  # more of an error page is none
        if progress != self._before:
            self._before, self._idle = progress, 0
        elif self._idle > MAX_HEAD:
            self.problem = refused or FetchError(
                "protocol", "the body does not end, and nothing of it comes"
            )
        return 0

    # Callbacks of llhttp. They store exceptions instead of raising them, since llhttp would wrap them. What
    # they raise ends the parsing: llhttp takes nothing more.

    def on_message_begin(self) -> None:
        self.in_message = True

    def on_headers_complete(self) -> None:
        status = self._status = self.parser.get_status_code()
        # With the same field names as an earlier plain response, this one is plain, too.
        if status == 200 and not self._big and tuple(self._fields) == self._plain:
            self.headers_complete = True
            return
        if status < 200:
            self._check_interim(status)
            return
        if self._interim:
            self._follow_interim(False)
        try:
            self._check_head(status)
        except FetchError as error:
            self.body, self._before = error, _HEAD_ONLY
        except NeedsRequestsClient as error:
            self.body, self._before = error, _HEAD_ONLY
            if not self._short():
                self.problem = error  # not worth waiting for its end

    def _check_interim(self, status: int) -> None:
        """Let the final response follow the present one, which is interim (RFC 9110 §15.2).

        Raises NeedsRequestsClient if what follows is none, or llhttp would take it for a body, or add the
        digits of its length to those of this one, which it forgets behind a usual response only.
        """
        last = not self.parser.should_keep_alive()
        odd = (last or status > 103) and any(name.lower() in _FRAMING for name in self._fields)
        if status == 101 or odd:
            self.problem = NeedsRequestsClient()
            raise self.problem
        if last:
            self._follow_interim(True)

    def _follow_interim(self, follow: bool) -> None:
        """Let llhttp go on behind a response that looks like the last one, if ``follow``."""
        self._interim = follow
        self._plain = None  # so that the next head is looked at
        self.parser.set_dangerous_leniencies(lenient_keep_alive=follow)

    def _check_head(self, status: int) -> None:
        """Check that this client can store the response. Raises FetchError, NeedsRequestsClient."""
        fields = self._fields
        if self._big and sum(map(len, fields)) + sum(map(len, fields.values())) > MAX_HEAD:
            raise FetchError("protocol", "the headers are too long")
        self.headers_complete = True
        names = tuple(fields)
        shape = self.shapes.get(names) or self._add_shape(names)
        if shape.via:
            self.owner.proxied()
        if status == PROXY_LOGIN:
            raise NeedsRequestsClient  # which knows whether a proxy is in between
        if status >= 400:
            after, date = fields.get(shape.retry_after, b""), fields.get(shape.date, b"")
            failed = refusal(status, after.decode("latin-1") or None, date.decode("latin-1"))
            if shape.set_cookie:
                failed.sets_cookie = change_of(fields[shape.set_cookie].decode("latin-1"))
            raise failed
        if status not in STORED:
            raise NeedsRequestsClient
        if shape.plain:
            self._plain = names
        else:
            self._check_framing(shape)

    def _add_shape(self, names: tuple[bytes, ...]) -> HeaderShape:
        shape = shape_of(names, bool(self.owner.max_size))
        if len(names) <= MAX_USUAL:
            if len(self.shapes) >= _SHAPES:
                self.shapes.clear()
            self.shapes[names] = shape
        return shape

    def _check_framing(self, shape: HeaderShape) -> None:
        """Check that the end of the body will be known. Raises FetchError, NeedsRequestsClient."""
        fields = self._fields
        if shape.chunked:
            # A chunked body marks its own end. llhttp rejects one that also has a length, and reads to
            # the end of the connection if chunked is not the last coding. After one in HTTP/1.0 the
            # connection must be closed (RFC 9112 §6.1).
            coding, parser = fields[shape.chunked].rstrip(b" ").lower(), self.parser
            if coding != b"chunked" or not parser.should_keep_alive() or parser.get_http_version() == "1.0":
                raise NeedsRequestsClient
            self._before = _HEAD_ONLY
            return
        if not shape.length:
            raise NeedsRequestsClient
        # llhttp has checked that it is a number.
        check_length(int(fields[shape.length]), self.owner.max_size)

    def _short(self) -> bool:
        """Return whether the response, which is not stored, is known to be short."""
        length = [value for name, value in self._fields.items() if name.lower() == b"content-length"]
        return self._status in (204, 304) or (bool(length) and int(length[0]) <= MAX_HEAD)

    def on_body(self, chunk: bytes) -> None:
        if self.body is _NONE:
            self.body = chunk
            if len(chunk) <= self.max_in_memory:
                return
            chunk = b""
        self._append(chunk)

    def _append(self, chunk: bytes | memoryview, length: int = 0) -> None:
        """Add ``chunk`` to the body, in memory or in a writer.

        ``length`` is that of the whole body, 0 if it is not known.
        """
        body = self.body
        if isinstance(body, Exception):
            self._received += len(chunk)
            return
        try:
            if isinstance(body, (bytes, bytearray)):
                if max(len(body) + len(chunk), length) <= self.max_in_memory:
                    self.body = bytearray(body) if isinstance(body, bytes) else body
                    self.body += chunk
                    return
                check_length(len(body) + len(chunk), self.owner.max_size)
                task = self.outstanding[0] if self.outstanding else None
                if task is None:
                    raise NeedsRequestsClient  # no task waits for it
                writer = self.body = self.owner.large(task, length)
                if body:
                    writer.write(body)
            else:
                writer = body
            if chunk:
                writer.write(chunk)
        except (FetchError, DestinationError, NeedsRequestsClient) as error:
            self.discard()
            self.body = self.problem = error

    def on_message_complete(self) -> None:
        self.in_message = False
        self._fields.clear()
        if self._status < 200:
            return  # 100, 103: the final response follows
        self.headers_complete = False
        body, self.body = self.body, _NONE
        self._received = self._idle = self._blank = 0
        if self.problem is body:
            self.problem = None  # the response is complete, so the connection can be used
        try:
            task = self.outstanding.popleft()
        except IndexError:
            self.surplus, self.extra = True, body
            return
        if not self.parser.should_keep_alive():
            self.closing = True
        if task is not None:
            self.completed.append((task, body))
        else:
            discard_body(body)

    @property
    def progress(self) -> int:
        """Number of bytes received of the current body."""
        body = self.body
        if isinstance(body, (bytes, bytearray)):
            return len(body)
        return self._received if isinstance(body, Exception) else body.size

    @property
    def surplus_body(self) -> Body | None:
        """Return what has come of the body of a response that nobody asked for, None if it is none.

        b"" where the response has only begun.
        """
        if self.extra is None and not self.outstanding:
            if self.headers_complete:
                return self.body
            if self.in_message and not self.surplus:
                return b""
        return self.extra

    @property
    def refusal(self) -> Exception | None:
        """Return why the present response has no file, as its head says; None if it may have one.

        Such a response counts however its body ends, since nothing of that would be stored.
        """
        return self.body if isinstance(self.body, Exception) else None

    @property
    def missing(self) -> int:
        """Number of bytes that are missing of the current body, 0 if that is not known."""
        return self._left

    def cut_error(self) -> FetchError:
        """Return the error for a connection that ends at this point."""
        if self.headers_complete:
            return FetchError("truncated", "the body ends early")
        if self.in_message:
            return FetchError("truncated", "the response ends in its headers")
        return FetchError("reset", "the server closed the connection")

    def finish(self) -> None:
        """Complete the response that ended with the connection."""
        task, body = self.outstanding.popleft(), self.body
        self.body = _NONE
        self.in_message = self.headers_complete = False
        if task is not None:
            self.completed.append((task, body))

    def take_outstanding(self) -> list[FetchTask | None]:
        """Remove and return all outstanding tasks."""
        taken = list(self.outstanding)
        self.outstanding.clear()
        return taken

    def close(self) -> None:
        """Drop what refers to this object and to its owner: nothing is fed any more.

        Otherwise both would live until the garbage collector finds them, thousands at a time.
        """
        self.parser = self.owner = None  # type: ignore[assignment]

    def discard(self) -> None:
        """Discard a body that will not be complete."""
        body, self.body = self.body, _NONE
        discard_body(body)


def _blanks(data: memoryview) -> int:
    """Return how many bytes at the beginning of ``data`` are the ends of lines."""
    begin = bytes(data[: MAX_BLANK + 1])
    return len(begin) - len(begin.lstrip(_LINE_ENDS))


def discard_body(body: Body) -> None:
    """Discard ``body``; abort it if it is a writer, so that no file is left."""
    if not isinstance(body, (bytes, bytearray, Exception)):
        body.abort()
