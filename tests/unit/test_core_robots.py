"""What robots.txt allows: groups, rules, product tokens, and what a failure to get it means (RFC 9309)."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from downloader.core.robots import ALLOW_ALL, MAX_SIZE, Outcome, outcome_of, parse, product_token
from downloader.errors import FAILURES

TOKEN = "mass-downloader"


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("", ["/"], []),
        ("User-agent: *\nDisallow:\n", ["/"], []),
        ("User-agent: *\nDisallow: /\n", [], ["/", "/a?b=c", "//a"]),
        ("Disallow: /\n", ["/"], []),  # a rule before any group
        ("user-AGENT: *\r\ndisAllow : /a\r\n", ["/b", "/A"], ["/a", "/ab", "/a/b", "/a?x"]),
        ("User-agent: *\rDisallow: /a\r", ["/b"], ["/a"]),
        ("User-agent: * # all\nDisallow: /a # but\n", ["/b"], ["/a"]),
        # The longest match wins; with equal lengths allow does (RFC 9309 §2.2.2).
        ("User-agent: *\nAllow: /a/b\nDisallow: /a\n", ["/a/b/c", "/b"], ["/a/c"]),
        ("User-agent: *\nDisallow: /a\nAllow: /a\n", ["/a"], []),
        ("User-agent: *\nDisallow: /*.jpg$\n", ["/a.jpg?x", "/a.png"], ["/a.jpg", "/b/c.jpg"]),
        ("User-agent: *\nDisallow: /a*z\n", ["/az"[:-1]], ["/az", "/a/b/z/c"]),
        ("User-agent: *\nDisallow: /*?\n", ["/a"], ["/a?b"]),
        # Escapes: §2.2.2, the table.
        ("User-agent: *\nDisallow: /foo/bar/%E3%83%84\n", ["/foo/bar/"], ["/foo/bar/%e3%83%84"]),
        ("User-agent: *\nDisallow: /foo/bar/ツ\n", [], ["/foo/bar/%E3%83%84"]),
        ("User-agent: *\nDisallow: /foo/bar/%62%61%7A\n", [], ["/foo/bar/baz"]),
        ("User-agent: *\nDisallow: /a%2Fb\n", ["/a/b"], ["/a%2fb"]),
        ("User-agent: *\nDisallow: //a\n", ["/a"], ["//a/b"]),
        # The group of our name, not that of all; several are one (§2.2.1).
        ("User-agent: *\nDisallow: /\nUser-agent: mass-downloader\nDisallow: /a\n", ["/b"], ["/a"]),
        ("User-agent: Mass-Downloader/2.0 (x)\nDisallow: /a\n", ["/b"], ["/a"]),
        ("User-agent: mass-downloader\nDisallow: /a\n\nUser-agent: x\nUser-agent: mass-downloader\n"
         "Disallow: /b\n", ["/c"], ["/a", "/b"]),
        ("User-agent: mass-downloader\nUser-agent: *\nDisallow: /a\n", ["/b"], ["/a"]),
        ("User-agent: mass-downloader\nDisallow:\nUser-agent: *\nDisallow: /\n", ["/a"], []),
        ("User-agent: *\nSitemap: http://x/\nCrawl-delay: 10\nDisallow: /a\n", ["/b"], ["/a"]),
        ("User-agent: *\n\n\nDisallow: /a\n", ["/b"], ["/a"]),
        # Names that are only a part of ours, or have ours as a part.
        ("User-agent: mass\nUser-agent: downloader\nDisallow: /\n", ["/"], []),
        ("User-agent: mass-downloader-x\nDisallow: /\n", ["/"], []),
        ("User-agent:\nDisallow: /\n", ["/"], []),
        ("<!doctype html>\n<p>Disallow: /</p>", ["/"], []),
    ],
)  # fmt: skip
def test_rules(text: str, allowed: list[str], refused: list[str]) -> None:
    rules = parse(text.encode(), TOKEN)
    assert [target for target in allowed if not rules.allows(target)] == []
    assert [target for target in refused if rules.allows(target)] == []


def test_byte_order_mark_and_bytes_that_are_not_text() -> None:
    assert not parse(b"\xef\xbb\xbfUser-agent: *\nDisallow: /a", TOKEN).allows("/a")
    assert not parse(b"User-agent: *\nDisallow: /\xff\nDisallow: /a", TOKEN).allows("/a")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_a_byte_order_mark_is_read(encoding: str) -> None:
    body = "\ufeffUser-agent: *\r\nDisallow: /private\r\n".encode(encoding)
    assert not parse(body, "a").allows("/private/1")
    assert parse(body, "a").allows("/public")


def test_rules_that_matter_to_nobody_take_no_memory() -> None:
    text = b"User-agent: other\nDisallow: /\nUser-agent: *\nAllow: /\nDisallow:\n"
    assert parse(text, TOKEN) is ALLOW_ALL
    assert (
        parse(b"User-agent: *\nDisallow: /a\n" + b"User-agent: x\nDisallow: /b\n" * 999, TOKEN).size < 9999
    )


def test_only_the_first_bytes_count() -> None:
    text = b"User-agent: *\nDisallow: /early\n"
    text += b"#" * (MAX_SIZE - len(text) - 12) + b"\nDisallow: /cut-here\n"
    rules = parse(text, TOKEN)
    assert not rules.allows("/early")
    assert rules.allows("/c")


@given(st.binary(max_size=300), st.text("/*$%?#a\\[]:é", max_size=20))
def test_any_bytes_are_parsed(body: bytes, target: str) -> None:
    """And rules of any bytes are matched with any target."""
    parse(b"User-agent: *\nDisallow: " + body, TOKEN).allows("/" + target)
    parse(b"User-agent: *\nDisallow: " + target.encode() + b"\nAllow: " + body, TOKEN).allows("/" + target)


# Such as make rules and paths that match, or nearly.
PIECES = st.lists(
    st.sampled_from([*"/*$%?=&aab.", "%61", "%2f", "%2A", "%24", "%ff", "é", "index.html", "http://x"]),
    max_size=8,
).map("".join)


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), PIECES), max_size=6), PIECES)
def test_rules_mean_what_they_mean_to_protego(rules: list[tuple[str, str]], target: str) -> None:
    lines = [f"{name}: /{pattern}" for name, pattern in rules]
    text = "\n".join(["User-agent: *", *lines])
    path = quote("/" + target, safe="/*$%?=&")
    theirs = Protego.parse(text).can_fetch("http://host" + path, "*")
    assert parse(text.encode(), TOKEN).allows(path) == theirs


def test_rules_are_found_by_what_a_path_contains() -> None:
    """A path is compared with few of 20,000 rules, and with none where that would take long."""
    wildcards = [f"Disallow: /*{number:05d}*x*{number:04x}$" for number in range(20_000)]
    rules = parse("\n".join(["User-agent: *", *wildcards]).encode(), TOKEN)
    assert not rules.allows("/a/01234?x=04d2")
    assert rules.allows("/a/01234?x=04d3")
    assert rules.allows("/" + "a/b" * 9_000)
    assert not rules.allows("/" + "a/b" * 9_000 + "01234x04d2")
    every = "/" + "".join(f"{number:05d}" for number in range(6_000))
    assert "too many rules" in rules.why_not(every)


@pytest.mark.parametrize(
    ("agent", "token"),
    [
        ("mass-downloader/1.0", "mass-downloader"),
        ("Foo_Bar", "Foo_Bar"),
        ("Mozilla/5.0 (X11; Linux)", "Mozilla"),
        ("Mozilla/5.0 (compatible; Foobot/2.1; +http://x/)", "Foobot"),
        ("Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Foobot/2.1)", "Foobot"),
        ("007", ""),
        ("", ""),
    ],
)
def test_product_token(agent: str, token: str) -> None:
    assert product_token(agent) == token


def test_a_crawler_without_a_name_has_the_rules_of_all() -> None:
    rules = parse(b"User-agent:\nUser-agent: 007\nDisallow: /a\nUser-agent: *\nDisallow: /b\n", "")
    assert rules.allows("/a")
    assert not rules.allows("/b")


def test_every_failure_has_an_outcome() -> None:
    fails = {code for code in FAILURES if outcome_of(code) is Outcome.FAIL}
    assert {"dns", "connect", "connect-timeout", "tls-verify", "proxy", "bad-url"} <= fails
    assert not {"read-timeout", "reset", "truncated", "protocol", "timeout"} & fails
    assert {outcome_of(code, elsewhere=True) for code in fails} == {Outcome.REFUSE}
    assert [outcome_of(f"http-{status}") for status in (400, 404, 429, 500, 503, 999)] == [
        *[Outcome.ALLOW] * 3,
        *[Outcome.REFUSE] * 3,
    ]
    assert outcome_of("redirect-loop") is Outcome.ALLOW


def test_refusals_say_why() -> None:
    rules = parse(b"User-agent: *\nDisallow: /a", TOKEN)
    assert (rules.why_not("/a"), rules.why_not("/b")) == ("robots.txt of the host disallows it", "")
