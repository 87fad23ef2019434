"""The URLs of a file server: where its listing is, and its files."""

from __future__ import annotations

from urllib.parse import quote

from downloader.config.config import Config

__all__ = ["base_url", "list_url"]

# As requests quotes a query: what is escaped already stays, what a request line cannot have is escaped.
_QUERY_SAFE = "!#$%&'()*+,/:;=?@[]~"


def base_url(config: Config) -> str:
    """What stands before the quoted name in the URL of an item that brings none of its own."""
    return f"{config.source.rstrip('/')}/{config.get_path.strip('/')}/"


def list_url(config: Config) -> str:
    """The URL of the first page of a file server's listing; --list-path may have a query."""
    path, mark, query = config.list_path.partition("?")
    query = quote(query, safe=_QUERY_SAFE, errors="surrogateescape")
    return f"{config.source.rstrip('/')}/{path.strip('/')}{mark}{query}"
