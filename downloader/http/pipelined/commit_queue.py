"""Who stores next: of what has come in, a portion is stored in each turn of the hub's loop.

Between two portions the sockets are read and more is asked for, so the servers work while we store. Were
all stored at once that is ready, they would have nothing to do meanwhile, and we nothing while they begin
again; and since such a pause brings the connections into step with one another, the next would follow.
``benchmarks/README.md`` says what that costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gevent

__all__ = ["PORTION", "Taker", "Turns"]

PORTION = 256
"""So many answers at least are stored in a turn, where there are so many; then the next has to wait."""


class Taker(Protocol):
    """One that stores in its turn."""

    def turn(self) -> int:
        """Store what is held; how many answers that were. It may rest or stand in line again."""


class Turns:
    """A line of takers: first come, first served. What a turn raises goes to ``lost``."""

    def __init__(self, lost: Callable[[Exception], None]) -> None:
        self._lost = lost
        self._line: dict[Taker, None] = {}
        self._resting: dict[Taker, Any] = {}
        self._next: Any = None

    def stand(self, taker: Taker) -> None:
        """``taker`` stands in line, behind all others."""
        self.leave(taker)
        self._line[taker] = None
        self._call()

    def rest(self, taker: Taker, seconds: float) -> None:
        """``taker`` stands in line after so many seconds, or where it rests or stands already."""
        if taker not in self._resting and taker not in self._line:
            self._resting[taker] = _timer(seconds, self.stand, taker)

    def leave(self, taker: Taker) -> None:
        """``taker`` neither rests nor stands in line any more."""
        self._line.pop(taker, None)
        if timer := self._resting.pop(taker, None):
            timer.stop()
            timer.close()

    def take_all(self) -> None:
        """All who stand in line have their turn now."""
        for taker in list(self._line):
            if taker in self._line:  # it may have left during another's turn
                self._take(taker)

    def _call(self) -> None:
        # By a timer: callbacks of the loop may be called many times before it looks at any socket.
        if self._next is None and self._line:
            self._next = _timer(0, self._take_portion)

    def _take_portion(self) -> None:
        self._next.close()
        self._next = None
        left = PORTION
        while self._line and left > 0:
            left -= self._take(next(iter(self._line)))
        self._call()

    def _take(self, taker: Taker) -> int:
        self.leave(taker)
        try:
            return taker.turn()
        except Exception as error:
            self._lost(error)
            return 0


def _timer(seconds: float, ring: Callable[..., None], *args: object) -> Any:
    loop = gevent.get_hub().loop
    timer = loop.timer(seconds, priority=loop.MINPRI)  # what has come on sockets goes before
    # From now, not from when this turn of the loop began.
    timer.start(ring, *args, update=True)
    return timer
