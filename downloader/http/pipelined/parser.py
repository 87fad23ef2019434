"""Reading the answers of one connection of the wire lane: what llhttp (``httptools``) calls back.

The fields of an answer are put into a dict by the parser itself, without a line of Python for each of
them. What a set of field names means is worked out once (``_Shape``): a server gives the same names with
nearly every answer.

An answer ends as an entry in ``held``: the job it answers, and either its body, a writer that has the
body, or the exception that says why it is not a file.

The bytes of a large body do not pass the parser once its length is known: they go from the buffer that
they were received in to the writer, without the copy that llhttp's callback needs.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections import deque  # noqa: E402
from collections.abc import Callable  # noqa: E402
from time import time  # noqa: E402
from typing import NamedTuple, Protocol  # noqa: E402

import httptools  # noqa: E402

from downloader.core.retry import parse_retry_after  # noqa: E402
from downloader.core.units import show_size  # noqa: E402
from downloader.errors import DestinationError, FetchError  # noqa: E402
from downloader.http.requests_client import STORED  # noqa: E402
from downloader.sinks import Writer  # noqa: E402
from downloader.worker.active_batch import Job  # noqa: E402

__all__ = ["LONGEST_HEAD", "Body", "HandOver", "Limits", "Reader", "let_go"]

LONGEST_HEAD = 64 << 10
_SLICE = 16 << 10
_WHOLE = 256 << 10  # a body up to this size is put into the sink in one piece
_LINES = 100  # of a head; http.client has the same limit
_SHAPES = 256
_WORN = -1  # the parser has not seen the end of its last body: the next answer needs a new one
_NONE = b""  # no piece of the body is here; told apart by identity


class HandOver(Exception):
    """The answer is not one for this lane; ask again through the requests lane."""


Body = bytes | bytearray | Exception | Writer


class _Shape(NamedTuple):
    """What the names of an answer's fields mean; the names as the server spells them."""

    plain: bool
    chunked: bytes = b""
    length: bytes = b""
    retry_after: bytes = b""
    via: bool = False


class Limits(Protocol):
    """What a reader asks of the connection that it is part of."""

    max_size: int

    def large(self, job: Job, length: int) -> Writer:
        """The body of ``job`` is large: where it goes. ``length`` is 0 where it is not known. Raises
        FetchError, DestinationError."""

    def proxied(self) -> None:
        """The answer came through a proxy."""


class Reader:
    """The parser's callbacks, and what has been read; see the module.

    ``mid``: the next answer has begun; ``closing``: the last one said that no other follows;
    ``surplus``: there was one that nobody had asked for; ``problem``: the connection is of no use any
    more, since the answer that is being read is not right.
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
        "answered",
        "body",
        "closing",
        "held",
        "limits",
        "mid",
        "most",
        "on_header",
        "outstanding",
        "parser",
        "problem",
        "shapes",
        "surplus",
    )

    def __init__(self, limits: Limits, shapes: dict[tuple[bytes, ...], _Shape]) -> None:
        self.limits = limits
        self.shapes = shapes
        self.outstanding: deque[Job | None] = deque()
        self.held: list[tuple[Job, Body]] = []
        self.mid = self.closing = self.surplus = self.answered = self._big = False
        self.problem: Exception | None = None
        self.body: Body = _NONE
        self._status = self._head = self._received = 0
        self._before = self._idle = 0
        self._left = 0  # of a body that does not pass the parser
        self.most = min(limits.max_size, _WHOLE) if limits.max_size else _WHOLE
        self._plain: tuple[bytes, ...] | None = None  # () is what an answer without fields has
        self._fields: dict[bytes, bytes] = {}
        # Of several fields of one name the first stays; see `_judge` for the one where that matters.
        self.on_header: Callable[[bytes, bytes], bytes] = self._fields.setdefault
        self.parser = httptools.HttpResponseParser(self)

    def feed(self, data: memoryview) -> None:
        """Take what has arrived."""
        if not self._left and (self.answered or len(data) <= _SLICE):
            taken = self._feed(data)
            if taken == len(data):
                return
            data = data[taken:]
        while data and self.problem is None:
            if self._left > 0:
                taken = min(self._left, len(data))
                self._more(data[:taken])
                self._left -= taken
                if not self._left and self.problem is None:
                    self.on_message_complete()
                    self._left = _WORN
            else:
                if self._left:
                    self.parser = httptools.HttpResponseParser(self)
                    self._left = 0
                # In slices, so that the length of a head is known, though nobody counts it field by field.
                taken = self._feed(data if self.answered else data[:_SLICE])
            data = data[taken:]

    def _feed(self, data: memoryview) -> int:
        """To the parser. How many bytes that has settled: what there is of a large body is left, to be
        written in one go with what follows it."""
        size = len(data)
        inside = self.mid and not self.answered
        if inside:
            self._head += size
        self._big = self._head > 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.closing or self.problem is not None:
                return size
            if not self.mid:
                self.surplus = True  # rubbish behind a complete answer
            elif self.answered:
                self.problem = FetchError("protocol", f"the body is not valid HTTP: {error}")
            else:
                # llhttp is stricter than what a user of requests expects; let that decide.
                self.problem = HandOver()
            return size
        if not self.mid or self.answered:
            self._head = 0
            if self.answered:
                return size - self._inside(size)
        elif self._head > LONGEST_HEAD:
            self.problem = FetchError("protocol", "the headers are too long")
        return size

    def _inside(self, size: int) -> int:
        """More of the body is to come. That needs no parser, if its length is known; and where it is not,
        something must come of the ``size`` bytes: there are trailers without end. How many of them belong
        to a large body that begins with them."""
        body = self.body
        if isinstance(body, Exception):
            return 0
        shape = self.shapes.get(tuple(self._fields))  # none where the fields of a trailer have come
        if shape is not None and shape.length and not shape.chunked:
            length, here = int(self._fields[shape.length]), 0
            large = length > self.most
            if large and isinstance(body, bytes):  # one piece, so it is of these bytes
                here, self.body = len(body), _NONE
            self._left = length - self.progress
            if large:
                self._more(b"", length)
            return here
        self._idle = self._idle + size if self.progress == self._before else 0
        self._before = self.progress
        if self._idle > LONGEST_HEAD:
            self.problem = FetchError("protocol", "the body does not end, and nothing of it comes")
        return 0

    # callbacks of the parser; what they raise it would wrap, so they note it

    def on_message_begin(self) -> None:
        self.mid = True

    def on_headers_complete(self) -> None:
        status = self._status = self.parser.get_status_code()
        # The names of one that was plain, and so is this one.
        if status == 200 and not self._big and tuple(self._fields) == self._plain:
            self.answered = True
            return
        try:
            self._judge(status)
        except FetchError as error:
            self.body = error
        except HandOver as error:
            self.body = error
            if not self._short():
                self.problem = error  # not worth waiting for its end

    def _judge(self, status: int) -> None:
        """Is this an answer for us, and one that can be used? Raises FetchError, HandOver."""
        fields = self._fields
        if self._big and max(self._head, sum(map(len, fields.values()))) > LONGEST_HEAD:
            raise FetchError("protocol", "the headers are too long")
        if status == 101:
            self.problem = HandOver()
            return
        if status < 200:
            return
        self.answered = True
        names = tuple(fields)
        shape = self.shapes.get(names)
        if shape is None:
            if len(self.shapes) >= _SHAPES:
                self.shapes.clear()
            shape = self.shapes[names] = _shape(names, bool(self.limits.max_size))
        if shape.via:
            self.limits.proxied()
        if len(fields) > _LINES:
            raise HandOver
        if status >= 400:
            value = fields.get(shape.retry_after)
            wait = parse_retry_after(value.decode("latin-1") if value is not None else None, time())
            raise FetchError(f"http-{status}", "", wait)
        if status not in STORED:
            raise HandOver
        if shape.plain:
            self._plain = names
            return
        if shape.chunked:
            # A chunked body tells its own end; llhttp refuses one that has a length as well, and reads
            # to the end of the connection where chunked is not the last coding.
            if fields[shape.chunked].lower() != b"chunked" or not self.parser.should_keep_alive():
                raise HandOver
            self._before = self._idle = 0
            return
        if not shape.length:
            raise HandOver
        self._check_size(int(fields[shape.length]))  # llhttp has checked that it is a number

    def _short(self) -> bool:
        """Whether the answer, which is of no use here, ends soon and by itself."""
        length = [value for name, value in self._fields.items() if name.lower() == b"content-length"]
        return self._status in (204, 304) or (bool(length) and int(length[0]) <= LONGEST_HEAD)

    def on_body(self, chunk: bytes) -> None:
        if self.body is _NONE:
            self.body = chunk
            if len(chunk) <= self.most:
                return
            chunk = b""
        self._more(chunk)

    def _more(self, chunk: bytes | memoryview, length: int = 0) -> None:
        """Another piece of a body, or one that is too long to be kept in memory: of ``length``, if that
        is known."""
        body = self.body
        if isinstance(body, Exception):
            self._received += len(chunk)
            if self._received > LONGEST_HEAD and self.problem is None:
                self.problem = body  # enough of an error's page
            return
        try:
            if isinstance(body, (bytes, bytearray)):
                if max(len(body) + len(chunk), length) <= self.most:
                    self.body = bytearray(body) if isinstance(body, bytes) else body
                    self.body += chunk
                    return
                self._check_size(len(body) + len(chunk))
                job = self.outstanding[0] if self.outstanding else None
                if job is None:
                    raise HandOver  # nobody waits for it
                writer = self.body = self.limits.large(job, length)
                if body:
                    writer.write(body)
            else:
                writer = body
                self._check_size(writer.size + len(chunk))
            if chunk:
                writer.write(chunk)
        except (FetchError, DestinationError, HandOver) as error:
            self.discard()
            self.body = self.problem = error

    def _check_size(self, size: int) -> None:
        most = self.limits.max_size
        if most and size > most:
            raise FetchError("too-large", f"{show_size(size)}, --max-size is {show_size(most)}")

    def on_message_complete(self) -> None:
        self.mid = False
        self._fields.clear()
        if self._status < 200:
            return  # 100, 103: the answer is still to come
        self.answered = False
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
            self.held.append((job, body))
        else:
            let_go(body)

    @property
    def progress(self) -> int:
        """How many bytes there are of the body that is being read."""
        body = self.body
        if isinstance(body, (bytes, bytearray)):
            return len(body)
        return self._received if isinstance(body, Exception) else body.size

    def cut(self) -> FetchError:
        """What it means that the connection ended here."""
        if self.answered:
            return FetchError("truncated", "the body ends early")
        if self.mid:
            return FetchError("truncated", "the answer ends in its headers")
        return FetchError("reset", "the server closed the connection")

    def finish(self) -> None:
        """The answer that is being read ended with the connection."""
        job, body = self.outstanding.popleft(), self.body
        self.body = _NONE
        self.mid = self.answered = False
        if job is not None:
            self.held.append((job, body))

    def take(self) -> list[Job | None]:
        """All that has been asked for and not been answered; it is no longer waited for."""
        taken = list(self.outstanding)
        self.outstanding.clear()
        return taken

    def discard(self) -> None:
        """Let go of a body that will not be complete."""
        body, self.body = self.body, _NONE
        let_go(body)


def let_go(body: Body) -> None:
    """``body`` is of no use: a writer must not leave anything behind."""
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
