"""Make http.client's response parser strict: reject invalid responses that it accepts.

By itself it accepts truncated headers as complete, ``103`` as the final response (the real one would
then be read as the next file's), ``-5`` and ``1_0`` as the length of a chunk, ``5, 5`` as no length, a bare
CR as the end of a header field (what stands behind it would be another one), and headers and trailers of
megabytes. On the other hand it refuses more than 100 header fields, and takes blanks behind a value for a
part of it.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import http.client
import re
from email.errors import (
    MultipartInvariantViolationDefect,
    StartBoundaryNotFoundDefect,
)
from typing import Any

from downloader.core.framing import body_length, is_chunked

__all__ = ["STORED", "StrictResponse"]

STORED = frozenset({200, 203})
"""The statuses of a response whose body is the file. 203: a proxy changed something (RFC 9110 §15.3.4)."""

_HEAD = 64 << 10
_MAX_BLANKS = 4
_SWITCHING = 101
_LENGTH, _CODING = "content-length", "transfer-encoding"
_HTTP_1_0 = 10  # as http.client has it
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(?:;[^\r\n]*)?\r?\n").fullmatch
_CHUNK_DIGITS = 15  # without zeros in front: more are no possible number of bytes
_LINE_ENDS = (b"\r\n", b"\n")
_OBSOLETE_FOLD = re.compile(rb"[ \t]*\r?\n[ \t]+")  # RFC 9112 §5.2
_BARE_CR = re.compile(rb"\r(?!\n)")  # RFC 9112 §2.2
_TRAILING_BLANKS = re.compile(rb"[ \t]+(?=\r?\n)")  # RFC 9110 §5.5
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110 §5.6.2
_NAME = re.compile(_TOKEN).fullmatch
_ODD_NAME = re.compile(rb"^(?=.)(?!" + _TOKEN + rb":)", re.MULTILINE).search
_FRAMING = (b"contentlength", b"transferencoding")
# Defects of the body of a multipart response, which has not been read yet.
_HARMLESS = (StartBoundaryNotFoundDefect, MultipartInvariantViolationDefect)


class _Head:
    """A wrapper of the stream while the head is read.

    It limits the head to ``_HEAD`` bytes, with all 1xx before it, and raises IncompleteRead if the stream
    ends within the head. A few empty lines before it are skipped, as by the pipelined client. After
    ``fields``, all header fields come as one line: http.client counts lines.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = _HEAD
        self._blanks = _MAX_BLANKS  # empty lines that may still be skipped
        self._pending: list[bytes] = []

    def readline(self, most: int) -> bytes:
        if self._pending:
            return self._pending.pop()
        line: bytes = self._stream.readline(most)
        while line in _LINE_ENDS and self._blanks:
            self._blanks -= 1
            line = self._stream.readline(most)
        self._blanks = 0
        if not line and self._left < _HEAD:
            raise http.client.IncompleteRead(b"")
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("head of the response")
        return line

    def fields(self) -> None:
        """Read the header fields, so that ``readline`` returns them without blanks around values."""
        lines = []
        while (line := self.readline(_HEAD + 1)) not in _LINE_ENDS:
            lines.append(line)
        if lines and lines[0][:1] in b" \t":
            raise http.client.HTTPException("a header is malformed")  # it continues nothing
        block = _OBSOLETE_FOLD.sub(b" ", _BARE_CR.sub(b" ", b"".join(lines)))
        block = _without_odd(_TRAILING_BLANKS.sub(b"", block))
        self._pending = [line, block] if block else [line]

    def flush(self) -> None:
        """Do nothing: http.client flushes what it closes."""

    def close(self) -> None:
        self._stream.close()


def _without_odd(block: bytes) -> bytes:
    """Return the header fields ``block`` without blanks before colons and without fields of no valid name.

    As curl and browsers do, and RFC 9112 §5.1 for the blanks. Raises HTTPException where a field that says
    how long the body is may be meant.
    """
    if not _ODD_NAME(block):
        return block
    kept = []
    for line in block.splitlines(keepends=True):
        name, colon, value = line.partition(b":")
        plain = name.rstrip(b" \t")
        if plain != name or not _NAME(name):
            if not colon or re.sub(rb"[^a-z]", b"", name.lower()) in _FRAMING:
                raise http.client.HTTPException("a header is malformed")
            if not _NAME(plain):
                continue
        kept.append(plain + colon + value)
    return b"".join(kept)


class StrictResponse(http.client.HTTPResponse):
    """One response. Raises http.client's exceptions, as its base class does.

    A response whose end cannot be known raises when its body is read: for many, the status is enough.
    """

    _fault: str = ""  # why the end of the body is not known

    def begin(self) -> None:
        """Read the head."""
        stream: Any = self.fp
        head: Any = _Head(stream)
        self.fp = head
        try:
            super().begin()
        finally:
            if self.fp is head:
                self.fp = stream
        if self.msg.defects and any(not isinstance(each, _HARMLESS) for each in self.msg.defects):
            raise http.client.HTTPException("a header is malformed")
        self._delimit()

    def _delimit(self) -> None:
        """Set where the body ends, by ``core.framing``; put it into the header field that urllib3 reads."""
        headers = self.headers
        found: dict[str, list[str]] = {_LENGTH: [], _CODING: []}
        for name, value in headers.raw_items():  # get_all() takes several times as long
            if (lower := name.lower()) in found:
                found[lower].append(value)
        lengths, codings = found.values()
        bodiless = self.status < 200 or self.status in (204, 304)  # whatever the fields say
        try:
            length = body_length(lengths, codings)
            if self.chunked != is_chunked(codings):  # http.client looks at the first line only
                self.chunked, self.chunk_left = not self.chunked, None
        except ValueError as error:
            length, self.chunked = None, False
            self._fault = "" if bodiless else str(error)
        stated = [str(length)] if length is not None else []
        if lengths and lengths != stated:
            del headers[_LENGTH]
            for value in stated:
                headers[_LENGTH] = value
        self.length = 0 if bodiless else length
        # RFC 9112 §6.1: a sender of both, or of chunks in HTTP/1.0, may mean another end.
        doubtful = codings and (lengths or self.version == _HTTP_1_0)
        unknown = self.length is None and not self.chunked
        if unknown or doubtful or lengths != stated:
            self.will_close = bool(unknown or doubtful or self._check_close())  # type: ignore[attr-defined]

    def read(self, amt: int | None = None) -> bytes:
        if self._fault:
            raise http.client.HTTPException(self._fault)
        return super().read(amt)

    def read1(self, n: int = -1) -> bytes:
        if self._fault:
            raise http.client.HTTPException(self._fault)
        return super().read1(n)

    def _read_status(self) -> tuple[str, int, str]:
        """Return the status line of the final response; skip informational responses before it."""
        head: Any = self.fp
        while True:
            version, status, reason = self._read_status_line()
            if status >= 200 or status == _SWITCHING:
                head.fields()
                if version in ("HTTP/2.0", "HTTP/2"):  # of a server that means no other protocol by that
                    version = "HTTP/1.0"  # as for llhttp: the connection is closed
                return version, status, reason
            while head.readline(_HEAD) not in _LINE_ENDS:
                pass

    def _read_status_line(self) -> tuple[str, int, str]:
        try:
            return super()._read_status()  # type: ignore[misc, no-any-return]
        except http.client.RemoteDisconnected:
            raise
        except http.client.BadStatusLine as error:
            line = str(error).strip()
        # Not in the handler: its context would be the ValueError of http.client, which says nothing.
        raise http.client.HTTPException(f"the status line is malformed: {line}")

    def _read_next_chunk_size(self) -> int:
        line = self.fp.readline(_HEAD)
        match = _CHUNK_SIZE(line)
        if match and len(digits := match[1].lstrip(b"0")) <= _CHUNK_DIGITS:
            return int(digits or b"0", 16)
        self._close_conn()  # type: ignore[attr-defined]
        if not line.endswith(b"\n") and len(line) < _HEAD:
            raise http.client.IncompleteRead(b"")
        raise http.client.HTTPException("the length of a chunk is not a number")

    def _get_chunk_left(self) -> int | None:
        """Return how much of the present chunk is left, None at the end of the body."""
        if self.chunk_left == 0:
            end = self._safe_read(1)  # type: ignore[attr-defined]
            if end == b"\r":
                end = self._safe_read(1)  # type: ignore[attr-defined]
            if end != b"\n":  # some servers write that alone, as with the lines of a head
                raise http.client.HTTPException("a chunk is longer than its length")
            self.chunk_left = None
        left: int | None = super()._get_chunk_left()  # type: ignore[misc]
        return left

    def _read_and_discard_trailer(self) -> None:
        left = _HEAD
        while (line := self.fp.readline(_HEAD)) not in _LINE_ENDS:
            left -= len(line)
            if left < 0:
                raise http.client.LineTooLong("trailers of the response")
            if not line:
                raise http.client.IncompleteRead(b"")
