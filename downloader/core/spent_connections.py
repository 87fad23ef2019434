"""Know the connections on which a host refuses what it grants on others.

A balancer ties each connection to one of its machines, of which one may be ill or about to end; some
servers count the requests of a connection. Requests that are refused there are granted on another one.
But a host that refuses most requests on all of its connections gains nothing by new ones.

At the end of a job all connections may have had as many requests as they are granted. A file that is
refused on one after the other would have no attempt left. So once two were refused after as many requests,
idle ones that have had as many are left, too.
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

    Those do not count that were opened before the first one to their address was closed. Many are opened at
    once, to the machine that comes first, before it refuses any request; the next address may be that of a
    machine that serves.
    """

    __slots__ = ("_granted", "_same", "_vain", "refusals")

    def __init__(self) -> None:
        self.refusals = _FEWEST
        self._vain: dict[str, float] = {}  # when one was first closed that had served nothing, by address
        self._granted = 0  # requests before the refusals on the connection that was replaced last
        self._same = False  # and on the one before it

    def replaced(self, now: float, *, served: bool, granted: int, address: str, opened: float) -> None:
        """Record that a spent connection was closed, which was refused all after ``granted`` requests.

        ``served``: one of them was served. ``opened``: when it was, to ``address``.
        """
        self._same = granted == self._granted > 0
        self._granted = granted
        if served:
            return
        if opened > self._vain.setdefault(address, now):
            self.refusals = min(2 * self.refusals, _MOST)

    def began_well(self) -> None:
        """Record that a connection has served its first request."""
        self.refusals = max(self.refusals // 2, _FEWEST)

    def expects_refusal(self, answered: int) -> bool:
        """Return whether a connection with ``answered`` requests, the last of them granted, has had all.

        The two that were replaced last had as many.
        """
        return self._same and answered == self._granted


class RefusalRun:
    """The requests that were refused in a row on one connection, the first of them at ``since``.

    The connection was opened at ``opened``, to ``address``. ``patience``: that with its host.
    """

    __slots__ = ("_address", "_granted", "_opened", "_patience", "count", "since")

    def __init__(self, patience: Patience, address: str, opened: float) -> None:
        self._patience = patience
        self._address, self._opened = address, opened
        self.count = self._granted = 0
        self.since = 0.0

    def refused(self, now: float, answered: int) -> None:
        """Record a refusal, after ``answered`` requests on the connection."""
        if not self.count:
            self.since, self._granted = now, answered
        self.count += 1

    def ended(self) -> None:
        """Record a response that is no refusal."""
        self.count = 0

    def began_well(self) -> None:
        """Record that its connection has served its first request."""
        self._patience.began_well()

    def is_spent(self, served_at: float) -> bool:
        """Return whether the host, which last served a request at ``served_at``, does so elsewhere only."""
        return self.count >= self._patience.refusals and served_at > self.since

    def left(self, now: float, *, served: bool) -> None:
        """Record that its connection was left; ``served``: it had served a request."""
        if self.count:
            self._patience.replaced(
                now, served=served, granted=self._granted, address=self._address, opened=self._opened
            )

    def is_doubtful(self, answered: int) -> bool:
        """Return whether what has been refused before is to be requested on another connection.

        ``answered``: how many requests were, on this one.
        """
        if not self.count:
            return self._patience.expects_refusal(answered)
        return self.count * _FEWEST >= self._patience.refusals
