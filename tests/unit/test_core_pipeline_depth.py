"""The depth of a pipeline, decided without a socket."""

from __future__ import annotations

from itertools import pairwise

import pytest

from downloader.core.pipeline_depth import (
    DEEPEST,
    STEP,
    Depth,
    Sample,
    broke,
    fixed,
    large,
    limited,
    shut,
    waits,
)
from downloader.core.pipeline_depth import measured as measure

MANY = 10_000  # responses in a measurement


def measured(depth: Depth, rate: float, busy: float = 0.1) -> Depth:
    return measure(depth, Sample(rate, MANY, busy))


def climb(rates: dict[int, float], epochs: int = 12) -> list[Depth]:
    """Simulate a server whose goodput at each depth is ``rates`` (the last one beyond); return the depth
    after each epoch."""
    depths = [Depth()]
    for _ in range(epochs):
        known = max(at for at in rates if at <= depths[-1].now)
        depths.append(measured(depths[-1], rates[known]))
    return depths


def greatest(depths: list[Depth]) -> int:
    return max(depth.now for depth in depths)


def test_depth_begins_with_one() -> None:
    assert Depth().now == 1
    assert Depth().stopped == ""


def test_depth_grows_while_goodput_grows() -> None:
    depth = climb({1: 25, 8: 40, 64: 60})[-1]
    assert (depth.now, depth.stopped) == (DEEPEST, "the limit")


def test_depth_returns_to_where_the_gain_ended() -> None:
    depths = climb({1: 25, 8: 40, 64: 40})
    assert greatest(depths) == 64
    assert (depths[-1].now, depths[-1].stopped) == (8, "deeper was not faster")


def test_depth_returns_when_deeper_is_slower() -> None:
    depths = climb({1: 25, 8: 10})
    assert greatest(depths) == 8
    assert (depths[-1].now, depths[-1].stopped) == (1, "deeper was slower")


def test_serial_server_stays_at_depth_one() -> None:
    assert climb({1: 50})[-1].now == 1


def test_one_bad_measurement_decides_nothing() -> None:
    depth = measured(Depth(), 25)
    depth = measured(depth, 20)
    assert depth.now == STEP
    assert measured(depth, 40).now == STEP * STEP


@pytest.mark.parametrize(("responses", "gain"), [(16, 2.3), (100, 1.5), (1000, 1.15), (MANY, 1.05)])
def test_fewer_responses_call_for_a_greater_gain(responses: int, gain: float) -> None:
    depth = measure(Depth(), Sample(100, responses))
    assert measure(depth, Sample(100 * gain, responses)).now == STEP
    assert measure(depth, Sample(110 * gain, responses)).now == STEP * STEP


def test_deeper_steps_are_retried_ever_more_rarely() -> None:
    depth, tried, was = Depth(), [], 1
    for epoch in range(400):
        depth = measured(depth, 50)
        if depth.now > was:
            tried.append(epoch)
        was = depth.now
    gaps = [after - before for before, after in pairwise(tried)]
    assert len(gaps) >= 3
    assert gaps == sorted(gaps)
    assert gaps[-1] > 2 * gaps[0]


def test_fixed_depth_does_not_change() -> None:
    depth = fixed(16)
    for rate in (10, 5, 1, 100):
        depth = measured(depth, rate)
    assert (depth.now, depth.stopped) == (16, "--pipeline")
    assert fixed(1).stopped == "--pipeline off"


def test_broken_connection_halves_the_depth_temporarily() -> None:
    depth = broke(fixed(16))
    assert (depth.now, depth.stopped) == (8, "connections broke with requests unanswered")
    for _ in range(30):
        depth = measured(depth, 100)
    assert depth.now == 16
    assert broke(Depth()) == Depth()


@pytest.mark.parametrize("start", [Depth(), fixed(64), Depth(now=16)])
def test_disabled_pipelining_stays_disabled_with_its_first_reason(start: Depth) -> None:
    depth = shut(shut(start, "HTTP/1.0"), "another")
    for rate in (10, 100, 1000, 10000):
        depth = measured(depth, rate)
    assert (depth.now, depth.most, depth.stopped) == (1, 1, "HTTP/1.0")
    assert large(depth) == depth


def test_limit_of_the_server_reduces_the_depth() -> None:
    depth = limited(fixed(DEEPEST))
    assert (depth.now, depth.stopped) == (DEEPEST // STEP, "the server limits requests")
    assert limited(Depth()) == Depth()


def test_large_file_restarts_the_depth() -> None:
    depths = [large(climb({1: 25, 8: 40, 64: 60})[-1])]
    assert (depths[-1].now, depths[-1].stopped) == (1, "large files")
    for rate in [25] * 40:
        depths.append(measured(depths[-1], rate))
    assert greatest(depths) == STEP


def test_large_files_keep_depth_one() -> None:
    depth = Depth()
    for rate in range(10, 25):
        depth = measured(large(depth), 2.0**rate)
        assert (depth.now, depth.stopped) == (1, "large files")


def test_cpu_bound_depth_grows_while_cost_per_response_does_not() -> None:
    """However much of the core others take in the meantime."""
    depth = Depth()
    for cost, share in ((30e-6, 1.0), (30e-6, 0.7), (28e-6, 0.6), (28e-6, 0.9)):
        depth = measured(depth, share / cost, share)
    assert (depth.now, depth.stopped) == (DEEPEST, "the limit")


def test_cpu_bound_depth_without_a_gain_is_kept() -> None:
    depth = Depth()
    for cost in (30e-6, 32e-6, 32e-6):
        depth = measured(depth, 0.9 / cost, 0.9)
    assert (depth.now, depth.stopped) == (STEP, "deeper was not faster")


def test_unstored_responses_are_no_gain() -> None:
    """The first responses after a step are held back: they come fast, and are still to be stored."""
    depth = measure(Depth(), Sample(40_000, MANY, 0.9))
    shallow = measure(depth, Sample(80_000, MANY, 0.8, debt=1.2))
    assert (shallow.now, shallow.tries) == (STEP, 1)
    assert measure(shallow, Sample(60_000, MANY, 0.9)).now == DEEPEST


def test_storing_earlier_responses_is_no_loss() -> None:
    depth = measure(Depth(), Sample(40_000, MANY, 0.9))
    deeper = measure(depth, Sample(80_000, MANY, 0.8, debt=0.4))
    assert deeper.now == DEEPEST
    deeper = measure(deeper, Sample(60_000, MANY, 0.95, debt=-0.2))
    assert (deeper.now, deeper.stopped) == (DEEPEST, "the limit")


def test_server_bound_depth_ignores_pending_storage() -> None:
    """It is stored while the connection is idle."""
    depth = measure(Depth(), Sample(1000, MANY, 0.1))
    assert measure(depth, Sample(2000, MANY, 0.1, debt=0.3)).now == DEEPEST


@pytest.mark.parametrize(
    ("now", "seconds", "first"), [(1, 0.5, False), (1, 1.5, True), (STEP, 60.0, False)]
)
def test_connections_come_first_where_responses_are_slow(now: int, seconds: float, first: bool) -> None:
    assert waits(Depth(now=now), seconds) is first
