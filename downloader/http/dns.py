"""Resolve host names: one look-up per name at a time, ahead of their use, cached.

The look-up of a dead name takes up to half a minute, and urllib3's connect timeout does not cover it. So
each name is looked up once for all that wait for it, nobody waits longer than a timeout, and look-ups do
not go through gevent's resolver, which has ten threads for everything that a process does.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import socket  # noqa: E402
from collections import deque  # noqa: E402
from collections.abc import Callable  # noqa: E402
from functools import cached_property  # noqa: E402
from time import monotonic  # noqa: E402

import gevent  # noqa: E402
from cachetools import TTLCache  # noqa: E402
from gevent.lock import BoundedSemaphore  # noqa: E402

from downloader.http.name_lookup import Lookup, NoAnswer, numeric  # noqa: E402

__all__ = ["Resolver"]

_TTL = 60.0  # seconds
_MAX_NAMES = 10_000
_SPARE = 4  # one in so many look-ups is kept free for names that are needed at once


class Resolver:
    """A resolver that waits at most ``timeout`` seconds for each look-up.

    ``open_lookup`` is called when the first name is looked up.
    """

    def __init__(self, open_lookup: Callable[[], Lookup], timeout: float) -> None:
        self._open_lookup = open_lookup
        self._timeout = timeout
        self._known: TTLCache[str, list[str]] = TTLCache(_MAX_NAMES, _TTL, monotonic)
        self._pending: dict[str, gevent.Greenlet] = {}
        self._ahead: deque[str] = deque()

    def addresses(self, host: str) -> list[str]:
        """Return the numeric addresses of ``host``, best first. Raises socket.gaierror, UnicodeError."""
        host = host.strip("[]")
        if (known := self._known.get(host)) is not None:
            return known
        if (address := numeric(host)) is not None:
            return address
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
        if host in self._known or host in self._pending or numeric(host) is not None:
            return
        if len(self._pending) < self._most_ahead:
            self._begin(host)
        elif len(self._ahead) < _MAX_NAMES:
            self._ahead.append(host)

    @cached_property
    def _lookup(self) -> Lookup:
        return self._open_lookup()

    @cached_property
    def _slots(self) -> BoundedSemaphore:
        return BoundedSemaphore(self._lookup.most)

    @cached_property
    def _most_ahead(self) -> int:
        return self._lookup.most - self._lookup.most // _SPARE

    def forget(self, host: str) -> None:
        """Drop ``host`` from the cache: no address works, so the next call looks it up again."""
        self._known.pop(host.strip("[]"), None)

    def _begin(self, host: str) -> gevent.Greenlet:
        pending = self._pending[host] = gevent.spawn(self._look_up, host)
        return pending

    def _look_up(self, host: str) -> list[str] | Exception:
        try:
            with self._slots:
                found = self._lookup.addresses(host)
        except Exception as error:
            return error
        finally:
            del self._pending[host]
            self._begin_next()
        self._known[host] = found
        return found

    def _begin_next(self) -> None:
        """Begin look-ups ahead of use for which there was no room."""
        while self._ahead and len(self._pending) < self._most_ahead:
            host = self._ahead.popleft()
            if host not in self._pending and host not in self._known:
                self._begin(host)
