"""Define the settings that all files of one origin share."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Hashable
from typing import Any

from requests.cookies import RequestsCookieJar
from requests.utils import select_proxy
from urllib3 import HTTPHeaderDict

__all__ = ["Origin"]


class _Cookies:
    """The cookies that all origins of one scheme, host and port share, whatever their credentials."""

    __slots__ = ("jar",)

    def __init__(self) -> None:
        self.jar: RequestsCookieJar | None = None


class Origin:
    """The settings shared by all files of one scheme, host and port: headers, proxy, cookies.

    ``headers`` are those of all origins with the same ``variant``: copy them before a change.

    ``proxy``: its URL, "" if there is none; ``forwarded``: the proxy forwards the requests instead of
    opening a tunnel. ``plain``: connections are a socket, or TLS on a socket, and not TLS within the TLS of
    a proxy. ``host``: its name or address. ``has_extra_headers``: some requests have headers of their own.
    """

    __slots__ = (
        "_cookies",
        "forwarded",
        "has_extra_headers",
        "headers",
        "host",
        "key",
        "plain",
        "pool",
        "port",
        "proxies",
        "proxy",
        "variant",
    )

    def __init__(
        self,
        key: str,
        address: tuple[str, int],
        headers: HTTPHeaderDict,
        proxies: dict[str, str],
        variant: Hashable,
    ) -> None:
        self.key = key
        self.variant = variant
        self.host, self.port = address
        self.headers = headers
        self.proxies = proxies
        self.proxy = (select_proxy(key, proxies) or "") if proxies else ""
        self.forwarded = bool(self.proxy) and key.startswith("http:")
        self.plain = self.forwarded or not self.proxy.lower().startswith("https:")
        self._cookies = _Cookies()
        self.pool: Any = None
        self.has_extra_headers = False

    @property
    def jar(self) -> RequestsCookieJar | None:
        """Its cookies, None until it sets one."""
        return self._cookies.jar

    def share_cookies(self, other: Origin) -> None:
        """Have the same cookies as ``other``, the same origin with other credentials, from now on."""
        self._cookies = other._cookies

    def use_cookies(self, jar: RequestsCookieJar) -> None:
        """Use ``jar`` here, and where cookies are shared."""
        self._cookies.jar = jar
