"""Simulate connections to a server with given latencies, and the depth of the pipeline that follows."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from downloader.core.goodput import Meter
from downloader.core.pipeline_depth import Depth, measured
from downloader.core.pipeline_window import room_in_window

__all__ = ["Simulation", "simulate"]

_MOST_HELD = 32 << 10
_MIN_REST, _MAX_REST = 0.005, 5.0


@dataclass
class _Connection:
    """``due``: when each request in flight is answered, and when it was sent; ``free_at``: when the server
    has answered the last one; ``sent``, ``slowest``: requests and longest latency of the window."""

    due: deque[tuple[float, float]] = field(default_factory=deque)
    free_at: float = 0.0
    sent: int = 0
    slowest: float = 0.0


class Simulation:
    """See ``simulate``. ``depth``: the present one; ``steps``: when it changed, and to what; ``now``:
    seconds since the start."""

    def __init__(
        self, latency: Callable[[], float], connections: int, requests: int, overlapping: bool
    ) -> None:
        self.depth = Depth()
        self.steps: list[tuple[float, int]] = []
        self.now = 0.0
        self._latency, self._overlapping, self._left = latency, overlapping, requests
        self._meter = Meter()
        self._window = min(max(_MOST_HELD // connections, 16), 512)
        self._connections = [_Connection() for _ in range(connections)]
        self._number = count()
        self._events: list[tuple[float, int, _Connection]] = []

    def run(self) -> None:
        """Run until all responses are stored."""
        for connection in self._connections:
            self._send(connection, 1)
            self._await_next(connection)
        while self._events:
            self.now, _, connection = heapq.heappop(self._events)
            self._receive(connection)
            self._continue(connection)
            self._await_next(connection)

    def _send(self, connection: _Connection, most: int) -> None:
        for _ in range(min(most, self._left)):
            self._left -= 1
            begun = self.now if self._overlapping else max(self.now, connection.free_at)
            # Responses are in order.
            connection.free_at = max(begun + self._latency(), connection.free_at)
            connection.due.append((connection.free_at, self.now))
            connection.sent += 1

    def _receive(self, connection: _Connection) -> None:
        answered = 0
        while connection.due and connection.due[0][0] <= self.now:
            connection.slowest = max(connection.slowest, self.now - connection.due.popleft()[1])
            answered += 1
        if not (answered and self._meter.record(self.now, answered)):
            return
        in_flight = sum(len(each.due) for each in self._connections)
        sample = self._meter.sample(self.now, in_flight, 0.0, 0.0, 0.0)
        if sample is None:
            return
        before, self.depth = self.depth, measured(self.depth, sample)
        if self.depth.now != before.now:
            self._meter.stepped(before.now)
            self.steps.append((self.now, self.depth.now))

    def _continue(self, connection: _Connection) -> None:
        depth, waiting = self.depth.now, len(connection.due)
        if not waiting and connection.sent == 1:
            connection.sent = 0  # one at a time: stored at once
        if waiting * 2 > depth:
            return
        free = depth - waiting
        if depth > 1 or connection.sent:
            free = min(free, room_in_window(depth, self._window, connection.sent))
        self._send(connection, free)

    def _await_next(self, connection: _Connection) -> None:
        if connection.due:
            heapq.heappush(self._events, (connection.due[0][0], next(self._number), connection))
        elif self._left:  # it rests, then the window is stored
            rest = min(max(connection.slowest, _MIN_REST), _MAX_REST)
            connection.sent, connection.slowest = 0, 0.0
            heapq.heappush(self._events, (self.now + rest, next(self._number), connection))


def simulate(
    latency: Callable[[], float], connections: int, requests: int, *, overlapping: bool
) -> Simulation:
    """Return a finished simulation of ``requests`` requests, each of which the server processes for
    ``latency()`` seconds: those of one connection at the same time if ``overlapping``, else one after the
    other. Sending and storing take no time.
    """
    simulation = Simulation(latency, connections, requests, overlapping)
    simulation.run()
    return simulation
