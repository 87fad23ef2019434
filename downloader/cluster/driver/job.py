"""Run a job over the nodes of a Ray cluster: plan its slices, have them run, and make one report."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import signal
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType

from downloader.cluster.driver.fleet_client import FleetClient
from downloader.cluster.driver.job_shards import align_to_shards
from downloader.cluster.driver.job_slices import JobSlices
from downloader.cluster.driver.lost_disks import gone, is_local, lost_text, write_down_lost
from downloader.cluster.driver.manifest import write_cluster_manifest
from downloader.cluster.driver.plan_home import PlanHome, forget_all, plan_home
from downloader.cluster.driver.slicer_process import SlicerProcess
from downloader.cluster.driver.status import write_running
from downloader.cluster.driver.stored_there import check_bucket, has_all
from downloader.cluster.node.task import AttemptResult, PlanAt, SliceTask
from downloader.cluster.plan import configs
from downloader.cluster.plan.plan import Plan, SliceRecord, digest_of
from downloader.config.config import Config
from downloader.core.bucket_place import is_bucket
from downloader.core.naming import COLON
from downloader.core.redact import redact
from downloader.core.slices import Shares, shares
from downloader.engine.job import Finished
from downloader.engine.source_check import check_source
from downloader.errors import ConfigError, DestinationError, DownloaderError, SourceError
from downloader.files.below import seen_from
from downloader.messages import Failure, Tally
from downloader.process.watching import stalled_text
from downloader.reporting import report as reports
from downloader.reporting.figures import Figures
from downloader.reporting.progress import Progress, Totals
from downloader.sinks.bucket_patience import end_waiting
from downloader.sinks.registry import check_place
from downloader.storage.homes import make_directory
from downloader.storage.lock import locked_destination
from downloader.storage.name_key import key_digest
from downloader.storage.name_probes import colon_of
from downloader.storage.places import began_at, check_mounted, foreign_before

__all__ = ["run_cluster"]

_COLLECT_EVERY = 1.0  # seconds
_LOOK_EVERY = 0.2  # for slices that the slicer has made
_SAVE_EVERY = {False: 1.0, True: 10.0}  # what `status` shows; True: in a bucket, where each costs a request
_DRAIN_GRACE = 20.0


def run_cluster(config: Config) -> Finished:
    """Run ``config`` to its end on the cluster; the report has the outcome, including ``exit_code``.

    Raises ConfigError, InUse, DestinationError, JournalError, BootError where the run could not begin.
    """
    config = configs.absolute(align_to_shards(config))
    apart = config.is_bucket or is_local(config)
    made = not apart and _prepare_output(config)
    progress = Progress(config)
    # Also from runs whose journals or plans are elsewhere; the slices share it.
    alone = contextlib.nullcontext() if apart else locked_destination(config.output)
    with plan_home(config, lambda text: progress.log("warning", text)) as home, alone:
        found = home.directory.read()
        if config.retry_failed and found is None:
            raise ConfigError(
                f"{home.directory.root} has no plan, so nothing to retry; leave out --retry-failed"
            )
        # What is a DEST on each node, or a bucket, cannot be looked at from here.
        stored = 0 if found is None or apart or config.restart else home.directory.count_stored()
        if found is not None and stored:
            check_mounted(
                config.output, found.began_ns, stored, lambda: has_all(home.directory, config.output)
            )
        check_place(config)
        if found is not None and config.is_bucket and not config.restart:
            check_bucket(home.directory, config.output, config.bucket_access)
        if config.restart or found is None:
            config.sink_kind.check_begin(config)
            if not config.reads_stdin:  # of which the process that cuts slices needs all
                check_source(config, begun=False)
        mine = Plan(
            *(digest_of(config), config.shown_source, config.output, config.slice_files),
            shared_since_ns=0 if apart else foreign_before(config.output),
            store=config.store,
            identity=config.sink_kind.identity(config),
            id=os.urandom(16).hex(),
            # Nobody knows what the disks of all nodes take.
            colon=COLON if apart or (found and not config.restart) else colon_of(config),
            naming=config.naming,
            key=key_digest(home.name_key),
            began_ns=began_at(config.output, made=made) if config.journal and not apart else 0,
        )
        if config.restart:
            forget_all(config.journal_root)
        plan = home.directory.open(mine, restart=config.restart)
        config = configs.changed(config, colon=plan.colon, naming=plan.naming)
        return _Driver(config, home, plan, progress).run()


def _prepare_output(config: Config) -> bool:
    """Make DEST and check it; return whether it was made. Raises ConfigError."""
    output = config.output
    for what, path in config.own_files:
        if seen_from(output, path).startswith(os.path.realpath(output) + os.sep):
            raise ConfigError(f"{path} ({what}) is in DEST, which all nodes write to; put it elsewhere")
    if config.journal:
        return make_directory("-o", Path(output))
    return False


class _Driver:
    """One run of a job."""

    def __init__(self, config: Config, home: PlanHome, plan: Plan, progress: Progress) -> None:
        self._config = config
        self._home = home
        self._directory = home.directory
        self._plan = plan
        self._at = PlanAt(config.journal_root, config.journal_access)
        self._slices = JobSlices(config, home.directory, plan.slice_files, progress)
        self._book = self._slices.book
        self._stop: DownloaderError | None = None
        self._signals = 0
        self._drain_by = 0.0
        self._most_running = 0
        self._share: Shares | None = None  # that of the Config which slices get
        self._progress = progress
        self._saved = 0.0

    def run(self) -> Finished:
        began = time.monotonic()
        if is_local(self._config):
            self._run_with(FleetClient(self._config))
        else:
            self._slices.load()
            if self._book.waiting or not (self._slices.sliced or self._config.retry_failed):
                self._run_with(FleetClient(self._config))
        self._progress.end()
        try:
            self._slices.shards.finish(self._slices.by_name)
        except DestinationError as error:
            self._stop = self._stop or error
        return self._finish(time.monotonic() - began)

    def _run_with(self, fleet: FleetClient) -> None:
        try:
            if is_local(self._config):
                if self._config.retry_failed:
                    write_down_lost(self._directory, self._lost(fleet), self._plan.slice_files)
                self._slices.load()
            self._run_on(fleet)
            if is_local(self._config) and self._stop is None and (lost := self._lost(fleet)):
                self._stop = DestinationError(lost_text(lost))
        except DownloaderError as error:
            self._stop = self._stop or error
        finally:
            fleet.close()
        try:
            self._take_up_done()
        except DownloaderError as error:
            self._stop = self._stop or error

    def _take_up_done(self) -> None:
        """Count the slices that were done when the cluster was lost, or the job was ended."""
        for name in sorted(self._book.running):
            if (done := self._directory.done(name)) is not None:
                self._slices.shards.ended(done, settled=False)
                self._book.ended(name, "done")
                self._slices.record(done)

    def _lost(self, fleet: FleetClient) -> list[SliceRecord]:
        """Return the slices whose files are on disks that are gone."""
        disks = fleet.disks(self._config.output, self._plan.id)
        return gone(self._directory.records(), disks)

    def _run_on(self, fleet: FleetClient) -> None:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        slicer = None
        try:
            end_waiting(False)
            for number in before:
                signal.signal(number, self._on_signal)
            if not self._slices.sliced and not self._config.retry_failed:
                slicer = SlicerProcess(self._config, self._home.name_key, *self._slices.sliced_so_far())
            self._loop(fleet, slicer)
        finally:
            if slicer is not None:
                slicer.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        end_waiting(True)

    # the loop

    def _loop(self, fleet: FleetClient, slicer: SlicerProcess | None) -> None:
        collected = 0.0
        slots = fleet.slots(self._workers)
        while True:
            if slicer is not None:
                slicer = self._read_slicer(slicer)
                self._slices.plan_failed()
            share = shares(slots, self._workers, self._config.per_host)
            if not self._draining:
                self._launch(fleet, share)
            if not self._book.running and (self._draining or (slicer is None and not self._book.waiting)):
                return
            # The end of a slice wakes it up.
            for outcome in fleet.wait(_COLLECT_EVERY if slicer is None else _LOOK_EVERY):
                self._on_outcome(fleet, outcome)
            now = time.monotonic()
            if now - collected >= _COLLECT_EVERY:
                collected = now
                slots = fleet.slots(self._workers)
                self._collect(fleet, slots)
            self._drain(fleet, now)
            self._progress.update(lambda: Totals(self._tally(fleet)), slicer is None)

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
                self._slices.made(event["name"], event["position"])
            elif event["event"] == "log":
                self._progress.log(*event["log"])
            elif event["event"] == "error":
                error = SourceError(event["text"])
                error.exit_code = event["exit_code"]
                self._stop = self._stop or error
        if is_open and not self._draining:
            if not slicer.stalled:
                return slicer
            self._progress.log("warning", f"the process that reads the source {stalled_text(slicer.limit)}")
        slicer.kill()
        if not self._slices.sliced and self._stop is None and not self._draining:
            if slicer.may_start_again():
                self._progress.log("warning", "the process that reads the source died; another takes over")
                return slicer.again(*self._slices.sliced_so_far())
            if self._config.reads_stdin:
                text = "the process that reads the source died, and standard input cannot be read again"
            else:
                text = "the process that reads the source died three times; the same command goes on"
            self._stop = SourceError(text)
        return None

    def _launch(self, fleet: FleetClient, share: Shares) -> None:
        running, workers, per_host = share
        if share != self._share:
            self._share = share
            since = self._plan.shared_since_ns
            fleet.configure(configs.for_slices(self._config, workers, per_host, since))
        while len(self._book.running) < running and (name := self._book.next()) is not None:
            self._most_running = max(self._most_running, len(self._book.running))
            rate = self._config.rate / min(running, len(self._book.running) + self._book.waiting)
            plan = self._plan.id or self._plan.digest
            fleet.start(
                SliceTask(
                    *(name, plan, self._at, self._config.scratch, rate),
                    items=self._slices.by_name[name].items,
                    types=self._slices.by_name[name].types,
                    local=is_local(self._config),
                ),
                workers,
            )

    def _on_outcome(self, fleet: FleetClient, outcome: AttemptResult) -> None:
        name = outcome.name
        self._slices.sums.tally += Tally(replaced=outcome.replaced)
        done = self._directory.done(name)
        if done is not None:
            # Whichever attempt was first, even if this one was lost right after it.
            self._slices.shards.ended(done, settled=outcome.how == "done")
            self._book.ended(name, "done")
            self._slices.record(done)
            self._directory.sweep(done)
        elif outcome.how == "done":
            self._ended(AttemptResult(name, "failed", "its record is not there"))
        else:
            self._ended(outcome)

    def _ended(self, outcome: AttemptResult) -> None:
        reason = redact(outcome.reason, self._config.secrets)
        aside = self._book.ended(outcome.name, outcome.how, reason)
        if aside:
            self._progress.log("warning", f"slice {outcome.name} is set aside: {reason}")
        elif outcome.how != "drained":
            self._progress.log("warning", f"slice {outcome.name} runs again: {reason}")

    def _collect(self, fleet: FleetClient, slots: int) -> None:
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

    def _tally(self, fleet: FleetClient) -> Tally:
        return self._slices.sums.total() + fleet.live(self._book.running)

    def _drain(self, fleet: FleetClient, now: float) -> None:
        if not self._draining:
            return
        if not self._drain_by:
            self._progress.log(
                "warning", "finishing what is in flight on all nodes; Ctrl-C again ends at once"
            )
            self._drain_by = now + _DRAIN_GRACE + self._config.drain_grace
            fleet.collect(0.0, True)
        if self._signals > 1 or now > self._drain_by:
            for name in fleet.cancel():
                self._book.ended(name, "drained")

    # the end

    def _finish(self, seconds: float) -> Finished:
        aside = self._book.abandoned
        if self._stop is None and aside:
            name, reason = next(iter(aside.items()))
            self._stop = DownloaderError(
                f"{len(aside)} slices are set aside, the first {name}: {reason}; the same command tries "
                "them again"
            )
        if self._stop is None and not self._signals and (self._slices.is_left() or not self._slices.sliced):
            tried = "was not" if self._slices.is_failed_left else "was"
            self._stop = SourceError(
                f"what had failed {tried} tried again: the source was never read to its end; "
                "leave out --retry-failed to go on"
            )
        self._slices.sums.tally += Tally(replaced=self._slices.shards.replaced)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        figures = Figures(cpu={"driver": usage.ru_utime + usage.ru_stime}) + self._slices.sums.figures()
        running, tally = max(self._most_running, 1), figures.tally
        report = reports.make(
            dataclasses.replace(figures, connections=figures.connections * running),
            source=self._config.shown_source,
            output=self._config.output,
            complete=not self._signals and self._stop is None,
            listed=self._slices.listed,
            seconds=seconds,
            workers=self._workers * running,
            failed_by_error=self._slices.sums.failed_by_error(),
            resumed=self._slices.resumed,
            exit_code=reports.exit_code_of(
                interrupted=self._signals > 0, stop=self._stop, wrong=tally.failed + tally.doubtful
            ),
            stopped_by=redact(str(self._stop), self._config.secrets) if self._stop else None,
            nodes=self._slices.sums.nodes,
            slices=self._slices.counts(),
        )
        write_running(self._directory, self._slices.sums.total(), 0, 0, 0)
        log = partial(self._progress.log, "warning")
        slices = list(self._slices.by_name.values())
        report = reports.write_files(
            self._config,
            report,
            manifest=lambda: write_cluster_manifest(self._config, self._directory, slices, log),
            failures=self._failures,
        )
        return Finished(report, list(islice(self._failures(), reports.FAILURES_SHOWN)), [], {})

    def _failures(self) -> Iterator[Failure]:
        for done in self._slices.records.values():
            for each in self._directory.failed(done):
                yield each.failure
