"""Parse the pages of a file server's listing, and build their URLs.

A page is ``{"FileNames": […], "NextMarker": "…"}``; ``NextFile`` may stand for ``NextMarker``.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

import msgspec

from downloader.errors import UNDECODABLE, SourceError

__all__ = ["MARKER", "NO_SERVER", "ONE_FILE", "Listing", "page_url", "parse_listing"]

MARKER = "next-marker"
ONE_FILE = "to fetch one URL: echo URL | downloader - -o DEST"
"""What to do where SOURCE is no server, but a file."""
_A_LIST = "have the URLs in a file, one a line, and give that as SOURCE"
_HTML = re.compile(
    rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|title|pre|table|h1)\b", re.I | re.S
)
_XML = re.compile(rb"\s*<(?:\?xml|[A-Za-z])")
_BEGINNING = 4096  # bytes of a page in which its form is looked for
NO_SERVER = f"is this a file server, and is --list-path right? ({ONE_FILE})"
"""What to ask where SOURCE seems to be no file server."""


class Listing(msgspec.Struct, frozen=True):
    """The names on a page as the server sent them, and the marker of the next page ("": the last page)."""

    names: list[str]
    marker: str


def page_url(first: str, marker: str) -> str:
    """Return the URL of the page at ``marker``, which must be quoted ("": the first page).

    ``first`` is the URL of the first page; it may have a query of its own.
    """
    if not marker:
        return first
    joint = "?" if "?" not in first else "" if first.endswith(("?", "&")) else "&"
    return f"{first}{joint}{MARKER}={marker}"


def _other_form(body: bytes | bytearray) -> str:
    """Return what a page is that is no JSON, as web servers and stores list directories; "" if unknown."""
    begins = bytes(body[:_BEGINNING]).removeprefix(codecs.BOM_UTF8)
    if _HTML.match(begins):
        return "HTML"
    return "XML" if _XML.match(begins) else ""


class _Usual(msgspec.Struct, frozen=True):
    FileNames: list[str]
    NextMarker: str | None = None
    NextFile: str | None = None


_KEYS = _Usual.__struct_fields__
_KEYS_IN_JSON = tuple(f'"{key}"'.encode() for key in _KEYS)
_decode_usual = msgspec.json.Decoder(_Usual).decode


def parse_listing(body: bytes | bytearray, where: str, *, first: bool = True) -> Listing:
    """Return the page in ``body``. Raises SourceError with a message that begins with ``where``.

    ``first``: it is the first page, so the server may be none that has pages.
    """
    hint = f"; {NO_SERVER}" if first else ""
    if any(body.count(key) > 1 for key in _KEYS_IN_JSON):
        return _parse_unusual(body, where, hint)
    try:
        # Decodes and checks the types in one step.
        page = _decode_usual(body)
    except UNDECODABLE:
        return _parse_unusual(body, where, hint)
    return Listing(page.FileNames, page.NextMarker or page.NextFile or "")


def _parse_unusual(body: bytes | bytearray, where: str, hint: str) -> Listing:
    """Parse a page with the standard library, or raise SourceError that says what is wrong with it.

    msgspec rejects a whole page for one name with a lone surrogate; the standard library does not. And
    each takes the last value of a key that is there twice: what is in the other one would not be fetched.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            for key in _KEYS:
                if names.count(key) > 1:
                    raise SourceError(f'{where} has "{key}" twice')
        return found

    try:
        page: Any = json.loads(body, object_pairs_hook=once)
    except UNDECODABLE as error:
        if what := _other_form(body):
            why = f"it is {what}, which is not read as a listing; {_A_LIST}"
            raise SourceError(f"{where} is not valid JSON: {why}{hint}") from None
        raise SourceError(f"{where} is not valid JSON: {error}{hint}") from None
    if not isinstance(page, dict) or not isinstance(page.get("FileNames"), list):
        raise SourceError(f'{where} has no list "FileNames"{hint}')
    names: list[Any] = page["FileNames"]
    if not all(type(name) is str for name in names):
        raise SourceError(f"{where} lists a name that is not a string")
    marker = page.get("NextMarker") or page.get("NextFile") or ""
    if not isinstance(marker, str):
        raise SourceError(f"{where} has a marker that is not a string")
    try:
        marker.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{where} has a marker that is not valid Unicode") from None
    return Listing(names, marker)
