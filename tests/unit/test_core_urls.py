"""URLs as they are sent, hosts in ASCII, references, and NO_PROXY."""

from __future__ import annotations

import pytest

from downloader.core.host_names import ascii_host
from downloader.core.no_proxy import parse_no_proxy
from downloader.core.urls import login_of, resolve, sent_url

# What is written and what is sent, both clients: see also test_targets.py.
TARGETS = {
    **{
        each: each
        for each in (
            *("/%7E", "/%41", "/%c3%a9", "/%C3%a9", "/a[1].jpg", "/?a[]=%5B", "/s?", "/?", "//a", "/a//b/"),
            *(
                "/a;b=c?x=y;z",
                "/%2e%2e/x",
                "/%2E/x",
                "/...",
                "/.a/..b",
                "/?/../x",
                "/a?b?c",
                "/100%",
                "/%zz?%",
            ),
            *("/!$&'()*+,;=:@-._~", "/a%20b+c", "/?sig=A%2fB%3d%3D&x=a/b:c@d"),
        )
    },
    "": "/",
    "?q": "/?q",
    "?": "/?",
    "/s?#f": "/s?",
    "#f": "/",
    "/a#b?c": "/a",
    "/a/../b": "/b",
    "/a/./b/.": "/a/b/",
    "/a/b/../../../c": "/c",
    "/..": "/",
    "/a/..": "/",
    "/a//../b": "/a/b",
    "/é ☕": "/%C3%A9%20%E2%98%95",
    "/?q=é": "/?q=%C3%A9",
    "/\udce9%e9": "/%E9%e9",  # a byte that is not UTF-8
    '/"<>\\^`{|}': "/%22%3C%3E%5C%5E%60%7B%7C%7D",
    '/?"<>\\^`{|}': "/?%22%3C%3E%5C%5E%60%7B%7C%7D",
    "/\x00\t\x7f\u200d": "/%00%09%7F%E2%80%8D",
}


@pytest.mark.parametrize(("written", "sent"), TARGETS.items())
def test_target_is_sent_as_it_was_written(written: str, sent: str) -> None:
    assert sent_url(f"http://h.test{written}") == f"http://h.test{sent}"
    assert sent_url(f"HTTPS://H.test:0443{written}") == f"https://h.test:443{sent}"
    assert sent_url(sent_url(f"http://h.test{written}")) == f"http://h.test{sent}"


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "x",
            "/x",
            "//h/x",
            "http:",
            "http:/x",
            "http:x",
            "http://",
            "http:///x",
            "http://:80/",
            "ftp://h/",
        ),
        *(
            "http://h:x/",
            "http://h:65536/",
            "http://h:0/",
            "http://h:99999999999/",
            "http://[::1/",
            "http://::1/",
        ),
        *("http://[fe80::1%eth0]/", "http://[fe80::1%25eth0]/", "http://[::1%1]/"),
        *("http://[::1]x/", "http://[x]/", "http://a b/", "http://a\\b/", "http://a%2fb/", "http://a%00/"),
        *('http://a"b/', "http://a%ff/", "http://h:8²/", "http://a\udce9/", "http://h/\ud800"),
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        sent_url(url)


# As curl sends them, with libidn2; browsers refuse the joiners that are left out.
HOSTS = {
    "H.TEST": "h.test",
    "a_b.test.": "a_b.test.",
    "xn--BCHER-kva.test": "xn--bcher-kva.test",
    "BÜCHER.test": "xn--bcher-kva.test",
    "bu\u0308cher。test": "xn--bcher-kva.test",
    "b%C3%BCcher.test": "xn--bcher-kva.test",
    "ex%61mple.test": "example.test",
    "faß.test": "xn--fa-hia.test",
    "ｅｘａｍｐｌｅ．ＴＥＳＴ": "example.test",
    "１２７｡0。0.1": "127.0.0.1",
    "☕.test": "xn--53h.test",
    "i❤️.test": "xn--i-7iq.test",
    "👨‍👩‍👧.test": "xn--pq8hbd.test",
    "نامه‌ای.test": "xn--mgba3gch31f060k.test",
    "a\u00adb\u200b.test": "ab.test",
    "a_ü.test": "xn--a_-yka.test",
    "[::1]": "[::1]",
    "[2001:DB8::A]": "[2001:db8::a]",
}


@pytest.mark.parametrize(("written", "sent"), HOSTS.items())
def test_host_is_sent_as_curl_sends_it(written: str, sent: str) -> None:
    assert ascii_host(written) == sent
    assert sent_url(f"http://u:p@{written}:81/é") == f"http://u:p@{sent}:81/%C3%A9"


@pytest.mark.parametrize(
    "host",
    [
        "",
        "℀.test",
        "a／b.test",
        "ü@b",
        "ü：80",
        "\u0301a.test",
        "אa.test",
        "ü b",
        "\ud800ü",
        "ü\ufffd.test",
    ],
)
def test_host_that_is_no_name_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ascii_host(host)


# RFC 3986, §5.4.
BASE = "http://a/b/c/d;p?q"
REFERENCES = {
    "g:h": "g:h", "g": "http://a/b/c/g", "./g": "http://a/b/c/g", "g/": "http://a/b/c/g/", "/g": "http://a/g",
    "//g": "http://g/", "?y": "http://a/b/c/d;p?y", "g?y": "http://a/b/c/g?y", "#s": "http://a/b/c/d;p?q",
    "g#s": "http://a/b/c/g", "g?y#s": "http://a/b/c/g?y", ";x": "http://a/b/c/;x", "g;x": "http://a/b/c/g;x",
    "": "http://a/b/c/d;p?q", ".": "http://a/b/c/", "./": "http://a/b/c/", "..": "http://a/b/",
    "../g": "http://a/b/g", "../..": "http://a/", "../../g": "http://a/g", "../../../g": "http://a/g",
    "/./g": "http://a/g", "/../g": "http://a/g", "g.": "http://a/b/c/g.", "..g": "http://a/b/c/..g",
    "./g/.": "http://a/b/c/g/", "g/./h": "http://a/b/c/g/h", "g;x=1/../y": "http://a/b/c/y",
    "g?y/../x": "http://a/b/c/g?y/../x", "g#s/../x": "http://a/b/c/g",
    "?": "http://a/b/c/d;p?", "/s?": "http://a/s?", "/%7E%c3[]": "http://a/%7E%c3[]", "/caf\udce9": "http://a/caf%E9",
}  # fmt: skip


@pytest.mark.parametrize(("reference", "url"), REFERENCES.items())
def test_reference_is_resolved(reference: str, url: str) -> None:
    found = resolve(BASE, reference)
    assert (sent_url(found) if found.startswith("http") else found) == url


# Browsers and curl go to the same place.
SLASHES = {
    "///h/x": "http://h/x", "http:///h/x": "http://h/x", "https:/h/x": "https://h/x", "https:h/x?y": "https://h/x?y",
    "h/x": "http://a/b/c/h/x", "h:80/x": "h:80/x", "/h//x": "http://a/h//x", "/a\\b": "http://a/a%5Cb",
    "/?\\": "http://a/?%5C", " \x0b//h/x\x1f": "http://h/x", "///": "http://", "http:///": "http://",
}  # fmt: skip


@pytest.mark.parametrize(("reference", "url"), SLASHES.items())
def test_slashes_before_a_host(reference: str, url: str) -> None:
    found = resolve(BASE, reference)
    assert (sent_url(found) if found.startswith("http") and found != "http://" else found) == url


@pytest.mark.parametrize(
    "reference",
    [
        *(
            "http:g",
            "http:/g",
            "HTTP:/g:80/x",
            "http:?q",
            "http:",
            "http:\\\\h\\x",
            "http:/\\h/x",
            "\\\\h\\x",
        ),
        *(
            "/\\h/x",
            "\\/h/x",
            "\\x",
            "http://h\\x",
            "//h\\@g/x",
            "http://h\\@g/",
            "ht\ttp://h/x",
            "/\t/h/x",
        ),
        *("https:\\\\h\\x", "https:h\\x"),
    ],
)
def test_reference_whose_host_is_not_clear(reference: str) -> None:
    with pytest.raises(ValueError, match=r"backslash|tab|no // follows"):
        resolve(BASE, reference)


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("http://h/a@b", None),
        ("http://h", None),
        ("http://@h/", None),
        ("http://token@h/", ("token", None)),
        ("http://user:@h/", ("user", "")),
        ("http://:pw@h/", ("", "pw")),
        ("http://us%C3%A9r:p%3aw:%40%FF@h/", ("usér", "p:w:@\udcff")),
        ("http://a@b:c@h/", ("a@b", "c")),
    ],
)
def test_login_of_a_url(url: str, login: tuple[str, str | None] | None) -> None:
    assert login_of(url) == login


@pytest.mark.parametrize(
    ("entries", "covered", "others"),
    [
        ("*", "h.test 10.0.0.1 ::1", ""),
        ("a, *", "h.test", ""),
        ("", "", "h.test 10.0.0.1"),
        (
            "example.com",
            "example.com EXAMPLE.com www.example.com example.com.",
            "notexample.com com example.org",
        ),
        (".example.com", "example.com a.b.example.com", "badexample.com"),
        ("*.example.com.", "example.com www.example.com", "example.org"),
        ("a.test,,b.test\tc.test", "a.test b.test c.test", "d.test"),
        ("Bücher.test", "xn--bcher-kva.test", "bcher.test"),
        ("h.test:8080", "h.test|8080 a.h.test|8080", "h.test h.test|443"),
        ("10.0.0.0/8", "10.0.0.1 10.255.255.255 ::ffff:10.1.1.1", "11.0.0.1 10.test"),
        ("10.1.2.3/8,192.168.0.0/255.255.0.0", "10.9.9.9 192.168.3.4", "192.169.0.1"),
        ("10.0.0.1", "10.0.0.1 ::ffff:10.0.0.1 ::ffff:a00:1", "10.0.0.10 110.0.0.1"),
        ("10.0.0.1:81", "10.0.0.1|81", "10.0.0.1"),
        ("::1", "::1 0:0:0:0:0:0:0:1 0000::0001", "::2 1"),
        ("[2001:DB8:0::A]", "2001:db8::a 2001:0db8:0000::000a", "2001:db8::b"),
        ("[2001:db8::a]:8443", "2001:db8::a|8443", "2001:db8::a|443"),
        ("2001:db8::/32, fe80::/10", "2001:db8:1::1 fe80::1%eth0", "2001:db9::1 10.0.0.1"),
        ("[fd00::]/8", "fd12::1", "fe00::1"),
        ("[::1]/x,10.0.0.0/99,a b!c,.,:80", "a", "::1 10.0.0.0 h.test"),
    ],
)
def test_no_proxy(entries: str, covered: str, others: str) -> None:
    parsed = parse_no_proxy(entries)
    for text, expected in ((covered, True), (others, False)):
        for each in text.split():
            host, _, port = each.partition("|")
            assert parsed.covers(host, int(port or 80)) is expected, each
