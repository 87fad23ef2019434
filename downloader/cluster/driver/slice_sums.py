"""Add up the records of the slices of a job."""

from __future__ import annotations

import dataclasses
from collections import Counter

import msgspec

from downloader.cluster.plan.plan import SliceRecord
from downloader.messages import Tally
from downloader.reporting.figures import Figures, figures_of

__all__ = ["SliceSums"]


class SliceSums:
    """The sums over slices; ``tally`` has those of this run, without what failed.

    A slice that was done ``earlier`` counts as skipped, as in a local run.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self._figures = Figures()
        self._failed: dict[str, dict[str, int]] = {}  # by slice and code
        self._nodes: set[str] = set()

    def add(self, done: SliceRecord, retried: tuple[str, ...] = (), *, earlier: bool = False) -> None:
        """Add a slice that is done; what failed in the slices that it ``retried`` counts no longer."""
        report = done.report
        for name in retried:
            self._failed.pop(name, None)
        if report.failed:
            self._failed[done.name] = report.failed_by_error
        if earlier:
            self.tally += Tally(skipped=report.stored + report.skipped)
            return
        figures = figures_of(report, done.latency)
        self.tally += msgspec.structs.replace(figures.tally, failed=0)
        self._figures += figures
        self._nodes.add(done.node)

    @property
    def nodes(self) -> int:
        """Return how many nodes have done a slice in this run."""
        return len(self._nodes)

    def total(self) -> Tally:
        """Return the counts of this run, with all that has failed."""
        failed = sum(sum(codes.values()) for codes in self._failed.values())
        return self.tally + Tally(failed=failed)

    def failed_by_error(self) -> dict[str, int]:
        """Return how many files have failed, by code."""
        failed: Counter[str] = Counter()
        for codes in self._failed.values():
            failed.update(codes)
        return dict(failed.most_common())

    def figures(self) -> Figures:
        """Return the figures of the slices that were done in this run, with all that has failed."""
        return dataclasses.replace(self._figures, tally=self.total())
