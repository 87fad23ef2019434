"""Check for one origin that its responses come in the order of the requests; see ``core.pipeline_order``.

A check is a window of one connection, the prober. Its responses are not stored: the tasks are sent again,
one at a time, by whichever connections of the origin have nothing in flight, and what comes then is stored,
and compared. Meanwhile other connections keep to the depth that is proven.

Windows whose bodies are all the same need no check. As long as there are no others, all connections may
have the depth that is wanted, and each window is looked at.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Sequence  # noqa: E402
from dataclasses import replace  # noqa: E402

from downloader.core.checksum import crc32  # noqa: E402
from downloader.core.pipeline_depth import DEEPEST  # noqa: E402
from downloader.core.pipeline_order import (  # noqa: E402
    OUT_OF_ORDER,
    Answer,
    Order,
    answered,
    check_depth,
    check_size,
    contradicted,
    due,
    stored,
)
from downloader.errors import FetchError  # noqa: E402
from downloader.http.pipelined.parser import Body  # noqa: E402
from downloader.http.task import FetchTask  # noqa: E402

__all__ = ["OrderCheck", "same"]

# Refusals that mean the file that was requested. Others come and go.
_REFUSALS = frozenset({"http-401", "http-403", "http-404", "http-410", "http-451"})
_REFUSED = -1
_NEW = Order()
_MIXED = -1  # there was a window with different bodies


class OrderCheck:
    """The order of an origin's responses, and the check that is under way.

    ``wanted``: the depth that the origin is to have; ``depth``: that of the check. ``limit``: the depth
    that connections may have, except ``prober``. ``again``: tasks to be sent alone. ``open``: a connection
    without requests has something to do here: send one of these, or begin a check. ``files``: number of
    files stored from windows that only earlier checks speak for.
    """

    __slots__ = (
        *("_alike", "_depth", "_expected", "_pairs"),
        *("again", "depth", "files", "limit", "open", "order", "prober", "wanted"),
    )

    def __init__(self, wanted: int) -> None:
        self.order = _NEW
        self.limit, self.wanted = 1, wanted
        self.prober: object = None
        self.again: list[FetchTask] = []  # not a deque, which takes 620 bytes for each of many origins
        self.files = 0
        self._expected: dict[FetchTask, Answer | None] = {}
        self._pairs: list[tuple[Answer, Answer]] = []
        self._depth = self._alike = 0
        self.depth = 1
        self.open = False
        self._review()

    def _review(self) -> None:
        self.open = bool(self.again) or (
            self.prober is None and not self._expected and due(self.order, self.wanted)
        )

    def want(self, depth: int) -> None:
        """Set the depth that the origin is to have, and begin a check if one is due."""
        self.wanted = depth
        if depth == 1:
            self.depth = 1
        self._review()

    @property
    def unproven(self) -> bool:
        """Return whether connections have to wait until the depth that is wanted is proven."""
        return self.wanted > self.limit

    def offer(self, connection: object, most: int, latency: float) -> None:
        """Let ``connection``, which has nothing in flight, be the prober if a check is due.

        ``most``: the greatest depth that the origin may have; ``latency``: of the last response (seconds).
        """
        if self.open and not self.again:
            self.prober = connection
            self.depth = check_depth(self.order, self.wanted, most, latency)
            self.open = False

    def release(self, connection: object) -> None:
        """Let another connection be the prober if ``connection`` is."""
        if self.prober is connection:
            self.prober = None
            self._review()

    @property
    def size(self) -> int:
        """The number of requests in the window of the prober, at most."""
        return check_size(self.order, self.depth)

    def size_within(self, left: int) -> int:
        """Return the same where the server may close after ``left`` more responses; 0: where it will not.

        Half of these are for the window, so that one connection can send its tasks again, too. Those that
        are left over when an origin has no connection are not compared.
        """
        return min(self.size, max(left // 2, 1)) if left else self.size

    @property
    def busy(self) -> bool:
        """Return whether the responses of a window are being compared."""
        return bool(self._expected)

    def must_check(self, connection: object, depth: int) -> bool:
        """Return whether a window of ``connection`` with ``depth`` must not be stored as it is."""
        return self.prober is connection or depth > self.order.proven

    def stored(self, count: int) -> None:
        """Record that a window with ``count`` responses is stored."""
        self.files += count
        self.order = order = stored(self.order)
        if order.windows >= order.again:
            self._review()

    def distrust(self) -> None:
        """Store no more windows that a check would be due for: the responses are out of order."""
        if self.order.proven:
            self.order = replace(self.order, proven=0, why=OUT_OF_ORDER)
        self.limit = 1
        self._review()

    def contradicted(self) -> None:
        """Check soon, since a response is not what the source states."""
        self.order = contradicted(self.order)
        self._review()

    def all_same(self, count: int) -> None:
        """Record that a window had ``count`` times the same body, so that its order does not matter."""
        if self._alike != _MIXED:
            self._alike += count
            if self._alike >= self.size and self.order.proven:
                self.limit = DEEPEST

    def begin(self, depth: int, completed: Sequence[tuple[FetchTask, Body]]) -> None:
        """Send the tasks of ``completed``, a window with ``depth``, again, to compare the responses."""
        self.limit = max(self.order.proven, 1)
        self._depth, self._alike = depth, _MIXED
        for task, body in completed:
            self._expected[task] = _answer(body)
            self.again.append(task)
        self._review()

    def take(self) -> FetchTask:
        """Return the next task that is to be sent alone; there is one."""
        task = self.again.pop(0)
        if not self.again:
            self._review()
        return task

    def compare(self, task: FetchTask, body: Body | None) -> bool:
        """Compare the response to ``task``, alone, with that of the window; None if there was none.

        Returns whether that ended the check.
        """
        if task not in self._expected:
            return False
        before, alone = self._expected.pop(task), None if body is None else _answer(body)
        if before is not None and alone is not None:
            self._pairs.append((before, alone))
        return not self._expected and self._end()

    def abandon(self) -> list[FetchTask]:
        """End the check with what was compared; return the tasks that were to be sent."""
        tasks = list(self.again)
        self.again.clear()
        for task in tasks:
            del self._expected[task]
        if tasks and not self._expected:
            self._end()
        return tasks

    def _end(self) -> bool:
        pairs, self._pairs = self._pairs, []
        self.order = answered(self.order, self._depth, pairs)
        self.limit = max(self.order.proven, 1)
        self._review()
        return True


def same(completed: Sequence[tuple[FetchTask, Body]]) -> bool:
    """Return whether ``completed`` are bodies in memory that are all the same."""
    first = completed[0][1] if completed else None
    if not isinstance(first, (bytes, bytearray)):
        return False
    return 1 < len(completed) == [body for _, body in completed].count(first)


def _answer(body: Body) -> Answer | None:
    """Return what to compare of ``body``, None if that says nothing about the file."""
    if isinstance(body, FetchError):
        return (_REFUSED, int(body.code[len("http-") :])) if body.code in _REFUSALS else None
    if isinstance(body, (bytes, bytearray)):
        return len(body), crc32(body)
    return None if isinstance(body, Exception) else (body.size, body.crc)
