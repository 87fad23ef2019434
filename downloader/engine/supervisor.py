"""Supervise a run: fork, lease, watch, reap. One thread, never patched, one event loop.

::

    feeder ──Batch──► journal row ──► lease book ──Lease──► worker
                                          ▲                   │
              (sync,) journal row ◄───┴──── BatchDone ◄───┘

Everything that happens is an event of one ``select``: a frame from a child, the exit of a child (its
socketpair closes), a signal, a tick. It moves opaque bytes per batch, and does no work per file.
"""

from __future__ import annotations

import math
import mmap
import os
import selectors
import signal
from collections.abc import Callable
from time import monotonic

from downloader.config.config import Config
from downloader.core.leases import DEATHS_TO_POISON, LeaseBook
from downloader.core.pipeline_window import longest_drain
from downloader.core.reached_hosts import ReachedHosts
from downloader.core.respawn import MAX_BLAMELESS_DEATHS, MAX_FAILED_FEEDERS, RespawnLimits
from downloader.core.state_machine import transition
from downloader.core.worker_counts import WorkerCounts
from downloader.engine.batch_queue import BatchQueue
from downloader.engine.checkpoint import Checkpoint
from downloader.engine.children import feeder_main, worker_main
from downloader.engine.coordination import Coordinator, RateShares
from downloader.engine.process_pool import FEEDER, Process, ProcessPool, describe
from downloader.engine.run_phase import ENDING, TRANSITIONS, Phase, RunEvent
from downloader.engine.signals import Signals
from downloader.errors import BootError, ConfigError, DestinationError, DownloaderError, SourceError
from downloader.messages import (
    Batch,
    BatchDone,
    Credit,
    Drain,
    Ended,
    Failure,
    Finish,
    FromChild,
    Heartbeat,
    HostCrowded,
    HostPause,
    Lease,
    Log,
    Moved,
    Narrowed,
    OutOfOrder,
    Rate,
    Ready,
    Returned,
    Stop,
    Tally,
    Types,
)
from downloader.process.spawn import ChildMain
from downloader.reporting.progress import Progress, Totals
from downloader.reporting.report import failed_text
from downloader.reporting.stats import RunStats
from downloader.storage.destination import Destination
from downloader.storage.journal import Journal
from downloader.storage.name_owners import CHUNK

__all__ = ["RunStats", "Supervisor"]

_TICK = 0.2
_SAME_AGAIN = 300.0  # seconds for which a line that each worker may send is told once
_LOOK_EVERY = 1.0  # seconds between two looks at whether the destination is still there


class Supervisor:
    """One run over an open destination. Call ``run()`` once."""

    def __init__(
        self,
        config: Config,
        destination: Destination,
        progress: Progress,
        *,
        abandoned: Callable[[], bool] | None = None,
        coordinator: Coordinator | None = None,
    ) -> None:
        self._config = config
        self._destination = destination
        self._journal: Journal = destination.journal
        self._progress = progress
        self._abandoned = abandoned
        self._coordinator = coordinator
        self._selector = selectors.DefaultSelector()
        self._pool = ProcessPool(self._selector)
        self._book = LeaseBook()
        self._out_of_order: set[str] = set()  # hosts
        self._told: dict[str, float] = {}  # lines that concern all workers, and when they were told
        # Anonymous and inherited by each worker, so also by one that replaces another.
        shared = memoryview(mmap.mmap(-1, ReachedHosts.SIZE))
        self._reached = ReachedHosts(shared, monotonic())
        self._counts = WorkerCounts(memoryview(mmap.mmap(-1, WorkerCounts.SIZE)))
        shards = config.sink_kind.shard_items(config) > 0
        self._queue = BatchQueue(
            self._journal, failed_only=config.retry_failed, shards=shards, relisting=destination.relisting
        )
        self._queue.types = config.column_types
        self._number = 0
        self._limits = RespawnLimits()
        self._phase = Phase.FETCHING
        self._drain_by = math.inf  # when a drain has taken too long (seconds, monotonic)
        self._rates = RateShares(config.rate)
        self._has_leased = False
        self._look_at = 0.0  # when to look at the destination again (seconds, monotonic)
        self._forgotten: list[Lease] = []
        self.result = RunStats()
        self._checkpoint = Checkpoint(destination, self._book, self.result)

    def run(self) -> RunStats:
        """Fetch until every item is finished, or an error ends the run. Never leaves a process behind."""
        with Signals(self._selector) as signals:
            try:
                self._start()
                while self._pool:
                    self._iterate(signals)
                self._check_end()
            except DownloaderError as error:
                self._stop(error)
            finally:
                self._kill_all()
        self._selector.close()
        self._add_unreported()
        self.result.cpu_seconds, self.result.worker_rss = self._pool.cpu_seconds, self._pool.worker_rss
        return self.result

    def _start(self) -> None:
        # The feeder first: workers have nothing to do before its first batch.
        self._spawn_feeder()
        for _ in range(self._config.worker_count):
            self._spawn_worker()

    def _spawn_feeder(self, tries: int = 0) -> None:
        config = self._config
        main = feeder_main(config, self._destination)
        self._spawn(FEEDER, main, tries, stdin=config.reads_stdin, plain=config.reads_files)

    def _spawn_worker(self, tries: int = 0) -> None:
        number = self._number
        self._number += 1
        main = worker_main(self._config, self._destination, number, self._reached, self._counts)
        self._spawn(number, main, tries)

    def _spawn(self, number: int, main: ChildMain, tries: int, **how: bool) -> None:
        self._pool.spawn(number, main, keep=self._destination.inherited, tries=tries, **how)

    def _enter(self, event: RunEvent) -> None:
        self._phase = transition(TRANSITIONS, self._phase, event)

    # event loop

    def _iterate(self, signals: Signals) -> None:
        events = self._selector.select(_TICK)
        if any(key.data == "signals" for key, _ in events):
            signals.woke()
        for number in signals.pending():
            self._on_signal(number)
        for key, mask in events:
            process = self._pool.get(key.data) if isinstance(key.data, int) else None
            if process is not None:
                self._serve(process, mask)
        self._write_checkpoint()
        self._check_processes()
        self._dispatch()
        self._progress.update(self._totals, self._queue.done)
        for order in self._coordinator.exchange(lambda: self._totals().tally) if self._coordinator else ():
            if isinstance(order, Rate):
                self._rates.change(order.per_second)
            elif isinstance(order, HostPause):
                self._pool.send_all(order, but=(FEEDER,))
            else:
                self._interrupt()

    def _totals(self) -> Totals:
        pool = self._pool
        return Totals(self.result.tally + pool.live(), pool.receiving(), *pool.waiting())

    def _write_checkpoint(self) -> None:
        if self._checkpoint.write():
            self._limits.record_outcome()

    def _serve(self, process: Process, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            process.link.flush()
        if not mask & selectors.EVENT_READ:
            return
        messages, is_open = process.link.receive()
        for message in messages:
            process.silence = 0.0
            self._handle(process, message)
        if not is_open:
            self._reap(process)

    def _dispatch(self) -> None:
        """Lease waiting batches, request more from the feeder, and detect the end."""
        if self._phase not in (Phase.DRAINING, Phase.KILLING):
            for worker, lease in self._book.assign():
                self._pool.send(worker, lease)
                self._has_leased = True
            self._request_batches()
            self._rates.divide(self._book.busy(), self._pool.send)
            drained = self._queue.drained and not self._book.open and self._phase is not Phase.FINISHING
            if drained and not self._fetch_contested():
                self._enter(RunEvent.OVER)
                self._pool.send_all(Finish())
        self._pool.listen_for_room()

    def _fetch_contested(self) -> bool:
        """Fetch the items again, once, whose name no other item owns; return whether there are any."""
        if self.result.stop is not None:
            return False
        claims = {} if self._phase is Phase.SETTLING else self._destination.settle_names()
        if claims and self._config.reads_stdin:
            count = sum(map(len, claims.values()))
            self._progress.log(
                "warning",
                f"{count} files failed for names that no other item owns; the same command fetches them",
            )
            claims = {}
        for failure in self._journal.take_names(claims, CHUNK):
            self.result.tally += Tally(failed=1)
            self._log_failed(failure)
        if not claims:
            return False
        self._enter(RunEvent.CONTESTED)
        self._queue.revisit(claims)
        if self._pool.get(FEEDER) is None:
            self._spawn_feeder()
        return True

    def _request_batches(self) -> None:
        """Request as many batches as workers can take, and at least one in reserve for each."""
        feeder = self._pool.get(FEEDER)
        if feeder is not None and feeder.ready and not self._queue.done:
            for request in self._queue.next_requests(self._config.worker_count + self._book.ready_target):
                feeder.link.send(request)

    # messages from children

    def _handle(self, process: Process, message: FromChild) -> None:
        number = process.number
        if isinstance(message, Heartbeat):
            process.live, process.receiving = message.tally, message.receiving
            process.waiting, process.hosts = message.waiting, message.hosts
            if number != FEEDER:
                self.result.record_heartbeat(number, message)
        elif isinstance(message, (Types, Batch)):
            self._add_listed(message)
        elif isinstance(message, (BatchDone, Narrowed, Returned)):
            self._add_outcome(process, message)
        elif isinstance(message, Credit):
            self._book.grant(number, message.batches)
        elif isinstance(message, Ready):
            self._child_ready(process, message)
        elif isinstance(message, Ended):
            self._destination.begin_anew()
            self._journal.end(limited=message.limited)
            self._queue.end()
        elif isinstance(message, HostCrowded):
            self._pool.send_all(message, but=(number, FEEDER))
        elif isinstance(message, (HostPause, OutOfOrder, Moved)):
            self._pass_on(number, message)
        elif isinstance(message, Log):
            self._tell(message)
        elif isinstance(message, Stop):
            self._child_stopped(message)

    def _tell(self, line: Log) -> None:
        now = monotonic()
        if line.shared:
            if now - self._told.get(line.text, -math.inf) < _SAME_AGAIN:
                return
            self._told[line.text] = now
        self._progress.log(line.level, line.text)

    def _add_outcome(self, process: Process, outcome: BatchDone | Narrowed | Returned) -> None:
        self._checkpoint.add(process.number, outcome)
        process.reported(outcome.tally)
        for failure in () if isinstance(outcome, Returned) else outcome.failures:
            if failure.code != "name-taken":  # that is told when it is known who owns the name
                self._log_failed(failure)

    def _log_failed(self, failure: Failure) -> None:
        if self._config.verbose:
            self._progress.log("info", f"failed: {failed_text(failure)}")

    def _pass_on(self, number: int, found: HostPause | OutOfOrder | Moved) -> None:
        """Tell the other workers what worker ``number`` has found; count files that are doubtful."""
        if isinstance(found, HostPause):
            self._pool.send_all(found, but=(number, FEEDER))
            if self._coordinator is not None:
                self._coordinator.paused(found)
            return
        if isinstance(found, Moved):
            self._doubt(found.files, f"{found.host} sent a response that nobody asked for")
            return
        if found.host not in self._out_of_order:
            self._out_of_order.add(found.host)
            self._pool.send_all(OutOfOrder(found.host), but=(number, FEEDER))
        if found.files:
            self._doubt(found.files, f"{found.host} answers requests on one connection out of order")

    def _doubt(self, files: int, why: str) -> None:
        self._journal.doubt(files)
        self._progress.log(
            "warning",
            f"{why}: {files:,} files that a worker stored before this was found may have the bodies of "
            "others",
        )

    def _child_ready(self, process: Process, message: Ready) -> None:
        process.ready = True
        process.tries = 0
        self.result.record_ready(message)
        if process.number != FEEDER:
            self._book.add_worker(process.number)

    def _add_listed(self, batch: Types | Batch) -> None:
        if isinstance(batch, Types):
            self._destination.settle_types(batch.text)
            self._queue.types = batch.text
            self._config = self._destination.config_of_job()  # for another feeder, should this one die
            return
        self._limits.record_batch()
        self._destination.begin_anew()
        if (lease := self._queue.on_batch(batch)) is not None:
            self._book.add(lease)
            return
        self._journal.open_batch(batch)
        self._progress.listed(batch.count, batch.position)
        if batch.count:
            self._book.add(self._queue.lease(batch))
        else:
            # A page without names: the row keeps its cursor.
            self._journal.record_done(BatchDone(batch.seq, Tally(), 0, 0, 0, {}, {}, b"", []), b"")

    def _child_stopped(self, message: Stop) -> None:
        error = DownloaderError(message.text)
        # The code of a wrong configuration says that nothing was started.
        if message.exit_code != ConfigError.exit_code or not self._has_leased:
            error.exit_code = message.exit_code
        if message.detail:
            self.result.details.append(message.detail)
        if message.source_broke:
            self._source_broke(error)
        else:
            self._stop(error)

    def _source_broke(self, error: DownloaderError) -> None:
        """Record that the source failed: listed items are still fetched, then the run ends incomplete."""
        self.result.stop = self.result.stop or error
        self._queue.give_up()

    # exits of children

    def _check_processes(self) -> None:
        if self._abandoned is not None and not self.result.interrupted and self._abandoned():
            self._interrupt()
        if monotonic() > self._drain_by:
            self._kill_all()
            return
        if monotonic() > self._look_at:
            self._look_at = monotonic() + _LOOK_EVERY
            self._destination.touch()
            if (displaced := self._destination.displaced()) is not None:
                self._stop(displaced)
        limit = self._config.stall_timeout
        for process in self._pool.stuck(limit):
            role = "the feeder" if process.number == FEEDER else f"worker {process.pid}"
            if process.killed:
                # Another in its place would fare no better, and its files are not to blame.
                self._stop(
                    DestinationError(
                        f"{role} cannot be killed: it waits for a disk that does not answer; look after "
                        "the disk, then run the same command again"
                    )
                )
                self._reap(process)
                continue
            self._progress.log("warning", f"{role} gave no sign of life for {limit:.0f} s; killed")
            self._pool.kill(process)

    def _reap(self, process: Process) -> None:
        """Reap a child whose link is closed, and start another for its work unless the run is ending."""
        self._write_checkpoint()
        status = self._pool.reap(process)
        worker = process.number != FEEDER
        refused = worker and os.waitstatus_to_exitcode(status) == -signal.SIGBUS
        if refused and self._phase not in ENDING:
            # Another in its place would fare no better, and its files are not to blame: the run ends.
            self._stop(self._destination.refused_page())
        blamed = worker and self._inherit_ledger(process.number)
        if self._phase in ENDING:
            self.result.deaths += worker and os.WIFSIGNALED(status)
            return
        if not worker and self._queue.drained:
            return
        if not process.ready:
            process.tries += 1
            if self._limits.failed_boot(process.tries):
                self._stop(BootError(f"a child process ends while it starts ({describe(status)})"))
                return
        self.result.deaths += worker
        if worker:
            self._replace_worker(process, status, blamed)
        else:
            self._replace_feeder(process, status)

    def _inherit_ledger(self, number: int) -> bool:
        """Record a dead worker's ledger in the journal and the lease book.

        Returns whether the worker died with files in flight.
        """
        found = self._destination.ledgers.inherit(number, self._book.held_by(number))
        for seq, index in self._book.died(number, found):
            self._progress.log(
                "warning", f"item {index} of batch {seq} killed {DEATHS_TO_POISON} workers; set aside"
            )
        return any(in_flight for _, in_flight in found.values())

    def _replace_worker(self, process: Process, status: int, blamed: bool) -> None:
        text = f"worker {process.pid} died ({describe(status)})"
        if self._limits.worker_death(blamed):
            self._stop(BootError(f"{text}, the {MAX_BLAMELESS_DEATHS}th in a row with no file in flight"))
            return
        self._progress.log("warning", f"{text}; its files go to another")
        self._spawn_worker(process.tries)

    def _replace_feeder(self, process: Process, status: int) -> None:
        text = f"the feeder died ({describe(status)})"
        too_many = self._limits.failed_feeder()
        if self._config.reads_stdin:
            self._source_broke(SourceError(f"{text} and standard input cannot be read again"))
        elif too_many:
            self._source_broke(
                SourceError(f"{text}, the {MAX_FAILED_FEEDERS}rd in a row at the same place")
            )
        else:
            self._progress.log("warning", f"{text}; another takes over")
            self._queue.feeder_lost()
            self._spawn_feeder(process.tries)

    # ending

    def _check_end(self) -> None:
        """Determine whether everything was read and fetched, once all children have exited.

        Raises SourceError where --retry-failed is done but the source was never read to its end,
        DestinationError where what was stored is not there any more.
        """
        if (displaced := self._destination.displaced()) is not None:
            raise displaced
        journal = self._journal
        self.result.ended = self._queue.done and self.result.stop is None
        retried = self._config.retry_failed and self.result.ended and not self.result.interrupted
        if retried and (not journal.read or journal.open_count()):
            raise SourceError(
                "what had failed was tried again, but the source was never read to its end; "
                "leave out --retry-failed to go on"
            )

    def _on_signal(self, number: int) -> None:
        if self.result.interrupted:
            self._kill_all()
            return
        again = "Ctrl-C again" if number == signal.SIGINT else "a second one"
        self._progress.log(
            "warning", f"{signal.Signals(number).name}: finishing what is in flight; {again} ends at once"
        )
        self._interrupt()

    def _interrupt(self) -> None:
        self.result.interrupted = True
        self._drain()

    def _stop(self, error: DownloaderError) -> None:
        if self.result.stop is None:
            # What has failed because the destination is gone says less, in many ways.
            self.result.stop = self._destination.displaced() or error
        self._drain()

    def _drain(self) -> None:
        if self._phase in (Phase.DRAINING, Phase.KILLING):
            return
        self._enter(RunEvent.DRAIN)
        grace = self._config.drain_grace
        self._drain_by = monotonic() + longest_drain(grace) + 2.0
        self._forgotten += self._book.forget_waiting()
        self._pool.send_all(Drain(grace), but=(FEEDER,))
        if feeder := self._pool.get(FEEDER):
            self._pool.kill(feeder)

    def _add_unreported(self) -> None:
        """Count what was stored of the batches whose workers did not live to report it."""
        try:
            left = [*self._forgotten, *self._book.forget_waiting(), *self._book.held()]
            self.result.tally += self._destination.ledgers.unreported(left)
        except DownloaderError as error:
            self.result.stop = self.result.stop or error

    def _kill_all(self) -> None:
        """Kill and reap all remaining children; what they have published is in their ledgers."""
        self._enter(RunEvent.KILL)
        for process in self._pool:
            self._pool.kill(process)
        for process in self._pool:
            self._pool.reap(process)
            try:
                if process.number != FEEDER:
                    self._inherit_ledger(process.number)
            except DownloaderError as error:
                # The ledger is kept; the next run reads it.
                self.result.stop = self.result.stop or error
