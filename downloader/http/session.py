"""Configure the requests session, which defines headers, auth, proxies, TLS and connections.

There is one session per process. Unlike requests by default, it takes no proxies, netrc or CA bundle from
the environment, follows no redirects (and reads no redirect's body), and does not load the CA bundle again
for every connection. It returns urllib3's response, so that a body is
streamed and its length enforced.
"""

from __future__ import annotations

from typing import Any

from downloader.process import patching

patching.require()

import ssl
from base64 import b64encode
from functools import lru_cache, partial
from urllib.parse import urlsplit

import requests
import urllib3
from cachetools import LRUCache
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPHeaderDict

from downloader._version import VERSION
from downloader.config.config import Config
from downloader.core.netrc import login_for
from downloader.core.no_proxy import parse_no_proxy
from downloader.core.robots import product_token
from downloader.core.set_cookie import cookie_name
from downloader.core.urls import login_of, sent_url
from downloader.errors import FetchError
from downloader.http.connection_budget import ConnectionBudget
from downloader.http.connection_pool import UrllibConnection, pool_classes
from downloader.http.content_coding import accepted
from downloader.http.cookies import Cookies, change_of, changed_names, cookie_line, what_came
from downloader.http.dns import Resolver
from downloader.http.name_lookup import open_lookup
from downloader.http.origin import Origin
from downloader.http.tls_context import tls_context
from downloader.process.private_parts import tunnel_host, unopened_connection

__all__ = ["HttpSession"]

_ORIGINS = 8_000
_BARE = "bare "
_VARIANTS = 100
_PLACEHOLDER = "/-the-target-of-a-request-"
_HOST = b"\r\n-the-host-field-\r\n"
_DEFAULT_PORT = {"http": 80, "https": 443}


class HttpSession(requests.Session):
    """The session that ``config`` describes. ``budget`` limits its open connections.

    ``product_token``: the name of this crawler (``core.robots``), from the User-Agent that is sent.

    Raises ConfigError if the CA file or the client certificate cannot be used.
    """

    def __init__(self, config: Config) -> None:
        patching.secure_urllib3()
        super().__init__()
        self.trust_env = False
        self.config = config
        self.timeout = urllib3.Timeout(connect=config.connect_timeout, read=config.read_timeout)
        self.resolver = Resolver(partial(open_lookup, config), config.connect_timeout)
        self.kept_cookies = Cookies()
        self.budget = ConnectionBudget(config.max_connections, self.resolver)
        self.headers.clear()
        self.headers["User-Agent"] = config.user_agent or f"mass-downloader/{VERSION}"
        self.headers["Accept-Encoding"] = ", ".join(accepted()) if config.compressed else "identity"
        self.headers["Accept"] = "*/*"
        self.headers["Connection"] = "keep-alive"
        self._plain_headers = dict(self.headers)
        # Set by name, so that -H 'user-agent: …' replaces the default at the same position.
        for name, value in config.headers:
            self.headers[name] = value
        self.product_token = product_token(str(self.headers["User-Agent"]))
        adapter = _Adapter(self.budget, config)
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        self._adapter = adapter
        # In C, at half the size of cachetools' for an entry.
        self._origin = lru_cache(_ORIGINS)(self._parse_origin)
        # By what they depend on: an origin's fields are often those of another one.
        self._headers: LRUCache[Any, HTTPHeaderDict] = LRUCache(_VARIANTS)
        self._templates: LRUCache[Any, tuple[bytes, bytes]] = LRUCache(_VARIANTS)
        self._direct_pools: dict[str, Any] = {}
        self._no_proxy = parse_no_proxy(config.no_proxy)

    def origin(self, url: str, *, bare: bool = False) -> Origin:
        """Return the origin of ``url``; ``bare``: without credentials and -H headers that were given for
        others (after a redirect that changed the origin).

        Raises FetchError ``bad-url``.
        """
        # What stands before the path is all that matters, and it is that of most other URLs.
        start = url.find("/", 8)
        before_path = url[:start] if start > 0 else url
        return self._origin(f"{_BARE}{before_path}" if bare else before_path)

    def _parse_origin(self, spelling: str) -> Origin:
        """Return the origin of a URL that begins with ``spelling``; ``_BARE`` before it: see ``origin``."""
        bare = spelling.startswith(_BARE)
        url = spelling.removeprefix(_BARE)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise FetchError("bad-url", str(error)) from None
        scheme = parts.scheme.lower()
        if not host or scheme not in ("http", "https"):
            raise FetchError("bad-url", "not an http(s) URL")
        address = host, port or _DEFAULT_PORT[scheme]
        key = f"{scheme}://[{host}]:{address[1]}" if ":" in host else f"{scheme}://{host}:{address[1]}"
        # A URL with credentials gets a separate Origin, with its own headers.
        userinfo = "" if bare else parts.netloc.rpartition("@")[0]
        usual = key.removesuffix(f":{_DEFAULT_PORT[scheme]}").removeprefix(f"{scheme}://")
        usual = f"{_BARE if bare else ''}{scheme}://{userinfo}{'@' if userinfo else ''}{usual}"
        if usual != spelling:
            return self._origin(usual)
        return self._make_origin(key, address, url, bare, userinfo)

    def _make_origin(
        self, key: str, address: tuple[str, int], url: str, bare: bool, userinfo: str
    ) -> Origin:
        auth = self._login(url if userinfo else "", address[0], bare)
        variant = bare, auth
        headers = self._headers.get(variant)
        if headers is None:
            headers = self._headers[variant] = self._prepare_headers(bare, auth)
        proxies = self.config.proxies
        if proxies and self._no_proxy.covers(*address):
            proxies = {}
        return Origin(key, address, headers, proxies, variant, self.kept_cookies)

    def _prepare_headers(self, bare: bool, auth: tuple[str, str] | None) -> HTTPHeaderDict:
        """Return the header fields that requests sends to an origin."""
        # As bytes: requests encodes str as Latin-1, and raises UnicodeEncodeError for other text.
        encoded: Any = auth and tuple(part.encode("utf-8", "surrogateescape") for part in auth)
        saved = self.headers
        if bare:
            self.headers = CaseInsensitiveDict(self._plain_headers)
        try:
            prepared = self.prepare_request(requests.Request("GET", "http://host/", auth=encoded))
        finally:
            self.headers = saved
        headers = HTTPHeaderDict(prepared.headers)
        if not bare:
            # In requests, auth takes precedence over a header; here -H takes precedence.
            _add_given(headers, self.config.headers)
        return headers

    def _login(self, url: str, host: str, bare: bool) -> tuple[str, str] | None:
        """Return user and password for ``host``; ``url`` has its own, "" if it has none.

        A ``machine`` of a netrc is meant for its host, whatever leads there. Its ``default`` and
        --auth-file are for the hosts that the source names.
        """
        logins = self.config.files.logins if self.config.files else {}
        if not (logins or url):
            return None if bare else self.config.auth
        host = host.rstrip(".")
        if bare:
            return login_for(logins, host, default=False)
        given = login_of(url) if url else None
        if given is None:
            return self.config.auth or login_for(logins, host)
        user, password = given
        if password is None and (found := login_for(logins, host, user)) is not None:
            return found
        return user, password or ""

    def normal(self, url: str) -> str:
        """Return ``url`` as it is sent (``core.urls``). Raises FetchError ``bad-url``."""
        try:
            return sent_url(url)
        except ValueError as error:
            raise FetchError("bad-url", str(error)) from None

    def target(self, url: str) -> bytes:
        """Return the request target (path and query) of ``url``, a result of ``normal``."""
        start = url.find("/", 8)
        return url[start:].encode("ascii") if start > 0 else b"/"

    def place(self, url: str) -> tuple[Origin, bytes]:
        """Return the origin and the request target of ``url``, as ``origin`` and ``target`` do."""
        start = url.find("/", 8)
        if start < 0:
            return self._origin(url), b"/"
        return self._origin(url[:start]), url[start:].encode("ascii")

    def cookies_for(self, origin: Origin, url: str) -> str:
        """Return the cookies that servers have set for ``url``, of ``origin``, as one field."""
        return self.kept_cookies.header(_seen_url(origin, url)) if origin.sends_cookies else ""

    def note_cookies(self, refused: FetchError, origin: Origin, url: str, sent: str) -> None:
        """Note in ``refused`` whether there are other cookies by now than were ``sent``; see FetchError.

        The response has set them, or another one that came meanwhile.
        """
        if refused.answered:
            came = what_came(sent, self.cookies_for(origin, url))
            refused.cookie_came, refused.cookie_renewed = came
            refused.cookieless = not sent

    def get_file(
        self, url: str, origin: Origin, extra: tuple[tuple[str, str], ...] = (), cookies: str = ""
    ) -> Any:
        """GET ``url``, which belongs to ``origin``; return urllib3's response, its body unread.

        ``extra`` header fields replace those of the same name. ``cookies``: see ``cookies_for``. Raises
        what requests raises; ``http.exceptions`` translates that to FetchError.
        """
        request = requests.PreparedRequest()
        request.method = "GET"
        request.url = f"{origin.key}/"
        # requests passes them to urllib3, which can send several fields of one name.
        request.headers = origin.headers  # type: ignore[assignment]
        request.hooks = {"response": []}
        if extra:
            request.headers = origin.headers.copy()  # type: ignore[assignment]
            for name in {name.lower() for name, _ in extra}:
                request.headers.pop(name, None)
            for name, value in extra:
                request.headers.add(name, value)  # type: ignore[attr-defined]
        if cookies:
            request.headers = request.headers.copy()
            given = request.headers.getlist("Cookie")  # type: ignore[attr-defined]
            request.headers["Cookie"] = cookie_line(given, cookies)
        request._lane_origin = origin  # type: ignore[attr-defined]
        # urllib3 normalizes the URL that it is given, so the target is passed beside it.
        target, base = self.target(url).decode("ascii"), "/"
        if origin.forwarded:
            target, base = _shown_key(origin) + target, f"{origin.key}/"
        adapter = self._adapter
        response = adapter.get_connection_with_tls_context(request, True, origin.proxies).urlopen(
            "GET",
            base,
            headers=request.headers,
            redirect=False,
            assert_same_host=False,
            preload_content=False,
            decode_content=False,
            retries=adapter.max_retries,
            timeout=self.timeout,
            target=target,
        )
        if "Set-Cookie" in response.headers:
            lines = response.headers.getlist("Set-Cookie")
            if response.status >= 400 and (now := self.cookies_for(origin, url)) != cookies:
                # It answers a request of before: of a wall that gives several, another one is further.
                newer = changed_names(cookies, now)
                lines = [line for line in lines if cookie_name(line) not in newer]
            self.kept_cookies.take(_seen_url(origin, url), lines)
            if origin.sends_cookies:
                origin.vain_cookies = frozenset()  # another value of the same name may be kept as well
            elif response.status >= 400:
                origin.note_vain(map(change_of, lines))
        return response

    def try_elsewhere(self, key: str, since: float) -> None:
        """Open new connections to origin ``key``, down ``since`` then: another machine of it may be up.

        Behind a proxy, another machine of that may reach it.
        """
        if self.resolver.may_have_others(self._origin(key).peer[0]):
            self.renew_idle(key, since)

    def renew_idle(self, key: str, since: float) -> None:
        """Close idle connections to origin ``key``, which refuses all ``since`` then.

        Others may lead elsewhere. Those are kept that have served a request meanwhile.
        """
        self.budget.leave_idle(self._origin(key).peer, since)

    def sends_again(self, origin: Origin) -> None:
        """Close the idle connections to ``origin`` that refuse, before what was refused is sent again."""
        self.budget.leave_doubtful(origin.peer)

    def close_idle(self, key: str) -> None:
        """Close the idle connections to origin ``key``."""
        self.budget.close_idle(self._origin(key).peer)

    def template(self, origin: Origin) -> tuple[bytes, bytes]:
        """Return the bytes before and after the target in a GET that urllib3 sends to ``origin``."""
        if origin.proxy:
            return self._record_template(origin)
        # Between origins with the same fields only the Host field differs.
        scheme = origin.key.partition(":")[0]
        name = f"[{origin.host}]" if ":" in origin.host else origin.host.rstrip(".")
        port = "" if origin.port == _DEFAULT_PORT[scheme] else f":{origin.port}"
        host = f"\r\nHost: {name}{port}\r\n".encode()
        known = self._templates.get((scheme, origin.variant))
        if known is None:
            known = head, tail = self._record_template(origin)
            if tail.count(host) == 1:  # not with a -H Host
                self._templates[scheme, origin.variant] = head, tail.replace(host, _HOST)
            return known
        return known[0], known[1].replace(_HOST, host)

    def _record_template(self, origin: Origin) -> tuple[bytes, bytes]:
        connection, recorder = self.new_connection(origin), _Recorder()
        connection.sock = recorder
        target, headers = _PLACEHOLDER, origin.headers
        if origin.forwarded:
            target, headers = _shown_key(origin) + _PLACEHOLDER, headers.copy()
            headers.update(self._adapter.proxy_headers(origin.proxy))
        connection.request("GET", target, headers=headers)
        connection.sock = None
        head, _, tail = recorder.sent.partition(_PLACEHOLDER.encode())
        return head, tail

    def new_connection(self, origin: Origin) -> UrllibConnection:
        """Return a new urllib3 connection to ``origin``, not open yet; opening it counts it."""
        scheme = origin.key.partition(":")[0]
        pool = None if origin.proxy else self._direct_pools.get(scheme)
        if pool is None:
            request = requests.PreparedRequest()
            request.url = f"{origin.key}/"
            request._lane_origin = origin  # type: ignore[attr-defined]
            pool = self._adapter.get_connection_with_tls_context(request, True, origin.proxies)
        connection: UrllibConnection = unopened_connection(pool)
        connection.timeout = self.config.connect_timeout
        if not origin.proxy:
            # A pool of any host makes connections to all: nothing else differs, and a pool for each host
            # takes longer to make than a connection.
            self._direct_pools[scheme] = pool
            connection.host, connection.port = origin.host, origin.port
        elif not origin.forwarded:
            # As urllib3's pool does when it connects; the tunnel's host also determines the Host field.
            connection.set_tunnel(tunnel_host(pool), pool.port, pool.proxy_headers)
        return connection


class _Recorder:
    """A stand-in for a socket that records what is sent."""

    sent = b""

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing: no call waits."""

    def sendall(self, data: bytes) -> None:
        """Record ``data``."""
        self.sent += data


class _Adapter(HTTPAdapter):
    """An adapter with one TLS context, and with pools that share one budget.

    The context is created when it is first needed: reading the CA bundle takes a tenth of a process's
    start. Files that the user named are read at once, so that an error is reported before anything is
    fetched.
    """

    def __init__(self, budget: ConnectionBudget, config: Config) -> None:
        self._budget = budget
        self._config = config
        self._context: ssl.SSLContext | None = None
        most = config.max_connections
        super().__init__(pool_connections=most, pool_maxsize=most, pool_block=False)
        if config.cacert or config.cert:
            self._create_context()

    def _create_context(self) -> None:
        if self._context is None:
            self._context = tls_context(self._config)
            self.poolmanager.connection_pool_kw["ssl_context"] = self._context

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **kwargs: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, **kwargs)
        self._use_counted_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        known = proxy in self.proxy_manager
        proxies = super().proxy_manager_for(
            proxy, ssl_context=self._context, proxy_ssl_context=self._context, **kwargs
        )
        if not known:
            self._use_counted_pools(proxies)
        return proxies

    def _use_counted_pools(self, pools: urllib3.PoolManager) -> None:
        pools.pool_classes_by_scheme = pool_classes(self._budget)

    def get_connection_with_tls_context(
        self, request: Any, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        origin: Origin = request._lane_origin
        pool = origin.pool
        if pool is None or pool.pool is None:
            if origin.proxy or origin.key.startswith("https:"):
                self._create_context()
            verify = self._context is None or self._context.verify_mode is ssl.CERT_REQUIRED
            pool = super().get_connection_with_tls_context(request, verify, proxies, None)
            if not origin.proxy:
                origin.pool = pool
        return pool

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """Return the login of ``proxy`` as a header field. requests sends none without a password."""
        login = login_of(proxy)
        if login is None:
            return {}
        text = f"{login[0]}:{login[1] or ''}".encode("utf-8", "surrogateescape")
        return {"Proxy-Authorization": f"Basic {b64encode(text).decode('ascii')}"}


def _seen_url(origin: Origin, url: str) -> str:
    """Return ``url`` as its server sees it; http.cookiejar would take a login for a part of the host."""
    start = url.find("/", 8)
    return origin.site + url[start:] if start > 0 else f"{origin.site}/"


def _shown_key(origin: Origin) -> str:
    """Return the beginning of the URLs of ``origin`` in requests to a proxy."""
    return origin.key.removesuffix(":80")


def _add_given(headers: HTTPHeaderDict, given: tuple[tuple[str, str], ...]) -> None:
    """Let -H header fields replace the defaults of the same name.

    Two -H of the same name are two lines, except for Cookie, which may be one line only (RFC 6265 §5.4).
    """
    spelt: dict[str, str] = {}
    for name, value in given:
        first = spelt.get(name.lower())
        if first is None:
            headers[name] = value
            spelt[name.lower()] = name
        elif name.lower() == "cookie":
            headers[first] = f"{headers[first]}; {value}"
        else:
            headers.add(first, value)
