"""The worker: a forked child that takes leases and brings every item of them to its end.

::

    link ──► leases ──► schedule ─┬─► wire lane: connections that pull ─────────┬─► sink
                                  └─► requests lane: a greenlet for each file ──┘
    link ◄── outcome of a batch ◄── open batch ◄── mark in the ledger

A connection of the wire lane takes one slot of the schedule and then pulls further jobs of its host; in
the requests lane each file takes a slot. What the wire lane calls runs in the hub and never waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from random import random
from time import monotonic

import gevent
import msgspec
from gevent.event import Event
from gevent.pool import Group

from downloader.config.config import Config
from downloader.core.leases import DEATHS_TO_POISON
from downloader.core.ownership import Rules
from downloader.core.scheduler import Host, Scheduler
from downloader.errors import DestinationError, FetchError, failure_kind
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.requests_client import Postponed, RequestsClient
from downloader.http.session import HttpSession, Origin
from downloader.http.task import FetchTask
from downloader.messages import (
    Credit,
    Drain,
    Finish,
    Heartbeat,
    HostPause,
    Item,
    Lease,
    Log,
    Rate,
    Ready,
    Stop,
    Tally,
)
from downloader.process.channel import ChildLink
from downloader.process.file_descriptors import affordable
from downloader.sinks.registry import open_sink
from downloader.sinks.sink import SAME, Sink
from downloader.storage.ledger import Ledger
from downloader.worker.active_batch import ActiveBatch, Exempt, reconcile, settled
from downloader.worker.requests import TaskBuilder

__all__ = ["Setup", "run"]

_decode_items = msgspec.msgpack.Decoder(list[Item]).decode
_MOST_OPEN = 64


class Setup(msgspec.Struct, frozen=True):
    """What a worker is told besides the Config. ``reserved``: see ``active_batch.Exempt``."""

    number: int
    ledger: Path
    rules: Rules
    reserved: dict[str, str] = {}


class _Worker:
    def __init__(self, config: Config, setup: Setup, link: ChildLink) -> None:
        connections, warning = affordable(config.connections)
        if warning:
            link.send(Log("warning", warning))
        self.config = config = msgspec.structs.replace(config, connections=connections)
        self.link = link
        self.session = HttpSession(config)
        self.sink: Sink = open_sink(config, setup.rules)
        recording = self.sink.wants_records
        self.requests = RequestsClient(config, self.session, self._gate, self._turn, recording=recording)
        self.wire = PipelinedClient(config, self.session, self, recording=recording)
        self.policy = config.retry_policy
        self.exempt = Exempt(setup.reserved, config.existing != "replace")
        self.ledger = Ledger(setup.ledger, min(config.connections, _MOST_OPEN - 4) + 4)
        self.schedule: Scheduler[FetchTask] = Scheduler(config.connections, config.slots_per_host)
        if config.rate:
            # The smallest share that we can have, until the supervisor says what it is.
            self.schedule.interval = config.worker_count / config.rate
        self.batches: dict[int, ActiveBatch] = {}
        self.greenlets = Group()
        self.credit_out = 0
        self.draining = False
        self.drained = False
        self.defect: Exception | None = None
        self.over = Event()
        self.builder = TaskBuilder(config, self.session, self.schedule)
        self._due = Event()
        self._idle = Event()

    # leases in

    def take_lease(self, lease: Lease) -> None:
        """Open a batch: settle what needs no request, schedule the rest."""
        self.credit_out -= 1
        batch = ActiveBatch(lease, self.ledger.open(lease.seq, lease.count), self.sink)
        self.batches[lease.seq] = batch
        items = _decode_items(lease.items)
        done = reconcile(batch, items, self.sink)
        for index, end in settled(batch, items, self.sink, done, self.exempt):
            done.add(index)
            if isinstance(end, FetchError):
                self._fail(batch, index, items[index], end, DEATHS_TO_POISON if end.code == "poison" else 0)
            else:
                batch.published(index, *end, SAME)
        odd = done or lease.suspects or lease.only
        if not odd and (jobs := self.builder.tasks(batch, items)):
            self.schedule.add_all(jobs)
        else:
            self._take_each(batch, items, done)
        self.dispatch()

    def _take_each(self, batch: ActiveBatch, items: list[Item], done: set[int]) -> None:
        """Schedule the items of ``batch`` but those that are ``done``, one by one."""
        suspects = set(batch.lease.suspects)
        for index in batch.wanted():
            if index not in done:
                try:
                    job = self.builder.task(batch, index, items[index], index in suspects)
                except FetchError as error:
                    self._fail(batch, index, items[index], error, 0)
                else:
                    self.schedule.add(job)
        if not batch.left:
            self.batch_finished(batch)

    # work

    def dispatch(self) -> None:
        """Begin what may begin now."""
        if self.draining:
            return
        take, now = self.schedule.take, monotonic()
        while (job := take(now)) is not None:
            job.sent = self.schedule.due
            if job.solo:
                self.wire.flush()  # alone means that nothing waits to be stored, either
            verdict = job.host.verdict and self.schedule.verdict(job.host, now)
            if verdict:
                self._fail(job.batch, job.index, job.item, FetchError(*verdict), job.attempts)
                self.schedule.release(job.host)
            elif job.path is None or not self.wire.accepts(job.origin):
                self.greenlets.spawn(self._fetch, job)
            else:
                self.wire.fetch(job)
        self._due.set()
        self._want_more()

    def _dispatch_soon(self) -> None:
        """Not now: whoever calls is in the middle of something."""
        gevent.get_hub().loop.run_callback(self.dispatch)

    def _want_more(self) -> None:
        """Give credit while less is ahead than the connections can take at once."""
        if (
            not self.draining
            and not self.credit_out
            and self.schedule.unstarted < self.wire.appetite
            and self.ledger.vacant
        ):
            self.credit_out = 1
            self.link.send(Credit(1))

    def timer(self) -> None:
        """Wake the dispatcher when a pause or a backoff is over, until nothing more is dispatched."""
        while not self.draining:
            self._due.clear()
            wake_at = self.schedule.wake_at
            left = wake_at - monotonic()
            if left <= 0:
                self.dispatch()
                gevent.sleep(0)
                continue
            self._due.wait(None if left > 1e6 else left)

    def _fetch(self, job: FetchTask) -> None:
        """One attempt at ``job`` through the requests lane."""
        batch, index = job.batch, job.index
        batch.marks.begin(index)
        try:
            done = self.requests.fetch(job, self.builder.url(job))
        except FetchError as error:
            self.attempt_failed(job, error, job.sent)
        except Postponed as postponed:
            batch.forget(index)
            batch.requests += postponed.requests
            self.schedule.add_later(job, postponed.until)
        except gevent.GreenletExit:
            batch.forget(index)
        except Exception as error:
            batch.forget(index)
            self.fatal(error)
        else:
            batch.latency.add(monotonic() - job.sent)
            if not done.verified:
                batch.unverified()
            batch.published(index, done.size, done.crc, done.how, done.requests)
            self.host_succeeded(job.host)
            if not batch.left:
                self.batch_finished(batch)
        self.release(job.host)

    # what the wire lane asks; see its Owner

    def next_tasks(self, host: Host, origin: Origin, most: int) -> list[FetchTask]:
        """Further jobs of ``host`` for a connection to ``origin``."""
        if self.draining:
            return []
        jobs = self.schedule.more(host, most, origin)
        self._want_more()
        return jobs

    def requeue(self, jobs: list[FetchTask]) -> None:
        """These were asked for in vain, and nobody is to blame."""
        for job in reversed(jobs):
            job.batch.forget(job.index)
            job.batch.requests += 1
            job.batch.wire += 1
            self.schedule.again(job)
        if self.schedule.active < self.schedule.most:
            self._dispatch_soon()  # others may be idle

    def fall_back(self, job: FetchTask) -> None:
        """The requests lane asks once more."""
        job.path = None
        self.requeue([job])

    def release(self, host: Host) -> None:
        """A slot is free: for what waits."""
        self.schedule.release(host)
        self.dispatch()
        if self.draining and not self.schedule.active:
            self._idle.set()

    def host_succeeded(self, host: Host) -> None:
        """``host`` is well: more may begin than before, perhaps."""
        if self.schedule.succeeded(host, monotonic()):
            self._dispatch_soon()

    def fatal(self, error: Exception) -> None:
        """The destination failed; or a defect, and this process must end, not leave an item behind."""
        if isinstance(error, DestinationError):
            self._give_up(error)
        else:
            self.defect = self.defect or error
            self.over.set()

    # failures

    def _gate(self, key: str) -> float:
        """When a redirect may be followed to host ``key``; FetchError when it is condemned."""
        now = monotonic()
        if verdict := self.schedule.verdict(self.schedule.host(key), now):
            raise FetchError(*verdict)
        return self.schedule.rests_until(key, now)

    def _turn(self, key: str) -> float:
        return self.schedule.turn(key, monotonic())

    def attempt_failed(self, job: FetchTask, error: FetchError, began: float) -> None:
        """Another attempt, or the end; and what it says of the host."""
        batch, schedule, now = job.batch, self.schedule, monotonic()
        kind = failure_kind(error.code)
        job.attempts += 1
        batch.forget(job.index)
        batch.requests += error.requests
        batch.wire += error.wire
        batch.attempt_failed(error.code)
        host = schedule.host(error.origin) if error.origin else job.host
        if kind.host:
            self._host_failed(host, error, kind.retry, began)
        elif not kind.retry:
            # "There is no such file" is an answer of a host that is well.
            self.host_succeeded(host)
        if self.policy.allows(job.attempts, kind.retry):
            batch.retries += 1
            pause = self.policy.delay(job.attempts, random(), error.retry_after)
            schedule.add_later(job, now + pause)
            self._due.set()
        else:
            self._fail(batch, job.index, job.item, error, job.attempts)

    def _host_failed(self, host: Host, error: FetchError, transient: bool, began: float) -> None:
        now = monotonic()
        rounds = self.schedule.failed(host, began, now)
        if not transient or rounds > self.policy.retries + 1:
            self.schedule.condemn(host, error.code, error.detail, now)
            return
        pause = self.policy.delay(rounds, random(), error.retry_after)
        if self.schedule.pause(host, now + pause):
            self.link.send(HostPause(host.key, pause))

    def _fail(self, batch: ActiveBatch, index: int, item: Item, error: FetchError, attempts: int) -> None:
        batch.failed(index, item, self.builder.shown(item), error, attempts)
        if not batch.left:
            self.batch_finished(batch)

    # outcomes out

    def batch_finished(self, batch: ActiveBatch) -> None:
        """Its last item has come to its end."""
        if batch.lease.seq not in self.batches:
            return
        try:
            batch.commit()
        except DestinationError as error:
            self.fatal(error)
            return
        del self.batches[batch.lease.seq]
        self.link.send(batch.done())
        # Only now: had we died before, the ledger would have been the only record.
        self.ledger.close(batch.slot)
        self._want_more()

    def heartbeat(self) -> None:
        """A sign of life each second, with what is settled but not reported."""
        while True:
            self.link.send(self._pulse())
            gevent.sleep(1)

    def _pulse(self) -> Heartbeat:
        live = Tally()
        for batch in self.batches.values():
            live += batch.tally
        census = self.session.census
        return Heartbeat(live, census.peak, self.wire.depths, self.wire.stop_reasons())

    # the end

    def _give_up(self, error: DestinationError) -> None:
        if not self.draining:
            self.draining = True
            self.link.send(Stop(error.exit_code, str(error)))
            gevent.spawn(self.drain, 0.5)

    def drain(self, grace: float) -> None:
        """Start nothing new; what is in flight may finish within ``grace`` seconds; give back."""
        self.draining = True
        if self.schedule.active:
            self._idle.wait(grace)
        self.greenlets.kill(timeout=1)
        self.wire.requeue_outstanding()
        if self.drained:
            return  # by another who was told to
        self.drained = True
        for batch in list(self.batches.values()):
            self.link.send(batch.returned())
        self.batches.clear()
        self.over.set()

    def listen(self) -> None:
        """Carry out what the supervisor says, until it says nothing more."""
        for message in self.link.messages():
            if isinstance(message, Lease):
                self.take_lease(message)
            elif isinstance(message, HostPause):
                host = self.schedule.host(message.host)
                self.schedule.pause(host, monotonic() + message.seconds)
            elif isinstance(message, Rate):
                self.schedule.interval = 1 / message.per_second if message.per_second else 0.0
            elif isinstance(message, Drain):
                self.drain(message.grace)
            elif isinstance(message, Finish):
                self.over.set()
        # The supervisor is gone: nobody would record what we still do.
        self.over.set()


def run(config: Config, setup: Setup, link: ChildLink, ready: Callable[[bool], Ready]) -> None:
    """The worker's life: leases in, outcomes out, until told to finish or to drain.

    Raises DestinationError when the destination cannot be opened, ConfigError for unusable
    certificates.
    """
    worker = _Worker(config, setup, link)
    link.send(ready(config.preflight != "off"))
    jobs = [worker.listen, worker.heartbeat, worker.timer, worker.wire.sweep]
    if config.min_speed:
        jobs.append(worker.requests.sweep)
    background = [gevent.spawn(job) for job in jobs]
    for greenlet in background:
        # A defect in one of these must end the process, not leave it idle.
        greenlet.link_exception(lambda dead: worker.over.set())
    worker._want_more()
    worker.over.wait()
    for defect in (worker.defect, *(greenlet.exception for greenlet in background)):
        # OSError: the link broke, since the supervisor is gone.
        if defect is not None and not isinstance(defect, OSError):
            raise defect
    gevent.killall(background)
    with contextlib.suppress(OSError):
        link.send(worker._pulse())  # the peak of a run that was shorter than a heartbeat
    worker.sink.close()
