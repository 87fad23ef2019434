"""Share what concerns all slices that run: the divided rate, pauses of hosts, the end of the job.

A LimitsActor is an actor of the cluster: each slice exchanges with it before it starts, once a second, and
when a host pauses; the driver once a second. While it cannot be reached, each slice keeps its share of the
rate; one that the cluster has started again is empty until the driver's next call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

__all__ = ["Directives", "LimitsActor", "SliceHeartbeat"]

_FORGET_AFTER = 30.0  # seconds without a heartbeat


class Directives(NamedTuple):
    """What a slice is told: its rate (0: none), whether to end, pauses (host, seconds), a new ``seen``."""

    rate: float
    drain: bool
    pauses: list[tuple[str, float]]
    seen: int


class SliceHeartbeat(NamedTuple):
    """The last sign of life of a running slice; ``tally`` has the fields of a ``messages.Tally``.

    ``pid``, ``node_id``: Ray's worker that sent it, and Ray's name of its node; 0, "" if not known.
    ``slow``: the worker does what may take longer, and sends none meanwhile. ``age``: how many seconds
    ago the actor received it.
    """

    name: str
    node: str
    tally: tuple[int, ...]
    pid: int = 0
    node_id: str = ""
    slow: bool = False
    age: float = 0.0


class _Pause(NamedTuple):
    number: int
    attempt: str
    host: str
    until: float


class LimitsActor:
    """See the module."""

    def __init__(self, clock: Callable[[], float] = monotonic, node_id: Callable[[], str] = str) -> None:
        self._clock = clock
        self._at = (os.getpid(), node_id())
        self._rate = 0.0
        self._drain = False
        self._heartbeats: dict[str, tuple[float, SliceHeartbeat]] = {}
        self._pauses: list[_Pause] = []
        self._number = 0

    def exchange(
        self, attempt: str, heartbeat: SliceHeartbeat, pauses: list[tuple[str, float]], seen: int
    ) -> Directives:
        """Record the heartbeat of ``attempt`` and the pauses it reports; return what it is told.

        ``seen`` is that of its last Directives, 0 at first: pauses reported by others since are returned.
        """
        now = self._clock()
        self._heartbeats[attempt] = (now, heartbeat)
        self._pauses = [pause for pause in self._pauses if pause.until > now]
        told = [
            (pause.host, pause.until - now)
            for pause in self._pauses
            if pause.number > seen and pause.attempt != attempt
        ]
        for host, seconds in pauses:
            self._number += 1
            self._pauses.append(_Pause(self._number, attempt, host, now + seconds))
        return Directives(self._rate, self._drain, told, self._number)

    def collect(self, rate: float, drain: bool) -> tuple[list[SliceHeartbeat], tuple[int, str]]:
        """Set what all are told; return the heartbeats of those that run, and this process and its node."""
        self._rate, self._drain = rate, drain
        now = self._clock()
        self._heartbeats = {
            key: (then, heartbeat)
            for key, (then, heartbeat) in self._heartbeats.items()
            if now - then < _FORGET_AFTER
        }
        return [
            heartbeat._replace(age=now - then) for then, heartbeat in self._heartbeats.values()
        ], self._at
