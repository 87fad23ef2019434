"""Keep the cookies that servers set, by the rules of http.cookiejar, and say which hosts they go to.

What a server sets is read by ``core.set_cookie``. As with curl, and RFC 6265: a cookie is for the host
that set it, on any port, by http and https; with Domain also for the other hosts of that domain; with
Secure over TLS only, or to this machine. http.cookiejar looks at every domain it has for each request, so
a jar is made here of the few domains that a host belongs to.

There is no list of public suffixes. No cookie is for all hosts of a domain of one label, or of one like
``co.uk`` (``strict_domain`` of http.cookiejar). Where strangers share a longer domain, one of them can set
a cookie for the others; it learns nothing by that.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Iterable, Sequence
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from time import time
from typing import Any
from urllib.parse import urlsplit

import requests
from cachetools import LRUCache
from requests.cookies import MockRequest, create_cookie, get_cookie_header

from downloader.core.set_cookie import SetCookie, cookie_change, parse_set_cookie

__all__ = ["Cookies", "change_of", "changed_names", "cookie_line", "what_came"]

_PER_DOMAIN = 200
_LARGEST = 8 << 10  # of one cookie with its attributes; curl and browsers keep 4 KiB of name and value
_ROOM = 16 << 20  # for all
_OVERHEAD = 1 << 10  # of each cookie in memory
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")  # the spellings that curl takes for secure


class Cookies:
    """The cookies of a process, a bounded number of them: the domains used last.

    ``changes``: how often a domain got its first cookie or lost its last one.
    """

    def __init__(self) -> None:
        self._kept: LRUCache[str, tuple[Cookie, ...]] = LRUCache(_ROOM, _size)
        self._policy = _Policy()
        self.changes = 0

    def are_for(self, url: str) -> bool:
        """Return whether there are cookies that may have to be sent to the host of ``url``."""
        return any(domain in self._kept for domain in _domains(_host(url)))

    def header(self, url: str) -> str:
        """Return the value of the Cookie field of a request for ``url``, "" for none."""
        request = _request(url)
        domains = _domains(_host(url))
        jar = self._jar(domains)
        line = get_cookie_header(jar, request) or ""  # type: ignore[no-untyped-call]
        self._keep(domains, jar)  # without what has expired
        return str(line)

    def take(self, url: str, lines: Iterable[str]) -> None:
        """Keep or delete what a response for ``url`` sets by ``lines``, its Set-Cookie fields."""
        domains = _domains(_host(url))
        jar = self._jar(domains)
        request: Any = MockRequest(_request(url))
        now = int(time())
        for line in lines:
            found = parse_set_cookie(line, now) if len(line) <= _LARGEST else None
            if found is not None:
                jar.set_cookie_if_ok(_cookie(found, url), request)
        jar.clear_expired_cookies()
        self._keep(domains, jar)

    def _jar(self, domains: Iterable[str]) -> CookieJar:
        """Return a jar with the cookies of ``domains`` only: a server can delete all that is in its jar."""
        jar = CookieJar(self._policy)
        for domain in domains:
            for cookie in self._kept.get(domain, ()):
                jar.set_cookie(cookie)
        return jar

    def _keep(self, domains: Iterable[str], jar: CookieJar) -> None:
        found: dict[str, list[Cookie]] = {}
        for cookie in jar:
            found.setdefault(cookie.domain, []).append(cookie)
        for domain in domains:
            cookies = found.get(domain, [])
            if (domain in self._kept) != bool(cookies):
                self.changes += 1
            # A server that sets another one with each response must not fill the memory.
            last = tuple(cookies[-_PER_DOMAIN:])
            if not last:
                self._kept.pop(domain, None)
            elif last != self._kept.get(domain):
                self._kept[domain] = last


class _Policy(DefaultCookiePolicy):
    """The policy of http.cookiejar, without cookies for a suffix, or for a part of an address."""

    def __init__(self) -> None:
        # Without Domain, a cookie is not for the hosts below.
        super().__init__(strict_domain=True, strict_ns_domain=self.DomainStrictNonDomain)

    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        if cookie.domain_specified and (
            _is_alone(_host(request.get_full_url())) or "." not in cookie.domain.lstrip(".")
        ):
            return False
        return super().set_ok(cookie, request)

    def return_ok_secure(self, cookie: Cookie, request: Any) -> bool:
        """Return whether what ``cookie`` says of Secure allows ``request``; nobody listens on loopback."""
        return _host(request.get_full_url()) in _LOOPBACK or super().return_ok_secure(cookie, request)

    def path_return_ok(self, path: str, request: Any) -> bool:
        """Return whether a cookie for ``path`` is for ``request``: RFC 6265 §5.1.4."""
        at = urlsplit(request.get_full_url()).path or "/"
        return at == path or (at.startswith(path) and (path.endswith("/") or at[len(path)] == "/"))


def cookie_line(given: Sequence[str], kept: str) -> str:
    """Return one Cookie field of those that the user gave and of ``kept``, which servers have set.

    One of the user's is left out where a server has set another of that name.
    """
    names = {_name(each) for each in kept.split(";")}
    pairs = [pair.strip() for line in given for pair in line.split(";")]
    return "; ".join([*(pair for pair in pairs if pair and _name(pair) not in names), kept])


def what_came(sent: str, kept: str) -> tuple[bool, bool]:
    """Return what is in ``kept`` beside ``sent``, values of a Cookie field: another name, any change."""
    if sent == kept:
        return False, False
    before, now = _pairs(sent), _pairs(kept)
    return bool(set(map(_name, now)).difference(map(_name, before))), before != now


def change_of(line: str) -> str:
    """See ``core.set_cookie.cookie_change``, of a line that is received now."""
    return cookie_change(line, int(time()))


def changed_names(sent: str, kept: str) -> set[str]:
    """Return the names of the cookies that are in ``kept`` only, or in both with different values."""
    return set(map(_name, _pairs(kept) - _pairs(sent)))


def _pairs(line: str) -> set[str]:
    return {pair.strip() for pair in line.split(";") if pair}


def _cookie(found: SetCookie, url: str) -> Cookie:
    """Return ``found``, of a response for ``url``, as http.cookiejar would make it."""
    host, domain, path = _host(url), found.domain, found.path
    if host == domain and _is_alone(host):
        domain = ""  # RFC 6265 §5.3: as without Domain
    if not path:
        path = urlsplit(url).path.rpartition("/")[0] or "/"
    cookie: Cookie = create_cookie(  # type: ignore[no-untyped-call]
        found.name,
        found.value,
        domain=f".{domain}" if domain else _effective(host),
        path=path,
        secure=found.secure,
        expires=found.expires,
    )
    cookie.domain_specified = bool(domain)
    return cookie


def _name(pair: str) -> str:
    return pair.partition("=")[0].strip()


def _request(url: str) -> requests.PreparedRequest:
    request = requests.PreparedRequest()
    request.method, request.url = "GET", url
    request.headers = {}  # type: ignore[assignment]
    return request


def _host(url: str) -> str:
    """Return the host of ``url`` (in lower case, without a login), an address with its brackets."""
    host = urlsplit(url).netloc
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _domains(host: str) -> list[str]:
    """Return the domains whose cookies may be for ``host``, as http.cookiejar spells them."""
    if _is_alone(host):
        return [_effective(host)]
    labels = host.split(".")
    return [host, *(f".{'.'.join(labels[n:])}" for n in range(len(labels) - 1))]


def _effective(host: str) -> str:
    """Return what http.cookiejar takes for the domain of ``host``."""
    return host if "." in host else f"{host}.local"


def _is_alone(host: str) -> bool:
    """Return whether ``host`` shares no domain with others: an address, or a name of one label."""
    return "." not in host or host.endswith("]") or host.rpartition(".")[2].isdigit()


def _size(cookies: tuple[Cookie, ...]) -> int:
    return sum(len(repr(cookie)) + _OVERHEAD for cookie in cookies)
