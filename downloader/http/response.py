"""Make http.client's response parser strict: reject invalid responses that it accepts.

By itself it accepts truncated headers as complete, ``103`` as the final response (the real one would then
be read as the next file's), ``-5`` and ``1_0`` as the length of a chunk, and headers of megabytes.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import http.client  # noqa: E402
import re  # noqa: E402
from email.errors import (  # noqa: E402
    MultipartInvariantViolationDefect,
    StartBoundaryNotFoundDefect,
)
from typing import Any  # noqa: E402

__all__ = ["STORED", "StrictResponse"]

STORED = frozenset({200, 203})
"""The statuses of a response whose body is the file. 203: a proxy changed something (RFC 9110 §15.3.4)."""

_HEAD = 64 << 10
_SWITCHING = 101
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}[ \t]*(?:;[^\r\n]*)?\r?\n").fullmatch
# Defects of the body of a multipart response, which has not been read yet.
_HARMLESS = (StartBoundaryNotFoundDefect, MultipartInvariantViolationDefect)


class _Head:
    """A wrapper of the stream while the head is read.

    It limits the head to ``_HEAD`` bytes, and raises IncompleteRead if the stream ends within the head.
    """

    def __init__(self, stream: Any) -> None:
        self._readline = stream.readline
        self._stream = stream
        self._left = _HEAD

    def readline(self, most: int) -> bytes:
        line: bytes = self._readline(most)
        if not line and self._left < _HEAD:
            raise http.client.IncompleteRead(b"")
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("head of the response")
        return line

    def close(self) -> None:
        self._stream.close()


class StrictResponse(http.client.HTTPResponse):
    """One response. Raises http.client's exceptions, as its base class does."""

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
        coding = self.headers.get("Transfer-Encoding")
        if coding is not None and not self.chunked and coding.lower() != "identity":
            raise http.client.HTTPException(f"Transfer-Encoding {coding[:40]!r} is not known")
        if self.msg.defects and any(not isinstance(each, _HARMLESS) for each in self.msg.defects):
            raise http.client.HTTPException("a header is malformed")

    def _read_status(self) -> tuple[str, int, str]:
        """Return the status line of the final response; skip informational responses before it."""
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if status >= 200 or status == _SWITCHING:
                return version, status, reason
            while self.fp.readline(_HEAD) not in (b"\r\n", b"\n"):
                pass

    def _read_next_chunk_size(self) -> int:
        line = self.fp.readline(_HEAD)
        if _CHUNK_SIZE(line):
            return int(line.partition(b";")[0], 16)
        self._close_conn()  # type: ignore[attr-defined]
        if not line.endswith(b"\n") and len(line) < _HEAD:
            raise http.client.IncompleteRead(b"")
        raise http.client.HTTPException("the length of a chunk is not a number")
