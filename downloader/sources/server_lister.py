"""Read the listing of a file server: ``GET {prefix}/list`` returns names and a marker of the next page.

This is the protocol of "Downloading a billion files in Python": a page is ``{"FileNames": […],
"NextMarker": "…"}``, and the next page is at ``?next-marker=``; the last page has no marker. ``NextFile``
is an alternative name of ``NextMarker``. While a page is yielded, the next one is fetched.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import count
from random import random
from urllib.parse import quote

import gevent
import msgspec

from downloader.config.config import Config
from downloader.core.listing import Listing, page_url, parse_listing
from downloader.core.name_list import decode_names, decoded_place
from downloader.core.naming import (
    PATH_BYTES,
    BadName,
    escape,
    escape_all,
    mirror_path,
    shown,
    url_path,
    with_colon,
)
from downloader.core.redact import redact_url
from downloader.errors import SourceError
from downloader.messages import Item, Page, Recall
from downloader.sources.source import Fetch

__all__ = ["ServerLister"]

# An empty page is allowed; more than this number in a row are treated as a listing without end.
_NAMELESS = 1000
# In characters; longer than any path that can be stored. Only the beginning of a longer name is kept: it is
# rejected as the whole name would be, and does not fill the journal.
_LONGEST_NAME = PATH_BYTES + 1
_LONGEST_MARKER = 64 << 10  # no server takes a URL of that length


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The position before item ``taken`` of the page at ``marker``; ``crc`` covers the names taken.

    ``page`` counts from 1, for messages.
    """

    marker: str = ""
    taken: int = 0
    crc: int = 0
    ended: bool = False
    page: int = 1


class ServerLister:
    """The lister of a file server; see ``Lister``."""

    def __init__(self, config: Config, fetch: Fetch, list_url: str, base_url: str) -> None:
        self._config = config
        self._echoes = config.echoes
        self._fetch = fetch
        self._list_url = list_url
        self._base = base_url
        # Shards: a page has as many items as were asked for, as long as the source has them.
        self._full = config.sink_kind.shard_items(config) > 0
        self._above: list[str] = []
        if config.layout == "mirror":
            try:
                # No digest for a secret: it is the same for all items, and may change between two runs.
                self._above = url_path(self._base + "x", None, naming=config.naming).split("/")[:-1]
            except BadName as error:
                raise SourceError(f"--layout mirror: {error}") from None

    def recall(self, batch: Recall) -> Page:
        """Return the items from the names in the journal; the listing is not requested again."""
        names = decode_names(batch.names)
        if not batch.recall_data:
            return Page([Item(name) for name in names], b"")
        # The names alone are not enough: an item that cannot be stored has only a text for messages.
        listed = decoded_place(batch.recall_data, list[bytes])
        items = [self._item(raw.decode("utf-8", "surrogatepass")) for raw in listed]
        named = [
            item if item.fault else Item(name, item.url) for item, name in zip(items, names, strict=True)
        ]
        return Page(named, b"", batch.recall_data)

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """See ``Lister``. Also raises SourceError if the markers form a cycle."""
        if not self._full:
            for names, behind in self._parts(cursor, size):
                yield self._page(names, behind)
            return
        page = _FullPage(size)
        last = b""
        for names, last in self._parts(cursor, page.room):
            page.names += names
            if not page.room():
                yield self._page(page.names, last)
                page.clear()
        if page.names:
            yield self._page(page.names, last)

    def _parts(self, cursor: bytes, size: Callable[[], int]) -> Iterator[tuple[list[str], bytes]]:
        """Yield the names of the listing and the cursor behind them, at most ``size()`` at a time."""
        at = decoded_place(cursor, _Cursor) if cursor else _Cursor()
        if at.ended:
            return
        pending = self._begin(at.marker, at.page)
        # Brent's cycle detection: one remembered marker finds a cycle of any length.
        remembered, steps, horizon = at.marker, 0, 1
        nameless = 0
        while True:
            listing = _outcome(pending)
            nameless = 0 if listing.names else nameless + 1
            if nameless > _NAMELESS:
                raise SourceError(
                    f"{self._shown(at.marker, at.page)} and the {_NAMELESS:,} before it have no names; "
                    "this listing seems to have no end"
                )
            following = listing.marker
            if following:
                steps += 1
                if len(following) > _LONGEST_MARKER:
                    raise SourceError(
                        f"{self._shown(at.marker, at.page)} gives a marker of "
                        f"{len(following):,} characters; no URL is that long"
                    )
                if self._echoes.has(following):
                    # The journal keeps it, to go on from there.
                    raise SourceError(
                        f"{self._shown(at.marker, at.page)} gives a marker with a credential that "
                        f"the server was sent, {self._marker(following)!r}"
                    )
                if following in (at.marker, remembered):
                    raise SourceError(
                        f"{self._shown(at.marker, at.page)} gives a marker that was given before, "
                        f"{self._marker(following)!r}; the listing runs in a circle"
                    )
                if steps == horizon:
                    remembered, steps, horizon = following, 0, horizon * 2
                pending = self._begin(following, at.page + 1)
            try:
                yield from self._slices(listing, at, size)
            except GeneratorExit:
                pending.kill(block=False)
                raise
            if not following:
                return
            at = _Cursor(following, page=at.page + 1)

    def _slices(
        self, listing: Listing, at: _Cursor, size: Callable[[], int]
    ) -> Iterator[tuple[list[str], bytes]]:
        names = listing.names
        taken, crc = at.taken, at.crc
        if taken and _crc(names[:taken], 0) != crc:
            if self._full:
                raise SourceError(
                    f"{self._shown(at.marker, at.page)} has changed since this job read it, so its items "
                    "would come into other shards; --restart, or another -o"
                )
            # The page has changed since: yield it from its start. Files already stored are found again.
            taken, crc = 0, 0
        behind = _Cursor(listing.marker, page=at.page + 1) if listing.marker else _Cursor(ended=True)
        if taken >= len(names):
            yield [], msgspec.msgpack.encode(behind)
        while taken < len(names):
            part = names[taken : taken + size()]
            taken += len(part)
            cursor = behind
            if taken < len(names):
                crc = _crc(part, crc)
                cursor = _Cursor(at.marker, taken, crc, page=at.page)
            yield part, msgspec.msgpack.encode(cursor)

    def _page(self, raw: list[str], cursor: bytes) -> Page:
        mirror = self._config.layout == "mirror"
        if self._echoes.has("\n".join(raw)):
            return Page([self._without_echoes(name) for name in raw], cursor)
        if not mirror and (plain := escape_all(raw)) is not None:
            return Page([], cursor, names=plain)
        raw = [name[:_LONGEST_NAME] for name in raw]
        items = [self._item(name) for name in raw]
        if not mirror and not any(item.fault for item in items):
            return Page(items, cursor)
        listed = [name.encode("utf-8", "surrogatepass") for name in raw]
        return Page(items, cursor, msgspec.msgpack.encode(listed))

    def _without_echoes(self, raw: str) -> Item:
        if not self._echoes.has(raw):
            return self._item(raw[:_LONGEST_NAME])
        text = "the name has a credential that the server was sent"
        return Item(shown(self._echoes.cut_all(raw)[:_LONGEST_NAME]), fault="bad-name", detail=text)

    def _item(self, raw: str) -> Item:
        try:
            if self._config.layout != "mirror":
                return Item(escape(raw, self._config.naming))
            if raw in (".", ".."):
                # Clients and proxies resolve such a segment instead of sending it.
                raise BadName(f"the name {raw!r} cannot be requested in a URL")
            url = self._base + quote(raw.encode("utf-8", "surrogatepass"), safe="")
            path = mirror_path([*self._above, *raw.split("/")], self._config.naming)
            return Item(with_colon(self._config.colon, path), url)
        except BadName as error:
            return Item(shown(raw), fault="bad-name", detail=str(error))

    def _begin(self, marker: str, page: int) -> gevent.Greenlet:
        return gevent.spawn(self._list, marker, page)

    def _list(self, marker: str, page: int) -> Listing | SourceError:
        url, policy = page_url(self._list_url, quote(marker, safe="")), self._config.retry_policy
        for attempt in count(1):
            try:
                body = self._fetch(url)
            except SourceError as error:
                return error  # a greenlet that raises writes its traceback to standard error
            try:
                return parse_listing(body, self._shown(marker, page), first=page == 1)
            except SourceError as error:
                # A server that has given pages may slip once; one that has not is none.
                if page == 1 or not policy.allows(attempt, retryable=True):
                    return error
            gevent.sleep(policy.delay(attempt, random()))
        raise AssertionError

    def _shown(self, marker: str, page: int) -> str:
        return f"page {page} of the listing, {page_url(redact_url(self._list_url), self._marker(marker))},"

    def _marker(self, marker: str) -> str:
        """Return ``marker``, which may have what the server was sent, for messages."""
        return shown(self._echoes.cut_all(marker, self._list_url))


class _FullPage:
    """The names of a page of items, gathered from several pages of the listing."""

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self.clear()

    def clear(self) -> None:
        self.names: list[str] = []
        self._wanted = self._size()

    def room(self) -> int:
        """Return how many names are missing."""
        return self._wanted - len(self.names)


def _outcome(pending: gevent.Greenlet) -> Listing:
    listing: Listing | SourceError = pending.get()
    if isinstance(listing, SourceError):
        raise listing
    return listing


def _crc(names: list[str], crc: int) -> int:
    return zlib.crc32("\0".join([*names, ""]).encode("utf-8", "surrogatepass"), crc)
