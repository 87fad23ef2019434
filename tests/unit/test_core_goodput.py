"""How long goodput is measured, and the depth of the pipeline that follows from simulated latencies."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from pipeline_simulation import Simulation, simulate

from downloader.core.goodput import Meter
from downloader.core.pipeline_depth import DEEPEST, STEP

SEEDS = range(8)
LATENCIES: dict[str, Callable[[Random], float]] = {
    "uniform": lambda random: random.uniform(0, 3),
    "exponential": lambda random: random.expovariate(1 / 1.5),
    "log-normal": lambda random: random.lognormvariate(0, 1),
    "constant": lambda random: 1.5,
}


def outcome(latencies: str, connections: int, seed: int, *, overlapping: bool) -> Simulation:
    random = Random(seed)
    return simulate(
        lambda: LATENCIES[latencies](random), connections, 80 * connections, overlapping=overlapping
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("connections", [32, 64, 250])
@pytest.mark.parametrize("latencies", LATENCIES)
def test_slow_server_that_overlaps_is_pipelined_deeply(latencies: str, connections: int, seed: int) -> None:
    found = outcome(latencies, connections, seed, overlapping=True)
    assert [depth for _, depth in found.steps[:2]] == [STEP, DEEPEST]
    assert found.steps[1][0] < 25
    assert found.depth.now == DEEPEST


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("connections", [32, 64, 250])
@pytest.mark.parametrize("latencies", LATENCIES)
def test_slow_server_that_does_not_overlap_is_not(latencies: str, connections: int, seed: int) -> None:
    found = outcome(latencies, connections, seed, overlapping=False)
    assert [depth for _, depth in found.steps[:2]] == [STEP, 1]
    assert DEEPEST not in [depth for _, depth in found.steps]


@pytest.mark.parametrize("seed", SEEDS)
def test_pipelining_to_a_slow_server_pays(seed: int) -> None:
    found = outcome("uniform", 64, seed, overlapping=True)
    assert found.now < 80 * 1.5 / 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("connections", [32, 250])
@pytest.mark.parametrize("latencies", LATENCIES)
def test_first_step_at_a_slow_server_is_judged_in_a_few_latencies(
    latencies: str, connections: int, seed: int
) -> None:
    """Twice as many responses as are in flight take 24 mean latencies there, for each of two tries."""
    found = outcome(latencies, connections, seed, overlapping=False)
    (up, _), (down, depth), *_ = found.steps
    assert depth == 1
    assert down - up <= 16 * 1.7


def sampled(meter: Meter, now: float, responses: int, in_flight: int) -> bool:
    return meter.record(now, responses) and meter.sample(now, in_flight, 0.0, 0.0, 0.0) is not None


def test_first_responses_are_not_measured() -> None:
    """They are the fast ones among those that were requested together."""
    meter = Meter()
    assert not sampled(meter, 10.0, 400, 4000)
    assert not sampled(meter, 13.0, 3600, 4000)
    assert not sampled(meter, 14.0, 4000, 4000)
    assert sampled(meter, 16.0, 4000, 4000)


def test_next_measurement_follows_immediately() -> None:
    meter = Meter()
    assert [sampled(meter, float(now), 20, 10) for now in range(5)] == [False, True, True, True, True]


def test_restart_waits_for_the_requests_in_flight() -> None:
    meter = Meter()
    assert [sampled(meter, float(now), 20, 10) for now in range(2)] == [False, True]
    meter.restart()
    assert [sampled(meter, float(now), 20, 10) for now in range(2, 4)] == [False, True]


def test_few_responses_are_not_measured() -> None:
    meter = Meter()
    assert not any(sampled(meter, now / 10, 1, 1) for now in range(31))
    assert sampled(meter, 3.2, 1, 1)


def test_fast_responses_are_measured_for_some_time() -> None:
    meter = Meter()
    assert not sampled(meter, 1.0, 5000, 100)
    assert not sampled(meter, 1.04, 5000, 100)
    assert sampled(meter, 1.06, 5000, 100)


def test_storing_is_charged_to_the_responses() -> None:
    meter = Meter()
    meter.record(1.0, 100)
    assert meter.sample(1.0, 100, 5.0, 2.0, 0.001) is None
    assert meter.record(2.0, 500)
    sample = meter.sample(2.0, 100, 5.4, 2.1, 0.001)
    assert sample is not None
    assert (sample.rate, sample.responses) == (500, 500)
    assert (sample.busy, sample.debt) == (pytest.approx(0.4), pytest.approx(0.4))


@pytest.mark.parametrize(("lacking", "counts"), [(10, True), (11, False)])
def test_lack_of_work_is_not_measured(lacking: int, counts: bool) -> None:
    meter = Meter()
    assert not sampled(meter, 1.0, 20, 10)
    meter.record_starvation(lacking)
    assert sampled(meter, 2.0, 20, 10) is counts
    assert sampled(meter, 3.0, 20, 10)
