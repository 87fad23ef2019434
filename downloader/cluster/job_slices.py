"""Keep the slices of a job: what the plan has of them, which are still to run, and what is done."""

from __future__ import annotations

from downloader.cluster.merging import MergedReport
from downloader.cluster.plan import Done, Head, PlanDirectory
from downloader.cluster.retry import failed_items, plan_again
from downloader.cluster.shards import DriverShards, has_shards
from downloader.config.config import Config
from downloader.core.slices import SliceBook
from downloader.messages import Tally
from downloader.reporting.progress import Progress
from downloader.sinks.shards.options import shard_options

__all__ = ["JobSlices"]


class JobSlices:
    """The slices of a run of a job. ``most``: how many items one may have.

    ``heads``: all slices. ``dones``: the records that count. ``sliced``: the source was read to its end, or
    to --limit. ``resumed``: the plan had slices before this run.
    """

    def __init__(self, config: Config, directory: PlanDirectory, most: int, progress: Progress) -> None:
        self._config = config
        self._directory = directory
        self._most = most
        self._progress = progress
        self._failed: list[Done] = []  # to be tried again
        self._covered: set[str] = set()  # by slices that are done
        self.book = SliceBook()
        self.merged = MergedReport()
        self.shards = DriverShards(config)
        self.heads: dict[str, Head] = {}
        self.dones: dict[str, Done] = {}
        self.listed = 0
        self.sliced = False
        self.resumed = False

    def load(self) -> None:
        """Take up the plan: what is done, what is left, and what failed and is to be tried again."""
        failed: dict[str, Done] = {}
        covered: set[str] = set()
        dones = {done.name: done for done in self._directory.dones()}
        for head in self._directory.heads():
            self._add(head)
            covered |= set(head.covers)
            self.resumed = True
            done = dones.get(head.name)
            if done is None and head.count:
                if head.covers or not self._config.retry_failed:
                    self.book.add(head.name)
            elif done is not None:
                self.record(done, earlier=True)
                if done.report.failed:
                    failed[head.name] = done
        self.shards.recover(self.heads)
        self._failed = [done for name, done in failed.items() if name not in covered]
        self.plan_failed()
        self._progress.begin(0, Tally())
        self._progress.listed(self.listed, -1.0)

    def plan_failed(self) -> None:
        """Make slices of what failed in earlier runs; of shards, once the number of shards is known."""
        if has_shards(self._config) and not self.sliced:
            return
        if not self._failed:
            return
        again = (failed_items(self._directory, self.heads[done.name], done) for done in self._failed)
        options = shard_options(self._config) if has_shards(self._config) else None
        for head in plan_again(self._directory, again, self.heads, options, self._most):
            self._add(head)
            self.book.add(head.name)
        self._failed = []

    @property
    def is_failed_left(self) -> bool:
        """Return whether something that failed in earlier runs could not be planned again."""
        return bool(self._failed)

    def sliced_so_far(self) -> tuple[int, Head]:
        """Take up slices that a slicer has made untold; return how many there are, and the last."""
        last = Head("", 0)
        number = 0
        for head in self.heads.values():
            if not head.covers:
                number, last = number + 1, head
        while (found := self._directory.head(f"{number:08d}")) is not None:
            number, last = number + 1, found
            self._take(found, -1.0)
        return number, last

    def made(self, name: str, position: float) -> None:
        """Take up a slice that the slicer has made; see ``Progress.listed`` for ``position``."""
        head = self._directory.head(name)
        assert head is not None
        self._take(head, position)

    def _take(self, head: Head, position: float) -> None:
        self._add(head)
        self._progress.listed(head.count, position)
        if head.count:
            self.book.add(head.name)

    def _add(self, head: Head) -> None:
        self.heads[head.name] = head
        if not head.covers:
            self.listed += head.count
            self.sliced = head.ended

    def record(self, done: Done, *, earlier: bool = False) -> None:
        """Count a slice that is done, ``earlier`` than this run or in it."""
        head = self.heads[done.name]
        self.dones[done.name] = done
        self.shards.add(done)
        for name in head.covers:
            self.dones.pop(name, None)
            self._covered.add(name)
        self.merged.add(done, head.covers, earlier=earlier)

    def is_left(self) -> bool:
        """Return whether a slice is not done."""
        return any(
            head.count and name not in self.dones and name not in self._covered
            for name, head in self.heads.items()
        )

    def counts(self) -> dict[str, int]:
        """Return what the report says of the slices."""
        return {
            "planned": sum(1 for head in self.heads.values() if head.count),
            "done": self.book.done,
            "attempts": self.book.attempts,
            "set aside": len(self.book.abandoned),
        }
