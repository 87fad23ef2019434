"""Keep the slices of a job: what the plan has of them, which are still to run, and what is done."""

from __future__ import annotations

from downloader.cluster.driver.job_shards import DriverShards
from downloader.cluster.driver.retry import failed_items, plan_again
from downloader.cluster.driver.slice_sums import SliceSums
from downloader.cluster.plan.plan import PlanDirectory, Slice, SliceRecord
from downloader.cluster.plan.staging import has_shards
from downloader.config.config import Config
from downloader.core.slices import SliceBook
from downloader.messages import Tally
from downloader.reporting.progress import Progress
from downloader.sinks.shards.options import shard_options

__all__ = ["JobSlices"]


class JobSlices:
    """The slices of a run of a job. ``most``: how many items one may have.

    ``by_name``: all slices. ``records``: those that count. ``sliced``: the source was read to its end, or
    to --limit. ``resumed``: the plan had slices before this run.
    """

    def __init__(self, config: Config, directory: PlanDirectory, most: int, progress: Progress) -> None:
        self._config = config
        self._directory = directory
        self._most = most
        self._progress = progress
        self._failed: list[SliceRecord] = []  # to be tried again
        self._retried: set[str] = set()  # by slices that are done
        self.book = SliceBook()
        self.sums = SliceSums()
        self.shards = DriverShards(config)
        self.by_name: dict[str, Slice] = {}
        self.records: dict[str, SliceRecord] = {}
        self.listed = 0
        self.sliced = False
        self.resumed = False

    def load(self) -> None:
        """Take up the plan: what is done, what is left, and what failed and is to be tried again."""
        failed: dict[str, SliceRecord] = {}
        retried: set[str] = set()
        records = {done.name: done for done in self._directory.records()}
        for slice_ in self._directory.slices():
            self._add(slice_)
            retried |= set(slice_.retries)
            self.resumed = True
            done = records.get(slice_.name)
            if done is None and slice_.count:
                if slice_.retries or not self._config.retry_failed:
                    self.book.add(slice_.name)
            elif done is not None:
                self.record(done, earlier=True)
                if done.report.failed:
                    failed[slice_.name] = done
        self.shards.recover(self.by_name)
        self._failed = [done for name, done in failed.items() if name not in retried]
        self.plan_failed()
        self._progress.begin(0, Tally())
        self._progress.listed(self.listed, -1.0)

    def plan_failed(self) -> None:
        """Make slices of what failed in earlier runs; of shards, once the number of shards is known."""
        if has_shards(self._config) and not self.sliced:
            return
        if not self._failed:
            return
        again = (failed_items(self._directory, self.by_name[done.name], done) for done in self._failed)
        options = shard_options(self._config) if has_shards(self._config) else None
        for slice_ in plan_again(self._directory, again, self.by_name, options, self._most):
            self._add(slice_)
            self.book.add(slice_.name)
        self._failed = []

    @property
    def is_failed_left(self) -> bool:
        """Return whether something that failed in earlier runs could not be planned again."""
        return bool(self._failed)

    def sliced_so_far(self) -> tuple[int, Slice]:
        """Take up slices that a slicer has made untold; return how many there are, and the last."""
        last = Slice("", 0)
        number = 0
        for slice_ in self.by_name.values():
            if not slice_.retries:
                number, last = number + 1, slice_
        while (found := self._directory.slice(f"{number:08d}")) is not None:
            number, last = number + 1, found
            self._take(found, -1.0)
        return number, last

    def made(self, name: str, position: float) -> None:
        """Take up a slice that the slicer has made; see ``Progress.listed`` for ``position``."""
        slice_ = self._directory.slice(name)
        assert slice_ is not None
        self._take(slice_, position)

    def _take(self, slice_: Slice, position: float) -> None:
        self._add(slice_)
        self._progress.listed(slice_.count, position)
        if slice_.count:
            self.book.add(slice_.name)

    def _add(self, slice_: Slice) -> None:
        self.by_name[slice_.name] = slice_
        if not slice_.retries:
            self.listed += slice_.count
            self.sliced = slice_.ended

    def record(self, done: SliceRecord, *, earlier: bool = False) -> None:
        """Count a slice that is done, ``earlier`` than this run or in it."""
        slice_ = self.by_name[done.name]
        self.records[done.name] = done
        self.shards.add(done)
        for name in slice_.retries:
            self.records.pop(name, None)
            self._retried.add(name)
        self.sums.add(done, slice_.retries, earlier=earlier)

    def is_left(self) -> bool:
        """Return whether a slice is not done."""
        return any(
            slice_.count and name not in self.records and name not in self._retried
            for name, slice_ in self.by_name.items()
        )

    def counts(self) -> dict[str, int]:
        """Return what the report says of the slices."""
        return {
            "planned": sum(1 for slice_ in self.by_name.values() if slice_.count),
            "done": self.book.done,
            "attempts": self.book.attempts,
            "set aside": len(self.book.abandoned),
        }
