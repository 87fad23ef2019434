"""Look at what a response says about its file: what is recorded, the checksum it states, and --respect."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from functools import lru_cache, partial
from time import time
from typing import NamedTuple

from downloader.core import opt_out, stated_checksum
from downloader.core.echoes import Echoes
from downloader.core.redact import redact_url
from downloader.errors import FetchError
from downloader.http.pipelined.header_shape import MAX_USUAL, HeaderShape
from downloader.http.pipelined.parser import ParserOwner, ResponseParser
from downloader.http.response import STORED
from downloader.http.task import FetchTask
from downloader.messages import ResponseInfo

__all__ = ["Observed", "ObservingParser"]

_OPT_OUT = tuple(name.encode() for name in opt_out.FIELDS)
_STATED = tuple(name.encode() for name in stated_checksum.FIELDS)
# The fields of which each line counts; of others the first.
_ALL_LINES = frozenset(_OPT_OUT + _STATED)


# Status, ETag, Last-Modified, Content-Type, and what no other response shares.
_Said = tuple[int, bytes, bytes, bytes, object]


class Observed(NamedTuple):
    """What an ``ObservingParser`` looks at.

    ``recording``: set ``FetchTask.response``; ``urls``: with its URL, which is redacted. ``stated``: set
    ``FetchTask.stated``, for --checksums all. ``product_token``: of the user agent, for --respect; None
    without it. ``echoes``: cut from what is recorded; ``credentials``: of the whole
    run there are some.
    """

    recording: bool = False
    urls: bool = False
    stated: bool = False
    product_token: str | None = None
    echoes: Echoes = Echoes(())
    credentials: bool = False


class ObservingParser(ResponseParser):
    """A ``ResponseParser`` that looks at the header fields of responses that have a file.

    The body of a refused response is FetchError ``opted-out``.
    """

    __slots__ = ("_info", "_names", "_observed", "_said", "_spelt")

    def __init__(
        self, owner: ParserOwner, shapes: dict[tuple[bytes, ...], HeaderShape], *, observed: Observed
    ) -> None:
        super().__init__(owner, shapes)
        self._observed = observed
        self._spelt: tuple[bytes, ...] = ()  # the names of the last response
        self._names = _names(())
        # Responses that say the same within a second share a ResponseInfo.
        self._said: _Said = (0, b"", b"", b"", 0)
        self._info: ResponseInfo | None = None
        if observed.stated or observed.product_token is not None:
            self.on_header = partial(_add, self._fields)
            self.renew()  # llhttp looks for `on_header` once

    def on_headers_complete(self) -> None:
        fields, observed = self._fields, self._observed
        spelt = tuple(fields)
        if spelt == self._plain and not self._big and self.parser.get_status_code() == 200:
            # As the base class does it, for the same names as before.
            status = self._status = 200
            self.headers_complete = True
        else:
            super().on_headers_complete()
            status = self._status
            if status not in STORED or isinstance(self.body, Exception):
                return
        outstanding = self.outstanding
        task = outstanding[0] if outstanding else None
        if task is None or task.robots_txt:
            return
        if spelt != self._spelt:
            names = _names if len(spelt) <= MAX_USUAL else _names.__wrapped__
            self._names, self._spelt = names(spelt), spelt
        etag, modified, kind, states, opts_out = self._names
        if opts_out and observed.product_token is not None:
            tags, reservations = (_lines(fields, name) for name in opt_out.FIELDS)
            if why := opt_out.opt_out(tags, reservations, observed.product_token):
                self.body = FetchError("opted-out", why)
                return
        if observed.stated:
            task.stated = None
            if states:
                # A response with a content coding does not come this far.
                body = stated_checksum.Body(status)
                task.stated = stated_checksum.stated_checksum(body, partial(_lines, fields))
        if observed.recording:
            said = (
                status,
                etag and fields[etag],
                modified and fields[modified],
                kind and fields[kind],
                task if observed.urls or task.request is not None else int(time()),
            )
            if said != self._said:
                self._said, self._info = said, _info(said, task, observed)
            task.response = self._info


def _info(said: _Said, task: FetchTask, observed: Observed) -> ResponseInfo:
    status, etag, modified, kind, _ = said
    url = redact_url(task.origin.key + task.target.decode("ascii")) if observed.urls else ""
    info = ResponseInfo(
        status,
        url,
        etag.strip().decode("latin-1"),
        modified.strip().decode("latin-1"),
        kind.strip().decode("latin-1"),
        time(),
    )
    of_task = task.url
    if observed.credentials or task.request is not None or "=" in of_task or "@" in of_task:
        headers = task.request.headers if task.request is not None else ()
        etags, dates, kinds = (
            observed.echoes.cut(value, of_task, headers)
            for value in (info.etag, info.last_modified, info.content_type)
        )
        return ResponseInfo(status, url, etags, dates, kinds, info.fetched_at)
    return info


def _text(value: bytes) -> str:
    return value.strip(b" \t").decode("latin-1")


class _Names(NamedTuple):
    """Header field names as the server spells them, b"" for one that a response does not have.

    ``stated``, ``opt_out``: it has at least one of these fields.
    """

    etag: bytes
    modified: bytes
    kind: bytes
    stated: bool
    opt_out: bool


@lru_cache(256)
def _names(names: tuple[bytes, ...]) -> _Names:
    # A server sends the same names with nearly every response.
    spelt = {name.lower(): name for name in reversed(names)}
    return _Names(
        spelt.get(b"etag", b""),
        spelt.get(b"last-modified", b""),
        spelt.get(b"content-type", b""),
        not spelt.keys().isdisjoint(_STATED),
        not spelt.keys().isdisjoint(_OPT_OUT),
    )


def _lines(fields: dict[bytes, bytes], name: str) -> list[str]:
    """Return the values of the header fields ``name``, in whatever spelling, one for each line."""
    wanted = name.encode()
    values = [value for spelt, value in fields.items() if spelt.lower() == wanted]
    return [_text(line) for value in values for line in value.split(b"\n")]


def _add(fields: dict[bytes, bytes], name: bytes, value: bytes) -> bytes:
    """Add a header field; keep all lines of those that are looked at, and the first one of the others."""
    first = fields.setdefault(name, value)
    if first is not value and name.lower() in _ALL_LINES:
        fields[name] = first + b"\n" + value
    return first
