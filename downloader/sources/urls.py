"""A list of URLs: text, one a line, ``#`` comments, plain or .gz, a file or standard input.

Read as a stream: a list of any length takes the same memory. The cursor is a byte offset with the
CRC-32 of all that came before it, so that a list which was changed before that point is noticed on
resume, and one that only grew is not. URLs can carry secrets, so the journal keeps offsets, and an
earlier batch is made again by reading the list again.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import IO, cast
from urllib.parse import urlsplit

import gevent
import msgspec

from downloader.config import Config
from downloader.core.naming import BadName, shown, url_name, url_path
from downloader.core.redact import redact, redact_url
from downloader.errors import SourceError
from downloader.journal import decode_names
from downloader.model import Item, Page, Recall
from downloader.sources import Fetching
from downloader.sources.pipe import Pipe

__all__ = ["UrlsSource", "open_source"]

_LONGEST_LINE = 64 << 10
_BLOCK = 1 << 20
# A producer that is silent for so long, or has been slow for so long, gets its lines fetched.
_SILENCE = 0.2
_SLOWNESS = 1.0


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """``offset`` bytes and ``line`` lines (of the unpacked list) into it; ``crc`` over them all."""

    offset: int = 0
    line: int = 0
    crc: int = 0


class UrlsSource:
    """See ``Source``."""

    def __init__(self, config: Config, name_key: bytes) -> None:
        self._name_key = name_key
        self._mirror = config.layout == "mirror"
        self._shown = "standard input" if config.source == "-" else config.shown_source
        self._source = config.source
        self._at = _Place()
        self._read_lines = 0  # for messages; ``_at`` moves by pages
        self._size = 0
        try:
            self._stream = self._open(config.source)
        except OSError as error:
            raise SourceError(f"{self._shown}: {error.strerror}") from error

    def _open(self, source: str) -> IO[bytes] | Pipe:
        if source == "-":
            return Pipe(sys.stdin.fileno())
        if source.lower().endswith(".gz"):
            return cast("IO[bytes]", gzip.open(source, "rb"))
        self._size = Path(source).stat().st_size
        return open(source, "rb")

    def recall(self, batch: Recall) -> list[Item]:
        """By reading those lines again."""
        start, end = msgspec.msgpack.decode(batch.origin, type=tuple[_Place, _Place])
        if start.offset < self._at.offset:
            self._rewind()
        self._advance(start)
        items: list[Item] = []
        while self._at.line < end.line and (lines := self._lines(end.line - self._at.line)):
            items += self._items(lines)
        self._check(end)
        if len(items) != batch.count:
            raise self._changed()
        names = decode_names(batch.names)
        return [
            item if item.fault else msgspec.structs.replace(item, name=name)
            for item, name in zip(items, names, strict=True)
        ]

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """See ``Source``."""
        self._advance(msgspec.msgpack.decode(cursor, type=_Place) if cursor else _Place())
        while True:
            start = self._at
            lines = self._lines(size())
            if not lines:
                return
            origin = msgspec.msgpack.encode((start, self._at))
            position = self._at.offset / self._size if self._size else -1.0
            items = self._items(lines)
            yield Page(items, msgspec.msgpack.encode(self._at), origin, min(position, 1.0))

    def _rewind(self) -> None:
        """Read the list from its beginning again; standard input cannot be."""
        if isinstance(self._stream, Pipe):
            return
        self._stream.close()
        self._guarded(lambda _: self._reopen(), 0)

    def _reopen(self) -> bytes:
        self._stream = self._open(self._source)
        self._at = _Place()
        return b""

    def _advance(self, to: _Place) -> None:
        """Read on to ``to`` without looking at the lines; it must be what it was."""
        if to.offset < self._at.offset:
            raise SourceError(f"{self._shown}: asked for line {to.line + 1} again out of order")
        crc, left = self._at.crc, to.offset - self._at.offset
        while left > 0:
            block = self._guarded(self._stream.read, min(left, _BLOCK))
            if not block:
                raise self._changed()
            crc = zlib.crc32(block, crc)
            left -= len(block)
            gevent.sleep(0)  # a long list takes its time; heartbeats go on
        self._at = _Place(to.offset, to.line, crc)
        self._read_lines = to.line
        self._check(to)

    def _check(self, expected: _Place) -> None:
        if (self._at.offset, self._at.crc) != (expected.offset, expected.crc):
            raise self._changed()

    def _changed(self) -> SourceError:
        return SourceError(
            f"{self._shown} has changed before line {self._at.line + 1} since this job began; "
            "give the same list, or --restart"
        )

    def _lines(self, most: int) -> list[tuple[int, bytes]]:
        """At most ``most`` lines with their numbers; fewer when a pipe has no more for now and at the
        end, none behind it."""
        number, offset, crc = self._at.line, self._at.offset, self._at.crc
        lines: list[tuple[int, bytes]] = []
        give_by = 0.0
        for _ in range(most):
            if lines and self._pauses(give_by):
                break
            line = self._guarded(self._stream.readline, _LONGEST_LINE)
            if not line:
                break
            number += 1
            self._read_lines = number
            give_by = give_by or monotonic() + _SLOWNESS
            lines.append((number, line))
            crc, offset = zlib.crc32(line, crc), offset + len(line)
            rest = line
            while len(rest) == _LONGEST_LINE and not rest.endswith(b"\n"):
                # Too long for a URL: keep its beginning for the message, read over the rest.
                rest = self._guarded(self._stream.readline, _LONGEST_LINE)
                crc, offset = zlib.crc32(rest, crc), offset + len(rest)
                gevent.sleep(0)
        self._at = _Place(offset, number, crc)
        return lines

    def _pauses(self, give_by: float) -> bool:
        stream = self._stream
        if not isinstance(stream, Pipe):
            return False
        return monotonic() > give_by or stream.silent(_LONGEST_LINE, _SILENCE)

    def _guarded(self, read: object, size: int) -> bytes:
        try:
            return cast("bytes", read(size))  # type: ignore[operator]
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(
                f"{self._shown} cannot be read after line {self._read_lines}: {error}"
            ) from error

    def _items(self, lines: list[tuple[int, bytes]]) -> list[Item]:
        items = []
        for number, line in lines:
            text = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
            if text and not text.startswith(b"#"):
                items.append(self._item(number, text))
        return items

    def _item(self, number: int, line: bytes) -> Item:
        try:
            url = line.decode()
            parts = urlsplit(url)
            valid = (
                parts.scheme.lower() in ("http", "https")
                and bool(parts.hostname)
                and parts.port != 0
                and len(line) < _LONGEST_LINE
                and url.isprintable()
                and " " not in parts.netloc
            )
        except ValueError:
            valid = False
        if not valid:
            text = shown(redact_url(redact(line.decode("utf-8", "replace"))))
            return Item(
                f"line {number}",
                fault="bad-url",
                detail=f"line {number} is not an http(s) URL: {text}",
            )
        try:
            return Item((url_path if self._mirror else url_name)(url, self._name_key), url)
        except BadName as error:
            return Item(f"line {number}", fault="bad-name", detail=f"line {number}: {error}")


def open_source(config: Config, fetching: Fetching, name_key: bytes) -> UrlsSource:
    """See ``downloader.sources.open_source``."""
    return UrlsSource(config, name_key)
