"""The kinds of source, told apart by the form of SOURCE: one table.

A new kind is a line here and a module in ``downloader.sources``. Importing this imports
none of them.
"""

from __future__ import annotations

import re
from typing import Final

from downloader.core.listing import MARKER
from downloader.core.naming import shown
from downloader.core.redact import redact_url
from downloader.errors import ConfigError

__all__ = ["KINDS", "check_form", "check_paths", "source_kind"]

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


def check_paths(list_path: str, get_path: str) -> None:
    """Raises ConfigError where a listing or a file would be asked for at another place than was meant."""
    for option, path in (("--list-path", list_path), ("--get-path", get_path)):
        if "#" in path:
            raise ConfigError(f"{option} has a fragment, which is never sent; write %23 for a # in a path")
    if "?" in get_path:
        raise ConfigError(
            "--get-path has a query, but a file's name stands behind the path; write %3F for a ? in a path"
        )
    query = list_path.partition("?")[2]
    if any(part.partition("=")[0] == MARKER for part in query.split("&")):
        raise ConfigError(f"--list-path has a {MARKER}, which names the pages; leave it out")


def _named(source: str) -> str:
    return redact_url(source) if "://" in source else shown(source)
