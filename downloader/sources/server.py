"""A file server with a listing: ``GET {prefix}/list`` gives names and a marker of the next page.

The protocol of "Downloading a billion files in Python": ``{"FileNames": […], "NextMarker": "…"}``,
the next page under ``?next-marker=``; the last page has no marker. ``NextFile`` is the same by
another name. While a page is handed out, the next one is fetched.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import gevent
import msgspec

from downloader.config import Config
from downloader.core.naming import (
    BadName,
    escape,
    escape_all,
    mirror_path,
    shown,
    url_path,
)
from downloader.errors import SourceError
from downloader.journal import decode_names
from downloader.model import Item, Page, Recall
from downloader.sources import Fetch, base_url

__all__ = ["ServerSource", "open_source"]


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Before item ``taken`` of the page at ``marker``; ``crc`` is over the names taken."""

    marker: str = ""
    taken: int = 0
    crc: int = 0
    ended: bool = False


class _Listing(msgspec.Struct, frozen=True):
    names: list[str]
    marker: str


class ServerSource:
    """See ``Source``."""

    def __init__(self, config: Config, fetch: Fetch) -> None:
        self._config = config
        self._fetch = fetch
        self._list_url = f"{config.source.rstrip('/')}/{config.list_path.strip('/')}"
        self._base = base_url(config)
        self._above = url_path(self._base + "x").split("/")[:-1]

    def recall(self, batch: Recall) -> list[Item]:
        """From the names in the journal; the listing is not asked again."""
        names = decode_names(batch.names)
        if self._config.layout != "mirror":
            return [Item(name) for name in names]
        listed = msgspec.msgpack.decode(batch.origin, type=list[bytes])
        return [self._mirrored(raw.decode("utf-8", "surrogatepass")) for raw in listed]

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """See ``Source``. Raises SourceError also when the markers run in a circle."""
        at = msgspec.msgpack.decode(cursor, type=_Cursor) if cursor else _Cursor()
        if at.ended:
            return
        pending = gevent.spawn(self._list, at.marker)
        # Brent's cycle detection: one remembered marker finds a circle of any length.
        remembered, steps, horizon = at.marker, 0, 1
        while True:
            listing = pending.get()
            following = listing.marker
            if following:
                steps += 1
                if following in (at.marker, remembered):
                    raise SourceError(
                        f"{self._shown(following)} gives a marker that was given before; "
                        "the listing runs in a circle"
                    )
                if steps == horizon:
                    remembered, steps, horizon = following, 0, horizon * 2
                pending = gevent.spawn(self._list, following)
            try:
                yield from self._slices(listing, at, size)
            except GeneratorExit:
                pending.kill(block=False)
                raise
            if not following:
                return
            at = _Cursor(following)

    def _slices(self, listing: _Listing, at: _Cursor, size: Callable[[], int]) -> Iterator[Page]:
        names = listing.names
        taken, crc = at.taken, at.crc
        if taken and _crc(names[:taken], 0) != crc:
            # The page has changed since: hand it out from its start. What is stored is met again.
            taken, crc = 0, 0
        behind = _Cursor(listing.marker) if listing.marker else _Cursor(ended=True)
        if taken >= len(names):
            yield Page([], msgspec.msgpack.encode(behind))
        while taken < len(names):
            part = names[taken : taken + size()]
            taken += len(part)
            crc = _crc(part, crc)
            cursor = behind if taken >= len(names) else _Cursor(at.marker, taken, crc)
            yield self._page(part, msgspec.msgpack.encode(cursor))

    def _page(self, raw: list[str], cursor: bytes) -> Page:
        if self._config.layout == "mirror":
            listed = [name.encode("utf-8", "surrogatepass") for name in raw]
            return Page([self._mirrored(name) for name in raw], cursor, msgspec.msgpack.encode(listed))
        plain = escape_all(raw)
        if plain is not None:
            return Page([Item(name) for name in plain], cursor)
        return Page([_flat(name) for name in raw], cursor)

    def _mirrored(self, raw: str) -> Item:
        url = self._base + quote(raw.encode("utf-8", "surrogatepass"), safe="")
        try:
            return Item(mirror_path([*self._above, *raw.split("/")]), url)
        except BadName as error:
            return Item(shown(raw), fault="bad-name", detail=str(error))

    def _list(self, marker: str) -> _Listing:
        url = self._list_url + (f"?next-marker={quote(marker, safe='')}" if marker else "")
        return _parse(self._fetch(url), self._shown(marker))

    def _shown(self, marker: str) -> str:
        where = f"{self._config.shown_source.rstrip('/')}/{self._config.list_path.strip('/')}"
        return f"{where}?next-marker={shown(marker)}" if marker else where


def open_source(config: Config, fetch: Fetch) -> ServerSource:
    """See ``downloader.sources.open_source``."""
    return ServerSource(config, fetch)


def _flat(raw: str) -> Item:
    try:
        return Item(escape(raw))
    except BadName as error:
        return Item(shown(raw), fault="bad-name", detail=str(error))


def _crc(names: list[str], crc: int) -> int:
    return zlib.crc32("\0".join(names).encode("utf-8", "surrogatepass"), crc)


def _parse(body: bytes, where: str) -> _Listing:
    try:
        # The standard library's parser: msgspec's refuses a name with a lone surrogate, and with it
        # the whole page.
        answer: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("FileNames"), list):
        raise SourceError(f'{where} has no list "FileNames"; is this a file server? (see --list-path)')
    names: list[Any] = answer["FileNames"]
    if not all(type(name) is str for name in names):
        raise SourceError(f"{where} lists a name that is not a string")
    marker = answer.get("NextMarker") or answer.get("NextFile") or ""
    if not isinstance(marker, str):
        raise SourceError(f"{where} has a marker that is not a string")
    try:
        marker.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{where} has a marker that is not valid Unicode") from None
    return _Listing(names, marker)
