"""Which redirects are followed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.redirects import REDIRECTS, is_private, next_url
from downloader.errors import FetchError


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "http://a/b"),
        ("b", "http://a/x/b"),
        ("../b", "http://a/b"),
        ("../../../b", "http://a/b"),
        ("?q", "http://a/x/y?q"),
        ("", "http://a/x/y"),
        ("http://b/c", "http://b/c"),
        ("HTTPS://b:8443/c#fragment", "https://b:8443/c"),
        ("//b/c", "http://b/c"),
        ("/b#f", "http://a/b"),
        ("http://[::1]:80/", "http://[::1]:80/"),
    ],
)
def test_redirects_that_are_followed(location: str, url: str) -> None:
    assert next_url("http://a/x/y", location, 0, 5) == url


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://a/b",
        "javascript:alert(1)",
        "data:,x",
        "gopher://a",
        "https:///",
        "///",
        "http:/a/b",
        "\\\\a\\b",
        "https://user@/x",
        "http://[::1/x",
        "http://a:port/x",
        "http://a:99999/x",
    ],
)
def test_redirects_that_are_refused(location: str) -> None:
    with pytest.raises(FetchError) as caught:
        next_url("http://a/x", location, 0, 5)
    assert caught.value.code == "redirect-refused"


def test_a_scheme_is_named_if_it_is_one() -> None:
    """Any other word may be of what the server was sent."""
    for location, said in (("ftp://a/b", "ftp:"), ("tk9qz7wm3xv5:x", "neither http: nor https:")):
        with pytest.raises(FetchError, match=said) as caught:
            next_url("http://a/x", location, 0, 5)
        assert "tk9" not in str(caught.value)


@pytest.mark.parametrize("location", ["http://a/y", "HTTP://b/"])
def test_https_to_http_is_refused(location: str) -> None:
    with pytest.raises(FetchError, match="from https to http"):
        next_url("https://a/x", location, 0, 5)
    assert next_url("https://a/x", "//b/y", 0, 5) == "https://b/y"


def test_number_of_redirects_is_limited() -> None:
    assert next_url("http://a/", "/b", 4, 5) == "http://a/b"
    for hops, most in ((5, 5), (0, 0)):
        with pytest.raises(FetchError) as caught:
            next_url("http://a/", "/b", hops, most)
        assert caught.value.code == "redirect-loop"


def test_statuses_that_are_redirects() -> None:
    assert {301, 302, 303, 307, 308} == REDIRECTS


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "2002:7f00:1::",
    ],
)
def test_private_addresses(address: str) -> None:
    assert is_private([address])
    assert is_private(["8.8.8.8", address])


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::"]
)
def test_public_addresses(address: str) -> None:
    assert not is_private([address])


@given(st.text(max_size=60))
def test_any_location_is_followed_or_refused(location: str) -> None:
    try:
        url = next_url("https://a.example/x", location, 0, 5)
    except FetchError as error:
        assert error.code == "redirect-refused"  # noqa: PT017
    else:
        assert url.lower().startswith("https://")
        assert "#" not in url
