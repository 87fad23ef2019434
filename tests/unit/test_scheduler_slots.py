"""Slots of the scheduler: further jobs of a host, parked and resting jobs; simulated time."""

from __future__ import annotations

import sys

from scheduling import Schedulable, fill, keys, take_all

from downloader.core.scheduler import Scheduler


def test_a_slot_may_be_used_for_more_of_its_host() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(2, 2)
    jobs = fill(schedule, "a", 6)
    fill(schedule, "b", 1)
    host = schedule.take(0.0).host  # type: ignore[union-attr]
    assert schedule.next_jobs(host, 3, None) == jobs[1:4]
    assert (schedule.active, schedule.unstarted) == (1, 3)
    jobs[5].path = "another"
    assert schedule.next_jobs(host, 9, None) == [jobs[4]]


def test_job_pulled_by_a_slot_is_not_started_again() -> None:
    """The host is queued for its turn, but has nothing left."""
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    jobs = fill(schedule, "a", 3)
    assert schedule.take(0.0) is jobs[0]
    assert schedule.next_jobs(jobs[0].host, 9, None) == jobs[1:]
    assert schedule.take(0.0) is None
    schedule.release(jobs[0].host)
    assert schedule.take(0.0) is None
    assert (schedule.active, schedule.unstarted) == (0, 0)


def test_last_jobs_are_shared_among_connections() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    jobs = fill(schedule, "a", 12)
    for _ in range(4):
        schedule.take(0.0)
    assert len(schedule.next_jobs(jobs[0].host, 64, None)) == 1 + 8 // 4


def test_a_connection_leaves_its_slot_to_a_host_that_has_fewer() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(2, 2)
    fill(schedule, "a", 6)
    a = schedule.take(0.0).host  # type: ignore[union-attr]
    schedule.take(0.0)
    fill(schedule, "b", 3)
    assert schedule.next_jobs(a, 3, None) == []
    schedule.release(a)
    assert keys(take_all(schedule)) == "b"
    assert len(schedule.next_jobs(a, 3, None)) == 3


def test_no_further_jobs_for_a_recovering_paced_or_condemned_host() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    for key in "abc":
        fill(schedule, key, 5)
    a, b, c = (schedule.host(key) for key in "abc")
    schedule.failed(a, 0.0, 0.0)
    assert schedule.next_jobs(a, 3, None) == []
    schedule.fail_host(b, "connect", "", 0.0)
    assert schedule.next_jobs(b, 3, None) == []
    assert schedule.next_jobs(c, 2, None) != []
    schedule.interval = 0.1
    assert schedule.next_jobs(c, 3, None) == []


def test_no_further_jobs_while_a_suspect_waits() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    fill(schedule, "a", 5)
    fill(schedule, "a", 1, solo=True)
    assert schedule.next_jobs(schedule.host("a"), 3, None) == []


def test_requeued_job_comes_first() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(1, 1)
    jobs = fill(schedule, "a", 3)
    assert schedule.take(0.0) is jobs[0]
    schedule.requeue(jobs[0])
    schedule.release(jobs[0].host)
    assert schedule.take(0.0) is jobs[0]
    assert schedule.unstarted == 2


def test_parked_job_leaves_its_slot_to_another() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(2, 2, most_parked=1)
    fill(schedule, "a", 2)
    fill(schedule, "b", 3)
    first, _ = take_all(schedule)
    assert schedule.park()
    assert not schedule.park()  # one at a time
    (third,) = take_all(schedule)
    assert (schedule.active, schedule.parked, schedule.in_flight) == (2, 1, 3)
    schedule.unpark()
    assert (schedule.active, schedule.parked) == (3, 0)
    schedule.release(first.host)
    assert take_all(schedule) == []
    schedule.release(third.host)
    assert len(take_all(schedule)) == 1


def test_suspect_waits_for_parked_jobs() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(2, 2, most_parked=1)
    fill(schedule, "a", 1)
    (job,) = take_all(schedule)
    assert schedule.park()
    fill(schedule, "b", 1, solo=True)
    assert take_all(schedule) == []
    schedule.unpark()
    schedule.release(job.host)
    (suspect,) = take_all(schedule)
    assert suspect.solo
    assert not schedule.park()


def test_jobs_of_failing_hosts_and_later_ones_rest() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 1)
    fill(schedule, "a", 5)
    fill(schedule, "b", 2)
    started = take_all(schedule)
    assert (schedule.unstarted, schedule.resting) == (5, 0)
    host = started[0].host
    schedule.failed(host, 0.0, 1.0)
    schedule.pause(host, 2.0)
    assert (schedule.unstarted, schedule.resting) == (5, 4)
    schedule.add_later(started[0], 1.5)
    fill(schedule, "a", 1)
    assert (schedule.unstarted, schedule.resting) == (7, 6)
    schedule.release(host)
    (probe,) = take_all(schedule, 2.0)
    assert probe.host is host
    assert (schedule.unstarted, schedule.resting) == (6, 5)
    assert schedule.succeeded(host, 2.1, 2.1)
    assert (schedule.unstarted, schedule.resting) == (6, 0)


def test_dead_host_is_given_up_and_its_jobs_no_longer_rest() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 1)
    jobs = fill(schedule, "a", 3)
    take_all(schedule)
    schedule.failed(jobs[0].host, 0.0, 1.0)
    assert schedule.resting == 2
    schedule.fail_host(jobs[0].host, "connect-timeout", "", 1.0)
    schedule.release(jobs[0].host)
    assert schedule.resting == 0
    assert len(take_all(schedule, 1.0)) == 1


def test_connection_may_stay_with_its_host_while_others_wait() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(1, 1)
    fill(schedule, "a", 2)
    fill(schedule, "b", 1)
    (job,) = take_all(schedule)
    schedule.host("b")
    assert schedule.next_jobs(job.host, 1, None, stay=True) != []


def test_queue_of_a_host_with_few_jobs_is_small_and_keeps_the_order() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(1, 1)
    first = fill(schedule, "a", 1)
    assert sys.getsizeof(first[0].host.queue) < 200  # an empty deque: 624
    for count in (3, 10, 3):
        jobs = fill(schedule, "a", count)
        schedule.add_all(more := [Schedulable(schedule.host("a")) for _ in range(2)])
        expected = [*first, *jobs, *more]
        for job in expected:
            assert take_all(schedule) == [job]
            schedule.release(job.host)
            schedule.requeue(job)
            assert take_all(schedule) == [job]
            schedule.release(job.host)
        first = []


def test_demoted_job_starts_when_no_other_can() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(2, 2)
    fill(schedule, "a", 4)
    first, second = take_all(schedule)
    first.demotions = 1
    schedule.demote(first)
    schedule.release(first.host)
    assert (schedule.unstarted, schedule.resting) == (3, 1)
    (third,) = take_all(schedule)
    assert third is not first
    schedule.release(second.host)
    (fourth,) = take_all(schedule)
    assert fourth is not first
    schedule.release(third.host)
    assert take_all(schedule) == [first]
    assert (schedule.unstarted, schedule.resting) == (0, 0)


def test_demoted_jobs_leave_slots_to_what_comes_later() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(16, 16)
    for job in fill(schedule, "a", 16):
        assert schedule.take(0.0) is job
        job.demotions = 1
        schedule.release(job.host)
        schedule.demote(job)
    assert len(take_all(schedule)) == 14
    fill(schedule, "b", 2)
    assert keys(take_all(schedule)) == "bb"


def test_fewer_slots_take_effect_on_connections_in_use() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    fill(schedule, "a", 9)
    jobs = take_all(schedule)
    schedule.resize(2)
    assert schedule.next_jobs(jobs[0].host, 1, None) == []
    schedule.release(jobs[0].host)
    schedule.release(jobs[1].host)
    assert len(schedule.next_jobs(jobs[2].host, 1, None)) == 1
