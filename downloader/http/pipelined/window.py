"""Record what a connection has sent and holds since it was last known to be in step."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from itertools import islice

from downloader.core.pipeline_window import is_long, rest_after, room_in_window
from downloader.errors import FetchError
from downloader.http.exceptions import IDLE_TIMEOUT
from downloader.http.pipelined.parser import Body
from downloader.http.pipelined.transport import SHORTEST_REST
from downloader.http.task import FetchTask, TaskBatch

__all__ = ["Window", "is_ordinary"]


class Window:
    """The counts of a window.

    ``sent``: requests; ``counted``: completed responses that ``count`` has seen; ``held_bytes``: their
    total size; ``slowest``: their longest latency in seconds; ``gap``: the longest time between two of
    them; ``began``: when several requests were in flight first; ``last_sent``: when the last one was sent,
    or the last several at once; ``shifted``: the size of a response differs
    from what the source states; ``failed``: a response is a failure, which may also mean that responses
    are shifted; ``limited``: one says that there were too many requests.
    """

    __slots__ = (
        *("began", "counted", "failed", "gap", "held_bytes"),
        *("last_sent", "limited", "sent", "shifted", "slowest"),
    )

    def __init__(self) -> None:
        self.began = self.last_sent = 0.0
        self.clear()

    def clear(self) -> None:
        """Reset the counts: the connection is in step."""
        self.sent = self.counted = self.held_bytes = 0
        self.slowest = self.gap = 0.0
        self.shifted = self.failed = self.limited = False

    def room(self, depth: int, most: int, most_bytes: int, unsent: int) -> int:
        """Return how many more requests fit in, of at most ``most`` with responses of ``most_bytes``.

        ``unsent``: requests that are about to be sent. After a failure, wait for what it means.
        """
        if self.failed or self.held_bytes >= most_bytes:
            return 0
        return room_in_window(depth, most, self.sent + unsent)

    def is_long(self, now: float) -> bool:
        """Return whether its responses have been held for long enough."""
        return is_long(now - self.began, self.slowest, self.gap)

    def rest(self, now: float) -> float:
        """Return how many seconds without data it takes from ``now`` to know that it is in step."""
        return rest_after(self.slowest, self.gap, now - self.last_sent, SHORTEST_REST)

    @property
    def answered_at(self) -> float:
        """When the last response may be expected, by those that have come."""
        return self.last_sent + self.slowest + self.gap

    def count(self, completed: list[tuple[FetchTask, Body]], now: float) -> int:
        """Record latency and size of the new responses in ``completed``; return how many are new."""
        size, fresh = 0, len(completed) - self.counted
        for task, body in islice(completed, self.counted, None):
            if type(body) is bytes or type(body) is bytearray:  # in one piece, or in several
                size += len(body)
                if task.promised and task.item.size not in (-1, len(body)):
                    self.shifted = True
            elif isinstance(body, FetchError):
                self.failed = True
                self.limited = self.limited or _is_limit(body)
        self.held_bytes += size
        first, last = completed[self.counted][0], completed[-1][0]
        if first.sent is last.sent and first.batch is last.batch:
            # Requests that were sent together are counted together.
            self._record_latency(now - last.sent, last.batch, fresh)
        else:
            for task, _ in islice(completed, self.counted, None):
                self._record_latency(now - task.sent, task.batch, 1)
        self.counted = len(completed)
        return fresh

    def count_recheck(self, now: float) -> None:
        """Take the time since ``last_sent`` for the longest latency, if it is longer.

        A response that was too many arrives at once, and the true one behind it as late as any.
        """
        self.slowest = max(self.slowest, now - self.last_sent)

    def _record_latency(self, latency: float, batch: TaskBatch, count: int) -> None:
        batch.latency.add(latency, count)
        if latency > self.slowest:
            self.slowest = latency


def is_ordinary(body: Body) -> bool:
    """Return whether a response is a file, or a refusal that says nothing but about its file."""
    if not isinstance(body, Exception):
        return True
    if not isinstance(body, FetchError) or not body.answered or body.code == IDLE_TIMEOUT:
        return False
    return not (_is_limit(body) or body.sets_cookie)


def _is_limit(refusal: FetchError) -> bool:
    """Return whether ``refusal`` says that there were too many requests."""
    return refusal.code == "http-429" or refusal.retry_after is not None
