"""A page of a listing: a fast path for ordinary pages, with the same result as `json` for every page."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.listing import Listing, page_url, parse_listing
from downloader.errors import SourceError

TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from(list('"\\\ud800\udc00\0/é')))
ANYTHING = st.recursive(st.none() | st.booleans() | st.floats() | TEXT, st.lists)


@given(st.lists(TEXT), TEXT | st.none(), ANYTHING, st.booleans())
def test_page_is_parsed_as_by_json(
    names: list[str], marker: str | None, more: object, ascii_: bool
) -> None:
    page = {"More": more, "FileNames": names, "NextMarker": marker}
    text = json.dumps(page, ensure_ascii=ascii_)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    try:
        (marker or "").encode()
    except UnicodeEncodeError:
        if json.loads(body)["NextMarker"] == marker:
            with pytest.raises(SourceError, match="not valid Unicode"):
                parse_listing(body, "page 1")
        return
    # A surrogate pair that was escaped as two is one character to any parser.
    assert parse_listing(body, "page 1") == Listing(json.loads(body)["FileNames"], marker or "")
    assert parse_listing(bytearray(body), "page 1") == parse_listing(body, "page 1")


@pytest.mark.parametrize(
    ("body", "names", "marker"),
    [
        (b'{"FileNames": []}', [], ""),
        (b'{"FileNames": ["a"], "NextFile": "b"}', ["a"], "b"),
        (b'{"FileNames": ["a"], "NextMarker": "m", "NextFile": "b"}', ["a"], "m"),
        (b'{"FileNames": ["a"], "NextMarker": "", "NextFile": "b"}', ["a"], "b"),
        (b'{"FileNames": ["a"], "NextMarker": null}', ["a"], ""),
        (b'{"FileNames": ["a"], "NextMarker": 0}', ["a"], ""),
        (b'{"FileNames": ["\\ud800"]}', ["\ud800"], ""),
        (b'\xef\xbb\xbf{"FileNames": ["a"]}', ["a"], ""),
        ('{"FileNames": ["é"]}'.encode("utf-16"), ["é"], ""),
        (b'{"FileNames": ["a"], "x": NaN}', ["a"], ""),
    ],
)
def test_valid_pages(body: bytes, names: list[str], marker: str) -> None:
    assert parse_listing(body, "page 1") == Listing(names, marker)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "not valid JSON"),
        (b"<html>", "not valid JSON: it is HTML, which is not read as a listing; have the URLs in a file"),
        (b"\xef\xbb\xbf\n<!DOCTYPE HTML>\n<html lang=en>\xff", "not valid JSON: it is HTML"),
        (b"<!-- a -->\n<head><title>Index of /</title>", "not valid JSON: it is HTML"),
        (b'<?xml version="1.0"?>\n<ListBucketResult>', "not valid JSON: it is XML"),
        (b"a < b", "not valid JSON: Expecting"),
        (b'{"FileNames": ["a"', "not valid JSON"),
        (b'{"FileNames": ["a"]} more', "not valid JSON"),
        (b'{"FileNames": ["\xff"]}', "not valid JSON"),
        (b'{"FileNames": ["a\nb"]}', "not valid JSON"),
        (b'{"FileNames": [], "x": ' + b"[" * 100_000, "not valid JSON"),
        (b'["a"]', "FileNames"),
        (b"null", "FileNames"),
        (b"{}", "FileNames"),
        (b'{"FileNames": null}', "FileNames"),
        (b'{"FileNames": ["a", 7]}', "not a string"),
        (b'{"FileNames": ["a", null]}', "not a string"),
        (b'{"FileNames": [], "NextMarker": 7}', "a marker that is not a string"),
        (b'{"FileNames": ["a"], "FileNames": ["b"]}', '"FileNames" twice'),
        (b'{"FileNames": ["a"], "NextMarker": "b", "NextMarker": null}', '"NextMarker" twice'),
        (b'{"FileNames": [], "NextMarker": "\\udfff"}', "not valid Unicode"),
    ],
)
def test_refused_pages(body: bytes, what: str) -> None:
    with pytest.raises(SourceError, match=f"^page 1 .*{what}"):
        parse_listing(body, "page 1")


@pytest.mark.parametrize(
    ("first", "marker", "url"),
    [
        ("http://h/list", "", "http://h/list"),
        ("http://h/list", "2", "http://h/list?next-marker=2"),
        ("http://h/list?", "2", "http://h/list?next-marker=2"),
        ("http://h/list?a=b", "", "http://h/list?a=b"),
        ("http://h/list?a=b", "2", "http://h/list?a=b&next-marker=2"),
        ("http://h/list?a=b&", "2", "http://h/list?a=b&next-marker=2"),
    ],
)
def test_marker_is_appended_to_an_existing_query(first: str, marker: str, url: str) -> None:
    assert page_url(first, marker) == url


def test_names_and_values_that_are_called_like_keys_are_ordinary() -> None:
    body = b'{"FileNames": ["FileNames", "NextMarker"], "x": {"NextFile": 1}, "NextMarker": "NextFile"}'
    assert parse_listing(body, "page") == Listing(["FileNames", "NextMarker"], "NextFile")
