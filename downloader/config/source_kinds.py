"""Register the kinds of source, and find the kind of a SOURCE."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, Protocol

from downloader.config.extensions import Extension, Extensions
from downloader.core.naming import shown
from downloader.core.redact import redact_url
from downloader.errors import ConfigError

if TYPE_CHECKING:
    from downloader.config.config import Config

__all__ = ["SOURCE_KINDS", "SourceForm", "kind_of", "refuse_later"]

# Documented but not implemented yet: refused by name, so that users do not search for a typing error.
_LATER: Final = re.compile(r"s3://|index\+https?://", re.IGNORECASE)


class SourceForm(Extension, Protocol):
    """The part of a source kind that a Config needs; ``sources.source.SourceKind`` has the rest.

    ``form`` describes a SOURCE of this kind in messages. ``editable``: a person can correct what the source
    says about an item, as in a list. One that also has a true ``reads_files`` is listed from files alone,
    in a process without gevent.
    """

    form: str
    editable: bool

    def matches(self, source: str) -> bool:
        """Return whether ``source`` has the form of this kind."""

    def check(self, config: Config) -> None:
        """Check SOURCE and the options of the kind. Raises ConfigError."""

    def check_files(self, config: Config) -> None:
        """Check the file system; called only when a Config is made. Raises ConfigError."""

    def own_files(self, config: Config) -> tuple[tuple[str, str], ...]:
        """Return the files that the source is read from, as pairs: what each is, and its path."""


SOURCE_KINDS: Final[Extensions[SourceForm]] = Extensions(
    "downloader.sources",
    "--source",
    {
        "server": "downloader.sources.listing_server:KIND",
        "urls": "downloader.sources.url_list:KIND",
    },
)


def kind_of(source: str) -> SourceForm:
    """Return the first kind that matches ``source``; that of lists for a file that none matches.

    Raises ConfigError where no built-in or installed kind matches.
    """
    for kind in SOURCE_KINDS:
        if kind.matches(source):
            return kind
    refuse_later(source)
    if os.path.exists(source) and not os.path.isdir(source):
        return SOURCE_KINDS.named("urls")  # which asks for --list-format, or for -
    raise ConfigError(f"{_named(source)}: neither {', nor '.join(kind.form for kind in SOURCE_KINDS)}")


def refuse_later(source: str) -> None:
    """Raise ConfigError for a form that only a later version supports."""
    if _LATER.match(source):
        raise ConfigError(f"{_named(source)}: sources of this form are not available in this version")


def _named(source: str) -> str:
    return redact_url(source) if "://" in source else shown(source)
