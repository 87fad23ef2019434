"""Where items come from. One Protocol, one module each; the table is ``downloader.config.source_kinds``.

A source lives in the feeder. It yields pages lazily, each with the cursor behind it, and can make the
items of an earlier page again. It fetches only through the ``Fetch`` that it is given.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Protocol
from urllib.parse import quote

from downloader.config.config import Config
from downloader.core.identity import Identity, identify_list, identify_server
from downloader.messages import Page, Recall

__all__ = ["MODULES", "Fetch", "Fetching", "Source", "base_url", "identify", "list_url", "open_source"]

MODULES = {"server": "listing_server", "urls": "url_list"}

# As requests quotes a query: what is escaped already stays, what a request line cannot have is escaped.
_QUERY_SAFE = "!#$%&'()*+,/:;=?@[]~"

Fetch = Callable[[str], bytes | bytearray]
"""GET a URL of the source itself (a listing), within its retry policy; raises SourceError."""

Fetching = Callable[[], Fetch]
"""What gives a source its Fetch, once. That imports requests, which takes longer than to read a list of a
thousand files: a source that fetches nothing does not call it."""


class Source(Protocol):
    """A source of items."""

    def recall(self, batch: Recall) -> Page:
        """The items of an earlier batch, ``batch.count`` of them in their order, and its ``origin``. They
        have the names that the journal has: under these they are stored, whatever the source would give
        now.

        Called before ``pages``, in ascending order of batches. Where the source corrects what it gave
        before, the page has a cursor: it, ``origin`` and the names replace those of the batch. Raises
        SourceError when the source is not what it was.
        """

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """Pages from ``cursor`` on (empty: from the start) to the end of the source.

        ``size()`` says how many items the next page may have at most.

        Raises SourceError with what broke and where.
        """


def open_source(config: Config, fetching: Fetching, name_key: bytes) -> Source:
    """The source that ``config`` names, not read yet. ``name_key``: see ``core.naming.url_name``."""
    module = importlib.import_module(f"downloader.sources.{MODULES[config.kind]}")
    source: Source = module.open_source(config, fetching, name_key)
    return source


def identify(config: Config) -> Identity:
    """What identifies the source that ``config`` names."""
    if config.kind != "server":
        return identify_list()
    return identify_server(
        config.source, config.list_path, config.get_path, list_url(config), base_url(config)
    )


def base_url(config: Config) -> str:
    """What stands before the quoted name in the URL of an item that brings none of its own."""
    return f"{config.source.rstrip('/')}/{config.get_path.strip('/')}/"


def list_url(config: Config) -> str:
    """The URL of the first page of a file server's listing; --list-path may have a query."""
    path, mark, query = config.list_path.partition("?")
    query = quote(query, safe=_QUERY_SAFE, errors="surrogateescape")
    return f"{config.source.rstrip('/')}/{path.strip('/')}{mark}{query}"
