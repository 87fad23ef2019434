"""The supervisor: forks, leases, watches, reaps; one thread, never patched, one loop.

::

    feeder ──Batch──► journal row ──► lease book ──Lease──► worker
                                          ▲                   │
                          journal row ◄───┴──── BatchDone ◄───┘

Everything that happens is an event of one ``select``: a frame from a child, the end of a child (its
socketpair closes), a signal, a tick. Per batch it moves opaque bytes; it does nothing per file.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from downloader.channel import Link
from downloader.child import fork
from downloader.config import Config
from downloader.core import marks as core_marks
from downloader.core.latency import Histogram
from downloader.core.leases import LeaseBook
from downloader.destination import Destination
from downloader.errors import BootError, DownloaderError, JournalError, SourceError
from downloader.journal import BatchRow, Journal
from downloader.ledger import read as read_ledger
from downloader.model import (
    Batch,
    BatchDone,
    Continue,
    Credit,
    Drain,
    Ended,
    Finish,
    FromChild,
    Heartbeat,
    HostPause,
    Lease,
    Log,
    Rate,
    Ready,
    Recall,
    Returned,
    Stop,
    Tally,
)
from downloader.progress import Progress
from downloader.signals import Signals

__all__ = ["Run", "Supervisor"]

_TICK = 0.2
_BOOTS = 3
_FEEDER = -1


@dataclass
class Run:
    """What a run came to; the report is made from it."""

    tally: Tally = field(default_factory=Tally)
    requests: int = 0
    retries: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)
    peak_connections: dict[int, int] = field(default_factory=dict)
    deaths: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    preflight: str = ""
    cpu_seconds: float = 0.0
    worker_rss: int = 0  # KiB
    ended: bool = False
    interrupted: bool = False
    killed: bool = False
    stop: DownloaderError | None = None
    details: list[str] = field(default_factory=list)


@dataclass
class _Process:
    pid: int
    link: Link
    ready: bool = False
    heard: float = 0.0
    live: Tally = field(default_factory=Tally)


class Supervisor:
    """One run over an open destination. ``run()`` once."""

    def __init__(
        self,
        config: Config,
        destination: Destination,
        progress: Progress,
        *,
        abandoned: Callable[[], bool] | None = None,
    ) -> None:
        self._config = config
        self._destination = destination
        self._journal: Journal = destination.journal
        self._progress = progress
        self._abandoned = abandoned
        self._book = LeaseBook()
        self._processes: dict[int, _Process] = {}
        self._number = 0
        self._failed_boots = 0
        self._selector = selectors.DefaultSelector()
        self._wanted = 0  # batches asked of the feeder and not come yet
        self._recalls: Iterator[BatchRow] = iter(())
        self._recalled: dict[int, BatchRow] = {}
        self._recalling = True
        self._source_done = False
        self._finishing = False
        self._drain_by: float | None = None
        self._busy_workers = 0
        self.result = Run()

    def run(self) -> Run:
        """Fetch until everything has its end, or something ends the run. Never leaves a process."""
        with Signals(self._selector) as signals:
            try:
                self._start()
                while self._processes:
                    self._turn(signals)
            except DownloaderError as error:
                self._stop(error)
            finally:
                self._kill_all()
        return self.result

    def _start(self) -> None:
        # The feeder first: it is the slowest to have something to do.
        self._hire(_FEEDER)
        for _ in range(self._config.worker_count):
            self._hire_worker()
        self._recalls = self._journal.unfinished(failed_only=self._config.retry_failed)

    def _hire_worker(self) -> None:
        self._hire(self._number)
        self._number += 1

    def _hire(self, number: int) -> None:
        config, destination = self._config, self._destination
        keep = (destination.lock_fd,)
        if number == _FEEDER:

            def main(link: object, ready: object) -> None:
                from downloader import feeder

                feeder.run(config, link, ready)  # type: ignore[arg-type]
        else:
            ledger = destination.ledger(number)

            def main(link: object, ready: object) -> None:
                from downloader import worker

                setup = worker.Setup(number, ledger, destination.job.foreign_before_ns)
                worker.run(config, setup, link, ready)  # type: ignore[arg-type]

        try:
            child = fork(main, keep=keep, stdin=number == _FEEDER and config.source == "-")
        except OSError as error:
            raise BootError(f"cannot fork a process: {error.strerror}") from error
        self._processes[number] = _Process(child.pid, child.link, heard=monotonic())
        self._selector.register(child.link, selectors.EVENT_READ, number)

    # the loop

    def _turn(self, signals: Signals) -> None:
        slept_from = monotonic()
        events = self._selector.select(_TICK)
        late = monotonic() - slept_from - _TICK
        for number in signals.pending():
            self._signalled(number)
        for key, mask in events:
            if isinstance(key.data, int) and key.data in self._processes:
                self._serve(key.data, mask)
        if late > 1.0:
            # We did not run (stopped, or the machine slept); silence meanwhile proves nothing.
            for process in self._processes.values():
                process.heard = monotonic()
        self._look_after()
        self._flow()
        self._progress.update(self._tally_now(), self._position_listed)

    def _serve(self, number: int, mask: int) -> None:
        process = self._processes[number]
        if mask & selectors.EVENT_WRITE:
            process.link.flush()
        if not mask & selectors.EVENT_READ:
            return
        messages, is_open = process.link.receive()
        for message in messages:
            process.heard = monotonic()
            self._hear(number, process, message)
        if not is_open:
            self._bury(number)

    def _flow(self) -> None:
        """Lease what waits, ask the feeder for more, and notice the end."""
        if self._drain_by is None:
            for worker, lease in self._book.assign():
                self._processes[worker].link.send(lease)
            self._feed()
            self._share_rate()
            if self._source_done and not self._book.open and not self._wanted:
                self._finish()
        for number, process in self._processes.items():
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.link.outgoing else 0)
            if self._selector.get_key(process.link).events != mask:
                self._selector.modify(process.link, mask, number)

    def _feed(self) -> None:
        """Ask for as many batches as workers can take, and one in reserve for each."""
        feeder = self._processes.get(_FEEDER)
        if feeder is None or not feeder.ready or self._source_done:
            return
        room = self._config.worker_count + self._book.appetite - self._wanted
        while room > 0 and self._recalling:
            row = next(self._recalls, None)
            if row is None:
                self._recalling = False
                self._go_on(feeder)
                break
            self._recalled[row.seq] = row
            feeder.link.send(Recall(row.seq, row.count, row.names, row.origin))
            self._wanted += 1
            room -= 1
        if room > 0 and not self._recalling and not self._source_done:
            feeder.link.send(Credit(room))
            self._wanted += room

    def _go_on(self, feeder: _Process) -> None:
        if self._config.retry_failed or self._journal.ended:
            self._source_ended()
            return
        cursor, seq, listed = self._journal.position()
        feeder.link.send(Continue(cursor, listed, seq))

    def _source_ended(self) -> None:
        """Nothing more will come from the feeder but what was recalled."""
        self._source_done = True
        self._wanted = len(self._recalled)
        self.result.ended = self.result.stop is None

    def _finish(self) -> None:
        if not self._finishing:
            self._finishing = True
            for process in self._processes.values():
                process.link.send(Finish())

    def _share_rate(self) -> None:
        """--rate is for all workers together: those that have work share it."""
        busy = len(self._book.busy())
        if self._config.rate and busy and busy != self._busy_workers:
            self._busy_workers = busy
            for worker in self._book.busy():
                self._processes[worker].link.send(Rate(self._config.rate / busy))

    # what children say

    def _hear(self, number: int, process: _Process, message: FromChild) -> None:
        if isinstance(message, Heartbeat):
            process.live = message.tally
            if number != _FEEDER:
                peak = self.result.peak_connections
                peak[number] = max(peak.get(number, 0), message.connections)
        elif isinstance(message, Batch):
            self._batch(message)
        elif isinstance(message, BatchDone):
            self._done(number, process, message)
        elif isinstance(message, Credit):
            self._book.grant(number, message.batches)
        elif isinstance(message, Ready):
            self._ready(number, process, message)
        elif isinstance(message, Ended):
            if not message.limited:
                self._journal.end()
            self._source_ended()
        elif isinstance(message, Returned):
            self._returned(number, message)
        elif isinstance(message, HostPause):
            for other, sibling in self._processes.items():
                if other not in (number, _FEEDER):
                    sibling.link.send(message)
        elif isinstance(message, Log):
            self._progress.log(message.level, message.text)
        elif isinstance(message, Stop):
            self._stopped(number, message)

    def _ready(self, number: int, process: _Process, message: Ready) -> None:
        process.ready = True
        self._failed_boots = 0
        self.result.versions = message.versions
        self.result.preflight = message.preflight
        if number != _FEEDER:
            self._book.hired(number)

    def _batch(self, batch: Batch) -> None:
        self._wanted -= 1
        if batch.recalled:
            row = self._recalled.pop(batch.seq)
            self._book.add(self._lease_again(row, batch.items))
            return
        self._journal.open_batch(batch)
        self._progress.listed(batch.count, batch.position)
        if batch.count:
            self._book.add(Lease(batch.seq, batch.count, batch.items))
        else:
            # A page without names: the row keeps its cursor.
            nothing = BatchDone(batch.seq, Tally(), 0, 0, {}, {}, b"", [])
            self._journal.settle(nothing, b"")

    def _lease_again(self, row: BatchRow, items: bytes) -> Lease:
        if not row.done:
            return Lease(row.seq, row.count, items, done=row.marks, earlier=row.marks)
        failed = list(self._journal.failures(row.seq))
        return Lease(
            row.seq,
            row.count,
            items,
            only=tuple(failure.index for failure in failed),
            replace=tuple(failure.index for failure in failed if failure.code == "damaged"),
        )

    def _done(self, number: int, process: _Process, outcome: BatchDone) -> None:
        lease = self._book.settle(number, outcome.seq)
        marks = outcome.marks
        if lease.only:
            marks = core_marks.merge(self._journal.marks(outcome.seq), marks, lease.count)
        self._journal.settle(outcome, marks)
        self._count(outcome)
        process.live = Tally()

    def _returned(self, number: int, outcome: Returned) -> None:
        lease = self._book.settle(number, outcome.seq)
        if not lease.only:
            self._journal.keep_marks({outcome.seq: outcome.marks})
        self._count(outcome)

    def _count(self, outcome: BatchDone | Returned) -> None:
        result = self.result
        result.tally += outcome.tally
        result.requests += outcome.requests
        result.retries += outcome.retries
        result.latency.merge(outcome.latency)
        for code, count in outcome.errors.items():
            result.errors[code] = result.errors.get(code, 0) + count

    def _stopped(self, number: int, message: Stop) -> None:
        error = DownloaderError(message.text)
        error.exit_code = message.exit_code
        if message.detail:
            self.result.details.append(message.detail)
        if number == _FEEDER and message.exit_code == 4:
            # What is listed can still be fetched; then the run ends as incomplete.
            self.result.stop = self.result.stop or error
            self._recalled.clear()
            self._source_ended()
            return
        self._stop(error)

    # the ends of children

    def _look_after(self) -> None:
        now = monotonic()
        if self._abandoned is not None and not self.result.interrupted and self._abandoned():
            self.result.interrupted = True
            self._drain()
        if self._drain_by is not None and now > self._drain_by:
            self._kill_all()
            return
        for number, process in list(self._processes.items()):
            if now - process.heard > self._config.stall_timeout:
                role = "the feeder" if number == _FEEDER else f"worker {process.pid}"
                self._progress.log(
                    "warning",
                    f"{role} gave no sign of life for {self._config.stall_timeout:.0f} s; killed",
                )
                os.kill(process.pid, signal.SIGKILL)
                process.heard = now  # its end will show as the end of its link

    def _bury(self, number: int) -> None:
        """A child's link is closed: reap it, and give its work to another."""
        process = self._processes.pop(number)
        self._selector.unregister(process.link)
        process.link.close()
        status = self._reap(process, number)
        expected = self._finishing or self._drain_by is not None
        if number != _FEEDER:
            self._inherit(number)
        if expected or self.result.stop is not None:
            return
        if number == _FEEDER and self._source_done:
            return
        if not process.ready:
            self._failed_boots += 1
            if self._failed_boots >= _BOOTS:
                self._stop(BootError(f"a child process ends while it starts ({_ending(status)})"))
                return
        self.result.deaths += number != _FEEDER
        if number == _FEEDER:
            self._replace_feeder(status)
        else:
            self._progress.log(
                "warning", f"worker {process.pid} died ({_ending(status)}); its files go to another"
            )
            self._hire_worker()

    def _reap(self, process: _Process, number: int) -> int:
        # Its end of the link is closed, so it is ending; but make sure, rather than wait for ever.
        if not _ends(process.pid, within=2.0):
            os.kill(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        self.result.cpu_seconds += usage.ru_utime + usage.ru_stime
        if number != _FEEDER:
            self.result.worker_rss = max(self.result.worker_rss, usage.ru_maxrss)
        return status

    def _inherit(self, number: int) -> None:
        """What the dead worker's ledger says, into the lease book and the journal."""
        path = self._destination.ledger(number)
        held = {lease.seq: lease for lease in self._book.held_by(number)}
        found = {
            seq: (marks.packed(), marks.in_flight()) for seq, marks in read_ledger(path) if seq in held
        }
        path.unlink(missing_ok=True)
        self._journal.keep_marks({seq: packed for seq, (packed, _) in found.items() if not held[seq].only})
        for seq, index in self._book.died(number, dict(found)):
            self._progress.log("warning", f"item {index} of batch {seq} killed 3 workers; set aside")

    def _replace_feeder(self, status: int) -> None:
        if self._config.source == "-":
            text = f"the feeder died ({_ending(status)}) and standard input cannot be read again"
            self.result.stop = SourceError(text)
            self._recalled.clear()
            self._source_ended()
            return
        self._progress.log("warning", f"the feeder died ({_ending(status)}); another takes over")
        # Recalls that it had not answered are asked again, in order, before the rest.
        unanswered = [self._recalled.pop(seq) for seq in sorted(self._recalled)]
        rest, recalling = self._recalls, self._recalling
        self._recalls = _chain(unanswered, rest)
        self._recalling = recalling or bool(unanswered) or not self._source_done
        self._wanted = 0
        self._hire(_FEEDER)

    # ending early

    def _signalled(self, number: int) -> None:
        if self.result.interrupted:
            self.result.killed = True
            self._kill_all()
            return
        self.result.interrupted = True
        self._progress.log("warning", f"{signal.Signals(number).name}: finishing what is in flight")
        self._drain()

    def _stop(self, error: DownloaderError) -> None:
        if self.result.stop is None:
            self.result.stop = error
        self._drain()

    def _drain(self) -> None:
        if self._drain_by is not None:
            return
        grace = self._config.drain_grace
        self._drain_by = monotonic() + grace + 2.0
        self._book.forget_waiting()
        for number, process in self._processes.items():
            if number == _FEEDER:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            else:
                process.link.send(Drain(grace))

    def _kill_all(self) -> None:
        """SIGKILL and reap whatever is left; what they had published is in their ledgers."""
        self._drain_by = self._drain_by or monotonic()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for number in list(self._processes):
            process = self._processes.pop(number)
            self._selector.unregister(process.link)
            process.link.close()
            self._reap(process, number)
            try:
                if number != _FEEDER:
                    self._inherit(number)
            except JournalError as error:
                self.result.stop = self.result.stop or error

    # progress

    @property
    def _position_listed(self) -> bool:
        return self._source_done

    def _tally_now(self) -> Tally:
        tally = self.result.tally
        for process in self._processes.values():
            tally += process.live
        return tally


def _chain(first: list[BatchRow], rest: Iterator[BatchRow]) -> Iterator[BatchRow]:
    yield from first
    yield from rest


def _ends(pid: int, within: float) -> bool:
    """Whether child ``pid`` ends within so many seconds; it is not reaped."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        return bool(select.select([descriptor], [], [], within)[0])
    finally:
        os.close(descriptor)


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
