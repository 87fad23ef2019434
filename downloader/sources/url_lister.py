"""Read a list of URLs: text, one URL per line, ``#`` comments, plain or .gz, a file or standard input.

The list is read as a stream (``lines``), so memory does not grow with its length. URLs can carry secrets,
so the journal stores positions in the list, and an earlier batch is recreated by reading the list again.
"""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import msgspec

from downloader.config.config import Config
from downloader.core.name_list import decode_names
from downloader.core.naming import BadName, shown, url_name, url_path
from downloader.core.redact import redact, redact_url
from downloader.errors import ConfigError, SourceError
from downloader.messages import Item, Page, Recall
from downloader.sources.lines import LONGEST_LINE, Lines, Place

__all__ = ["UrlLister"]


class UrlLister:
    """The lister of a list of URLs; see ``Lister``. Raises ConfigError if the list is not in UTF-8."""

    def __init__(self, config: Config, name_key: bytes) -> None:
        self._name_key = name_key
        self._mirror = config.layout == "mirror"
        self._source = config.source
        self._shown = "standard input" if config.source == "-" else config.shown_source
        self._lines = Lines(config.source, self._shown)
        self._grown: Place | None = None  # the former end of the list, if its last line has grown

    def recall(self, batch: Recall) -> Page:
        """See ``Lister``. Reads the lines of the batch again."""
        start, end = msgspec.msgpack.decode(batch.origin, type=tuple[Place, Place])
        if start.offset < self._lines.offset and self._source != "-":
            self._lines.close()
            self._lines = Lines(self._source, self._shown)
        part = self._lines.again(start, end)
        items = self._items(part.lines)
        if len(items) != batch.count:
            raise SourceError(
                f"{self._shown}: batch {batch.seq} is not what was read; --restart begins anew"
            )
        if part.end == end:
            names = decode_names(batch.names)
            named = [
                item if item.fault else msgspec.structs.replace(item, name=name)
                for item, name in zip(items, names, strict=True)
            ]
            return Page(named, b"", batch.origin)
        self._grown = end
        return Page(items, msgspec.msgpack.encode(part.end), msgspec.msgpack.encode((start, part.end)))

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """See ``Lister``."""
        begin = msgspec.msgpack.decode(cursor, type=Place) if cursor else Place()
        if self._grown is None or begin != self._grown:
            self._lines.advance(begin)
        while True:
            part = self._lines.read(size())
            if not part.lines:
                return
            origin = msgspec.msgpack.encode((part.start, part.end))
            items = self._items(part.lines)
            yield Page(items, msgspec.msgpack.encode(part.end), origin, self._lines.position)
            if part.end.unended is not None:
                return

    def _items(self, lines: list[tuple[int, bytes]]) -> list[Item]:
        items = []
        for number, line in lines:
            text = (self._beginning(line) if number == 1 else line).strip()
            if text and not text.startswith(b"#"):
                items.append(self._item(number, text))
        return items

    def _beginning(self, line: bytes) -> bytes:
        """Return the first line without a byte order mark. Raises ConfigError if it is not UTF-8."""
        form = _other_form(line)
        if form:
            name = "" if self._source == "-" else f" {shlex.quote(self._shown)}"
            raise ConfigError(
                f"{self._shown} looks like {form}, and a list must be UTF-8; convert it with: "
                f"iconv -f {form} -t UTF-8{name}"
            )
        return line.removeprefix(codecs.BOM_UTF8)

    def _item(self, number: int, line: bytes) -> Item:
        try:
            url = line.decode()
            parts = urlsplit(url)
            valid = (
                parts.scheme.lower() in ("http", "https")
                and bool(parts.hostname)
                and parts.port != 0
                and len(line) < LONGEST_LINE
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


def _other_form(line: bytes) -> str:
    """Return the encoding, as detected, of a list that begins with ``line``; "" for UTF-8."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    zeros = [not byte for byte in line[:4]]
    if zeros == [False, True, False, True]:
        return "UTF-16LE"
    return "UTF-16BE" if zeros == [True, False, True, False] else ""
