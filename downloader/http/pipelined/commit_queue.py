"""Queue connections that store what they have received: one portion per iteration of the event loop.

Between two portions the sockets are read and more is requested, so servers work while the worker stores.
Storing everything that is ready at once would leave the servers without requests, and then the worker
without responses. Such a pause also synchronizes the connections, which causes the next pause.
``benchmarks/README.md`` has the measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import gevent

__all__ = ["PORTION", "CommitQueue", "Committer"]

PORTION = 256
"""Number of responses after which the other committers wait for the next iteration of the event loop."""


class Committer(Protocol):
    """A connection that stores its held responses when the queue calls it."""

    def commit(self) -> int:
        """Store the held responses and return their number. It may enqueue itself again."""


class CommitQueue:
    """A first-in, first-out queue of committers. Exceptions of ``commit`` are passed to ``on_error``."""

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
        """Append ``committer`` after ``seconds``, unless it is queued or delayed already."""
        if committer not in self._delayed and committer not in self._queue:
            self._delayed[committer] = _timer(seconds, self.enqueue, committer)

    def remove(self, committer: Committer) -> None:
        """Remove ``committer`` from the queue and cancel its delay."""
        self._queue.pop(committer, None)
        if timer := self._delayed.pop(committer, None):
            timer.stop()
            timer.close()

    def commit_all(self) -> None:
        """Let all queued committers commit now."""
        for committer in list(self._queue):
            if committer in self._queue:  # another's commit may have removed it
                self._commit(committer)

    def _schedule(self) -> None:
        # With a timer: the loop may run its callbacks many times before it polls the sockets.
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
    # The delay counts from now, not from the start of this iteration of the loop.
    timer.start(callback, *args, update=True)
    return timer
