"""The parser of one pipelined connection's responses: the callbacks of llhttp (``httptools``).

llhttp itself puts the header fields into a dict, without a line of Python for each. What a set of field
names means is computed once (``_Shape``): a server sends the same names with nearly every response.

A response ends as an entry of ``completed``: its task, and either the body, a writer that has the body, or
the exception that says why it is not a file.

The bytes of a large body bypass llhttp once the length is known: they go from the receive buffer to the
writer, without the copy that llhttp's callback makes.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections import deque  # noqa: E402
from collections.abc import Callable  # noqa: E402
from time import time  # noqa: E402
from typing import NamedTuple, Protocol  # noqa: E402

import httptools  # noqa: E402

from downloader.core.content_check import check_length  # noqa: E402
from downloader.core.retry import parse_retry_after  # noqa: E402
from downloader.errors import DestinationError, FetchError  # noqa: E402
from downloader.http.response import STORED  # noqa: E402
from downloader.http.task import FetchTask  # noqa: E402
from downloader.sinks.checked_writer import CheckedWriter  # noqa: E402

__all__ = ["MAX_HEAD", "Body", "NeedsRequestsClient", "ParserOwner", "ResponseParser", "discard_body"]

MAX_HEAD = 64 << 10
_SLICE = 16 << 10
_WHOLE = 256 << 10  # a body up to this size is put into the sink in one piece
_LINES = 100  # of a head; http.client has the same limit
_SHAPES = 256
_WORN = -1  # the parser has not seen the end of its last body: the next answer needs a new one
_NONE = b""  # no piece of the body is here; told apart by identity


class NeedsRequestsClient(Exception):
    """The response is not one for the pipelined client; the requests client has to ask again."""


Body = bytes | bytearray | Exception | CheckedWriter


class _Shape(NamedTuple):
    """What the names of a response's fields mean; the names as the server spells them."""

    plain: bool
    chunked: bytes = b""
    length: bytes = b""
    retry_after: bytes = b""
    via: bool = False


class ParserOwner(Protocol):
    """What a parser asks of the connection that it belongs to."""

    max_size: int

    def large(self, job: FetchTask, length: int) -> CheckedWriter:
        """Return the writer for the large body of ``job``; ``length`` is 0 where it is not known. Raises
        FetchError, DestinationError."""

    def proxied(self) -> None:
        """The response came through a proxy."""


class ResponseParser:
    """llhttp's callbacks, and what was received.

    ``outstanding``: the tasks that wait for a response, oldest first (None: its response is discarded).
    ``completed``: the tasks whose response is complete. ``in_message``: a response has begun;
    ``headers_complete``: so have its headers; ``closing``: the last response announced that no other
    follows; ``surplus``: there was a response without a request; ``problem``: the connection cannot be
    used any more, because the response that is being received is not valid.
    """

    __slots__ = (
        "_before",
        "_big",
        "_fields",
        "_head",
        "_idle",
        "_left",
        "_plain",
        "_received",
        "_status",
        "body",
        "closing",
        "completed",
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

    def __init__(self, owner: ParserOwner, shapes: dict[tuple[bytes, ...], _Shape]) -> None:
        self.owner = owner
        self.shapes = shapes
        self.outstanding: deque[FetchTask | None] = deque()
        self.completed: list[tuple[FetchTask, Body]] = []
        self.in_message = self.closing = self.surplus = self.headers_complete = self._big = False
        self.problem: Exception | None = None
        self.body: Body = _NONE
        self._status = self._head = self._received = 0
        self._before = self._idle = 0
        self._left = 0  # of a body that does not pass the parser
        self.max_in_memory = min(owner.max_size, _WHOLE) if owner.max_size else _WHOLE
        self._plain: tuple[bytes, ...] | None = None  # () is what an answer without fields has
        self._fields: dict[bytes, bytes] = {}
        # Of several fields of one name the first stays; see `_judge` for the one where that matters.
        self.on_header: Callable[[bytes, bytes], bytes] = self._fields.setdefault
        self.parser = httptools.HttpResponseParser(self)

    def feed(self, data: memoryview) -> None:
        """Parse ``data``, which has arrived."""
        if not self._left and (self.headers_complete or len(data) <= _SLICE):
            taken = self._feed(data)
            if taken == len(data):
                return
            data = data[taken:]
        while data and self.problem is None:
            if self._left > 0:
                taken = min(self._left, len(data))
                self._append(data[:taken])
                self._left -= taken
                if not self._left and self.problem is None:
                    self.on_message_complete()
                    self._left = _WORN
            else:
                if self._left:
                    self.parser = httptools.HttpResponseParser(self)
                    self._left = 0
                # In slices, so that the length of a head is known, though nobody counts it field by field.
                taken = self._feed(data if self.headers_complete else data[:_SLICE])
            data = data[taken:]

    def _feed(self, data: memoryview) -> int:
        """Give ``data`` to llhttp and return how many bytes of it are dealt with: the beginning of a large
        body is left, to be written together with what follows it."""
        size = len(data)
        inside = self.in_message and not self.headers_complete
        if inside:
            self._head += size
        self._big = self._head > 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.closing or self.problem is not None:
                return size
            if not self.in_message:
                self.surplus = True  # garbage behind a complete response
            elif self.headers_complete:
                self.problem = FetchError("protocol", f"the body is not valid HTTP: {error}")
            else:
                # llhttp is stricter than what a user of requests expects; let that decide.
                self.problem = NeedsRequestsClient()
            return size
        if not self.in_message or self.headers_complete:
            self._head = 0
            if self.headers_complete:
                return size - self._inside(size)
        elif self._head > MAX_HEAD:
            self.problem = FetchError("protocol", "the headers are too long")
        return size

    def _inside(self, size: int) -> int:
        """Take the rest of the body past llhttp if its length is known; return how many of ``size`` bytes
        belong to a large body that begins with them. Where the length is not known, progress is required:
        trailers may be endless."""
        body = self.body
        if isinstance(body, Exception):
            return 0
        shape = self.shapes.get(tuple(self._fields))  # none where the fields of a trailer have come
        if shape is not None and shape.length and not shape.chunked:
            length, here = int(self._fields[shape.length]), 0
            large = length > self.max_in_memory
            if large and isinstance(body, bytes):  # one piece, so it is of these bytes
                here, self.body = len(body), _NONE
            self._left = length - self.progress
            if large:
                self._append(b"", length)
            return here
        self._idle = self._idle + size if self.progress == self._before else 0
        self._before = self.progress
        if self._idle > MAX_HEAD:
            self.problem = FetchError("protocol", "the body does not end, and nothing of it comes")
        return 0

    # callbacks of llhttp, which would wrap what they raise; so they store it

    def on_message_begin(self) -> None:
        self.in_message = True

    def on_headers_complete(self) -> None:
        status = self._status = self.parser.get_status_code()
        # The same field names as a plain response before it: this one is plain, too.
        if status == 200 and not self._big and tuple(self._fields) == self._plain:
            self.headers_complete = True
            return
        try:
            self._judge(status)
        except FetchError as error:
            self.body = error
        except NeedsRequestsClient as error:
            self.body = error
            if not self._short():
                self.problem = error  # not worth waiting for its end

    def _judge(self, status: int) -> None:
        """Check that the response can be stored from here. Raises FetchError, NeedsRequestsClient."""
        fields = self._fields
        if self._big and max(self._head, sum(map(len, fields.values()))) > MAX_HEAD:
            raise FetchError("protocol", "the headers are too long")
        if status == 101:
            self.problem = NeedsRequestsClient()
            return
        if status < 200:
            return
        self.headers_complete = True
        names = tuple(fields)
        shape = self.shapes.get(names)
        if shape is None:
            if len(self.shapes) >= _SHAPES:
                self.shapes.clear()
            shape = self.shapes[names] = _shape(names, bool(self.owner.max_size))
        if shape.via:
            self.owner.proxied()
        if len(fields) > _LINES:
            raise NeedsRequestsClient
        if status >= 400:
            value = fields.get(shape.retry_after)
            wait = parse_retry_after(value.decode("latin-1") if value is not None else None, time())
            raise FetchError(f"http-{status}", "", wait)
        if status not in STORED:
            raise NeedsRequestsClient
        if shape.plain:
            self._plain = names
            return
        if shape.chunked:
            # A chunked body tells its own end; llhttp refuses one that has a length as well, and reads
            # to the end of the connection where chunked is not the last coding.
            if fields[shape.chunked].lower() != b"chunked" or not self.parser.should_keep_alive():
                raise NeedsRequestsClient
            self._before = self._idle = 0
            return
        if not shape.length:
            raise NeedsRequestsClient
        check_length(
            int(fields[shape.length]), self.owner.max_size
        )  # llhttp has checked that it is a number

    def _short(self) -> bool:
        """Return whether the response, which is not stored, is short and has a length."""
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
        """Add ``chunk`` to the body, in memory or in a writer; ``length`` is that of the whole, or 0."""
        body = self.body
        if isinstance(body, Exception):
            self._received += len(chunk)
            if self._received > MAX_HEAD and self.problem is None:
                self.problem = body  # enough of an error's page
            return
        try:
            if isinstance(body, (bytes, bytearray)):
                if max(len(body) + len(chunk), length) <= self.max_in_memory:
                    self.body = bytearray(body) if isinstance(body, bytes) else body
                    self.body += chunk
                    return
                check_length(len(body) + len(chunk), self.owner.max_size)
                job = self.outstanding[0] if self.outstanding else None
                if job is None:
                    raise NeedsRequestsClient  # nobody waits for it
                writer = self.body = self.owner.large(job, length)
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
            return  # 100, 103: the answer is still to come
        self.headers_complete = False
        body, self.body = self.body, _NONE
        self._received = 0
        if self.problem is body:
            self.problem = None  # the answer has ended by itself
        try:
            job = self.outstanding.popleft()
        except IndexError:
            self.surplus = True
            return
        if not self.parser.should_keep_alive():
            self.closing = True
        if job is not None:
            self.completed.append((job, body))
        else:
            discard_body(body)

    @property
    def progress(self) -> int:
        """The number of bytes received of the current body."""
        body = self.body
        if isinstance(body, (bytes, bytearray)):
            return len(body)
        return self._received if isinstance(body, Exception) else body.size

    def cut_error(self) -> FetchError:
        """Return the error that a connection which ends here means."""
        if self.headers_complete:
            return FetchError("truncated", "the body ends early")
        if self.in_message:
            return FetchError("truncated", "the answer ends in its headers")
        return FetchError("reset", "the server closed the connection")

    def finish(self) -> None:
        """Complete the response that ended with the connection."""
        job, body = self.outstanding.popleft(), self.body
        self.body = _NONE
        self.in_message = self.headers_complete = False
        if job is not None:
            self.completed.append((job, body))

    def take_outstanding(self) -> list[FetchTask | None]:
        """Return all outstanding tasks and wait for them no longer."""
        taken = list(self.outstanding)
        self.outstanding.clear()
        return taken

    def discard(self) -> None:
        """Discard a body that will not be complete."""
        body, self.body = self.body, _NONE
        discard_body(body)


def discard_body(body: Body) -> None:
    """Discard ``body``: a writer must leave nothing behind."""
    if not isinstance(body, (bytes, bytearray, Exception)):
        body.abort()


def _shape(names: tuple[bytes, ...], limited: bool) -> _Shape:
    spelt = {name.lower(): name for name in names}
    odd = b"content-encoding" in spelt or b"set-cookie" in spelt
    chunked = spelt.get(b"transfer-encoding", b"")
    length = spelt.get(b"content-length", b"")
    via = b"via" in spelt
    return _Shape(
        plain=bool(length) and not (odd or chunked or via or limited) and len(names) <= _LINES,
        chunked=b"" if odd else chunked,
        length=b"" if odd else length,
        retry_after=spelt.get(b"retry-after", b""),
        via=via,
    )
