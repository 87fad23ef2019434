"""Choose which TLS sessions are worth keeping."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["SessionBudget"]

_SERVERS = 5_000
_FIRST_READS = 200
_SECONDS_A_READ = 10.0


class SessionBudget:
    """Decides whether the session of a new connection is read, to resume it with a later connection.

    Reading a session costs a quarter of a handshake, and with Python before 3.12.8 and 3.13.1 it leaks the
    session, 6 kB (CPython issue 116810). So a session is read from the second connection to a server on,
    and after ``_FIRST_READS`` sessions one more in ``_SECONDS_A_READ``: a server that never resumes one
    must not fill the memory. The time (seconds, monotonic) is passed in.
    """

    def __init__(self, now: float) -> None:
        self._began = now
        self._reads = 0
        # By hash, in two generations: a tenth of the memory of the servers themselves.
        self._servers: set[int] = set()
        self._earlier: set[int] = set()

    def allows(self, server: Hashable, now: float) -> bool:
        """Return whether to read the session of ``server``, which has made a full handshake."""
        known = hash(server)
        if known not in self._servers:
            if len(self._servers) >= _SERVERS:
                self._servers, self._earlier = set(), self._servers
            self._servers.add(known)
            if known not in self._earlier:
                return False
        if self._reads >= _FIRST_READS + (now - self._began) / _SECONDS_A_READ:
            return False
        self._reads += 1
        return True
