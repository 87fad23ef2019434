"""A source that the downloader does not know: a catalog of files, each requested with a signature.

A catalog is a file of JSON lines, ``{"name": …, "url": …}``, with ``sha256``, ``size`` and further columns
where they are known. Each request has a header field ``X-Signature``: the SHA-256 of the key and the URL.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.config.extensions import Option
from downloader.core.identity import Identity
from downloader.core.naming import escape
from downloader.errors import ConfigError, SourceError
from downloader.messages import Item, Page, Recall
from downloader.sources.source import Fetching, Lister, Request

_OWN = {"name", "url", "sha256", "size"}


class Catalog:
    """See ``downloader.sources.source.SourceKind``."""

    name = "catalog"
    form = "a catalog (.catalog)"
    options = (
        Option(name="catalog_key", metavar="KEY", help="Signs each request of a catalog."),
        Option(name="catalog_times", metavar="N", type=int, default=1, help="Read a catalog N times."),
    )
    editable = True
    unique_names = False
    cursors_last = False

    def matches(self, source: str) -> bool:
        return source.endswith(".catalog")

    def check(self, config: Config) -> None:
        if not config.source_option("catalog_key"):
            raise ConfigError("a catalog needs --catalog-key")

    def check_files(self, config: Config) -> None:
        if not Path(config.source).is_file():
            raise ConfigError(f"{config.source}: no such catalog")

    def own_files(self, config: Config) -> tuple[tuple[str, str], ...]:
        return (("the catalog", config.source),)

    def identity(self, config: Config) -> Identity:
        return Identity(hashlib.sha256(Path(config.source).name.encode()).hexdigest(), None)

    def lister(self, config: Config, fetching: Fetching, name_key: bytes) -> Lister:
        return CatalogLister(Path(config.source), config.source_option("catalog_times"))

    def request_builder(self, config: Config) -> CatalogRequests:
        return CatalogRequests(config.source_option("catalog_key"))


class CatalogLister:
    """See ``Lister``: a cursor is the number of lines that were read."""

    def __init__(self, path: Path, times: int) -> None:
        self._lines = path.read_text().splitlines() * times

    def recall(self, batch: Recall) -> Page:
        start, end = msgspec.msgpack.decode(batch.recall_data, type=tuple[int, int])
        items = [self._item(number) for number in range(start, end)]
        if len(items) != batch.count:
            raise SourceError("the catalog is not what was read")
        return Page(items, b"", batch.recall_data)

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        start = int(cursor or b"0")
        while start < len(self._lines):
            end = min(start + size(), len(self._lines))
            items = [self._item(number) for number in range(start, end)]
            yield Page(items, b"%d" % end, msgspec.msgpack.encode((start, end)), end / len(self._lines))
            start = end

    def _item(self, number: int) -> Item:
        row = json.loads(self._lines[number])
        columns = {name: value for name, value in row.items() if name not in _OWN}
        return Item(
            name=escape(row["name"]),
            url=row["url"],
            size=row.get("size", -1),
            checksum=f"sha256:{row['sha256']}" if "sha256" in row else "",
            columns=msgspec.msgpack.encode(columns) if columns else b"",
        )


class CatalogRequests:
    """See ``RequestBuilder``."""

    base_url = ""

    def __init__(self, key: str) -> None:
        self._key = key

    def request(self, item: Item) -> Request:
        signature = hashlib.sha256(f"{self._key} {item.url}".encode()).hexdigest()
        return Request(item.url, headers=(("X-Signature", signature),))


KIND = Catalog()
