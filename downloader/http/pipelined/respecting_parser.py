"""Refuse a response that says that its content is not to be used (--respect)."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from functools import partial  # noqa: E402

import httptools  # noqa: E402

from downloader.core.opt_out import FIELDS, opt_out  # noqa: E402
from downloader.errors import FetchError  # noqa: E402
from downloader.http.pipelined.header_shape import HeaderShape  # noqa: E402
from downloader.http.pipelined.parser import ParserOwner, ResponseParser  # noqa: E402
from downloader.http.pipelined.recording_parser import RecordingParser  # noqa: E402
from downloader.http.response import STORED  # noqa: E402

__all__ = ["RespectingParser", "RespectingRecordingParser"]

_FIELDS = tuple(name.encode() for name in FIELDS)


class RespectingParser(ResponseParser):
    """A ``ResponseParser`` whose body of a refused response is FetchError ``opted-out``."""

    __slots__ = ("_product_token",)

    def __init__(
        self, owner: ParserOwner, shapes: dict[tuple[bytes, ...], HeaderShape], *, product_token: str
    ) -> None:
        super().__init__(owner, shapes)
        self._product_token = product_token
        self.on_header = partial(_add, self._fields)
        self.parser = httptools.HttpResponseParser(self)  # which looks for `on_header` once

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self._status not in STORED or isinstance(self.body, Exception):
            return
        task = self.outstanding[0] if self.outstanding else None
        if task is not None and task.robots_txt:
            return
        tags, reservations = (_lines(self._fields, name) for name in _FIELDS)
        if why := opt_out(tags, reservations, self._product_token):
            self.body = FetchError("opted-out", why)


class RespectingRecordingParser(RespectingParser, RecordingParser):
    """The same for sinks that want the metadata of each file."""

    __slots__ = ()


def _lines(fields: dict[bytes, bytes], name: bytes) -> list[str]:
    """Return the values of the header fields ``name``, in whatever spelling, one for each line."""
    values = [value for spelt, value in fields.items() if spelt.lower() == name]
    return [line.decode("latin-1") for value in values for line in value.split(b"\n")]


def _add(fields: dict[bytes, bytes], name: bytes, value: bytes) -> bytes:
    """Add a header field; keep all lines of those that are looked at, and the first one of the others."""
    first = fields.setdefault(name, value)
    if first is not value and name.lower() in _FIELDS:
        fields[name] = first + b"\n" + value
    return first
