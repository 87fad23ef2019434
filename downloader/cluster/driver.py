"""Run a job over the nodes of a Ray cluster: plan its slices, have them run, and make one report."""

from __future__ import annotations

import os
import resource
import signal
import time
from functools import partial
from pathlib import Path
from types import FrameType

from downloader.cluster import configs
from downloader.cluster.fleet import Fleet, quiet_stdout
from downloader.cluster.local_disks import gone, is_local, lost_text, write_down_lost
from downloader.cluster.merging import MergedReport
from downloader.cluster.plan import Done, Head, Plan, digest_of
from downloader.cluster.plan_home import PlanHome, is_bucket, plan_home
from downloader.cluster.results import write_results
from downloader.cluster.retry import failed_items, plan_again
from downloader.cluster.shards import DriverShards, has_shards, in_whole_shards
from downloader.cluster.slicer_process import SlicerProcess
from downloader.cluster.status import write_running
from downloader.cluster.task import Outcome, PlanAt, SliceTask
from downloader.config.config import Config
from downloader.core.redact import redact
from downloader.core.slices import SliceBook, shares
from downloader.engine.job import Finished
from downloader.errors import ConfigError, DestinationError, DownloaderError, SourceError
from downloader.messages import Tally
from downloader.reporting.progress import Progress
from downloader.sinks.shards.options import shard_options
from downloader.storage.destination import foreign_before, make_directory

__all__ = ["run_cluster"]

_WAIT = 0.2  # seconds
_COLLECT_EVERY = 1.0
_SAVE_EVERY = {False: 1.0, True: 10.0}  # what `status` shows; True: in a bucket, where each costs a request
_DRAIN_GRACE = 20.0


def run_cluster(config: Config) -> Finished:
    """Run ``config`` to its end on the cluster; the report has the outcome, including ``exit_code``.

    Raises ConfigError, InUse, DestinationError, JournalError, BootError where the run could not begin.
    """
    config = configs.absolute(in_whole_shards(config))
    apart = config.is_bucket or is_local(config)
    if not apart:
        _prepare_output(config)
    progress = Progress(config)
    with plan_home(config, lambda text: progress.log("warning", text)) as home:
        found = home.directory.read()
        if config.retry_failed and found is None:
            raise ConfigError(
                f"{home.directory.root} has no plan, so nothing to retry; leave out --retry-failed"
            )
        if config.restart or found is None:
            config.sink_kind.check_begin(config)
        mine = Plan(
            *(digest_of(config), config.shown_source, config.output, config.slice_files),
            shared_since_ns=0 if apart else foreign_before(config.output),
            store=config.store,
            identity=config.sink_kind.identity(config),
            id=os.urandom(16).hex(),
        )
        plan = home.directory.open(mine, restart=config.restart)
        return _Driver(config, home, plan, progress).run()


def _prepare_output(config: Config) -> None:
    output = config.output
    for what, path in config.own_files:
        if os.path.realpath(path).startswith(os.path.realpath(output) + os.sep):
            raise ConfigError(f"{path} ({what}) is in DEST, which all nodes write to; put it elsewhere")
    if config.journal:
        make_directory("-o", Path(output), Path(output))


class _Driver:
    """One run of a job."""

    def __init__(self, config: Config, home: PlanHome, plan: Plan, progress: Progress) -> None:
        self._config = config
        self._home = home
        self._directory = home.directory
        self._plan = plan
        self._at = PlanAt(config.journal_root, config.journal_endpoint_url, config.journal_region)
        self._book = SliceBook()
        self._merged = MergedReport()
        self._shards = DriverShards(config)
        self._failed: list[Done] = []  # to be tried again
        self._heads: dict[str, Head] = {}
        self._dones: dict[str, Done] = {}
        self._covered: set[str] = set()  # by slices that are done
        self._listed = 0
        self._sliced = False  # the source was read to its end, or to --limit
        self._stop: DownloaderError | None = None
        self._signals = 0
        self._drain_by = 0.0
        self._resumed = False
        self._most_running = 0
        self._progress = progress
        self._saved = 0.0

    def run(self) -> Finished:
        began = time.monotonic()
        if is_local(self._config):
            with quiet_stdout(self._config.verbose):
                self._run_with(Fleet(self._config.ray_address))
        else:
            self._load()
            if self._book.waiting or not (self._sliced or self._config.retry_failed):
                with quiet_stdout(self._config.verbose):
                    self._run_with(Fleet(self._config.ray_address))
        self._progress.end()
        try:
            self._shards.finish(self._heads)
        except DestinationError as error:
            self._stop = self._stop or error
        return self._finish(time.monotonic() - began)

    def _run_with(self, fleet: Fleet) -> None:
        try:
            if is_local(self._config):
                if self._config.retry_failed:
                    write_down_lost(self._directory, self._lost(fleet), self._plan.slice_files)
                self._load()
            self._run_on(fleet)
            if is_local(self._config) and self._stop is None and (lost := self._lost(fleet)):
                self._stop = DestinationError(lost_text(lost))
        except DownloaderError as error:
            self._stop = self._stop or error
        finally:
            fleet.close()

    def _lost(self, fleet: Fleet) -> list[Done]:
        """Return the slices whose files are on disks that are gone."""
        disks = fleet.disks(self._config.output, self._plan.id)
        return gone(self._directory.dones(), disks)

    def _run_on(self, fleet: Fleet) -> None:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        slicer = None
        try:
            # After Ray has set its own.
            for number in before:
                signal.signal(number, self._on_signal)
            if not self._sliced and not self._config.retry_failed:
                slicer = SlicerProcess(self._config, self._home.name_key, *self._sliced_so_far())
            self._loop(fleet, slicer)
        finally:
            if slicer is not None:
                slicer.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _load(self) -> None:
        """Take up the plan: what is done, what is left, and what failed and is to be tried again."""
        failed: dict[str, Done] = {}
        covered: set[str] = set()
        dones = {done.name: done for done in self._directory.dones()}
        for head in self._directory.heads():
            self._add(head)
            covered |= set(head.covers)
            self._resumed = True
            done = dones.get(head.name)
            if done is None and head.count:
                if head.covers or not self._config.retry_failed:
                    self._book.add(head.name)
            elif done is not None:
                self._record(head, done, earlier=True)
                if done.report.failed:
                    failed[head.name] = done
        self._shards.take_up(self._heads)
        self._failed = [done for name, done in failed.items() if name not in covered]
        self._plan_failed()
        self._progress.begin(0, Tally())
        self._progress.listed(self._listed, -1.0)

    def _plan_failed(self) -> None:
        """Make slices of what failed in earlier runs; of shards, once the number of shards is known."""
        if has_shards(self._config) and not self._sliced:
            return
        if not self._failed:
            return
        again = (failed_items(self._directory, self._heads[done.name], done) for done in self._failed)
        options = shard_options(self._config) if has_shards(self._config) else None
        for head in plan_again(self._directory, again, self._heads, options, self._plan.slice_files):
            self._add(head)
            self._book.add(head.name)
        self._failed = []

    def _add(self, head: Head) -> None:
        self._heads[head.name] = head
        if not head.covers:
            self._listed += head.count
            self._sliced = head.ended

    def _sliced_so_far(self) -> tuple[int, Head]:
        """Take up slices that a slicer has made untold; return how many there are, and the last."""
        last = Head("", 0)
        number = 0
        for head in self._heads.values():
            if not head.covers:
                number, last = number + 1, head
        while (found := self._directory.head(f"{number:08d}")) is not None:
            number, last = number + 1, found
            self._take(found, -1.0)
        return number, last

    def _take(self, head: Head, position: float) -> None:
        self._add(head)
        self._progress.listed(head.count, position)
        if head.count:
            self._book.add(head.name)

    def _record(self, head: Head, done: Done, *, earlier: bool = False) -> None:
        self._dones[head.name] = done
        self._shards.add(done)
        for name in head.covers:
            self._dones.pop(name, None)
            self._covered.add(name)
        self._merged.add(done, head.covers, earlier=earlier)

    # the loop

    def _loop(self, fleet: Fleet, slicer: SlicerProcess | None) -> None:
        collected = 0.0
        slots = fleet.slots(self._workers)
        while True:
            if slicer is not None:
                slicer = self._read_slicer(slicer)
                self._plan_failed()
            share = shares(slots, self._workers, self._config.per_host)
            if not self._draining:
                self._launch(fleet, share.running, share.workers, share.per_host)
            if not self._book.running and (self._draining or (slicer is None and not self._book.waiting)):
                return
            for outcome in fleet.wait(_WAIT):
                self._on_outcome(fleet, outcome)
            now = time.monotonic()
            if now - collected >= _COLLECT_EVERY:
                collected = now
                slots = fleet.slots(self._workers)
                self._collect(fleet, slots)
            self._drain(fleet, now)
            self._progress.update(lambda: (self._tally(fleet), (0, 0)), slicer is None)

    @property
    def _workers(self) -> int:
        return self._config.workers or 1

    @property
    def _draining(self) -> bool:
        return self._signals > 0 or (self._stop is not None and not isinstance(self._stop, SourceError))

    def _read_slicer(self, slicer: SlicerProcess) -> SlicerProcess | None:
        """Take in the slices that are there; return None when the source is read."""
        events, is_open = slicer.events()
        for event in events:
            if event["event"] == "slice":
                head = self._directory.head(event["name"])
                assert head is not None
                self._take(head, event["position"])
            elif event["event"] == "log":
                self._progress.log(*event["log"])
            elif event["event"] == "error":
                error = SourceError(event["text"])
                error.exit_code = event["exit_code"]
                self._stop = self._stop or error
        if is_open and not self._draining:
            return slicer
        slicer.kill()
        if not self._sliced and self._stop is None and not self._draining:
            if slicer.may_start_again():
                self._progress.log("warning", "the process that reads the source died; another takes over")
                return slicer.again(*self._sliced_so_far())
            self._stop = SourceError("the process that reads the source died three times")
        return None

    def _launch(self, fleet: Fleet, running: int, workers: int, per_host: int) -> None:
        fleet.configure(
            configs.for_slices(self._config, workers, per_host, self._plan.shared_since_ns),
        )
        while len(self._book.running) < running and (name := self._book.next()) is not None:
            self._most_running = max(self._most_running, len(self._book.running))
            rate = self._config.rate / min(running, len(self._book.running) + self._book.waiting)
            plan = self._plan.id or self._plan.digest
            fleet.start(
                SliceTask(
                    *(name, plan, self._at, self._config.scratch, rate),
                    items=self._heads[name].items,
                    local=is_local(self._config),
                ),
                workers,
            )

    def _on_outcome(self, fleet: Fleet, outcome: Outcome) -> None:
        name = outcome.name
        done = self._directory.done(name)
        if done is not None:
            # Whichever attempt was first, even if this one was lost right after it.
            self._shards.ended(done, settled=outcome.how == "done")
            self._book.ended(name, "done")
            self._record(self._heads[name], done)
            self._directory.sweep(done)
        elif outcome.how == "done":
            self._ended(Outcome(name, "failed", "its record is not there"))
        else:
            self._ended(outcome)

    def _ended(self, outcome: Outcome) -> None:
        reason = redact(outcome.reason, self._config.secrets)
        aside = self._book.ended(outcome.name, outcome.how, reason)
        if aside:
            self._progress.log("warning", f"slice {outcome.name} is set aside: {reason}")
        elif outcome.how != "drained":
            self._progress.log("warning", f"slice {outcome.name} runs again: {reason}")

    def _collect(self, fleet: Fleet, slots: int) -> None:
        running = len(self._book.running)
        rate = self._config.rate / max(running, 1)
        fleet.collect(rate, self._draining)
        self._progress.note = (
            f"{fleet.nodes} nodes, {self._book.done} slices done, {running} running, "
            f"{self._book.waiting} waiting"
        )
        self._home.check()
        now = time.monotonic()
        if now - self._saved >= _SAVE_EVERY[is_bucket(self._config.journal_root)]:
            self._saved = now
            write_running(self._directory, self._tally(fleet), running, fleet.nodes, slots)

    def _tally(self, fleet: Fleet) -> Tally:
        return self._merged.total() + fleet.live(self._book.running)

    def _drain(self, fleet: Fleet, now: float) -> None:
        if not self._draining:
            return
        if not self._drain_by:
            self._progress.log("warning", "finishing what is in flight on all nodes")
            self._drain_by = now + _DRAIN_GRACE + self._config.drain_grace
            fleet.collect(0.0, True)
        if self._signals > 1 or now > self._drain_by:
            for name in fleet.cancel():
                self._book.ended(name, "drained")

    # the end

    def _finish(self, seconds: float) -> Finished:
        aside = self._book.set_aside
        failed = sum(self._merged.failed.values())
        left = any(
            head.count and name not in self._dones and name not in self._covered
            for name, head in self._heads.items()
        )
        if self._stop is None and aside:
            name, reason = next(iter(aside.items()))
            self._stop = DownloaderError(
                f"{len(aside)} slices are set aside, the first {name}: {reason}; the same command tries "
                "them again"
            )
        if self._stop is None and not self._signals and (left or not self._sliced):
            tried = "was not" if self._failed else "was"
            self._stop = SourceError(
                f"what had failed {tried} tried again: the source was never read to its end; "
                "leave out --retry-failed to go on"
            )
        complete = not self._signals and self._stop is None
        exit_code = 130 if self._signals else self._stop.exit_code if self._stop else int(failed > 0)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        report = self._merged.make(
            source=self._config.shown_source,
            destination=self._config.output.encode("utf-8", "backslashreplace").decode(),
            complete=complete,
            listed=self._listed,
            seconds=round(seconds, 3),
            running=max(self._most_running, 1),
            driver_cpu=usage.ru_utime + usage.ru_stime,
            workers=self._workers * max(self._most_running, 1),
            resumed=self._resumed,
            exit_code=exit_code,
            stopped_by=redact(str(self._stop), self._config.secrets) if self._stop else None,
            slices={
                "planned": sum(1 for head in self._heads.values() if head.count),
                "done": self._book.done,
                "attempts": self._book.attempts,
                "set aside": len(aside),
            },
        )
        write_running(self._directory, self._merged.total(), 0, 0, 0)
        log = partial(self._progress.log, "warning")
        heads, dones = self._heads.values(), self._dones.values()
        return write_results(self._config, self._directory, heads, dones, report, log)
