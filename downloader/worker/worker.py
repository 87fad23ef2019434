"""The worker of one process: takes leases, fetches and stores every item of them.

::

    link ──► leases ──► schedule ─┬─► pipelined client: connections that pull tasks ─┬─► sink
                                  └─► requests client: a greenlet for each file ─────┘
    link ◄── outcome of a batch ◄── active batch ◄── mark in the ledger

A connection of the pipelined client takes one slot of the schedule and then pulls further tasks of its
host; in the requests client each file takes a slot. What the pipelined client calls runs in the hub and
never blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import monotonic

import gevent
from gevent.event import Event
from gevent.pool import Group

from downloader.config.config import Config
from downloader.config.machine import memory_allowance
from downloader.core.host import Host
from downloader.core.lease_items import Items, items_of
from downloader.core.leases import DEATHS_TO_POISON
from downloader.core.naming import shown
from downloader.core.pipeline_window import longest_drain
from downloader.core.read_ahead import max_resting, wants_more
from downloader.core.scheduler import TRY_MORE, Scheduler
from downloader.core.stopped_time import StoppedTime
from downloader.errors import DestinationError, FetchError
from downloader.http.exceptions import Preempted, Stranded
from downloader.http.origin import Origin
from downloader.http.pipelined.client import PipelinedClient
from downloader.http.requests_client import Postponed, RequestsClient
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask, TaskBatch
from downloader.messages import (
    BATCH_ITEMS,
    Credit,
    Drain,
    Finish,
    Heartbeat,
    HostCrowded,
    HostPause,
    Item,
    Lease,
    Log,
    Moved,
    Narrowed,
    OutOfOrder,
    Rate,
    Stop,
    Tally,
)
from downloader.process.channel import ChildLink
from downloader.process.file_descriptors import affordable
from downloader.process.long_work import Pauses
from downloader.sinks.registry import open_sink
from downloader.sinks.sink import KEPT, OLD, Says, Sink
from downloader.storage.ledger import Ledger, slots_for
from downloader.worker.active_batch import ActiveBatch
from downloader.worker.batch_commits import BatchCommits
from downloader.worker.connection_control import ConnectionControl, first_limit
from downloader.worker.heartbeat import make_heartbeat
from downloader.worker.host_failures import NOTE_EVERY, HostFailures
from downloader.worker.mirrors import Mirrors
from downloader.worker.narrowing import Narrowing
from downloader.worker.reconciling import Exempt, find_existing, lost, reconcile, settled
from downloader.worker.recorded_batch import batch_maker
from downloader.worker.redirect_places import RedirectPlaces
from downloader.worker.requests import TaskBuilder
from downloader.worker.retries import Retries
from downloader.worker.robots import RobotsGate
from downloader.worker.setup import Setup
from downloader.worker.slow_requests import SlowRequests

__all__ = ["Worker"]

_SLOW = 1.0  # seconds for which a mirror is left out that was too slow
_AT_ONCE = 64  # items to schedule before others may run, if it took long


class Worker:
    """A worker process: leases, the clients that fetch, and what becomes of each item."""

    def __init__(self, config: Config, setup: Setup, link: ChildLink) -> None:
        afford = affordable(config.connections, memory_allowance(), config.worker_count)
        if afford.warning:
            link.send(Log("warning", afford.warning))
        limit = first_limit(config.connections, afford)
        self.config, self.link = config, link
        self.session = HttpSession(config)
        self.sink: Sink = open_sink(config, setup.rules)
        if isinstance(self.sink, Says):
            self.sink.say_by(lambda text: link.send(Log("warning", text, shared=True)))
        self.schedule: Scheduler[FetchTask] = Scheduler(limit.now, config.per_host, afford.awaited)
        self.session.budget.use_slots(self.schedule)
        self.hosts = HostFailures(config, self.schedule, link, self.session, setup.reached)
        self.session.budget.opened = self.hosts.opened
        self.fetching: dict[gevent.Greenlet, FetchTask] = {}  # by the requests client
        self.places = RedirectPlaces(
            *(self.schedule, self.hosts.gate, self.fetching, self._dispatch_soon, self.host_succeeded)
        )
        self.robots = gate = RobotsGate(
            *(config, self.session, self.schedule, self.hosts, self.places),
            *(self._give_up, self._dispatch_soon),
        )
        self.admit = gate.admit if config.robots else self.schedule.add
        self.admit_all = gate.admit_all if config.robots else self.schedule.add_all
        recording = self.sink.wants_records or self.sink.shards
        hosts, permit = self.hosts, gate.permit if config.robots else None
        self.requests_client = RequestsClient(
            *(config, self.session, hosts.reserve_redirect, permit, self.places),
            recording=recording,
        )
        self.pipelined = PipelinedClient(config, self.session, self, limit.now, recording=recording)
        self.hosts.receives, self.hosts.serving = self.pipelined.receives, self._serving
        self.hosts.serves_since = self._serves_since
        self.connections = ConnectionControl(
            *(limit, self.schedule, self.pipelined, self.hosts, self._count_finished, self.dispatch),
            *(setup.number, setup.counts),
        )
        self.slow = SlowRequests(
            *(self.schedule, self.pipelined, (self.requests_client, gate.client), self.fetching),
            *(self.places.waiting, config.connect_timeout),
        )
        self.exempt = Exempt(setup.reserved, config.existing != "replace")
        items = max(config.sink_kind.shard_items(config), BATCH_ITEMS)
        self.max_resting = most = max_resting(config.worker_count)
        self.ledger = Ledger(setup.ledger, slots_for(afford.connections, items), items, most)
        self.narrowing = Narrowing(self.ledger, most, self._narrowed, self.grant_credit)
        if config.rate:
            # The smallest possible share, until the supervisor sends the actual one.
            self.schedule.interval = config.worker_count / config.rate
        self.batches: dict[int, ActiveBatch] = {}
        self.greenlets = Group()
        self._searched: set[int] = set()  # batches of which files are searched for
        self.commits = BatchCommits(self._committed, self.fatal)
        self.credit_out = self._finished_before = 0
        self.draining = self.drained = False
        self.defect: Exception | None = None
        self.builder = builder = TaskBuilder(config, self.session, self.schedule)
        self.new_batch, self.close_records = batch_maker(config, setup, builder)
        self.mirrors = Mirrors(
            *(self.schedule, builder, self.places, self.fetching),
            gate if config.robots else None,
            *(self.admit, self.greenlets.spawn, self._dispatch_soon, self.fatal),
        )
        self.schedule.stalled, self.slow.mirror = self.mirrors.stalled, self.mirrors.better
        self.retries = Retries(config.retry_policy, self.schedule, builder, self.mirrors)
        self.stopped = StoppedTime(monotonic())
        self.finished, self._due, self._idle = Event(), Event(), Event()

    # leases in

    def take_lease(self, lease: Lease) -> None:
        """Open a batch: finish the items that need no request, schedule the rest."""
        self.credit_out -= 1
        only = lease.only if lease.narrowed and not lease.shards else ()
        slot = self.ledger.open(lease.seq, lease.count, only)
        batch = self.new_batch(lease, slot, self.sink, monotonic())
        self.batches[lease.seq] = batch
        self.narrowing.opened(batch)
        items = items_of(lease)
        done = reconcile(batch, items, self.sink)
        for index, failure in settled(batch, items, done, self.exempt):
            done.add(index)
            attempts = DEATHS_TO_POISON if failure.code == "poison" else 0
            self._fail(batch, index, items[index], failure, attempts)
        partial = done or lease.suspects or lease.only
        left: Sequence[int] = batch.wanted()
        if done:
            left = [index for index in left if index not in done]
        if self.exempt.standing:
            # What stands there may take long to read: other files are requested, and a stop is heard.
            self.greenlets.spawn(self._keep, batch, items, left)
        elif not partial and isinstance(items, list) and (tasks := self.builder.tasks(batch, items)):
            self.admit_all(tasks)
        else:
            self._schedule_each(batch, items, left)
        self.dispatch()

    def _keep(self, batch: ActiveBatch, items: Items, indices: Sequence[int]) -> None:
        """Keep the files that were there before the job, see --existing, and schedule the other items."""
        try:
            self._schedule_each(batch, items, self._unkept(batch, items, indices))
        except Exception as error:
            self.fatal(error)
        self.dispatch()

    def _unkept(self, batch: ActiveBatch, items: Items, indices: Sequence[int]) -> Iterator[int]:
        dispatched = True

        def dispatch() -> None:
            nonlocal dispatched
            dispatched = True
            self.dispatch()

        for index, outcome in find_existing(items, self.sink, indices, batch.claims):
            if isinstance(outcome, FetchError):
                self._fail(batch, index, items[index], outcome, 0)
            elif outcome is not None:
                batch.published(index, *outcome, KEPT)
            else:
                yield index
                if dispatched:  # once, as soon as this greenlet waits
                    dispatched = False
                    gevent.get_hub().loop.run_callback(dispatch)

    def _schedule_each(self, batch: ActiveBatch, items: Items, indices: Iterable[int]) -> None:
        """Schedule the items of ``batch`` at ``indices``, one by one."""
        suspects = set(batch.lease.suspects)
        known: Origin | None = None
        pause = Pauses()  # a shard may have 100,000 items
        for count, index in enumerate(indices):
            if not count % _AT_ONCE:
                pause()
            try:
                task = self.builder.task(batch, index, items[index], index in suspects)
            except FetchError as error:
                self._fail(batch, index, items[index], error, 0)
            else:
                if task.movable:
                    task = self.mirrors.soonest(task)
                self.admit(task)
                if task.origin is not known and not task.origin.proxy:
                    self.session.resolver.look_up_ahead(task.origin.host)
                known = task.origin
        if not batch.left:
            self.batch_finished(batch)

    # work

    def dispatch(self) -> None:
        """Begin every task that may begin now."""
        if self.draining:
            return
        try:
            take, now = self.schedule.take, monotonic()
            while (task := take(now)) is not None:
                self._begin(task, now)
            self._due.set()
            self.grant_credit()
        except Exception as error:  # nobody would see it: this is called from greenlets and from the hub
            self.fatal(error)

    def _begin(self, task: FetchTask, now: float) -> None:
        task.sent = self.schedule.due
        if task.solo:
            self.pipelined.flush()  # solo also means that nothing waits to be stored
        failure = task.host.failure and self.hosts.failure(task.host, now)
        if failure:
            self._give_up(task, FetchError(*failure), task.attempts)
            self.schedule.release(task.host)
        elif task.path is None or not self.pipelined.accepts(task.origin):
            self.greenlets.spawn(self._fetch, task)
        else:
            self.pipelined.fetch(task)

    def _dispatch_soon(self) -> None:
        """Dispatch from the event loop, since the caller is in the middle of an operation."""
        gevent.get_hub().loop.run_callback(self.dispatch)

    def grant_credit(self) -> None:
        """Send credit while fewer tasks could start than the connections can take at once."""
        schedule = self.schedule
        if (
            not self.draining
            and not self.credit_out
            and wants_more(
                self.pipelined.ready_target,
                schedule.unstarted,
                schedule.resting,
                self.max_resting,
                schedule.ready_hosts,
            )
            and (self.ledger.vacant or self.narrowing.make_room())
        ):
            self.credit_out = 1
            self.link.send(Credit(1))

    def timer(self) -> None:
        """Wake the dispatcher when a pause or a backoff is over, until the worker drains."""
        while not self.draining:
            self._due.clear()
            left = self.schedule.wake_at - monotonic()
            if left <= 0:
                self.dispatch()
                gevent.sleep(0)
                continue
            self._due.wait(None if left > 1e6 else left)

    def _fetch(self, task: FetchTask) -> None:
        """Make one attempt at ``task`` through the requests client."""
        batch, index = task.batch, task.index
        batch.marks.begin(index)
        waiting_for, greenlet = self.session.budget.waiting_for, gevent.getcurrent()
        waiting_for[greenlet], self.fetching[greenlet] = task.host, task
        client = self.robots.client if task.robots_txt else self.requests_client
        try:
            done = client.fetch(task, self.builder.url(task))
        except FetchError as error:
            self.attempt_failed(task, error, task.sent)
        except Postponed as postponed:
            self._postpone(task, postponed)
        except Stranded:
            self.requeue([task], pipelined=0)
        except Preempted:
            self.demote(task)
        except gevent.GreenletExit:
            batch.forget(index)
        except Exception as error:
            batch.forget(index)
            self.fatal(error)
        else:
            batch.latency.add(monotonic() - task.sent)
            if not done.verified:
                batch.unverified()
            if done.encoded and done.how not in OLD:
                batch.encoded()
            batch.published(index, done.size, done.crc, done.how, done.requests)
            self.host_succeeded(task.host, task.sent, again=task.attempts > 0)
            if done.origin:
                self.host_succeeded(self.schedule.host(done.origin), task.sent)
            if not batch.left:
                self.batch_finished(batch)
        finally:
            del waiting_for[greenlet], self.fetching[greenlet]
        self.release(self.places.end(greenlet, task.host))

    def _postpone(self, task: FetchTask, postponed: Postponed) -> None:
        task.batch.forget(task.index)
        task.batch.requests += postponed.requests
        if (unknown := postponed.unknown) is not None:
            task.host.leads_to = self.schedule.host(unknown.key)
            if not self.mirrors.divert(task):
                self.robots.hold(task, unknown)
        elif not self.mirrors.divert(task, postponed.until):
            self.schedule.add_later(task, postponed.until)
            if task.robots_txt:
                self.schedule.doubt(task.host)  # the files that wait for it need not wait as long
        else:
            self.mirrors.stalled(task.host)  # what waits there will be led to the same

    # called by the pipelined client; see its Owner

    def next_tasks(self, host: Host, origin: Origin, most: int, *, stay: bool) -> list[FetchTask]:
        """Return further tasks of ``host`` for a connection to ``origin``."""
        if self.draining:
            return []
        tasks = self.schedule.next_jobs(host, most, origin, stay=stay)
        self.grant_credit()
        return tasks

    def requeue(self, tasks: list[FetchTask], *, pipelined: int = 1) -> None:
        """Requeue unanswered tasks without charging an attempt; each was ``pipelined`` once, or not."""
        for task in reversed(tasks):
            task.batch.forget(task.index)
            task.batch.requests += 1
            task.batch.pipelined += pipelined
            if not self.mirrors.divert(task):
                self.schedule.requeue(task)
        if self.schedule.active < self.schedule.most:
            self._dispatch_soon()  # other connections may be idle

    def requested_again(self, tasks: list[FetchTask]) -> None:
        """Count one more request for each of ``tasks``, whose responses are held."""
        for task in tasks:
            task.batch.requests += 1
            task.batch.pipelined += 1

    def out_of_order(self, host: str, files: int) -> None:
        """Tell that ``files`` stored files of ``host`` may have the bodies of others."""
        self.link.send(OutOfOrder(host, files))

    def moved(self, host: str, files: int) -> None:
        """Tell that ``files`` stored files of ``host``, each requested alone, may be those of others."""
        self.link.send(Moved(host, files))

    def demote(self, task: FetchTask) -> None:
        """Queue ``task``, which was preempted, behind all others without charging an attempt."""
        task.demotions += 1
        task.batch.forget(task.index)
        task.batch.requests += 1
        task.batch.pipelined += task.path is not None
        if task.robots_txt:
            self.schedule.doubt(task.host)
        # Another mirror may be faster; after each was too slow, they have longer.
        slow = task.demotions > len(task.item.mirrors)
        if slow or not self.mirrors.leave(task, monotonic() + _SLOW):
            self.schedule.demote(task)

    def fall_back(self, task: FetchTask, refused: FetchError | None = None) -> None:
        """Requeue ``task`` for the requests client; ``refused``: what its host has answered.

        The attempt is the one that the requests client makes.
        """
        if refused is not None and refused.asks_to_wait:
            self.hosts.failed(task.host, refused, fresh=False, began=task.sent)
        task.path = None
        self.requeue([task])

    def occupy(self, host: Host) -> None:
        """Use one more slot of ``host``."""
        self.schedule.occupy(host)

    def release(self, host: Host | None) -> None:
        """Free a slot of ``host``, if it had a place there, for a waiting task."""
        self.schedule.release(host)
        self.dispatch()
        if self.draining and not self.schedule.in_flight:
            self._idle.set()

    def host_serves(self, host: Host) -> None:
        """Note, for other workers, that ``host`` has sent a file."""
        self.hosts.serves(host, monotonic())

    def host_succeeded(self, host: Host, began: float, count: int = 1, *, again: bool = False) -> None:
        """Record ``count`` successes of ``host``, after which more tasks may begin than before.

        ``began``: when the last of them was sent; ``again``: it was a retry.
        """
        now = monotonic()
        if now - host.noted_answer > NOTE_EVERY:
            self.hosts.answers(host, now)
        if host.takes and now - host.tried_more >= TRY_MORE:  # not for each file: it counts connections
            self.hosts.serves_more(host, now)
        if self.schedule.succeeded(host, began, now, count, again=again):
            self._dispatch_soon()

    def fatal(self, error: Exception) -> None:
        """Stop after ``error``: the destination failed, or there is a defect.

        After a defect this process must exit, since it may have left an item unfinished.
        """
        if isinstance(error, DestinationError):
            self._stop(error)
        else:
            self.defect = self.defect or error
            self.finished.set()

    # failures

    def attempt_failed(self, task: FetchTask, error: FetchError, began: float) -> None:
        """Record a failed attempt: retry or fail the item, and update the state of the host."""
        batch, schedule, now = task.batch, self.schedule, monotonic()
        retry, fresh = error.transient, not task.attempts
        task.attempts += 1
        batch.forget(task.index)
        batch.requests += error.requests
        batch.pipelined += error.pipelined
        batch.attempt_failed(error.code)
        host = schedule.host(error.origin) if error.origin else task.host
        if error.of_file:
            self.host_succeeded(host, began)  # a host that says "there is no such file" is working
        elif retry and not error.answered and self.stopped.interrupted(began, now):
            self._uncharged(task)
            return
        elif self.retries.lacked_cookie(task, error) and not error.asks_to_wait:
            pass  # what it is refused for says nothing about the host
        elif (
            wait := self.hosts.failed(
                host, error, fresh, began, task.excused, last=self.retries.is_last(task)
            )
        ) is not None and not task.item.mirrors:
            task.excused += 1
            self._uncharged(task, wait)
            return
        if error.origin and task.movable:
            self.mirrors.stalled(task.host)  # it leads to that host
        if self.retries.again(task, error, retry, now):
            batch.retries += 1
            if task.robots_txt:
                schedule.doubt(task.host)  # the files that wait for it need not wait for all its retries
            if self.config.verbose > 1:
                error.detail = self.builder.without_echoes(error.detail, task.item)
                text = f"attempt {task.attempts} failed: {shown(task.item.name)}: {error}"
                self.link.send(Log("debug", text))
            self._dispatch_soon()
        else:
            self._fail(batch, task.index, task.item, error, task.attempts)

    def _uncharged(self, task: FetchTask, wait: float = 0.0) -> None:
        """Make the attempt at ``task`` once more in ``wait`` seconds."""
        task.attempts -= 1
        task.batch.retries += 1
        if wait:
            self.schedule.add_later(task, monotonic() + wait)
        else:
            self.schedule.requeue(task)
        if task.robots_txt:
            self.schedule.doubt(task.host)
        self._dispatch_soon()

    def _give_up(self, task: FetchTask, error: FetchError, attempts: int) -> None:
        """Fail the item of ``task``, unless it has a mirror."""
        if not self.retries.elsewhere(task):
            self._fail(task.batch, task.index, task.item, error, attempts)

    def _fail(self, batch: TaskBatch, index: int, item: Item, error: FetchError, attempts: int) -> None:
        error.detail = self.builder.without_echoes(error.detail, item)
        batch.failed(index, item, self.builder.shown(item), error, attempts)
        if not batch.left:
            self.batch_finished(batch)

    # outcomes out

    def batch_finished(self, batch: TaskBatch) -> None:
        """Commit and report ``batch``, whose last item is finished."""
        assert isinstance(batch, ActiveBatch)  # that of robots.txt never finishes
        seq = batch.lease.seq
        if seq not in self.batches or seq in self._searched:
            return
        if batch.astray() is None:
            self.commits.begin(batch)
        else:
            self._searched.add(seq)
            self.greenlets.spawn(self._search, batch)

    def _search(self, batch: ActiveBatch) -> None:
        """Fetch again what is not in DEST any more, since a directory was moved or removed."""
        try:
            items = items_of(batch.lease)
            indices = lost(batch, items, self.sink)
            self._searched.discard(batch.seq)
            if self.drained:
                return  # the next run verifies them
            if indices:
                text = "a directory in DEST was moved or removed during the run: {} files of it that were "
                text += (
                    "being stored are fetched again; of those stored before, verify names what is missing"
                )
                self.link.send(Log("warning", text.format(len(indices))))
            for index in indices:
                batch.lose(index)
            self._schedule_each(batch, items, indices)
        except Exception as error:
            self.fatal(error)
        self.dispatch()

    def _committed(self, batch: ActiveBatch) -> None:
        del self.batches[batch.lease.seq]
        self.narrowing.closed(batch)
        self._finished_before += batch.fetched
        self.link.send(batch.done())
        # Only now: until the outcome is sent, the ledger is the only record if this process dies.
        self.ledger.close(batch.slot)
        self.grant_credit()

    def _narrowed(self, batch: ActiveBatch, outcome: Narrowed) -> None:
        self._finished_before += outcome.tally.fetched
        self.link.send(outcome)

    @property
    def tally(self) -> Tally:
        """Return the sum of what is finished in the open batches."""
        return sum((batch.tally for batch in self.batches.values()), Tally())

    def _count_finished(self) -> int:
        """Return how many files were stored or have failed."""
        return self._finished_before + sum(batch.fetched for batch in self.batches.values())

    def heartbeat(self) -> None:
        """Send a heartbeat each second, with what is finished but not reported."""
        while True:
            self.link.send(self.make_heartbeat())
            gevent.sleep(1)
            self.stopped.beat(monotonic())
            self._note_receiving()

    def _note_receiving(self) -> None:
        """Note that the hosts are reached whose responses arrive: they may take long to succeed."""
        now = monotonic()
        for connection in self.pipelined.awaiting:
            if connection.slot is not None and connection.last_received > now - 2 * NOTE_EVERY:
                note = self.hosts.answers if connection.is_served else self.hosts.reached
                note(connection.slot, now)
        for greenlet, task in self.fetching.items():
            if self.slow.received(greenlet) and (host := self.places.at(greenlet, task.host)) is not None:
                self.hosts.answers(host, now)

    def _serving(self, host: Host) -> int:
        """Return how many connections ``host`` serves."""
        return self.pipelined.serving(host) + sum(
            self.slow.reads(greenlet) for greenlet, _ in self._fetching_at(host)
        )

    def _serves_since(self, host: Host, since: float) -> bool:
        """Return whether ``host`` sends a file requested after ``since``, or one is not stored yet."""
        return self.pipelined.serves_since(host, since) or any(
            task.sent >= since and self.requests_client.is_served(greenlet)
            for greenlet, task in self._fetching_at(host)
        )

    def _fetching_at(self, host: Host) -> Iterator[tuple[gevent.Greenlet, FetchTask]]:
        """Yield the requests of the requests client that have their place at ``host`` now."""
        for greenlet, task in self.fetching.items():
            if self.places.at(greenlet, task.host) is host:
                yield greenlet, task

    def make_heartbeat(self) -> Heartbeat:
        """Return what is known now."""
        return make_heartbeat(
            self.tally, self.schedule, self.pipelined, self.requests_client, self.connections
        )

    def preempt_slow(self) -> None:
        """Preempt slow requests until the process ends."""
        self.slow.run(self._count_finished)

    # the end

    def _stop(self, error: DestinationError) -> None:
        if not self.draining:
            self.draining = True
            self.link.send(Stop(error.exit_code, str(error)))
            gevent.spawn(self.drain, 0.5)

    def drain(self, grace: float) -> None:
        """Start nothing new, let what is in flight finish within ``grace`` seconds, return open batches.

        Responses that are complete, and held until they are known to be in step, are given longer.
        """
        self.draining = True
        latest = monotonic() + longest_drain(grace)
        if self.schedule.in_flight:
            self._idle.wait(grace)
        self.greenlets.kill(timeout=1)
        self.pipelined.await_held(latest)
        self.commits.drain(grace)
        self.pipelined.requeue_outstanding()
        if self.drained:
            return  # by a concurrent call
        self.drained = True
        for batch in list(self.batches.values()):
            try:
                self.link.send(batch.returned())
            except DestinationError as error:
                # Of what a shard had still to write; the ledger has the others.
                self.link.send(Stop(error.exit_code, str(error)))
        self.batches.clear()
        self.finished.set()

    def listen(self) -> None:
        """Carry out the supervisor's messages until the link closes."""
        for message in self.link.messages():
            if isinstance(message, Lease):
                self.take_lease(message)
            elif isinstance(message, HostPause):
                host = self.schedule.host(message.host)
                self.schedule.pause(host, monotonic() + message.seconds)
            elif isinstance(message, HostCrowded):
                self.hosts.make_room(message)
            elif isinstance(message, OutOfOrder):
                self.pipelined.distrust(message.host)
            elif isinstance(message, Rate):
                self.schedule.interval = 1 / message.per_second if message.per_second else 0.0
            elif isinstance(message, Drain):
                self.drain(message.grace)
            elif isinstance(message, Finish):
                self.finished.set()
        # The supervisor has exited: further work would not be recorded.
        self.finished.set()
