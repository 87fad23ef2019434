"""The number of connections of a worker, decided without a socket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from downloader.core.connection_limit import (
    FIRST,
    MANY_HOSTS,
    Climb,
    ConnectionLimit,
    Counters,
    Sample,
    adaptive,
    fixed,
    measured,
    per_host,
    refused,
)

TICK = 0.25
MOST = 1024


class Servers:
    """Servers that together answer ``rate`` requests a second at most, each after ``latency`` seconds.

    ``cost``: CPU seconds that the client needs for each.
    """

    def __init__(self, latency: float, rate: float = 1e9, cost: float = 0.0) -> None:
        self.latency, self.rate, self.cost = latency, rate, cost
        self.counted = Counters(0.0, 0.0, 0, 0)
        self._rest = 0.0

    def answer(self, in_flight: int, refusals: int = 0) -> Counters:
        """Return what is counted after another tick with ``in_flight`` requests."""
        now, cpu, finished, refused_so_far, _ = self.counted
        rate = min(in_flight / self.latency, self.rate)
        if self.cost:
            rate = min(rate, 1 / self.cost)
        self._rest += rate * TICK
        done = int(self._rest)
        self._rest -= done
        self.counted = Counters(
            now + TICK, cpu + done * self.cost, finished + done, refused_so_far + refusals
        )
        return self.counted


def climb(servers: Servers, seconds: float, *, many_hosts: bool = False) -> list[int]:
    """Return the limit after each tick."""
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    limits = []
    for _ in range(int(seconds / TICK)):
        counted = servers.answer(climbing.limit.now)
        climbing.observe(counted, full=True, many_hosts=many_hosts)
        limits.append(climbing.limit.now)
    return limits


def test_slow_servers_get_as_many_as_there_can_be() -> None:
    assert climb(Servers(latency=1.5), 12)[-1] == MOST


def test_limit_returns_to_where_the_gain_ended() -> None:
    limits = climb(Servers(latency=0.1, rate=1000, cost=0.0005), 5)
    assert max(limits) > 128
    assert 100 <= limits[-1] <= 128  # of which 100 are enough


def test_limit_does_not_grow_where_the_cpu_is_the_limit() -> None:
    assert set(climb(Servers(latency=0.001, cost=0.0001), 5)) == {FIRST}


def test_many_hosts_begin_with_more() -> None:
    assert set(climb(Servers(latency=0.001, cost=0.0001), 5, many_hosts=True)) == {128}


def test_limit_grows_again_after_a_while() -> None:
    servers = Servers(latency=0.1, rate=320, cost=0.001)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    limits = []
    for tick in range(400):
        if tick == 100:
            servers.rate = 1e9
            servers.cost = 0.0001
        climbing.observe(servers.answer(climbing.limit.now), full=True, many_hosts=True)
        limits.append(climbing.limit.now)
    assert limits[99] < MOST
    assert limits[-1] == MOST


def ticks_until_more(servers: Servers, together: int, *, first_full: bool = True) -> int:
    """Return after how many ticks the limit grows, where connections finish ``together`` files at once."""
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    climbing.observe(servers.answer(FIRST), full=first_full, many_hosts=False, together=together)
    ticks = 1
    while climbing.limit.now == FIRST:
        climbing.observe(servers.answer(FIRST), full=True, many_hosts=False, together=together)
        ticks += 1
    return ticks


def test_files_that_finish_together_take_longer_to_measure() -> None:
    servers = Servers(latency=0.001)
    ticks = ticks_until_more(servers, 512)
    assert servers.counted.finished >= 4 * FIRST * 512
    assert ticks * TICK > 2.0


def test_files_that_finish_together_are_measured_for_seconds_where_they_are_few() -> None:
    """At 300 a second, 4 x 32 x 512 files would take minutes, and a job has some thousand."""
    assert ticks_until_more(Servers(latency=0.1), 512) * TICK <= 6.0


def test_files_requested_before_are_not_measured() -> None:
    """While the depth grew, each connection held what it received, and finishes that with others."""
    servers = Servers(latency=0.0008)
    ticks_until_more(servers, 512, first_full=False)
    assert servers.counted.finished >= 5 * FIRST * 512


def test_one_slow_second_is_no_reason_for_more() -> None:
    limit = adaptive(MOST, "the most")
    for sample in (Sample(1000.0, 0.95), Sample(300.0, 0.3)):
        limit = measured(limit, sample)
    assert limit.now == 2 * FIRST
    for _ in range(2):
        limit = measured(limit, Sample(1000.0, 0.8))
    assert (limit.now, limit.why) == (FIRST, "more were not faster")


@pytest.mark.parametrize(
    ("rates", "expected", "why"),
    [
        # Twice the rate is no chance; a tenth more may be.
        ((2000.0,), 4 * FIRST, "the end of the job"),
        ((1100.0,), 2 * FIRST, "the end of the job"),
        ((1100.0, 1100.0), 4 * FIRST, "the end of the job"),
        ((1100.0, 1000.0), FIRST, "more were not faster"),
        ((1000.0, 1100.0), FIRST, "more were not faster"),
    ],
)
def test_small_gain_must_be_seen_twice(rates: tuple[float, ...], expected: int, why: str) -> None:
    limit = measured(adaptive(MOST, "the most"), Sample(1000.0, 0.5))
    for rate in rates:
        limit = measured(limit, Sample(rate, 0.5))
    assert (limit.now, limit.why) == (expected, why)


def test_limit_stays_while_there_is_no_work_for_more() -> None:
    servers = Servers(latency=1.0)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    for _ in range(100):
        assert not climbing.observe(servers.answer(10), full=False, many_hosts=False)
    assert climbing.limit.now == FIRST
    assert climbing.limit.why == "no more were needed"


@pytest.mark.parametrize(("many_hosts", "expected"), [(False, FIRST // 2), (True, 128)])
def test_one_server_that_refuses_gets_fewer(many_hosts: bool, expected: int) -> None:
    servers = Servers(latency=0.1)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    climbing.observe(servers.answer(FIRST, refusals=FIRST // 4), full=False, many_hosts=many_hosts)
    assert climbing.limit.now == expected
    assert climbing.limit.why == (
        "no more were needed" if many_hosts else "servers refused requests or connections"
    )


def test_rare_refusals_do_not_add_up() -> None:
    servers = Servers(latency=0.1)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    for tick in range(1000):
        climbing.observe(servers.answer(FIRST, refusals=tick % 20 == 0), full=False, many_hosts=False)
    assert climbing.limit.now == FIRST


def test_limit_of_the_user_never_changes() -> None:
    limit = fixed(40)
    assert measured(limit, Sample(1.0)) is limit
    assert refused(limit) is limit
    assert limit.why == "--connections"


def test_limit_never_falls_below_a_few() -> None:
    limit = adaptive(MOST, "the most")
    for _ in range(20):
        limit = refused(limit)
    assert limit.now == 8


def test_few_descriptors_are_the_reason() -> None:
    limit = adaptive(20, "only 100 files may be open")
    assert limit.now == 20
    assert measured(limit, Sample(1.0)).why == "only 100 files may be open"


def test_first_measurement_after_a_change_is_not_used() -> None:
    """Its responses belong to requests from before the change."""
    servers = Servers(latency=0.5)
    climbing = Climb(ConnectionLimit(FIRST, MOST), servers.counted)
    changes = [
        tick
        for tick in range(40)
        if climbing.observe(servers.answer(climbing.limit.now), full=True, many_hosts=False)
    ]
    assert len(changes) == 3
    assert all(b - a >= (0.5 + 1.0) / TICK for a, b in pairwise(changes))


@pytest.mark.parametrize(
    ("faster", "cost", "expected"), [(True, 0.0, 4 * FIRST), (False, 0.0, FIRST), (True, 0.03, FIRST)]
)
def test_servers_that_do_more_at_once_get_more(faster: bool, cost: float, expected: int) -> None:
    servers = Servers(latency=1.0, cost=cost)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    climbing.observe(servers.answer(FIRST), full=True, many_hosts=False)
    climbing.depth_changed(faster=faster)
    climbing.observe(servers.answer(FIRST), full=True, many_hosts=False)
    assert climbing.limit.now == expected


@pytest.mark.parametrize(
    ("chosen", "connections", "hosts", "expected"),
    [
        *((0, 32, 1, 32), (0, 512, 1, 512), (0, 512, MANY_HOSTS, 8), (0, 4, MANY_HOSTS, 4)),
        *((6, 32, 1, 6), (6, 32, MANY_HOSTS, 6), (20, 32, MANY_HOSTS, 20), (40, 32, 1, 32)),
    ],
)
def test_share_of_one_host(chosen: int, connections: int, hosts: int, expected: int) -> None:
    assert per_host(chosen, connections, hosts) == expected


class Overloaded(Servers):
    """Servers whose rate depends on the requests in flight and on time: ``rate_of(n, seconds)``."""

    def __init__(self, rate_of: Callable[[int, float], float]) -> None:
        super().__init__(latency=0.02)
        self._rate_of = rate_of

    def answer(self, in_flight: int, refusals: int = 0) -> Counters:
        self.rate = self._rate_of(in_flight, self.counted.now)
        return super().answer(in_flight, refusals)


class Hot:
    """A server that breaks down seconds after it got more than 40 requests, and recovers as slowly."""

    heat = 0.0

    def rate(self, in_flight: int, now: float) -> float:
        self.heat = min(40.0, self.heat + TICK) if in_flight > 40 else max(0.0, self.heat - TICK)
        return 30.0 if self.heat > 20 else 300.0


@pytest.mark.parametrize("many_hosts", [False, True])
@pytest.mark.parametrize(
    ("rate_of", "most"),
    [
        (lambda n, now: 193 / (1 + 0.0182 * n), 16),
        (lambda n, now: 3000 / (1 + 0.1 * n), 32),
        (lambda n, now: 500.0 if n <= 64 else 30.0, 64),
        (lambda n, now: 1000.0 if now < 60 else 1000 / (1 + 0.2 * n), 16),
        (Hot().rate, 40),
    ],
    ids=["contention", "strong contention", "cliff", "from a minute on", "breaks down later"],
)
def test_server_that_slows_down_gets_fewer(
    rate_of: Callable[[int, float], float], most: int, many_hosts: bool
) -> None:
    servers = Overloaded(rate_of)
    limits = climb(servers, 300, many_hosts=many_hosts)
    assert sorted(limits[-400:])[200] <= most
    rates = [min(n / servers.latency, rate_of(n, 300.0)) for n in (limits[-1], 4, 8, 16, 32)]
    assert rates[0] >= max(rates) * 0.65


def test_fewer_are_tried_below_the_first_number() -> None:
    servers = Overloaded(lambda n, now: 500.0 if n <= 16 else 30.0)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    for _ in range(240):
        climbing.observe(servers.answer(climbing.limit.now), full=True, many_hosts=False)
    assert (climbing.limit.now, climbing.limit.why) == (16, "fewer were faster")


@pytest.mark.parametrize("workers", [2, 4])
def test_fewer_still_are_tried_where_fewer_are_as_fast(workers: int) -> None:
    """530 files a second with up to 16 connections of all workers, 66 with any larger number."""
    limits = slow_for(60, lambda n, now: 530.0 if n <= 16 else 66.0, workers)
    reached = next(tick for tick, limit in enumerate(limits) if limit * workers <= 16)
    assert reached * TICK <= 40
    later = limits[reached:]
    assert sum(limit * workers <= 16 for limit in later) >= 0.9 * len(later)


@pytest.mark.parametrize("latency", [0.001, 0.1, 1.0])
def test_healthy_server_keeps_what_it_has(latency: float) -> None:
    limits = climb(Servers(latency, rate=1000), 300)
    needed = 1000 * latency
    assert sum(each < min(needed, FIRST) for each in limits) <= 0.02 * len(limits)


def slow_for(seconds: float, rate_of: Callable[[int, float], float], workers: int) -> list[int]:
    """Return the limits of ``workers`` that decide together, after each tick."""
    servers = Overloaded(rate_of)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted._replace(workers=workers))
    limits = []
    for _ in range(int(seconds / TICK)):
        counted = servers.answer(climbing.limit.now * workers)
        climbing.observe(counted._replace(workers=workers), full=True, many_hosts=False)
        limits.append(climbing.limit.now)
    return limits


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_server_that_slows_down_gets_a_handful_within_seconds(workers: int) -> None:
    """8 connections give 178 files a second, 32 half of that, 256 thirty; and a job has some thousand."""
    limits = slow_for(40, lambda n, now: 178 * (8 / max(n, 8)) ** 0.5, workers)
    reached = next(tick for tick, limit in enumerate(limits) if limit * workers <= 8)
    assert reached * TICK <= {1: 15, 2: 20, 4: 32}[workers]
    later = limits[reached:]
    assert sum(limit * workers <= 16 for limit in later) >= 0.9 * len(later)


@pytest.mark.parametrize("period", [0.25, 1.0, 3.0])
@pytest.mark.parametrize(("latency", "rate"), [(0.2, 1e9), (0.05, 1000.0), (0.2, 200.0), (0.5, 60.0)])
def test_server_whose_speed_fluctuates_keeps_what_it_needs(
    latency: float, rate: float, period: float
) -> None:
    """At random by 30 %, of all requests at the same time."""
    for seed in range(4):
        random = Random(seed)
        servers = Servers(latency, rate)
        climbing = Climb(adaptive(MOST, "the most"), servers.counted)
        got = 0.0
        for tick in range(400):
            if tick % (period / TICK) == 0:
                speed = random.uniform(0.7, 1.3)
                servers.latency, servers.rate = latency / speed, rate * speed
            climbing.observe(servers.answer(climbing.limit.now), full=True, many_hosts=False)
            got += min(climbing.limit.now / latency, rate)
        assert got / 400 >= 0.75 * min(MOST / latency, rate)


@pytest.mark.parametrize("now", [8, FIRST, 4000])
def test_worker_follows_another_one(now: int) -> None:
    climbing = Climb(adaptive(MOST, "the most"), Counters(0.0, 0.0, 0, 0))
    decided = ConnectionLimit(now, MOST, "fewer were faster", "the most")
    changed = climbing.follow(Counters(1.0, 0.0, 9, 0), decided.now, decided.reason, full=True)
    assert changed is (now != FIRST)
    assert (climbing.limit.now, climbing.limit.why) == (min(now, MOST), "fewer were faster")


@pytest.mark.parametrize("stopped", ["", "the most", "the CPU is the limit", "more were not faster"])
def test_reason_is_handed_on(stopped: str) -> None:
    climbing = Climb(adaptive(MOST, "the most"), Counters(0.0, 0.0, 0, 0))
    climbing.follow(
        Counters(1.0, 0.0, 9, 0), 64, ConnectionLimit(64, MOST, stopped, "the most").reason, full=False
    )
    assert climbing.limit.stopped == stopped


@pytest.mark.parametrize(("full", "why"), [(True, "the end of the job"), (False, "no more were needed")])
def test_more_were_needed_if_files_waited(full: bool, why: str) -> None:
    """Whether or not it was measured what more of them would give."""
    servers = Servers(latency=20.0)
    climbing = Climb(adaptive(MOST, "the most"), servers.counted)
    for _ in range(8):
        climbing.observe(servers.answer(FIRST), full=full, many_hosts=False, deepening=True)
    assert (climbing.limit.now, climbing.limit.why) == (FIRST, why)


def test_connections_that_end_are_not_measured() -> None:
    """What they have in flight slows the others down."""
    limit = ConnectionLimit(
        8, MOST, fewer=True, came_from=FIRST, before=Sample(100.0), stopped="fewer were faster"
    )
    servers = Servers(latency=0.1)
    climbing = Climb(limit, servers.counted)
    climbing._changed_at = 0.0
    for _ in range(30):
        assert not climbing.observe(servers.answer(1), full=True, many_hosts=False, draining=True)
    assert climbing.limit == replace(limit, needed=True)
