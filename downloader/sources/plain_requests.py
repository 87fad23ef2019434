"""The requests of sources whose files are fetched by a plain GET."""

from __future__ import annotations

from downloader.core.naming import SafeName, quote_name
from downloader.messages import Item
from downloader.sources.source import Request

__all__ = ["PlainRequests"]


class PlainRequests:
    """See ``RequestBuilder``."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def request(self, item: Item) -> Request:
        """Return a GET of the URL of ``item``, or of its name below ``base_url``, with its headers."""
        return Request(item.url or self.base_url + quote_name(SafeName(item.name)), item.headers)
