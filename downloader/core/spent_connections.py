"""Know the connections on which a host refuses what it grants on others.

A balancer ties each connection to one of its machines, of which one may be ill or about to end; some
servers count the requests of a connection. Requests that are refused there are granted on another one.
But a host that refuses most requests on all of its connections gains nothing by new ones.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Patience", "RefusalRun"]

_FEWEST: Final = 4
_MOST: Final = 256


class Patience:
    """How many refusals in a row show that a connection is spent, at one host.

    They are twice as many after each connection that was replaced without having served anything, and half
    as many after each one that has served its first request. A fourth of them is enough where a request is
    sent again.
    """

    __slots__ = ("refusals",)

    def __init__(self) -> None:
        self.refusals = _FEWEST

    def replaced(self, *, served: bool) -> None:
        """Record that a spent connection was closed; ``served``: it had served a request."""
        if not served:
            self.refusals = min(2 * self.refusals, _MOST)

    def began_well(self) -> None:
        """Record that a connection has served its first request."""
        self.refusals = max(self.refusals // 2, _FEWEST)


class RefusalRun:
    """The requests that were refused in a row on one connection, the first of them at ``since``.

    ``patience``: that with its host.
    """

    __slots__ = ("_patience", "count", "since")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.count = 0
        self.since = 0.0

    def refused(self, now: float) -> None:
        """Record a refusal."""
        if not self.count:
            self.since = now
        self.count += 1

    def ended(self) -> None:
        """Record a response that is no refusal."""
        self.count = 0

    def is_spent(self, served_at: float) -> bool:
        """Return whether the host, which last served a request at ``served_at``, does so elsewhere only."""
        return self.count >= self._patience.refusals and served_at > self.since

    def left(self, *, served: bool) -> None:
        """Record that its connection was left; ``served``: it had served a request."""
        if self.count:
            self._patience.replaced(served=served)

    @property
    def is_doubtful(self) -> bool:
        """Return whether what has been refused before is to be requested on another connection."""
        return self.count * _FEWEST >= self._patience.refusals
