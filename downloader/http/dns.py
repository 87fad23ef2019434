"""Names to addresses: one look-up of a name at a time, remembered, in threads of its own.

gevent's resolver has ten threads for all that a process does, the system's look-up of a dead name
takes up to half a minute, and urllib3's connect timeout does not cover it.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import _socket  # noqa: E402
import contextlib  # noqa: E402
import socket  # noqa: E402
from time import monotonic  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402
from gevent.threadpool import ThreadPool  # noqa: E402

__all__ = ["Resolver"]

_THREADS = 64
_REMEMBERED = 60.0
_NAMES = 10_000


class Resolver:
    """Looks names up, each for at most ``timeout`` seconds."""

    def __init__(self, timeout: float) -> None:
        hub: Any = gevent.get_hub()
        if not isinstance(hub.resolver, _Numeric):
            hub.resolver = _Numeric(hub.resolver)
        self._timeout = timeout
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._asked: dict[str, gevent.Greenlet] = {}
        self._threads: ThreadPool | None = None

    def addresses(self, host: str) -> list[str]:
        """The numeric addresses of ``host``, best first. Raises socket.gaierror, UnicodeError."""
        host = host.strip("[]")
        known = self._known.get(host)
        if known is not None and known[0] > monotonic():
            return known[1]
        try:
            return _ask(host, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        asked = self._asked.get(host)
        if asked is None:
            asked = self._asked[host] = gevent.spawn(self._look_up, host)
        asked.join(self._timeout)
        if not asked.ready():
            raise socket.gaierror(socket.EAI_AGAIN, "the name server does not answer")
        found: list[str] | Exception = asked.value
        if isinstance(found, Exception):
            raise found
        return found

    def forget(self, host: str) -> None:
        """None of its addresses works; ask again next time."""
        self._known.pop(host.strip("[]"), None)

    def _look_up(self, host: str) -> list[str] | Exception:
        if self._threads is None:
            self._threads = ThreadPool(_THREADS)
        try:
            found: list[str] = self._threads.apply(_ask, (host, 0))
        except Exception as error:
            return error
        finally:
            del self._asked[host]
        if len(self._known) >= _NAMES:
            self._known.clear()
        self._known[host] = (monotonic() + _REMEMBERED, found)
        return found


class _Numeric:
    """In front of gevent's resolver. urllib3 asks for the address of an address, for each connection: that
    needs no thread, which costs as much as all the rest of connecting."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        """As the system's function of that name."""
        numeric = flags | socket.AI_NUMERICHOST
        with contextlib.suppress(socket.gaierror):
            return list(_socket.getaddrinfo(host, port, family, type, proto, numeric))
        found: list[Any] = self._behind.getaddrinfo(host, port, family, type, proto, flags)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


def _ask(host: str, flags: int) -> list[str]:
    # The system's own function: in a thread gevent's would come back to the hub.
    found = _socket.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, flags)
    return [str(address[0]) for *_, address in found]
