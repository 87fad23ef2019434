"""Define the kind of source that is a file server with a listing, and the URLs of both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from downloader.config.extensions import Option
from downloader.config.source_kinds import refuse_later
from downloader.core.redact import redact_url
from downloader.errors import ConfigError

if TYPE_CHECKING:  # the command line loads every kind, for its help
    from downloader.config.config import Config
    from downloader.core.identity import Identity
    from downloader.sources.source import Fetching, Lister, RequestBuilder

__all__ = ["KIND", "ListingServer", "base_url", "list_url"]

_FORM = re.compile(r"https?://", re.IGNORECASE)
# As requests quotes a query: existing escapes stay, and characters not allowed in a request are escaped.
_QUERY_SAFE = "!#$%&'()*+,/:;=?@[]~"


class ListingServer:
    """The kind of ``ServerLister``; see ``SourceKind``."""

    name = "server"
    form = "the URL of a file server (http or https)"
    options = (
        Option(name="list_path", metavar="PATH", default="list", help="Listing, under the URL."),
        Option(name="get_path", metavar="PATH", default="get", help="Files, under the URL."),
    )
    editable = False
    unique_names = True
    cursors_last = True

    def matches(self, source: str) -> bool:
        """Return whether ``source`` is an HTTP URL."""
        return _FORM.match(source) is not None

    def check(self, config: Config) -> None:
        """Check the URL and the two paths. Raises ConfigError."""
        refuse_later(config.source)
        _check_url(config.source)
        _check_paths(config.source_option("list_path"), config.source_option("get_path"))

    def check_files(self, config: Config) -> None:
        """Do nothing: this source has no local files."""

    def own_files(self, config: Config) -> tuple[tuple[str, str], ...]:
        """Return (): this source has no local files."""
        return ()

    def identity(self, config: Config) -> Identity:
        """Return the identity, from the URLs of the listing and the files."""
        from downloader.core.identity import identify_server

        list_path, get_path = config.source_option("list_path"), config.source_option("get_path")
        return identify_server(config.source, list_path, get_path, list_url(config), base_url(config))

    def lister(self, config: Config, fetching: Fetching, name_key: bytes) -> Lister:
        """Return a ServerLister."""
        from downloader.sources.server_lister import ServerLister

        return ServerLister(config, fetching(), list_url(config), base_url(config))

    def request_builder(self, config: Config) -> RequestBuilder:
        """Return a builder for the names below one URL."""
        from downloader.sources.plain_requests import PlainRequests

        return PlainRequests(base_url(config))


KIND = ListingServer()


def base_url(config: Config) -> str:
    """Return the prefix of the quoted name in the URL of an item that has no URL of its own."""
    return f"{config.source.rstrip('/')}/{config.source_option('get_path').strip('/')}/"


def list_url(config: Config) -> str:
    """Return the URL of the first page of a file server's listing; --list-path may have a query."""
    path, mark, query = config.source_option("list_path").partition("?")
    query = quote(query, safe=_QUERY_SAFE, errors="surrogateescape")
    return f"{config.source.rstrip('/')}/{path.strip('/')}{mark}{query}"


def _check_paths(list_path: str, get_path: str) -> None:
    """Raise ConfigError if a listing or a file would be requested at another URL than intended."""
    for option, path in (("--list-path", list_path), ("--get-path", get_path)):
        if "#" in path:
            raise ConfigError(f"{option} has a fragment, which is never sent; write %23 for a # in a path")
    if "?" in get_path:
        raise ConfigError(
            "--get-path has a query, but a file's name stands behind the path; write %3F for a ? in a path"
        )
    from downloader.core.listing import MARKER

    query = list_path.partition("?")[2]
    if any(part.partition("=")[0] == MARKER for part in query.split("&")):
        raise ConfigError(f"--list-path has a {MARKER}, which names the pages; leave it out")


def _check_url(source: str) -> None:
    try:
        parts = urlsplit(source)
        bad = not parts.hostname or parts.scheme.lower() not in ("http", "https")
        _ = parts.port
    except ValueError:
        bad = True
    if bad:
        raise ConfigError(f"{redact_url(source)}: not a URL of the form http(s)://host[:port][/prefix]")
    if "?" in source or "#" in source:
        raise ConfigError(
            f"{redact_url(source)}: a file server's URL has no query or fragment; "
            "a single file goes into a list: echo URL | downloader - -o DEST"
        )
