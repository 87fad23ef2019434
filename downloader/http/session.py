"""Configure the requests session, which defines headers, auth, proxies, TLS and connections.

There is one session per process. Unlike requests by default, it takes no proxies, netrc or CA bundle from
the environment, follows no redirects (and reads no redirect's body), sends no cookie to another port, and
does not load the CA bundle again for every connection. It returns urllib3's response, so that a body is
streamed and its length enforced.
"""

from __future__ import annotations

from typing import Any

from downloader.process import patching

patching.require()

import ssl  # noqa: E402  (only in a patched process)
from urllib.parse import urlsplit  # noqa: E402

import requests  # noqa: E402
import urllib3  # noqa: E402
from cachetools import LRUCache  # noqa: E402
from certifi import where  # noqa: E402
from requests.adapters import HTTPAdapter  # noqa: E402
from requests.cookies import (  # noqa: E402
    RequestsCookieJar,
    extract_cookies_to_jar,
    get_cookie_header,
)
from requests.structures import CaseInsensitiveDict  # noqa: E402
from requests.utils import get_auth_from_url, select_proxy, should_bypass_proxies  # noqa: E402
from urllib3 import HTTPHeaderDict  # noqa: E402

from downloader._version import VERSION  # noqa: E402
from downloader.config.config import Config  # noqa: E402
from downloader.errors import FetchError  # noqa: E402
from downloader.http.client_tls import load_authorities, load_client_certificate  # noqa: E402
from downloader.http.connection_pool import Census, pool_classes  # noqa: E402
from downloader.http.dns import Resolver  # noqa: E402
from downloader.process.private_parts import tunnel_host, unopened_connection  # noqa: E402

__all__ = ["HttpSession", "Origin"]

patching.settle_urllib3()

_ORIGINS = 2_000
_TLS_SESSIONS = 2_000
_COOKIES = 100
_PLACEHOLDER = "/-the-target-of-a-request-"


class Origin:
    """The settings shared by all files of one scheme, host and port: headers, proxy, cookies.

    ``proxy``: its URL, "" if there is none; ``forwarded``: the proxy forwards the requests instead of
    opening a tunnel. ``plain``: connections are a socket, or TLS on a socket, and not TLS within the TLS of
    a proxy. ``host``: its name or address. ``has_extra_headers``: some requests have headers of their own.
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
        "proxies",
        "proxy",
    )

    def __init__(self, key: str, headers: HTTPHeaderDict, proxies: dict[str, str]) -> None:
        self.key = key
        self.host = urlsplit(key).hostname or ""
        self.headers = headers
        self.proxies = proxies
        self.proxy = select_proxy(key, proxies) or ""
        self.forwarded = bool(self.proxy) and key.startswith("http:")
        self.plain = self.forwarded or not self.proxy.lower().startswith("https:")
        self.jar: RequestsCookieJar | None = None
        self.pool: Any = None
        self.has_extra_headers = False


class HttpSession(requests.Session):
    """The session that ``config`` describes, with at most ``config.connections`` open connections.

    Raises ConfigError if the CA file or the client certificate cannot be used.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.trust_env = False
        self.config = config
        self.timeout = urllib3.Timeout(connect=config.connect_timeout, read=config.read_timeout)
        self.resolver = Resolver(config.connect_timeout)
        self.census = Census(config.connections, config.slots_per_host, self.resolver)
        self.headers.clear()
        self.headers["User-Agent"] = config.user_agent or f"mass-downloader/{VERSION}"
        self.headers["Accept-Encoding"] = "gzip, deflate" if config.compressed else "identity"
        self.headers["Accept"] = "*/*"
        self.headers["Connection"] = "keep-alive"
        self._plain_headers = dict(self.headers)
        # Set by name, so that -H 'user-agent: …' replaces the default at the same position.
        for name, value in config.headers:
            self.headers[name] = value
        adapter = _Adapter(self.census, config)
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        self._adapter = adapter
        self._origins: LRUCache[str, Origin] = LRUCache(_ORIGINS)

    def origin(self, url: str, *, bare: bool = False) -> Origin:
        """Return the origin of ``url``; ``bare``: without credentials and -H headers (after a redirect that
        changed the origin).

        Raises FetchError ``bad-url``.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise FetchError("bad-url", str(error)) from None
        scheme = parts.scheme.lower()
        if not host or scheme not in ("http", "https"):
            raise FetchError("bad-url", "not an http(s) URL")
        if ":" in host:
            host = f"[{host}]"
        key = f"{scheme}://{host}:{port or (443 if scheme == 'https' else 80)}"
        # A URL with credentials gets a separate Origin, with its own headers.
        userinfo = "" if bare else parts.netloc.rpartition("@")[0]
        slot = f"{'bare ' if bare else ''}{userinfo}@{key}"
        origin = self._origins.get(slot)
        if origin is None:
            origin = self._origins[slot] = self._make_origin(key, url, bare, userinfo)
        return origin

    def _make_origin(self, key: str, url: str, bare: bool, userinfo: str) -> Origin:
        if bare:
            saved = self.headers
            self.headers = CaseInsensitiveDict(self._plain_headers)
            try:
                prepared = self.prepare_request(requests.Request("GET", key + "/"))
            finally:
                self.headers = saved
        else:
            given = get_auth_from_url(url) if userinfo else self._auth_for(key)
            # As bytes: requests encodes str as Latin-1, and raises UnicodeEncodeError for other text.
            auth: Any = given and tuple(part.encode("utf-8", "surrogateescape") for part in given)
            prepared = self.prepare_request(requests.Request("GET", key + "/", auth=auth))
        proxies = self.config.proxies
        # no_proxy is never None: that would read the environment.
        if proxies and should_bypass_proxies(url, no_proxy=self.config.no_proxy):
            proxies = {}
        headers = HTTPHeaderDict(prepared.headers)
        if not bare:
            # In requests, auth takes precedence over a header; here -H takes precedence.
            _add_given(headers, self.config.headers)
        return Origin(key, headers, proxies)

    def _auth_for(self, key: str) -> tuple[str, str] | None:
        if self.config.auth:
            return self.config.auth
        logins = self.config.files.logins if self.config.files else {}
        return logins.get(urlsplit(key).hostname or "") or logins.get("default")

    def normal(self, url: str) -> str:
        """Return ``url`` as requests sends it: quoted, its host in ASCII. Raises what requests raises."""
        request = requests.PreparedRequest()
        request.prepare_url(url, None)
        return request.url or ""

    def target(self, url: str) -> bytes:
        """Return the request target (path and query) of ``url``, a result of ``normal``."""
        start = url.find("/", 8)
        target = url[start:] if start > 0 else "/"
        return target.partition("#")[0].encode("ascii")

    def get_file(self, url: str, origin: Origin, extra: tuple[tuple[str, str], ...] = ()) -> Any:
        """GET ``url``, which belongs to ``origin``; return urllib3's response, its body unread.

        ``extra`` header fields replace those of the same name. Raises what requests raises;
        ``http.exceptions`` translates that to FetchError.
        """
        request = requests.PreparedRequest()
        request.method = "GET"
        request.url = url
        # requests passes them to urllib3, which can send several fields of one name.
        request.headers = origin.headers  # type: ignore[assignment]
        request.hooks = {"response": []}
        if extra:
            request.headers = origin.headers.copy()  # type: ignore[assignment]
            for name in {name.lower() for name, _ in extra}:
                request.headers.pop(name, None)
            for name, value in extra:
                request.headers.add(name, value)  # type: ignore[attr-defined]
        if origin.jar is not None:
            cookie = get_cookie_header(origin.jar, request)  # type: ignore[no-untyped-call]
            if cookie and "Cookie" not in request.headers:
                request.headers = request.headers.copy()
                request.headers["Cookie"] = cookie
        request._lane_origin = origin  # type: ignore[attr-defined]
        response = self._adapter.send(
            request,
            stream=True,
            timeout=self.timeout,  # type: ignore[arg-type]  # requests accepts urllib3's Timeout
            proxies=origin.proxies,
        )
        if "Set-Cookie" in response.headers:
            self._keep_cookies(origin, request, response)
        return response

    def template(self, origin: Origin) -> tuple[bytes, bytes]:
        """Return the bytes before and after the target in a GET that urllib3 sends to ``origin``."""
        connection, recorder = self.new_connection(origin), _Recorder()
        connection.sock = recorder
        target, headers = _PLACEHOLDER, origin.headers
        if origin.forwarded:
            target, headers = origin.key.removesuffix(":80") + _PLACEHOLDER, headers.copy()
            headers.update(self._adapter.proxy_headers(origin.proxy))
        connection.request("GET", target, headers=headers)
        connection.sock = None
        head, _, tail = recorder.sent.partition(_PLACEHOLDER.encode())
        return head, tail

    def new_connection(self, origin: Origin) -> Any:
        """Return a new urllib3 connection to ``origin``, not open yet; opening it counts it."""
        request = requests.PreparedRequest()
        request.url = f"{origin.key}/"
        request._lane_origin = origin  # type: ignore[attr-defined]
        pool = self._adapter.get_connection_with_tls_context(request, True, origin.proxies)
        connection = unopened_connection(pool)
        connection.timeout = self.config.connect_timeout
        if origin.proxy and not origin.forwarded:
            # As urllib3's pool does when it connects; the tunnel's host also determines the Host field.
            connection.set_tunnel(tunnel_host(pool), pool.port, pool.proxy_headers)
        return connection

    def _keep_cookies(self, origin: Origin, request: requests.PreparedRequest, response: Any) -> None:
        if origin.jar is None or len(origin.jar) > _COOKIES:
            # A server that sets another cookie with each response must not fill the memory.
            origin.jar = RequestsCookieJar()
        extract_cookies_to_jar(origin.jar, request, response)  # type: ignore[no-untyped-call]


class _Recorder:
    """A stand-in for a socket that records what is sent."""

    sent = b""

    def settimeout(self, seconds: float | None) -> None:
        """Do nothing: no call waits."""

    def sendall(self, data: bytes) -> None:
        """Record ``data``."""
        self.sent += data


class _Adapter(HTTPAdapter):
    """An adapter with one TLS context, and with pools that share one census.

    The context is created when it is first needed: reading the CA bundle takes a tenth of a process's
    start. Files that the user named are read at once, so that an error is reported before anything is
    fetched.
    """

    def __init__(self, census: Census, config: Config) -> None:
        self._census = census
        self._config = config
        self._context: ssl.SSLContext | None = None
        super().__init__(
            pool_connections=census.limit, pool_maxsize=config.slots_per_host, pool_block=False
        )
        if config.cacert or config.cert:
            self._create_context()

    def _create_context(self) -> None:
        if self._context is None:
            self._context = _tls_context(self._config)
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
        pools.pool_classes_by_scheme = pool_classes(self._census)

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

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing: the context is complete. requests would look at the CA file for every request."""

    def build_response(self, req: Any, resp: Any) -> Any:
        """Return urllib3's response, so that its body can be streamed."""
        return resp


class _Context(ssl.SSLContext):
    """A TLS context that offers each server an earlier session for resumption.

    With a resumed session, the certificate is not sent and verified again (RFC 8446 §2.2). The server may
    refuse it.

    A session is offered as long as the server accepts it. Python copies a session through its encoded
    form, including the certificate, whenever one is read or set: 0.1 to 0.2 ms, a quarter of a handshake.
    Using a ticket more than once lets an observer link the connections to one client (RFC 8446 appendix
    C.4); the address of a downloader does so as well.
    """

    sessions: LRUCache[Any, ssl.SSLSession]

    def wrap_socket(self, sock: Any, *args: Any, **kwargs: Any) -> Any:
        """Do what the base class does, with the earlier session of this server."""
        kwargs["session"] = self.sessions.get((sock.getpeername(), kwargs.get("server_hostname")))
        return super().wrap_socket(sock, *args, **kwargs)

    def remember(self, sock: Any) -> None:
        """Store the TLS session of ``sock``, which has received data: with TLS 1.3 it comes with that."""
        if not sock.session_reused and (session := sock.session) is not None:
            self.sessions[sock.getpeername(), sock.server_hostname] = session


def _tls_context(config: Config) -> ssl.SSLContext:
    # Not create_default_context(), which lets the environment enable key logs.
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.sessions = LRUCache(_TLS_SESSIONS)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        if config.cacert:
            load_authorities(context, config)
        else:
            context.load_verify_locations(where())
    if config.cert:
        load_client_certificate(context, config)
    return context


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
