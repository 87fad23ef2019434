"""The worker: a forked child that takes leases and brings every item of them to its end.

::

    link ──► leases ──► schedule ──► greenlets ──► lane ──► sink
                                        │
    link ◄── outcome of a batch ◄── open batch ◄── mark in the ledger

Greenlets exist while there is work for them; each takes one job after another from the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import random
from time import monotonic, perf_counter

import gevent
import msgspec
from gevent.event import Event
from gevent.pool import Group

from downloader.channel import ChildLink
from downloader.config import Config
from downloader.core.latency import Histogram
from downloader.core.marks import UNTOUCHED, published, unpack
from downloader.core.naming import SafeName, quote_name
from downloader.core.redact import redact_url
from downloader.core.schedule import Host, Schedule
from downloader.errors import DestinationError, FetchError, failure_kind
from downloader.lanes.fetch import Fetched, RequestsLane
from downloader.lanes.session import LaneSession
from downloader.ledger import Ledger, Slot
from downloader.model import (
    BatchDone,
    Credit,
    Drain,
    Failure,
    Finish,
    Heartbeat,
    HostPause,
    Item,
    Lease,
    Rate,
    Ready,
    Returned,
    Stop,
    Tally,
)
from downloader.sinks import Sink, open_sink
from downloader.sources import base_url

__all__ = ["Setup", "run"]

_decode_items = msgspec.msgpack.Decoder(list[Item]).decode
_MOST_OPEN = 64
_AHEAD = 256


class Setup(msgspec.Struct, frozen=True):
    """What a worker is told besides the Config."""

    number: int
    ledger: Path
    foreign_before_ns: int


class _OpenBatch:
    """A leased batch on its way: counts, and the exceptions."""

    __slots__ = (
        "errors",
        "failures",
        "latency",
        "lease",
        "left",
        "requests",
        "retries",
        "slot",
        "tally",
    )

    def __init__(self, lease: Lease, slot: Slot) -> None:
        self.lease = lease
        self.slot = slot
        self.left = 0
        self.tally = [0, 0, 0, 0, 0]  # as in Tally: stored, skipped, failed, bytes, unverified
        self.requests = 0
        self.retries = 0
        self.errors: dict[str, int] = {}
        self.latency = Histogram()
        self.failures: list[Failure] = []


class _Job:
    """One item of an open batch, and its attempts so far."""

    __slots__ = ("attempts", "batch", "host", "index", "item", "solo", "url")

    def __init__(self, batch: _OpenBatch, index: int, item: Item, url: str, host: Host, solo: bool):
        self.batch = batch
        self.index = index
        self.item = item
        self.url = url
        self.host = host
        self.solo = solo
        self.attempts = 0


class _Worker:
    def __init__(self, config: Config, setup: Setup, link: ChildLink) -> None:
        self.config = config
        self.link = link
        self.session = LaneSession(config)
        self.sink: Sink = open_sink(config, setup.foreign_before_ns)
        self.lane = RequestsLane(config, self.session, self.sink)
        self.policy = config.retry_policy
        self.ledger = Ledger(setup.ledger, min(config.connections, _MOST_OPEN - 4) + 4)
        self.schedule: Schedule[_Job] = Schedule(config.connections, config.slots_per_host)
        self.batches: dict[int, _OpenBatch] = {}
        self.greenlets = Group()
        self.credit_out = 0
        self.ahead = max(config.connections, _AHEAD)
        self.draining = False
        self.over = Event()
        self.base = base_url(config) if config.kind == "server" else ""
        self.base_host = self._base_host()
        self._due = Event()

    def _base_host(self) -> Host | None:
        if not self.base:
            return None
        self.base = self.session.normal(self.base)
        return self.schedule.host(self.session.origin(self.base).key)

    # leases in

    def take_lease(self, lease: Lease) -> None:
        """Open a batch: settle what needs no request, schedule the rest."""
        self.credit_out -= 1
        batch = _OpenBatch(lease, self.ledger.open(lease.seq, lease.count))
        self.batches[lease.seq] = batch
        items = _decode_items(lease.items)
        done = self._verified(batch, items)
        suspects, poison = set(lease.suspects), set(lease.poison)
        wanted = lease.only or range(lease.count)
        batch.left = len(wanted)
        for index in wanted:
            if index in done:
                batch.left -= 1
            elif index in poison:
                text = "killed three workers that took it; set aside"
                self._fail(batch, index, items[index], FetchError("poison", text), 3)
            else:
                self._schedule(batch, index, items[index], index in suspects)
        if not batch.left:
            self._report(batch)
        self.dispatch()

    def _verified(self, batch: _OpenBatch, items: list[Item]) -> set[int]:
        """Of what the ledger says is published, that which the disk agrees with."""
        lease = batch.lease
        if not lease.done:
            return set()
        earlier = unpack(lease.earlier)[0]
        wanted = set(lease.only)
        found = set()
        for mark in published(lease.done):
            if wanted and mark.index not in wanted:
                continue
            if self.sink.verify(items[mark.index].name, mark.size, mark.crc):
                batch.slot.marks.publish(mark.index, mark.size, mark.crc)
                was_there = mark.index < len(earlier) and earlier[mark.index] != UNTOUCHED
                batch.tally[1 if was_there else 0] += 1
                batch.tally[3] += 0 if was_there else mark.size
                found.add(mark.index)
        return found

    def _schedule(self, batch: _OpenBatch, index: int, item: Item, solo: bool) -> None:
        if item.fault:
            self._fail(batch, index, item, FetchError(item.fault, item.detail), 0)
            return
        if item.url:
            try:
                url = self.session.normal(item.url)
                host = self.schedule.host(self.session.origin(url).key)
            except (FetchError, ValueError) as error:
                self._fail(batch, index, item, FetchError("bad-url", str(error)), 0)
                return
        else:
            assert self.base_host is not None
            url, host = self.base + quote_name(SafeName(item.name)), self.base_host
        self.schedule.add(_Job(batch, index, item, url, host, solo))

    # work

    def dispatch(self) -> None:
        """Begin what may begin now; one greenlet for each job that is in flight."""
        if self.draining:
            return
        take, now = self.schedule.take, monotonic()
        while (job := take(now)) is not None:
            self.greenlets.spawn(self._work, job)
        self._due.set()
        self._want_more()

    def _want_more(self) -> None:
        """Give credit while less is ahead than the connections can take at once."""
        if (
            not self.draining
            and not self.credit_out
            and self.schedule.unstarted < self.ahead
            and self.ledger.vacant
        ):
            self.credit_out = 1
            self.link.send(Credit(1))

    def timer(self) -> None:
        """Wake the dispatcher when a pause or a backoff is over."""
        while True:
            self._due.clear()
            wake_at = self.schedule.wake_at
            left = wake_at - monotonic()
            if left <= 0:
                self.dispatch()
                gevent.sleep(0)
                continue
            self._due.wait(None if left > 1e6 else left)

    def _work(self, job: _Job | None) -> None:
        schedule = self.schedule
        while job is not None:
            try:
                self._attempt(job)
            except DestinationError as error:
                self._give_up(error)
                return
            if schedule.unstarted < self.ahead:
                self._want_more()
            job = None if self.draining else schedule.take(monotonic())
        if not self.draining:
            # What this greenlet could not take may be for others, or for a timer.
            self.dispatch()

    def _attempt(self, job: _Job) -> None:
        batch, index, item = job.batch, job.index, job.item
        now = monotonic()
        verdict = job.host.verdict and self.schedule.verdict(job.host, now)
        if verdict:
            self.schedule.finish(job)
            self._fail(batch, index, item, FetchError(*verdict), job.attempts)
            return
        job.attempts += 1
        batch.slot.marks.begin(index)
        began = perf_counter()
        try:
            done = self.lane.fetch(
                job.url,
                item.name,
                batch.lease.seq,
                index,
                size=item.size,
                replace=index in batch.lease.replace,
            )
        except FetchError as error:
            batch.slot.marks.forget(index)
            batch.requests += error.requests
            self.schedule.finish(job)
            self._failed(job, error)
        except BaseException:
            # Drained or the destination failed: the item goes back untouched.
            batch.slot.marks.forget(index)
            self.schedule.finish(job)
            raise
        else:
            batch.slot.marks.publish(index, done.size, done.crc)
            batch.latency.add(perf_counter() - began)
            self.schedule.finish(job)
            self._stored(batch, done)
            if self.schedule.succeeded(job.host):
                self.dispatch()

    def _stored(self, batch: _OpenBatch, done: Fetched) -> None:
        tally = batch.tally
        tally[0 if done.new else 1] += 1
        tally[3] += done.size
        if not done.verified:
            tally[4] += 1
        batch.requests += done.requests
        batch.left -= 1
        if not batch.left:
            self._report(batch)

    def _failed(self, job: _Job, error: FetchError) -> None:
        """Another attempt, or the end; and what it says of the host."""
        batch, schedule, now = job.batch, self.schedule, monotonic()
        kind = failure_kind(error.code)
        batch.errors[error.code] = batch.errors.get(error.code, 0) + 1
        if kind.host:
            self._host_failed(job.host, error, kind.retry, now)
        if self.policy.allows(job.attempts, kind.retry):
            batch.retries += 1
            pause = self.policy.delay(job.attempts, random(), error.retry_after)
            schedule.add_later(job, now + pause)
            self._due.set()
        else:
            self._fail(batch, job.index, job.item, error, job.attempts)

    def _host_failed(self, host: Host, error: FetchError, transient: bool, now: float) -> None:
        rounds = self.schedule.failed(host, now)
        if not transient or rounds > self.policy.retries + 1:
            self.schedule.condemn(host, error.code, error.detail, now)
            return
        pause = self.policy.delay(rounds, random(), error.retry_after)
        if self.schedule.pause(host, now + pause):
            self.link.send(HostPause(host.key, pause))

    def _fail(self, batch: _OpenBatch, index: int, item: Item, error: FetchError, attempts: int) -> None:
        url = redact_url(item.url or self.base + item.name) if not item.fault else ""
        batch.failures.append(Failure(index, item.name, url, error.code, error.detail, attempts))
        batch.tally[2] += 1
        batch.left -= 1
        if not batch.left:
            self._report(batch)

    # outcomes out

    def _report(self, batch: _OpenBatch) -> None:
        seq = batch.lease.seq
        if self.batches.pop(seq, None) is None:
            return
        packed = batch.slot.marks.packed()
        self.link.send(BatchDone(*self._outcome(batch), marks=packed, failures=batch.failures))
        # Only now: had we died before, the ledger would have been the only record.
        self.ledger.close(batch.slot)
        self._want_more()

    def _outcome(self, batch: _OpenBatch) -> tuple[int, Tally, int, int, dict[str, int], dict[int, int]]:
        return (
            batch.lease.seq,
            Tally(*batch.tally),
            batch.requests,
            batch.retries,
            batch.errors,
            batch.latency.counts,
        )

    def heartbeat(self) -> None:
        """A sign of life each second, with what is settled but not reported."""
        while True:
            self.link.send(self._pulse())
            gevent.sleep(1)

    def _pulse(self) -> Heartbeat:
        sums = [0, 0, 0, 0, 0]
        for batch in self.batches.values():
            sums = [a + b for a, b in zip(sums, batch.tally, strict=True)]
        return Heartbeat(Tally(*sums), self.schedule.active, self.session.census.peak)

    # the end

    def _give_up(self, error: DestinationError) -> None:
        if not self.draining:
            self.draining = True
            self.link.send(Stop(error.exit_code, str(error)))
            gevent.spawn(self.drain, 0.5)

    def drain(self, grace: float) -> None:
        """Start nothing new; what is in flight may finish within ``grace`` seconds; give back."""
        self.draining = True
        self.greenlets.join(timeout=grace)
        self.greenlets.kill(timeout=grace + 1)
        for batch in list(self.batches.values()):
            packed = batch.slot.marks.packed()
            self.link.send(Returned(*self._outcome(batch), marks=packed))
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


def run(config: Config, setup: Setup, link: ChildLink, ready: Callable[[], Ready]) -> None:
    """The worker's life: leases in, outcomes out, until told to finish or to drain.

    Raises DestinationError when the destination cannot be opened, ConfigError for unusable
    certificates.
    """
    worker = _Worker(config, setup, link)
    link.send(ready())
    background = [gevent.spawn(job) for job in (worker.listen, worker.heartbeat, worker.timer)]
    for greenlet in background:
        # A defect in one of these must end the process, not leave it idle.
        greenlet.link_exception(lambda dead: worker.over.set())
    worker._want_more()
    worker.over.wait()
    for greenlet in background:
        if greenlet.exception is not None and not isinstance(greenlet.exception, OSError):
            raise greenlet.exception
    gevent.killall(background)
    worker.sink.close()
