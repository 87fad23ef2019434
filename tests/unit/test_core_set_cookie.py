"""What a Set-Cookie field sets: RFC 6265 §5.2, and its dates, §5.1.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.set_cookie import SetCookie, parse_set_cookie

NOW = 1_000_000_000
NEW_YEAR = 1_924_992_000  # 2031


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("n=v", ("n", "v")),
        (" \tn \t= \tv\t ", ("n", "v")),
        ("n=", ("n", "")),
        ("n=a=b==", ("n", "a=b==")),
        ('n="v, w"', ("n", '"v, w"')),
        ("n=\xc3\xa0", ("n", "\xc3\xa0")),  # à in UTF-8, of which the last byte is a blank in Latin-1
        ("n=\x85", ("n", "\x85")),
        ("n=\x1f", None),
        ("n=\x00", None),
        ("a b=c d", ("a b", "c d")),
        ("$Version=1", ("$Version", "1")),
        ("Path=/", ("Path", "/")),
        ("", None),
        ("n", None),
        ("=v", None),
        (" = ", None),
    ],
)
def test_name_and_value(pair: str, expected: tuple[str, str] | None) -> None:
    for line in (pair, f"{pair};", f"{pair};; ; X=1"):
        assert parse_set_cookie(line, NOW) == (SetCookie(*expected) if expected else None)
    assert parse_set_cookie(f"; {pair}", NOW) is None


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("__Secure-a=1", False),
        ("__secure-a=1; Path=/", False),
        ("__Secure-a=1; Secure", True),
        ("__Host-a=1; Path=/", False),
        ("__Host-a=1; Secure", False),
        ("__HOST-a=1; Secure; Path=/a", False),
        ("__Host-a=1; Secure; Path=/; Domain=a.test", False),
        ("__Host-a=1; Secure; Path=/", True),
        ("__Secure=1", True),
    ],
)
def test_prefixes_of_names_promise(line: str, kept: bool) -> None:
    assert (parse_set_cookie(line, NOW) is not None) == kept


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("Max-Age=3600", {"expires": NOW + 3600}),
        ("MAX-age = 3600 ", {"expires": NOW + 3600}),
        ("Max-Age=007", {"expires": NOW + 7}),
        ("Max-Age=0", {"expires": 0}),
        ("Max-Age=-0", {"expires": 0}),
        ("Max-Age=-5", {"expires": 0}),
        (f"Max-Age={'9' * 5000}", {"expires": NOW + 9_999_999_999}),
        (f"Max-Age={'0' * 5000}9", {"expires": NOW + 9}),
        ("Max-Age", {}),
        ("Max-Age=", {}),
        ("Max-Age=-", {}),
        ('Max-Age="3600"', {}),
        ("Max-Age=1h", {}),
        ("Max-Age=3600.0", {}),
        ("Max-Age=+3600", {}),
        ("Max-Age=3_600", {}),
        ("Max-Age=²", {}),
        ("Max-Age=5; Max-Age=6; Max-Age=x", {"expires": NOW + 6}),
        ("Max-Age=5; Expires=Thu, 01 Jan 1970 00:00:00 GMT", {"expires": NOW + 5}),
        ("Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=x", {"expires": 0}),
        ("Path=/a", {"path": "/a"}),
        ("path = /a=b ", {"path": "/a=b"}),
        ("Path=/a; Path=/b", {"path": "/b"}),
        ("Path=/a; Path=", {}),
        ("Path", {}),
        ("Path=a", {}),
        ('Path="/"', {}),
        ("Domain=a.Test", {"domain": "a.test"}),
        ("Domain=.a.test", {"domain": "a.test"}),
        ("Domain=..a.test", {"domain": ".a.test"}),  # which no host is in
        ("Domain=a.test.", {"domain": "a.test."}),
        ("Domain=a.test; Domain=b.test", {"domain": "b.test"}),
        ("Domain=a.test; Domain=", {"domain": "a.test"}),
        ("Domain=a.test; Domain=.", {}),
        ("Domain", {}),
        ("Secure", {"secure": True}),
        ("secure=no", {"secure": True}),
        ('HttpOnly=x; SameSite; Version=2; Port="1,2"; Comment=c; Discard; Priority=High', {}),
    ],
)
def test_attributes(attributes: str, expected: dict[str, object]) -> None:
    found = parse_set_cookie(f"n=v; {attributes}", NOW)
    assert found == SetCookie("n", "v", **expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Wed, 01 Jan 2031 00:00:00 GMT", NEW_YEAR),
        ("Wednesday, 01-Jan-31 00:00:00 GMT", NEW_YEAR),
        ("Wed Jan  1 00:00:00 2031", NEW_YEAR),
        ("Mi, 1-january-2031 0:0:0 +0100", NEW_YEAR),  # it is UTC whatever it says
        ("00:00:00 2031 Jan 1", NEW_YEAR),
        ('"Wed, 01 Jan 2031 00:00:00 GMT"', NEW_YEAR),
        ("Thu, 01-Jan-1970 00:00:01 GMT", 1),
        ("Thu Jan  1 00:00:00 1970", 0),
        ("Thu, 01 Jan 70 00:00:00 GMT", 0),
        ("Mon, 01 Jan 0001 00:00:00 GMT", 978_307_200),  # of 2001, by the RFC
        ("Mon, 01 Jan 1601 00:00:00 GMT", -11_644_473_600),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ("Mon, 31 Dec 1600 00:00:00 GMT", None),
        ("Mon, 31 Feb 2031 00:00:00 GMT", None),
        ("Mon, 01 Jan 2031 24:00:00 GMT", None),
        ("Mon, 01 Jan 2031 00:00:60 GMT", None),
        ("Mon, 01 Jan 2031", None),
        ("2031-01-01T00:00:00Z", None),
        ("1 Jan 20311 00:00:00", None),
        ("0", None),
        ("-1", None),
        ("Session", None),
        ("", None),
    ],
)
def test_dates(date: str, expected: int | None) -> None:
    found = parse_set_cookie(f"n=v; Expires={date}", NOW)
    assert found == SetCookie("n", "v", expires=expected)


@given(st.text())
def test_every_text_is_read(text: str) -> None:
    for line in (text, f"n=v; Expires={text}", f"n=v; Max-Age={text}"):
        parse_set_cookie(line, NOW)
