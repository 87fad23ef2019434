"""Leases and schedules together, as supervisor and workers use them, in a simulated environment: workers
die at any instant, hosts fail, are paused and are condemned, files kill their workers.

The invariants: a batch is in one place, an item in flight at one worker at a time and never again once it
is published; limits hold, suspects are alone; and once the faults stop, everything completes.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from budget import bounded, rounds
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from downloader.core.host import Host
from downloader.core.item_states import NO_CLAIM, ItemStates, published
from downloader.core.leases import DEATHS_TO_POISON, LeaseBook
from downloader.core.scheduler import Scheduler
from downloader.messages import Lease

COUNT = 5
HOSTS = 3

Key = tuple[int, int]  # batch, index


@dataclass(eq=False)
class Job:
    """An item at a worker."""

    key: Key
    host: Host
    solo: bool
    path: object = None
    demotions: int = 0


@dataclass
class Worker:
    """A schedule, what is in flight in it, and the batches that the worker holds."""

    schedule: Scheduler[Job]
    flying: list[Job] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)
    marks: dict[int, ItemStates] = field(default_factory=dict)


class World(RuleBasedStateMachine):
    """The simulation; see the module."""

    @initialize(most=st.integers(1, 6), per_host=st.integers(1, 6), interval=st.sampled_from([0.0, 0.2]))
    def begin(self, most: int, per_host: int, interval: float) -> None:
        self.book = LeaseBook()
        self.most, self.per_host, self.interval = most, min(most, per_host), interval
        self.workers: dict[int, Worker] = {}
        self.number = self.added = 0
        self.now = 0.0
        self.settled: set[int] = set()
        self.published: set[Key] = set()
        self.poison: set[Key] = set()
        self.deaths: Counter[Key] = Counter()
        self.kept: dict[int, bytes] = {}

    # the supervisor

    @rule()
    def a_batch_comes(self) -> None:
        self.book.add(Lease(self.added, COUNT, b""))
        self.added += 1

    @precondition(lambda self: len(self.workers) < 4)
    @rule()
    def a_worker_is_hired(self) -> None:
        schedule: Scheduler[Job] = Scheduler(self.most, self.per_host)
        schedule.interval = self.interval
        self.workers[self.number] = Worker(schedule)
        self.book.add_worker(self.number)
        self.number += 1

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), batches=st.integers(1, 2))
    def credit_is_given(self, data: st.DataObject, batches: int) -> None:
        self.book.grant(data.draw(st.sampled_from(sorted(self.workers))), batches)
        self.assign()

    def assign(self) -> None:
        for number, lease in self.book.assign():
            worker, marks = self.workers[number], ItemStates(COUNT)
            for mark in published(lease.done):
                marks.publish(mark.index, mark.size, mark.crc)
                assert (lease.seq, mark.index) in self.published
            worker.marks[lease.seq] = marks
            done = {mark.index for mark in published(lease.done)}
            assert done == {i for seq, i in self.published if seq == lease.seq}, "what is stored is known"
            assert {(lease.seq, i) for i in lease.poison} == {k for k in self.poison if k[0] == lease.seq}
            assert not set(lease.suspects) & set(lease.poison)
            wanted = [i for i in range(COUNT) if i not in done and i not in lease.poison]
            worker.left[lease.seq] = len(wanted)
            for i in wanted:
                host = worker.schedule.host(str((lease.seq + i) % HOSTS))
                worker.schedule.add(Job((lease.seq, i), host, i in lease.suspects))
            self.maybe_settle(number, lease.seq)

    def maybe_settle(self, number: int, seq: int) -> None:
        worker = self.workers[number]
        if not worker.left[seq]:
            assert self.book.settle(number, seq).seq == seq
            del worker.left[seq], worker.marks[seq]
            assert seq not in self.settled
            self.settled.add(seq)

    # the workers

    def drawn(self, data: st.DataObject, *, busy: bool = False) -> tuple[int, Worker] | None:
        able = sorted(n for n, worker in self.workers.items() if worker.flying or not busy)
        number = data.draw(st.sampled_from(able)) if able else None
        return None if number is None else (number, self.workers[number])

    @rule(data=st.data(), most=st.integers(1, 4))
    def jobs_begin(self, data: st.DataObject, most: int) -> None:
        if chosen := self.drawn(data):
            self.begin_jobs(*chosen, most)

    def begin_jobs(self, number: int, worker: Worker, most: int) -> None:
        for _ in range(most):
            job = worker.schedule.take(self.now)
            if job is None:
                return
            if worker.schedule.failure(job.host, self.now):
                # Failed without a request; here that is retried later.
                worker.schedule.release(job.host)
                worker.schedule.add_later(job, self.now + 1)
                continue
            self.fly(worker, job)

    def fly(self, worker: Worker, job: Job) -> None:
        assert job.key not in self.published
        assert job.key not in self.poison
        worker.marks[job.key[0]].begin(job.key[1])
        worker.flying.append(job)
        assert len(worker.flying) == 1 or not any(each.solo for each in worker.flying)

    @rule(data=st.data(), how=st.sampled_from(["stored", "again", "later", "host fails", "given back"]))
    def one_comes_to_an_end(self, data: st.DataObject, how: str) -> None:
        chosen = self.drawn(data, busy=True)
        if chosen is None:
            return
        number, worker = chosen
        job = worker.flying.pop(data.draw(st.integers(0, len(worker.flying) - 1)))
        self.end(number, worker, job, how)

    def end(self, number: int, worker: Worker, job: Job, how: str) -> None:
        seq, index = job.key
        schedule, marks = worker.schedule, worker.marks[seq]
        if how == "stored":
            marks.publish(index, 100, 1)
            self.published.add(job.key)
            schedule.succeeded(job.host, self.now, self.now)
            worker.left[seq] -= 1
        else:
            marks.set(index, NO_CLAIM)
            if how == "given back":
                schedule.requeue(job)
            else:
                if how == "host fails":
                    schedule.failed(job.host, self.now, self.now)
                    schedule.pause(job.host, self.now + 2)
                schedule.add_later(job, self.now + (how == "later"))
        schedule.release(job.host)
        if how == "stored":
            self.maybe_settle(number, seq)

    @rule(data=st.data(), host=st.integers(0, HOSTS - 1), how=st.sampled_from(["pause", "fail_host"]))
    def a_host_rests(self, data: st.DataObject, host: int, how: str) -> None:
        if chosen := self.drawn(data):
            schedule = chosen[1].schedule
            if how == "pause":
                schedule.pause(schedule.host(str(host)), self.now + 3)
            else:
                schedule.fail_host(schedule.host(str(host)), "dns", "", self.now)

    @rule(data=st.data())
    def a_worker_dies(self, data: st.DataObject) -> None:
        chosen = self.drawn(data)
        if chosen is None:
            return
        number, worker = chosen
        found = {seq: (marks.packed(), marks.in_flight()) for seq, marks in worker.marks.items()}
        for job in worker.flying:
            self.deaths[job.key] += 1
        del self.workers[number]
        poisoned = self.book.died(number, found)
        due = {job.key for job in worker.flying if self.deaths[job.key] >= DEATHS_TO_POISON}
        assert set(poisoned) == due
        self.poison |= due
        self.assign()

    @rule(seconds=st.floats(0.05, 5))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # the invariants

    @invariant()
    def a_batch_is_in_one_place(self) -> None:
        held = [seq for number in self.workers for seq in self.book.held_by(number)]
        assert len(held) == len(set(held))
        assert not set(held) & self.settled
        waiting = len(self.book._waiting)
        assert waiting + len(held) == self.book.open == self.added - len(self.settled)

    @invariant()
    def limits_hold(self) -> None:
        flying = [job.key for worker in self.workers.values() for job in worker.flying]
        assert len(flying) == len(set(flying))
        for worker in self.workers.values():
            assert len(worker.flying) == worker.schedule.active <= self.most
            hosts = Counter(job.host.key for job in worker.flying)
            assert all(count <= self.per_host for count in hosts.values())
            assert worker.schedule.unstarted == sum(worker.left.values()) - len(worker.flying)

    def teardown(self) -> None:
        """Stop the faults: one worker then completes everything."""
        if not hasattr(self, "book"):
            return
        if not self.workers:
            self.a_worker_is_hired()
        for _ in range(50 * (self.added + 1) * COUNT):
            if not self.book.open:
                break
            for number in self.workers:
                self.book.grant(number, 1)
            self.assign()
            for number, worker in self.workers.items():
                self.begin_jobs(number, worker, self.most)
                while worker.flying:
                    self.end(number, worker, worker.flying.pop(), "stored")
            wakes = [worker.schedule.wake_at for worker in self.workers.values()]
            if (soonest := min(wakes)) < math.inf:
                self.now = max(self.now, soonest)
        assert not self.book.open, "a batch never comes to its end"
        every = {(seq, index) for seq in range(self.added) for index in range(COUNT)}
        assert self.published | self.poison == every
        assert not self.published & self.poison


def test_random_events_keep_the_invariants() -> None:
    rounds(lambda: run_state_machine_as_test(World, settings=bounded(15)))
