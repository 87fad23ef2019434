"""A page of a file server's listing: ``{"FileNames": […], "NextMarker": "…"}``, ``NextFile`` for it too;
and the URL of a page."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from downloader.errors import SourceError

__all__ = ["MARKER", "Listing", "page_url", "parse_listing"]

MARKER = "next-marker"


class Listing(msgspec.Struct, frozen=True):
    """The names of a page as the server gives them, and the marker of the next page, if there is one."""

    names: list[str]
    marker: str


def page_url(first: str, marker: str) -> str:
    """The URL of the page at ``marker``, which is quoted ("": the first page).

    ``first`` is the URL of the first page; it may have a query of its own.
    """
    if not marker:
        return first
    joint = "?" if "?" not in first else "" if first.endswith(("?", "&")) else "&"
    return f"{first}{joint}{MARKER}={marker}"


class _Usual(msgspec.Struct, frozen=True):
    FileNames: list[str]
    NextMarker: str | None = None
    NextFile: str | None = None


_decode_usual = msgspec.json.Decoder(_Usual).decode


def parse_listing(body: bytes | bytearray, where: str) -> Listing:
    """The page in ``body``. Raises SourceError, which begins with ``where``."""
    try:
        # Decodes and checks the types in one go.
        page = _decode_usual(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _parse_unusual(body, where)
    return Listing(page.FileNames, page.NextMarker or page.NextFile or "")


def _parse_unusual(body: bytes | bytearray, where: str) -> Listing:
    """With the standard library's parser: msgspec's refuses a name with a lone surrogate, and with it the
    whole page. And to say what is wrong with a page."""
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{where} is not valid JSON: {error}") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("FileNames"), list):
        raise SourceError(f'{where} has no list "FileNames"; is this a file server? (see --list-path)')
    names: list[Any] = answer["FileNames"]
    if not all(type(name) is str for name in names):
        raise SourceError(f"{where} lists a name that is not a string")
    marker = answer.get("NextMarker") or answer.get("NextFile") or ""
    if not isinstance(marker, str):
        raise SourceError(f"{where} has a marker that is not a string")
    try:
        marker.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{where} has a marker that is not valid Unicode") from None
    return Listing(names, marker)
