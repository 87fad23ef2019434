"""Add up the results of a run from what its workers report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from downloader.core.latency import Histogram
from downloader.errors import DownloaderError
from downloader.messages import Heartbeat, Outcome, Ready, Tally

__all__ = ["RunStats"]


@dataclass
class RunStats:
    """The totals of a run, from which the report is made."""

    tally: Tally = field(default_factory=Tally)
    requests: int = 0
    pipelined: int = 0
    retries: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    peak_connections: dict[int, int] = field(default_factory=dict)
    beats: dict[int, Heartbeat] = field(default_factory=dict)  # the last of each worker
    deaths: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    preflight: str = ""
    cpu_seconds: dict[str, float] = field(default_factory=dict)  # by role
    worker_rss: int = 0  # KiB
    ended: bool = False
    interrupted: bool = False
    stop: DownloaderError | None = None
    details: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a batch."""
        self.tally += outcome.tally
        self.requests += outcome.requests
        self.pipelined += outcome.pipelined
        self.retries += outcome.retries
        self.latency.merge(outcome.latency)
        for code, count in outcome.errors.items():
            self.errors[code] = self.errors.get(code, 0) + count

    def record_heartbeat(self, worker: int, beat: Heartbeat) -> None:
        """Keep the maximum number of connections that ``worker`` had, and its latest depths."""
        self.beats[worker] = beat
        self.peak_connections[worker] = max(self.peak_connections.get(worker, 0), beat.connections)

    def connections_at_most(self, workers: int) -> int:
        """Return the maximum that were open at once where ``workers`` run at a time.

        A worker that died and its replacement do not add up.
        """
        return sum(sorted(self.peak_connections.values(), reverse=True)[:workers])

    def connection_limits(self) -> dict[str, Any]:
        """Return the maximum that a worker allowed itself, at any time and at last, and why not more.

        The reasons are given with the number of workers.
        """
        limits = [beat.limit for beat in self.beats.values()]
        return {
            "max": max((most for most, _, _ in limits), default=0),
            "last": max((now for _, now, _ in limits), default=0),
            "stopped": dict(Counter(why for _, _, why in limits)),
        }

    def depths(self) -> dict[str, Any]:
        """Return how deep connections were used, over requests, and why not deeper.

        The reasons are given with the number of origins.
        """
        sent: dict[int, int] = {}
        stopped: dict[str, int] = {}
        for beat in self.beats.values():
            for depth, requests in beat.depths.items():
                sent[depth] = sent.get(depth, 0) + requests
            for why, origins in beat.stops.items():
                stopped[why] = stopped.get(why, 0) + origins
        half, median = sum(sent.values()) / 2, 1
        for depth in sorted(sent):
            median = depth
            half -= sent[depth]
            if half <= 0:
                break
        return {"median": median, "max": max(sent, default=1), "stopped": stopped}

    def record_ready(self, message: Ready) -> None:
        """Keep the versions and the preflight result of the children."""
        self.versions = {**self.versions, **message.versions}
        self.preflight = message.preflight or self.preflight
