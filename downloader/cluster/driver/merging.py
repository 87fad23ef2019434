"""Make one report of a job from the records of its slices."""

from __future__ import annotations

from collections import Counter
from typing import Any

from downloader.cluster.plan.plan import SliceRecord
from downloader.core.latency import Histogram
from downloader.messages import Tally
from downloader.reporting.record import Report

__all__ = ["MergedReport"]


class MergedReport:
    """The sums over slices. A slice that was done ``earlier`` counts as skipped, as in a local run."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.failed: dict[str, int] = {}  # by slice
        self._failed_by_error: dict[str, dict[str, int]] = {}
        self._sums: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._lanes: Counter[str] = Counter({"wire": 0, "requests": 0})
        self._cpu: Counter[str] = Counter()
        self._rss: dict[str, float] = {}
        self._depths: Counter[int] = Counter()
        self._stopped: Counter[str] = Counter()
        self._limits: Counter[str] = Counter()
        self._limit = self._last_limit = self._peak = 0
        self._latency = Histogram()
        self._any: Report | None = None
        self._nodes: set[str] = set()

    def add(self, done: SliceRecord, retried: tuple[str, ...] = (), *, earlier: bool = False) -> None:
        """Add a slice that is done; what failed in the slices that it ``retried`` counts no longer."""
        report = done.report
        for name in retried:
            self.failed.pop(name, None)
            self._failed_by_error.pop(name, None)
        if report.failed:
            self.failed[done.name] = report.failed
            self._failed_by_error[done.name] = report.failed_by_error
        if earlier:
            self.tally += Tally(skipped=report.stored + report.skipped)
            return
        self.tally += Tally(
            stored=report.stored,
            skipped=report.skipped,
            bytes=report.bytes,
            unverified=report.unverified,
            replaced=report.replaced,
            encoded=report.encoded,
            doubtful=report.doubtful,
        )
        self._any = report
        self._nodes.add(done.node)
        self._latency.merge(done.latency)
        self._sums.update(requests=report.requests, retries=report.retries, deaths=report.worker_deaths)
        self._errors.update(report.attempts_by_error)
        self._lanes.update(report.lanes)
        self._cpu.update(report.cpu_by_role)
        for role, size in report.peak_rss_mb.items():
            self._rss[role] = max(size, self._rss.get(role, 0.0))
        depth, limit = report.pipeline_depth, report.connection_limit
        self._depths[depth["median"]] += report.lanes["wire"]
        self._depths[depth["max"]] += 0
        self._stopped.update(depth["stopped"])
        self._limits.update(limit["stopped"])
        self._limit = max(self._limit, limit["max"])
        self._last_limit = max(self._last_limit, limit["last"])
        self._peak = max(self._peak, report.connections_peak)

    @property
    def nodes(self) -> int:
        """Return how many nodes have done a slice in this run."""
        return len(self._nodes)

    def total(self) -> Tally:
        """Return the counts of this run, with all that has failed."""
        return self.tally + Tally(failed=sum(self.failed.values()))

    def failed_by_error(self) -> dict[str, int]:
        """Return how many files have failed, by code."""
        failed: Counter[str] = Counter()
        for codes in self._failed_by_error.values():
            failed.update(codes)
        return dict(failed.most_common())

    def make(self, **given: Any) -> Report:
        """Return the report; ``given`` has what the slices do not know. ``running``: most at a time."""
        running, driver = given.pop("running"), given.pop("driver_cpu")
        total, seconds = self.total(), given["seconds"]
        cpu = {"driver": driver, **self._cpu}
        return Report(
            **given,
            stored=total.stored,
            skipped=total.skipped,
            failed=total.failed,
            unverified=total.unverified,
            bytes=total.bytes,
            files_per_second=round(total.stored / seconds, 1) if seconds else 0.0,
            requests=self._sums["requests"],
            retries=self._sums["retries"],
            attempts_by_error=dict(sorted(self._errors.items())),
            failed_by_error=self.failed_by_error(),
            latency_ms={
                **{
                    name: round(self._latency.percentile(p) * 1000, 3)
                    for name, p in (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9))
                },
                "max": round(self._latency.max * 1000, 3),
            },
            lanes=dict(self._lanes),
            pipeline_depth={
                "median": _median(self._depths),
                "max": max(self._depths, default=1),
                "stopped": dict(self._stopped),
            },
            connection_limit={
                "max": self._limit,
                "last": self._last_limit,
                "stopped": dict(self._limits),
            },
            connections_peak=self._peak * running,
            worker_deaths=self._sums["deaths"],
            cpu_seconds=round(sum(cpu.values()), 2),
            cpu_by_role={role: round(value, 2) for role, value in cpu.items()},
            peak_rss_mb=self._rss or {"supervisor": 0.0, "worker": 0.0},
            replaced=total.replaced,
            encoded=total.encoded,
            doubtful=total.doubtful,
            versions=self._any.versions if self._any else {},
            preflight=self._any.preflight if self._any else "",
            nodes=self.nodes,
        )


def _median(counts: Counter[int]) -> int:
    half, median = sum(counts.values()) / 2, 1
    for value in sorted(counts):
        median = value
        half -= counts[value]
        if half <= 0:
            break
    return median
