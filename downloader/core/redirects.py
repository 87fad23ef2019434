"""Decide whether a redirect is followed.

Redirects are followed to http and https only, never from https to http, up to a maximum number of hops,
and not from a public address to a private one. Credentials and the user's headers are sent only to the
origin that they were given for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

from downloader.core.urls import resolve, sent_url
from downloader.errors import FetchError

__all__ = ["REDIRECTS", "is_private", "next_url", "only_location"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SCHEMES = frozenset(
    {"about", "blob", "data", "file", "ftp", "ftps", "javascript", "mailto", "s3", "ws", "wss"}
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def only_location(lines: Collection[str]) -> str:
    """Return the value of the Location fields ``lines``; equal ones count as one.

    Of different ones, the wrong one may have been put in. Browsers refuse them, too. Raises FetchError
    ``redirect-refused``.
    """
    if len(set(lines)) != 1:
        raise FetchError("redirect-refused", "to several places: the Location fields differ")
    return next(iter(lines))


def next_url(url: str, location: str, hops: int, most: int) -> str:
    """Return the URL that ``location``, in the response for ``url``, redirects to, as ``sent_url`` does.

    ``hops`` is the number of redirects followed so far, ``most`` the maximum.

    Raises FetchError ``redirect-loop``, ``redirect-refused``.
    """
    if hops >= most:
        raise FetchError("redirect-loop", f"more than {most} redirects")
    try:
        target = resolve(url, location)
    except ValueError as error:
        raise FetchError("redirect-refused", f"to a URL that is not clear: {error}") from None
    scheme, _, rest = target.partition(":")
    scheme = scheme.lower()
    if scheme not in ("http", "https"):
        # Others may be anything that the server was sent.
        named = f"a {scheme}: URL" if scheme in _SCHEMES else "a URL that is neither http: nor https:"
        raise FetchError("redirect-refused", f"to {named}")
    if not rest.removeprefix("//").partition("/")[0]:
        raise FetchError("redirect-refused", "to a URL without a host")
    try:
        target = sent_url(target)
    except ValueError as error:
        raise FetchError("redirect-refused", f"to something that is not a URL: {error}") from None
    if scheme == "http" and url[:6].lower() == "https:":
        raise FetchError("redirect-refused", "from https to http")
    return target


def is_private(addresses: Iterable[str]) -> bool:
    """Return whether any of the numeric ``addresses`` is not on the public internet."""
    for address in addresses:
        ip = _embedded_ipv4(ipaddress.ip_address(address.split("%")[0]))
        if not ip.is_global or ip.is_multicast:
            return True
    return False


def _embedded_ipv4(ip: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address leads to (mapped, 6to4, NAT64), else ``ip`` itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    translated = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None
    return ip.ipv4_mapped or ip.sixtofour or translated or ip
