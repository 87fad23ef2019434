"""The order in which connections store what they have received: one portion per turn of the hub's loop.

Between two portions the sockets are read and more is requested, so servers work while the worker stores.
Storing everything that is ready at once would leave the servers without requests, and then the worker
without responses; and since such a pause synchronizes the connections, the next pause would follow.
``benchmarks/README.md`` has the measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gevent

__all__ = ["PORTION", "CommitQueue", "Committer"]

PORTION = 256
"""The number of responses after which the other committers wait for the next turn of the loop."""


class Committer(Protocol):
    """A connection that stores what it holds when the queue calls it."""

    def commit(self) -> int:
        """Store what is held and return the number of responses. It may enqueue itself again."""


class CommitQueue:
    """A first-in, first-out queue of committers. What ``commit`` raises goes to ``on_error``."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._queue: dict[Committer, None] = {}
        self._delayed: dict[Committer, Any] = {}
        self._timer: Any = None

    def enqueue(self, committer: Committer) -> None:
        """Append ``committer``, behind all others."""
        self.remove(committer)
        self._queue[committer] = None
        self._schedule()

    def enqueue_after(self, committer: Committer, seconds: float) -> None:
        """Append ``committer`` after so many seconds, unless it is queued or delayed already."""
        if committer not in self._delayed and committer not in self._queue:
            self._delayed[committer] = _timer(seconds, self.enqueue, committer)

    def remove(self, committer: Committer) -> None:
        """Take ``committer`` out of the queue and cancel its delay."""
        self._queue.pop(committer, None)
        if timer := self._delayed.pop(committer, None):
            timer.stop()
            timer.close()

    def commit_all(self) -> None:
        """Have all that are queued commit now."""
        for committer in list(self._queue):
            if committer in self._queue:  # another's commit may have removed it
                self._commit(committer)

    def _schedule(self) -> None:
        # By a timer: callbacks of the loop may be called many times before it looks at any socket.
        if self._timer is None and self._queue:
            self._timer = _timer(0, self._commit_portion)

    def _commit_portion(self) -> None:
        self._timer.close()
        self._timer = None
        left = PORTION
        while self._queue and left > 0:
            left -= self._commit(next(iter(self._queue)))
        self._schedule()

    def _commit(self, committer: Committer) -> int:
        self.remove(committer)
        try:
            return committer.commit()
        except Exception as error:
            self._on_error(error)
            return 0


def _timer(seconds: float, callback: Callable[..., None], *args: object) -> Any:
    loop = gevent.get_hub().loop
    timer = loop.timer(seconds, priority=loop.MINPRI)  # after the sockets that are ready
    # From now, not from when this turn of the loop began.
    timer.start(callback, *args, update=True)
    return timer
