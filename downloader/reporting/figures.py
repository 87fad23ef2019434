"""Define the figures of a run, which can be added: those of the slices of a job make those of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from downloader.core.latency import Histogram
from downloader.messages import Tally
from downloader.reporting.record import Report

__all__ = ["Figures", "figures_of"]

_Key = TypeVar("_Key", int, str)
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Figures:
    """What a run has done, whatever its job is.

    ``pipelined``: how many of the ``requests`` went through the pipelined client. ``errors``: attempts by
    failure code. ``latency``: the counts of a Histogram. ``depths``: requests by how many were in flight on
    a connection; ``depth_stops``: number of origins by why not more. ``max_limit``, ``last_limit``: how
    many connections a worker allowed itself, at most and at last; ``limit_stops``: number of workers by why
    not more. ``connections``: the most that were open at once. ``cpu``: seconds, ``rss``: MB at most, by
    role.
    """

    tally: Tally = field(default_factory=Tally)
    requests: int = 0
    pipelined: int = 0
    retries: int = 0
    deaths: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[int, int] = field(default_factory=dict)
    depths: Mapping[int, int] = field(default_factory=dict)
    depth_stops: Mapping[str, int] = field(default_factory=dict)
    max_limit: int = 0
    last_limit: int = 0
    limit_stops: Mapping[str, int] = field(default_factory=dict)
    connections: int = 0
    cpu: Mapping[str, float] = field(default_factory=dict)
    rss: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    preflight: str = ""

    def __add__(self, other: Figures) -> Figures:
        """Return the figures of both runs; ``connections`` and memory are those of the greater one."""
        return Figures(
            tally=self.tally + other.tally,
            requests=self.requests + other.requests,
            pipelined=self.pipelined + other.pipelined,
            retries=self.retries + other.retries,
            deaths=self.deaths + other.deaths,
            errors=_sums(self.errors, other.errors),
            latency=_sums(self.latency, other.latency),
            depths=_sums(self.depths, other.depths),
            depth_stops=_sums(self.depth_stops, other.depth_stops),
            max_limit=max(self.max_limit, other.max_limit),
            last_limit=max(self.last_limit, other.last_limit),
            limit_stops=_sums(self.limit_stops, other.limit_stops),
            connections=max(self.connections, other.connections),
            cpu=_sums(self.cpu, other.cpu),
            rss={
                **self.rss,
                **{role: max(size, self.rss.get(role, 0.0)) for role, size in other.rss.items()},
            },
            versions={**self.versions, **other.versions},
            preflight=other.preflight or self.preflight,
        )

    @property
    def latency_ms(self) -> dict[str, float]:
        """Return the percentiles of the latency, and the maximum, in milliseconds."""
        latency = Histogram(dict(self.latency))
        percentiles = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
        found = {name: latency.percentile(p) for name, p in percentiles.items()}
        return {name: round(seconds * 1000, 3) for name, seconds in {**found, "max": latency.max}.items()}

    @property
    def median_depth(self) -> int:
        """Return the median depth over requests, 1 if there are none."""
        half, median = sum(self.depths.values()) / 2, 1
        for depth in sorted(self.depths):
            median = depth
            half -= self.depths[depth]
            if half <= 0:
                break
        return median


def _sums(one: Mapping[_Key, _Number], other: Mapping[_Key, _Number]) -> dict[_Key, _Number]:
    sums = dict(one)
    for key, number in other.items():
        sums[key] = sums[key] + number if key in sums else number
    return sums


def figures_of(report: Report, latency: Mapping[int, int]) -> Figures:
    """Return the figures that ``report`` was made of, with the counts of its Histogram.

    Of the depths it has only the median and the maximum: all requests count as those of the median.
    """
    depth, limit, pipelined = report.pipeline_depth, report.connection_limit, report.lanes["wire"]
    return Figures(
        tally=Tally(
            stored=report.stored,
            skipped=report.skipped,
            failed=report.failed,
            bytes=report.bytes,
            unverified=report.unverified,
            replaced=report.replaced,
            encoded=report.encoded,
            doubtful=report.doubtful,
        ),
        requests=report.requests,
        pipelined=pipelined,
        retries=report.retries,
        deaths=report.worker_deaths,
        errors=report.attempts_by_error,
        latency=latency,
        depths=_sums({int(depth["median"]): pipelined}, {int(depth["max"]): 0}),
        depth_stops=depth["stopped"],
        max_limit=limit["max"],
        last_limit=limit["last"],
        limit_stops=limit["stopped"],
        connections=report.connections_peak,
        cpu=report.cpu_by_role,
        rss=report.peak_rss_mb,
        versions=report.versions,
        preflight=report.preflight,
    )
