"""Add up the results of a run from what its workers report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from downloader.core.latency import Histogram
from downloader.errors import DownloaderError
from downloader.messages import Heartbeat, Outcome, Ready, Tally
from downloader.reporting.figures import Figures

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

    def figures(self, workers: int) -> Figures:
        """Return the figures of the run, in which ``workers`` ran at a time."""
        depths: Counter[int] = Counter()
        depth_stops: Counter[str] = Counter()
        for beat in self.beats.values():
            depths.update(beat.depths)
            depth_stops.update(beat.stops)
        limits = [beat.limit for beat in self.beats.values()]
        return Figures(
            tally=self.tally,
            requests=self.requests,
            pipelined=self.pipelined,
            retries=self.retries,
            deaths=self.deaths,
            errors=self.errors,
            latency=self.latency.counts,
            depths=depths,
            depth_stops=depth_stops,
            max_limit=max((most for most, _, _ in limits), default=0),
            last_limit=max((now for _, now, _ in limits), default=0),
            limit_stops=Counter(why for _, _, why in limits),
            connections=self.connections_at_most(workers),
            cpu=self.cpu_seconds,
            rss={"worker": round(self.worker_rss / 1024, 1)},
            versions=self.versions,
            preflight=self.preflight,
        )

    def connections_at_most(self, workers: int) -> int:
        """Return the maximum that were open at once where ``workers`` run at a time.

        A worker that died and its replacement do not add up.
        """
        return sum(sorted(self.peak_connections.values(), reverse=True)[:workers])

    def record_ready(self, message: Ready) -> None:
        """Keep the versions and the preflight result of the children."""
        self.versions = {**self.versions, **message.versions}
        self.preflight = message.preflight or self.preflight
