"""The kinds of source, told apart by the form of SOURCE: one table.

A new kind is a line here and a module of its name in ``downloader.sources``. Importing this imports
none of them.
"""

from __future__ import annotations

import re
from typing import Final

from downloader.core.naming import shown
from downloader.core.redact import redact_url
from downloader.errors import ConfigError

__all__ = ["KINDS", "check_form", "source_kind"]

KINDS: Final[dict[str, re.Pattern[str]]] = {
    "server": re.compile(r"https?://", re.IGNORECASE),
    "urls": re.compile(r"-\Z|(?![a-z0-9+]+://).*\.txt(\.gz)?\Z", re.IGNORECASE | re.DOTALL),
}

# Named by the documentation, not built yet: refused by name, so that nobody looks for a typing error.
_LATER: Final = re.compile(
    r"s3://|index\+https?://|.*\.(csv|tsv|jsonl|parquet)(\.gz|\.zst)?\Z|.*\.txt\.zst\Z",
    re.IGNORECASE | re.DOTALL,
)


def source_kind(source: str) -> str:
    """The kind of ``source``, a key of ``KINDS``.

    Raises ConfigError where the form is none that this version reads.
    """
    for kind, form in KINDS.items():
        if form.match(source):
            return kind
    check_form(source)
    raise ConfigError(
        f"{_named(source)}: neither the URL of a file server (http or https), nor a list of URLs "
        "(.txt, .txt.gz), nor - for a list on standard input"
    )


def check_form(source: str) -> None:
    """Raises ConfigError for a form that a later version reads, whatever kind it is said to be."""
    if _LATER.match(source):
        raise ConfigError(f"{_named(source)}: sources of this form are not available in this version")


def _named(source: str) -> str:
    return redact_url(source) if "://" in source else shown(source)
