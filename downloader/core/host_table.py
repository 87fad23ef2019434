"""Keep the state of each host of a worker, and share the requests in flight among them."""

from __future__ import annotations

from collections.abc import Iterable

from downloader.core.connection_limit import MANY_HOSTS, per_host
from downloader.core.host import Host

__all__ = ["HostTable"]

_FIRST_FULL = 8_000  # hosts
_MAX_IDLE = 2_000  # of them without work since the last were dropped
_SINGLE_START = 64  # from so many hosts on, a new one begins with one request


class HostTable:
    """The hosts by their keys. One may have ``per_host`` of the ``most`` requests in flight.

    If ``chosen`` is 0, ``per_host`` depends on ``most`` and on the number of hosts that had work.
    """

    def __init__(self, most: int, chosen: int) -> None:
        self._most = most
        self._chosen = chosen
        self._worked = 0
        self.per_host = per_host(chosen, most, 0)
        self._forget_at = _FIRST_FULL
        self._hosts: dict[str, Host] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def get(self, key: str) -> Host | None:
        """Return the state of host ``key``, None if there is none."""
        return self._hosts.get(key)

    def add(self, key: str) -> Host:
        """Return a new state of host ``key``."""
        # Where there are many, one that is dead must not take several slots to be found out.
        allowed = 1 if len(self._hosts) >= _SINGLE_START else self.per_host
        host = self._hosts[key] = Host(key, self.per_host, allowed)
        return host

    @property
    def full(self) -> bool:
        """Return whether hosts without work should be dropped before another one is added."""
        return len(self._hosts) >= self._forget_at

    def forget_idle(self, needed: Iterable[str]) -> None:
        """Drop the state of hosts without work, even if failing: a list may name many dead hosts.

        ``needed``: keys of hosts that will have work.
        """
        kept = set(needed)
        for key, host in list(self._hosts.items()):
            if not (host.queue or host.active or host.held or host.guests) and key not in kept:
                del self._hosts[key]
        self._forget_at = max(_FIRST_FULL, len(self._hosts) + _MAX_IDLE)

    def count(self, host: Host) -> list[Host]:
        """Count ``host`` as one that had work; return the hosts whose limit changed by that."""
        host.counted = True
        self._worked += 1
        return self._share() if self._worked == MANY_HOSTS else []

    @property
    def many(self) -> bool:
        """Return whether many hosts had work."""
        return self._worked >= MANY_HOSTS

    def resize(self, most: int) -> list[Host]:
        """Share ``most`` requests among the hosts; return the hosts whose limit changed by that."""
        self._most = most
        return self._share()

    def _share(self) -> list[Host]:
        limit = per_host(self._chosen, self._most, self._worked)
        if limit == self.per_host:
            return []
        self.per_host = limit
        for host in self._hosts.values():
            unlimited, host.limit = host.allowed == host.limit, limit
            host.allowed = limit if unlimited else min(host.allowed, limit)
        return list(self._hosts.values())

    @property
    def resting(self) -> list[Host]:
        """Return the hosts that are failing or paused and have jobs, or had."""
        return [host for host in self._hosts.values() if host.resting]
