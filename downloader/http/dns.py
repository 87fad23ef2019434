"""Resolve host names: one look-up per name at a time, ahead of their use, cached.

gevent's resolver has ten threads for everything that a process does. The system's look-up of a dead name
takes up to half a minute, and urllib3's connect timeout does not cover it. So look-ups have threads of
their own, each name is looked up once for all that wait for it, and nobody waits longer than a timeout.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import _socket  # noqa: E402
import contextlib  # noqa: E402
import socket  # noqa: E402
from collections import deque  # noqa: E402
from time import monotonic  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from cachetools import TTLCache  # noqa: E402
from gevent.threadpool import ThreadPool  # noqa: E402

__all__ = ["NoAnswer", "Resolver"]

_THREADS = 64
_TTL = 60.0  # seconds
_MAX_NAMES = 10_000
_MAX_AHEAD = 48  # look-ups ahead of use at one time, so that some threads are left for names in use


class NoAnswer(socket.gaierror):
    """The name server did not answer within the timeout."""


class Resolver:
    """A resolver that waits at most ``timeout`` seconds for each look-up."""

    def __init__(self, timeout: float) -> None:
        hub: Any = gevent.get_hub()
        if not isinstance(hub.resolver, _Numeric):
            hub.resolver = _Numeric(hub.resolver)
        self._timeout = timeout
        self._known: TTLCache[str, list[str]] = TTLCache(_MAX_NAMES, _TTL, monotonic)
        self._pending: dict[str, gevent.Greenlet] = {}
        self._ahead: deque[str] = deque()
        self._threads: ThreadPool | None = None

    def addresses(self, host: str) -> list[str]:
        """Return the numeric addresses of ``host``, best first. Raises socket.gaierror, UnicodeError."""
        host = host.strip("[]")
        if (known := self._known.get(host)) is not None:
            return known
        if (numeric := _numeric(host)) is not None:
            return numeric
        pending = self._pending.get(host) or self._begin(host)
        pending.join(self._timeout)
        if not pending.ready():
            raise NoAnswer(socket.EAI_AGAIN, "the name server does not answer")
        found: list[str] | Exception = pending.value
        if isinstance(found, Exception):
            raise found
        return found

    def look_up_ahead(self, host: str) -> None:
        """Look up ``host`` in the background, since a request to it is queued."""
        host = host.strip("[]")
        if host in self._known or host in self._pending or _numeric(host) is not None:
            return
        if len(self._pending) < _MAX_AHEAD:
            self._begin(host)
        elif len(self._ahead) < _MAX_NAMES:
            self._ahead.append(host)

    def forget(self, host: str) -> None:
        """Drop ``host`` from the cache: no address works, so the next call looks it up again."""
        self._known.pop(host.strip("[]"), None)

    def _begin(self, host: str) -> gevent.Greenlet:
        pending = self._pending[host] = gevent.spawn(self._look_up, host)
        return pending

    def _look_up(self, host: str) -> list[str] | Exception:
        if self._threads is None:
            self._threads = ThreadPool(_THREADS)
        try:
            found: list[str] = self._threads.apply(_getaddrinfo, (host, 0))
        except Exception as error:
            return error
        finally:
            del self._pending[host]
            self._begin_next()
        self._known[host] = found
        return found

    def _begin_next(self) -> None:
        """Begin look-ups ahead of use for which there was no room."""
        while self._ahead and len(self._pending) < _MAX_AHEAD:
            host = self._ahead.popleft()
            if host not in self._pending and host not in self._known:
                self._begin(host)


class _Numeric:
    """A wrapper of gevent's resolver that resolves numeric addresses without a thread.

    urllib3 resolves the numeric address for each connection. A thread for that would cost as much as the
    rest of connecting.
    """

    def __init__(self, resolver: Any) -> None:
        self._resolver = resolver

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        """Do what the system's function of that name does."""
        numeric = flags | socket.AI_NUMERICHOST
        with contextlib.suppress(socket.gaierror):
            return list(_socket.getaddrinfo(host, port, family, type, proto, numeric))
        found: list[Any] = self._resolver.getaddrinfo(host, port, family, type, proto, flags)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resolver, name)


def _numeric(host: str) -> list[str] | None:
    """Return the addresses of ``host`` if it is an address itself, else None."""
    try:
        return _getaddrinfo(host, socket.AI_NUMERICHOST)
    except socket.gaierror:
        return None


def _getaddrinfo(host: str, flags: int) -> list[str]:
    # The system's own function: in a thread, gevent's would switch back to the hub.
    found = _socket.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, flags)
    return [str(address[0]) for *_, address in found]
