"""Define the settings that all files of one origin share."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Hashable  # noqa: E402
from typing import Any  # noqa: E402

from requests.cookies import RequestsCookieJar  # noqa: E402
from requests.utils import select_proxy  # noqa: E402
from urllib3 import HTTPHeaderDict  # noqa: E402

__all__ = ["Origin"]


class Origin:
    """The settings shared by all files of one scheme, host and port: headers, proxy, cookies.

    ``headers`` are those of all origins with the same ``variant``: copy them before a change.

    ``proxy``: its URL, "" if there is none; ``forwarded``: the proxy forwards the requests instead of
    opening a tunnel. ``plain``: connections are a socket, or TLS on a socket, and not TLS within the TLS of
    a proxy. ``host``: its name or address. ``has_extra_headers``: some requests have headers of their own.
    ``jar``: its cookies, None until it sets one; see ``share_cookies``.
    """

    __slots__ = (
        "forwarded",
        "has_extra_headers",
        "headers",
        "host",
        "jar",
        "key",
        "plain",
        "pool",
        "port",
        "proxies",
        "proxy",
        "twin",
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
        self.jar: RequestsCookieJar | None = None
        self.pool: Any = None
        self.has_extra_headers = False
        self.twin: Origin | None = None

    def share_cookies(self, other: Origin) -> None:
        """Have the same cookies as ``other``, the same origin with other credentials, from now on."""
        self.twin, other.twin = other, self
        self.jar = other.jar

    def use_cookies(self, jar: RequestsCookieJar) -> None:
        """Use ``jar`` here, and where cookies are shared."""
        self.jar = jar
        if self.twin is not None:
            self.twin.jar = jar
