"""Define the kind of source that is a list of URLs: a text file, or standard input."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from downloader.config.extensions import Option
from downloader.config.source_kinds import refuse_later
from downloader.errors import ConfigError

if TYPE_CHECKING:  # the command line loads every kind, for its help
    from downloader.config.config import Config
    from downloader.core.identity import Identity
    from downloader.sources.source import Fetching, Lister, RequestBuilder

__all__ = ["KIND", "UrlList"]

_FORM = re.compile(r"-\Z|(?![a-z0-9+]+://).*\.txt(\.gz)?\Z", re.IGNORECASE | re.DOTALL)


class UrlList:
    """The kind of ``UrlLister``; see ``SourceKind``. SOURCE is a path, or ``-`` for standard input."""

    name = "urls"
    form = "a list of URLs (.txt, .txt.gz), nor - for a list on standard input"
    options: tuple[Option, ...] = ()
    editable = True
    unique_names = False
    cursors_last = False

    def matches(self, source: str) -> bool:
        """Return whether ``source`` is ``-`` or the path of a text file, perhaps compressed."""
        return _FORM.match(source) is not None

    def check(self, config: Config) -> None:
        """Raise ConfigError for the forms that are reserved for later versions."""
        refuse_later(config.source)

    def check_files(self, config: Config) -> None:
        """Check that the list can be read more than once. Raises ConfigError."""
        if config.source != "-":
            _check_list(config.source)

    def own_files(self, config: Config) -> tuple[tuple[str, str], ...]:
        """Return the list, unless it is standard input."""
        return () if config.source == "-" else (("the list of URLs", config.source),)

    def identity(self, config: Config) -> Identity:
        """Return the identity that all lists share: each cursor has a checksum of what was read."""
        from downloader.core.identity import identify_list

        return identify_list()

    def lister(self, config: Config, fetching: Fetching, name_key: bytes) -> Lister:
        """Return a UrlLister."""
        from downloader.sources.url_lister import UrlLister

        return UrlLister(config, name_key)

    def request_builder(self, config: Config) -> RequestBuilder:
        """Return a builder for items that have their URLs."""
        from downloader.sources.plain_requests import PlainRequests

        return PlainRequests("")


KIND = UrlList()


def _check_list(path: str) -> None:
    named = path.encode("utf-8", "backslashreplace").decode()
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ConfigError(f"{named}: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{named} is a directory, not a list of URLs")
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{named} is not a regular file, which is read again on resume; use - < {named}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{named}: Permission denied")
