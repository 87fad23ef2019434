"""Define the settings that all files of one origin share."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from requests.utils import select_proxy
from urllib3 import HTTPHeaderDict
from urllib3.util import parse_url

from downloader.http.cookies import Cookies

__all__ = ["NOT_THERE", "Origin"]

_MAX_VAIN = 32


NOT_THERE = frozenset({"http-404", "http-410"})
"""The codes of pages that are missing, which some sites answer with a new cookie each time."""


class Origin:
    """The settings shared by all files of one scheme, host and port: headers, proxy, cookies.

    ``headers`` are those of all origins with the same ``variant``: copy them before a change. ``site``: its
    key, with the host that is named to the server (-H Host); cookies go by it.

    ``proxy``: its URL, "" if there is none; ``forwarded``: the proxy forwards the requests instead of
    opening a tunnel. ``plain``: connections are a socket, or TLS on a socket, and not TLS within the TLS of
    a proxy. ``host``: its name or address. ``peer``: whom connections are opened to, with the port: it, or
    its proxy. ``has_extra_headers``: some requests have headers of their own. ``vain_cookies``: what
    its refusals change (``core.set_cookie.cookie_change``) without leaving a cookie: they delete one, or
    set one for others. ``serves``: the
    pipelined client, which sends no cookies, has got a file of it. ``vain_tries``: how
    often a file was refused in the end although it was requested with each cookie that came, by the code of
    the failure and whether that was one of another name; None before the first. ``lets_in``: one was not
    refused then.
    """

    __slots__ = (
        "_changes",
        "_cookies",
        "_sends_cookies",
        "forwarded",
        "has_extra_headers",
        "headers",
        "host",
        "key",
        "lets_in",
        "peer",
        "plain",
        "pool",
        "port",
        "proxies",
        "proxy",
        "serves",
        "site",
        "vain_cookies",
        "vain_tries",
        "variant",
    )

    def __init__(
        self,
        key: str,
        address: tuple[str, int],
        headers: HTTPHeaderDict,
        proxies: dict[str, str],
        variant: Hashable,
        cookies: Cookies,
    ) -> None:
        self.key = key
        self.variant = variant
        self.host, self.port = address
        self.headers = headers
        self.proxies = proxies
        self.proxy = (select_proxy(key, proxies) or "") if proxies else ""
        self.forwarded = bool(self.proxy) and key.startswith("http:")
        self.peer = _address_of(self.proxy) if self.proxy else address
        self.plain = self.forwarded or not self.proxy.lower().startswith("https:")
        self.site = _site_of(key, headers.get("Host", ""))
        self._cookies = cookies
        self._changes = 0
        self._sends_cookies = False
        self.pool: Any = None
        self.has_extra_headers = False
        self.serves = False
        self.vain_cookies: frozenset[str] = frozenset()
        self.lets_in = False
        self.vain_tries: Counter[tuple[str, bool]] | None = None

    def note_vain_tries(self, code: str, *, another_name: bool) -> None:
        """Note that a file was refused in the end, with ``code``; see ``vain_tries``."""
        if self.vain_tries is None:
            self.vain_tries = Counter()
        self.vain_tries[code, another_name] += 1

    def note_let_in(self) -> None:
        """Note that a file was let in with the cookie that came; what is missing stays so."""
        self.lets_in = True
        if self.vain_tries is not None:
            self.vain_tries = Counter(
                {tried: count for tried, count in self.vain_tries.items() if tried[0] in NOT_THERE}
            )

    def note_vain(self, changes: Iterable[str]) -> None:
        """Note that ``changes`` of cookies by a refusal have left none."""
        if len(self.vain_cookies) < _MAX_VAIN:
            self.vain_cookies |= set(changes)

    @property
    def sends_cookies(self) -> bool:
        """Whether there are cookies for it, from whatever host. Asked for each file."""
        changes = self._cookies.changes
        if changes != self._changes:
            self._changes = changes
            self._sends_cookies = self._cookies.are_for(self.site)
        return self._sends_cookies


def _address_of(proxy: str) -> tuple[str, int]:
    url = parse_url(proxy)
    return url.host or "", url.port or (443 if url.scheme == "https" else 80)


def _site_of(key: str, host_field: str) -> str:
    """Return ``key`` of an origin with the host of its Host field, "" if that is the usual one."""
    if host_field:
        key = f"{key.partition('://')[0]}://{host_field.lower()}"
    return key.replace(".:", ":")  # a host is the same without the dot at its end
