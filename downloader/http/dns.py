"""Resolve host names: one look-up per name at a time, ahead of their use, cached.

The look-up of a dead name takes up to half a minute, and urllib3's connect timeout does not cover it. So
each name is looked up once for all that wait for it, nobody waits longer than a timeout once that has
begun, and look-ups do not go through gevent's resolver, which has ten threads for everything that a process
does.

A name may get another address while a run goes on, when its machine fails (failover). So a name of which no
address works is looked up again, ever more rarely while the answer stays the same: a list may name many
dead hosts.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import socket
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from time import monotonic

import gevent
from gevent.lock import BoundedSemaphore

from downloader.http.name_lookup import Lookup, NoAnswer, numeric

__all__ = ["Resolver"]

_MAX_AGE = 60.0  # seconds
# Seconds before a name is looked up again because no address of it works: at first, and at most. c-ares
# answers from what it knows while that is valid, so a name server sees no more queries than the TTL allows.
_MIN_AGE, _MOST_PATIENCE = 1.0, 30.0
_MAX_NAMES = 8_000
_DROPPED = _MAX_NAMES // 10  # at a time
# Names that are looked up and not needed yet. With more, addresses would have expired when they are needed,
# if the servers are slow.
_MAX_UNUSED = 2_048
_SPARE = 4  # one in so many look-ups is kept free for names that are needed at once


@dataclass(slots=True)
class _Known:
    """The ``addresses`` of a name (none if there is no such name), and when they were looked up.

    ``failed``: none of them works, so the next call looks the name up again. It does not come to that for
    ``patience`` seconds after a look-up.
    """

    addresses: list[str]
    since: float
    patience: float = _MIN_AGE
    failed: bool = False


class Resolver:
    """A resolver that waits at most ``timeout`` seconds for each look-up, once that has begun.

    ``open_lookup`` is called when the first name is looked up.
    """

    def __init__(self, open_lookup: Callable[[], Lookup], timeout: float) -> None:
        self._open_lookup = open_lookup
        self._timeout = timeout
        # In the order of their look-ups. Not by last use: names that were looked up ahead would be dropped
        # before they are used.
        self._known: dict[str, _Known] = {}
        self._unused: set[str] = set()
        self._pending: dict[str, gevent.Greenlet] = {}
        self._asked: set[str] = set()  # of those that are pending: others wait for their turn
        self._ahead: OrderedDict[str, None] = OrderedDict()

    def addresses(self, host: str) -> list[str]:
        """Return the numeric addresses of ``host``, best first. Raises socket.gaierror, UnicodeError."""
        host = host.strip("[]")
        if (known := self._find(host)) is not None:
            self._use(host)
            if not known:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return known
        if (address := numeric(host)) is not None:
            return address
        pending = self._pending.get(host) or self._begin(host)
        while not pending.ready():
            has_begun = host in self._asked
            pending.join(self._timeout)
            if has_begun:
                break
        self._use(host)
        if not pending.ready():
            raise NoAnswer(socket.EAI_AGAIN, "the name server does not answer")
        found: list[str] | Exception = pending.value
        if isinstance(found, Exception):
            raise found
        return found

    def look_up_ahead(self, host: str) -> None:
        """Look up ``host`` in the background, since a request to it is queued."""
        host = host.strip("[]")
        if host in self._ahead or host in self._pending or len(self._ahead) >= _MAX_NAMES:
            return
        known = self._known.get(host)
        if known is not None and known.failed:
            return  # it may be given up before it is used, and would take the room of others
        if self._find(host) is None and numeric(host) is None:
            self._ahead[host] = None
            self._begin_next()

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
        """Let the next call look ``host`` up again, since no address works; not if it was looked up lately.

        Otherwise each retry at a dead host would ask the name server again, for the same answer.
        """
        known = self._known.get(host.strip("[]"))
        if known is not None and monotonic() >= known.since + known.patience:
            known.failed = True

    def try_others(self, host: str, address: str) -> None:
        """Put ``address``, at which a connection failed, behind the others of ``host``.

        Several machines may be behind a name, of which one answers nothing, or with errors only. Without
        this every retry would go to the same machine. There may be further ones by now.
        """
        known = self._known.get(host.strip("[]"))
        # Also one that is not the first: what stands before it refuses at once, and is passed by.
        if known is not None and address in known.addresses:
            known.addresses = [each for each in known.addresses if each != address] + [address]
        self.forget(host)

    def may_have_others(self, host: str) -> bool:
        """Return whether a new connection to ``host`` may lead to another machine than those before it."""
        known = self._known.get(host.strip("[]"))
        if known is None:
            return False
        return len(known.addresses) > 1 or known.failed or monotonic() >= known.since + known.patience

    def has_others(self, host: str, tried: Collection[str]) -> bool:
        """Return whether ``host`` has an address that was not ``tried``.

        Looks the name up again if it has none, and that was not done lately. Raises socket.gaierror if
        there is no such name any more.
        """
        found = self._find(host.strip("[]"))
        if not found or all(address in tried for address in found):
            self.forget(host)
            found = self.addresses(host)
        return any(address not in tried for address in found)

    def _find(self, host: str) -> list[str] | None:
        """Return the addresses of ``host`` if they are known, or that there are none."""
        known = self._known.get(host)
        if known is None or known.failed or monotonic() >= known.since + _MAX_AGE:
            return None
        return known.addresses

    def _use(self, host: str) -> None:
        if host in self._unused:
            self._unused.remove(host)
            self._begin_next()

    def _begin(self, host: str) -> gevent.Greenlet:
        self._ahead.pop(host, None)
        pending = self._pending[host] = gevent.spawn(self._look_up, host)
        return pending

    def _look_up(self, host: str) -> list[str] | Exception:
        try:
            with self._slots:
                self._asked.add(host)
                found = self._lookup.addresses(host)
        except Exception as error:
            self._unused.discard(host)
            known = self._known.get(host)
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
                found = []
            elif known is not None and known.failed:
                # The name server may be down, too; the host may come back (RFC 8767).
                found = known.addresses
            else:
                return error
            self._keep(host, found)
            return found or error
        finally:
            self._asked.discard(host)
            del self._pending[host]
            self._begin_next()
        self._keep(host, found)
        return self._known[host].addresses

    def _keep(self, host: str, found: list[str]) -> None:
        before, now = self._known.pop(host, None), monotonic()
        known = self._known[host] = _Known(found, now)
        if before is not None and before.failed:
            # New ones first, and those that have failed last, which went behind the others.
            old = [each for each in before.addresses if each in found]
            known.addresses = [each for each in found if each not in old] + old
            if len(old) == len(found):
                known.patience = min(before.patience * 2, _MOST_PATIENCE)
        if len(self._known) > _MAX_NAMES:
            kept = dict(islice(self._known.items(), _DROPPED, None))
            self._unused &= kept.keys()
            self._known = kept

    def _begin_next(self) -> None:
        """Begin look-ups ahead of use, as many as there is room for."""
        room = min(self._most_ahead - len(self._pending), _MAX_UNUSED - len(self._unused))
        for _ in range(min(room, len(self._ahead))):
            host, _ = self._ahead.popitem(last=False)
            self._unused.add(host)
            self._begin(host)
