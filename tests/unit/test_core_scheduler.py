"""Scheduling of requests: pure state, with simulated time."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import Schedulable, fill, keys, take_all

from downloader.core.host import Host
from downloader.core.scheduler import VERDICT, Scheduler


def test_jobs_start_in_order_up_to_the_limit() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(3, 3)
    jobs = fill(schedule, "a", 5)
    assert schedule.unstarted == 5
    assert take_all(schedule) == jobs[:3]
    assert (schedule.active, schedule.unstarted) == (3, 2)
    schedule.release(jobs[1].host)
    assert take_all(schedule) == [jobs[3]]
    for job in (jobs[0], jobs[2], jobs[3]):
        schedule.release(job.host)
    assert take_all(schedule) == [jobs[4]]
    schedule.release(jobs[4].host)
    assert (schedule.active, schedule.unstarted, schedule.wake_at) == (0, 0, math.inf)
    assert schedule.take(0.0) is None


def test_add_all_equals_repeated_add() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(3, 3)
    first = fill(schedule, "a", 2)
    schedule.add_all(later := [Schedulable(schedule.host("a")) for _ in range(4)])
    assert schedule.unstarted == 6
    assert take_all(schedule) == [*first, later[0]]
    for job in (*first, later[0]):
        schedule.release(job.host)
    assert take_all(schedule) == later[1:]
    for job in later[1:]:
        schedule.release(job.host)
    schedule.add_all(again := [Schedulable(schedule.host("a"))])
    assert take_all(schedule) == again


def test_per_host_limit() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(10, 2)
    fill(schedule, "a", 5)
    fill(schedule, "b", 1)
    fill(schedule, "c", 5)
    assert Counter(keys(take_all(schedule))) == {"a": 2, "b": 1, "c": 2}


def test_hosts_take_turns() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(6, 6)
    fill(schedule, "a", 100)
    fill(schedule, "b", 100)
    fill(schedule, "c", 100)
    assert keys(take_all(schedule)) == "abcabc"


def test_silent_host_does_not_get_all_connections() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    fill(schedule, "m", 100)
    fill(schedule, "g", 1000)
    flying = take_all(schedule)
    for _ in range(500):
        done = next(job for job in flying if job.host.key == "g")
        flying.remove(done)
        schedule.release(done.host)
        flying += take_all(schedule)
        assert Counter(keys(flying))["m"] <= 4
    assert len(flying) == 8


def test_single_host_may_use_every_connection() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    fill(schedule, "m", 100)
    assert len(take_all(schedule)) == 8


def test_paused_host_waits() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    fill(schedule, "a", 3)
    fill(schedule, "b", 1)
    assert schedule.pause(schedule.host("a"), 5.0)
    assert not schedule.pause(schedule.host("a"), 4.0)
    assert keys(take_all(schedule, 1.0)) == "b"
    assert schedule.wake_at == 5.0
    assert take_all(schedule, 4.9) == []
    assert schedule.rests_until("a", 1.0) == 5.0
    assert schedule.rests_until("never heard of", 1.0) == 1.0
    # It was extended meanwhile.
    schedule.pause(schedule.host("a"), 7.0)
    assert take_all(schedule, 5.0) == []
    assert schedule.wake_at == 7.0
    assert keys(take_all(schedule, 7.0)) == "a"
    assert schedule.wake_at == math.inf


def test_limit_doubles_after_a_pause() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    fill(schedule, "a", 100)
    host = schedule.host("a")
    flying = take_all(schedule)
    assert schedule.failed(host, 0.0, 1.0) == 1
    schedule.pause(host, 2.0)
    for job in flying:
        schedule.release(job.host)
    for now, wave in enumerate((1, 2, 4, 8, 8), 2):
        flying = take_all(schedule, float(now))
        assert len(flying) == wave
        for job in flying:
            schedule.release(job.host)
            # One success doubles the limit; the others of the wave must not.
        schedule.succeeded(host, float(now), float(now))
    assert host.rounds == 0


def test_success_of_a_request_before_the_pause_is_ignored() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    host = schedule.host("a")
    schedule.failed(host, 0.0, 1.0)
    schedule.pause(host, 2.0)
    assert not schedule.succeeded(host, 1.5, 1.5)
    assert (host.allowed, host.rounds) == (1, 1)
    assert schedule.succeeded(host, 2.5, 2.5)
    assert (host.allowed, host.rounds) == (2, 0)


def test_pause_from_another_worker_also_restarts_slowly() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    fill(schedule, "a", 10)
    schedule.pause(schedule.host("a"), 2.0)
    assert len(take_all(schedule, 2.0)) == 1


def test_failures_of_one_wave_count_as_one_round() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    host = schedule.host("a")
    assert [schedule.failed(host, 0.0, at) for at in (1.0, 1.1, 1.2)] == [1, 1, 1]
    schedule.pause(host, 2.0)
    # A late response of the first wave, and then the probe.
    assert schedule.failed(host, 0.5, 2.5) == 1
    assert schedule.failed(host, 2.0, 2.6) == 2


def test_rounds_count_while_another_worker_prolongs_the_pause() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    host = schedule.host("a")
    for turn in range(1, 5):
        sent = turn * 10.0
        schedule.pause(host, sent + 0.5)  # arrives while ours is on its way
        assert schedule.failed(host, sent, sent + 1.0) == turn


def test_failing_host_without_a_pause_gets_one_request_at_a_time() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    jobs = fill(schedule, "a", 20)
    flying = [schedule.take(0.0) for _ in range(4)]
    assert flying == jobs[:4]
    # Without a pause (Retry-After: 0): still one at a time.
    schedule.failed(schedule.host("a"), 0.0, 0.0)
    assert take_all(schedule) == []
    for job in jobs[:4]:
        schedule.release(job.host)
    (probe,) = take_all(schedule)
    assert probe in jobs[4:]


def test_host_is_probed_with_jobs_from_all_of_its_queue() -> None:
    """Neighbours in a list may have one fault in common, and say nothing about the host."""
    schedule: Scheduler[Schedulable] = Scheduler(1, 1)
    jobs = fill(schedule, "a", 100)
    places = []
    for now in range(6):
        schedule.failed(schedule.host("a"), now, now)
        (probe,) = take_all(schedule, now)
        places.append(jobs.index(probe))
        schedule.release(probe.host)
    assert len({place // 25 for place in places}) == 4


def test_success_ends_a_pause_that_the_host_did_not_ask_for() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 8)
    fill(schedule, "a", 10)
    host = schedule.host("a")
    schedule.failed(host, 0.0, 1.0)
    schedule.pause(host, 20.0, asked=False)
    assert take_all(schedule, 1.0) == []
    assert schedule.succeeded(host, 1.5, 1.5)
    assert len(take_all(schedule, 1.5)) == 2


def test_host_that_is_given_up_is_requested_all_the_same() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(64, 64)
    jobs = fill(schedule, "a", 100)
    host = schedule.host("a")
    schedule.failed(host, 0.0, 1.0)
    schedule.pause(host, 20.0, asked=False)
    schedule.give_up(host)
    assert schedule.resting == 0
    assert take_all(schedule, 1.0) == jobs[:16]
    assert len(schedule.next_jobs(host, 9, None)) == 1
    assert schedule.succeeded(host, 2.0, 2.0)
    assert host.rounds == 0
    assert host.allowed == 32


def test_pace_of_a_host_is_kept_beside_the_rate() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(100, 100)
    fill(schedule, "a", 9)
    fill(schedule, "b", 9)
    schedule.host("a").gap = 0.5
    assert keys(take_all(schedule, 0.0)).count("a") == 1
    assert schedule.active == 10
    assert schedule.next_jobs(schedule.host("a"), 9, None) == []
    assert schedule.wake_at == 0.5
    assert keys(take_all(schedule, 0.5)) == "a"
    schedule.interval = 2.0
    assert keys(take_all(schedule, 1.0)) == "a"
    assert schedule.wake_at == 3.0


def test_condemned_host_fails_its_jobs_at_once() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    fill(schedule, "a", 3)
    host = schedule.host("a")
    schedule.failed(host, 0.0, 1.0)
    schedule.pause(host, 500.0)
    schedule.interval = 10.0
    schedule.fail_host(host, "tls-verify", "expired", 1.0)
    # They are handed out at once, so that they fail.
    for _ in range(3):
        (job,) = take_all(schedule, 1.0)
        assert schedule.failure(host, 1.0) == ("tls-verify", "expired")
        host.paced = 0.0
        schedule.release(job.host)
    assert schedule.failure(host, 1.0 + VERDICT) is None
    assert schedule.failure(host, 1.0) is None


def test_success_lifts_the_verdict() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    host = schedule.host("a")
    schedule.failed(host, 0.0, 1.0)
    schedule.fail_host(host, "connect", "", 1.0)
    assert schedule.succeeded(host, 2.0, 2.0)
    assert schedule.failure(host, 2.0) is None


def test_suspects_go_alone() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    first, *_ = fill(schedule, "a", 5)
    assert schedule.take(0.0) is first
    suspects = fill(schedule, "a", 2, solo=True)
    assert take_all(schedule) == []  # not while another is in flight
    schedule.release(first.host)
    for suspect in suspects:
        assert take_all(schedule) == [suspect]  # and no other beside it
        schedule.release(suspect.host)
    assert len(take_all(schedule)) == 4


def test_suspect_of_a_paused_host_does_not_delay_others() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    (suspect,) = fill(schedule, "a", 1, solo=True)
    (other,) = fill(schedule, "b", 1, solo=True)
    schedule.pause(schedule.host("a"), 5.0)
    assert take_all(schedule, 1.0) == [other]
    schedule.release(other.host)
    (normal,) = fill(schedule, "b", 1)
    assert take_all(schedule, 1.0) == [normal]
    assert schedule.wake_at == 5.0
    schedule.release(normal.host)
    assert take_all(schedule, 5.0) == [suspect]


def test_delayed_job_starts_when_due() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    job = Schedulable(schedule.host("a"))
    schedule.add_later(job, 3.0)
    assert (schedule.unstarted, schedule.wake_at) == (1, 3.0)
    assert take_all(schedule, 2.9) == []
    assert take_all(schedule, 3.0) == [job]
    assert (schedule.unstarted, schedule.wake_at) == (0, math.inf)


def test_rate_for_each_host() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(100, 100)
    schedule.interval = 0.5
    fill(schedule, "a", 10)
    fill(schedule, "b", 10, solo=False)
    begun = [(now / 10, keys(take_all(schedule, now / 10))) for now in range(21)]
    assert [(at, sorted(who)) for at, who in begun if who] == [(n / 2, ["a", "b"]) for n in range(5)]
    assert schedule.wake_at == pytest.approx(2.5)


def test_redirect_is_scheduled_like_a_request() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(100, 100)
    assert schedule.turn("a", 7.0) == 7.0
    schedule.interval = 0.5
    fill(schedule, "a", 2)
    assert len(take_all(schedule, 0.0)) == 1
    assert [schedule.turn("a", 0.1), schedule.turn("a", 0.1)] == [0.5, 1.0]
    assert [now / 10 for now in range(20) if take_all(schedule, now / 10)] == [1.5]


def test_rate_does_not_hide_failures_and_pauses() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    schedule.interval = 100.0
    fill(schedule, "a", 2)
    job = schedule.take(0.0)
    assert job is not None
    # The next may begin at 100; the failure is still a round of its own, and the pause still a pause.
    assert schedule.failed(job.host, 0.0, 1.0) == 1
    assert schedule.pause(job.host, 50.0)


def test_unused_hosts_are_forgotten() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    for n in range(30_000):
        host = schedule.host(str(n))
        schedule.failed(host, 0.0, 1.0)
        schedule.fail_host(host, "dns", "", 1.0)
    busy = schedule.host("0")
    fill(schedule, "0", 1)
    for n in range(30_000, 60_000):
        schedule.host(str(n))
    assert schedule.host("0") is busy
    assert len(schedule._hosts) <= 10_001


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "solo", "later", "finish", "ok", "fail", "pause", "fail_host", "wait", "withdraw"]
        ),
        st.integers(0, 4),
    ),
    max_size=80,
)


def apply_step(
    schedule: Scheduler[Schedulable], step: str, host: Host, n: int, now: float
) -> Schedulable | None:
    """Apply a step to ``host``; return the job where the step adds one."""
    if step == "ok":
        schedule.succeeded(host, now, now)
    elif step == "fail":
        schedule.failed(host, now, now)
    elif step == "pause":
        schedule.pause(host, now + 1 + n)
    elif step == "fail_host":
        schedule.fail_host(host, "dns", "", now)
    elif step == "withdraw":
        for job in schedule.withdraw(host, lambda job: id(job) % 3):
            schedule.add(job)
            schedule.hold(job, -1)
    else:
        job = Schedulable(host, step == "solo")
        if step == "later":
            schedule.add_later(job, now + n)
        else:
            schedule.add(job)
        return job
    return None


@settings(deadline=None)
@given(STEPS, st.integers(1, 5), st.integers(1, 5), st.sampled_from([0.0, 0.3]))
def test_every_job_is_started_once_and_limits_hold(
    steps: list[tuple[str, int]], most: int, per_host: int, interval: float
) -> None:
    schedule: Scheduler[Schedulable] = Scheduler(most, min(most, per_host))
    schedule.interval = interval
    now, added, taken = 0.0, [], []
    flying: list[Schedulable] = []

    def pump() -> None:
        for job in take_all(schedule, now):
            assert job not in taken
            taken.append(job)
            flying.append(job)
        assert len(flying) == schedule.active <= most
        assert all(n <= schedule.per_host for n in Counter(job.host.key for job in flying).values())
        assert not any(job.solo for job in flying) or len(flying) == 1

    for step, n in steps:
        host = schedule.host(str(n))
        if step == "wait":
            now += n / 2
        elif step == "finish":
            if flying:
                schedule.release(flying.pop(n % len(flying)).host)
        elif (job := apply_step(schedule, step, host, n, now)) is not None:
            added.append(job)
        pump()
    # Nothing is lost: with all finished, and time advanced as the timers request, all get their turn.
    for _ in range(1000):
        while flying:
            schedule.release(flying.pop().host)
        pump()
        if not flying:
            if schedule.wake_at == math.inf:
                break
            now = max(now, schedule.wake_at)
            pump()
    assert schedule.unstarted == schedule.resting == 0
    assert len(taken) == len(added)


def test_jobs_failed_without_a_request_ignore_the_rate() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(1, 1)
    schedule.interval = 10.0
    jobs = fill(schedule, "a", 5)
    host = jobs[0].host
    schedule.fail_host(host, "connect", "", 0.0)
    for job in jobs[:3]:
        assert schedule.take(1.0) is job
        schedule.release(job.host)
    # The host is no longer condemned: these are sent.
    assert schedule.take(VERDICT) is jobs[3]
    schedule.release(jobs[3].host)
    assert schedule.take(VERDICT + 9) is None
    assert schedule.take(VERDICT + 10) is jobs[4]


def test_host_with_delayed_jobs_is_not_forgotten() -> None:
    """A second entry for the host would have a limit of its own, and no pause would reach the first one."""
    schedule: Scheduler[Schedulable] = Scheduler(4, 1)
    later, alone = schedule.host("later"), schedule.host("alone")
    schedule.add_later(Schedulable(later), 100.0)
    schedule.add(Schedulable(alone, solo=True))
    idle = schedule.host("idle")
    for number in range(10_000):
        schedule.host(f"host {number}")
    assert schedule.host("later") is later
    assert schedule.host("alone") is alone
    assert schedule.host("idle") is not idle


def test_redirected_requests_have_places_at_both_hosts_in_turn() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 1)
    [first] = fill(schedule, "a", 1)
    waiting = fill(schedule, "b", 2)
    started = take_all(schedule)
    assert started == [first, waiting[0]]
    a, b = schedule.host("a"), schedule.host("b")
    entered: list[int] = []
    calls = [lambda: entered.append(0), lambda: entered.append(1)]
    schedule.leave(a)
    assert not schedule.enter(b)
    schedule.await_place(b, calls[0])
    schedule.await_place(b, calls[1])
    assert (a.active, b.active, schedule.active) == (0, 1, 2)
    schedule.release(b)  # the first of those that wait comes before the queue
    assert (entered, b.active, take_all(schedule)) == ([0], 1, [])
    assert schedule.stop_waiting(b, calls[1])
    assert not schedule.stop_waiting(b, calls[0])
    schedule.release(b)
    assert take_all(schedule) == [waiting[1]]
    schedule.release(b)
    assert schedule.enter(b)
    assert (schedule.active, b.active) == (0, 1)


def test_request_that_ends_while_it_waits_has_no_place() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(8, 1)
    fill(schedule, "a", 1)
    take_all(schedule)
    schedule.leave(schedule.host("a"))
    schedule.release(None)
    assert (schedule.active, schedule.host("a").active) == (0, 0)


@pytest.mark.parametrize("paused", [False, True])
def test_withdrawn_jobs_rest_until_they_are_queued_again(paused: bool) -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    jobs = fill(schedule, "a", 20)
    host = schedule.host("a")
    if paused:
        schedule.pause(host, 5.0)
    chosen = jobs[::2]
    assert schedule.withdraw(host, lambda job: job in chosen) == chosen
    assert (schedule.unstarted, schedule.resting, len(host.queue)) == (20, 20 if paused else 10, 10)
    for job in chosen:
        job_elsewhere = Schedulable(schedule.host("b"))
        schedule.add(job_elsewhere)
        schedule.hold(job, -1)
    assert (schedule.unstarted, schedule.resting) == (20, 10 if paused else 0)
    assert keys(take_all(schedule)) == ("bbbb" if paused else "abab")


def test_when_a_host_opens() -> None:
    schedule: Scheduler[Schedulable] = Scheduler(4, 4)
    host = schedule.host("a")
    stalled: list[Host] = []
    schedule.stalled = stalled.append
    assert schedule.opens_at(host, 1.0) == 1.0
    schedule.pause(host, 5.0)
    assert schedule.opens_at(host, 1.0) == 5.0
    # After a pause it is sent one request, and others had better go elsewhere until that is answered.
    assert schedule.opens_at(host, 6.0) == 6.0
    fill(schedule, "a", 1)
    assert schedule.opens_at(host, 6.0) > 6.0
    take_all(schedule, 6.0)
    assert schedule.opens_at(host, 6.0) > 6.0
    schedule.succeeded(host, 7.0, 7.0)
    assert schedule.opens_at(host, 7.0) == 7.0
    schedule.went_silent(host, 6.5)
    assert schedule.opens_at(host, 8.0) == 8.0  # it has answered others meanwhile
    schedule.went_silent(host, 7.5)
    assert schedule.opens_at(host, 8.0) > 8.0
    schedule.succeeded(host, 9.0, 9.0)
    assert schedule.opens_at(host, 9.0) == 9.0
    schedule.fail_host(host, "dns", "", 10.0)
    assert schedule.opens_at(host, 10.0) == math.inf
    assert schedule.opens_at(host, 10.0 + VERDICT) == 10.0 + VERDICT
    # A host opens when the one does that it leads to.
    other, third = schedule.host("b"), schedule.host("c")
    other.leads_to, third.leads_to = third, other
    schedule.pause(third, 90.0)
    assert schedule.opens_at(other, 80.0) == schedule.opens_at(third, 80.0) == 90.0
    assert stalled == [host, host, third]
    # Files wait for its robots.txt, which is neither queued nor requested between two attempts.
    fourth = schedule.host("d")
    fourth.unknown = True
    assert schedule.opens_at(fourth, 80.0) == 80.0
    schedule.doubt(fourth)
    assert schedule.opens_at(fourth, 80.0) > 80.0
    assert stalled[-1] is fourth
