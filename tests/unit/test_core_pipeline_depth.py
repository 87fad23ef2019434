"""The depth of a pipeline, decided without a socket."""

from __future__ import annotations

from itertools import pairwise

import pytest

from downloader.core.pipeline_depth import DEEPEST, STEP, Depth, Sample, broke, fixed, large, shut
from downloader.core.pipeline_depth import measured as measure

FAST = 0.002


def measured(depth: Depth, rate: float, latency: float, busy: float = 0.1) -> Depth:
    return measure(depth, Sample(rate, latency, busy))


def climb(rates: dict[int, float], epochs: int = 12) -> Depth:
    """What comes of a server whose goodput at each depth is ``rates`` (the last one beyond)."""
    depth = Depth()
    for _ in range(epochs):
        known = max(at for at in rates if at <= depth.now)
        depth = measured(depth, rates[known], FAST)
    return depth


def test_it_begins_with_one() -> None:
    assert Depth().now == 1
    assert Depth().stopped == ""


def test_it_grows_while_goodput_does() -> None:
    depth = climb({1: 25, 8: 40, 64: 60})
    assert (depth.now, depth.reached, depth.stopped) == (DEEPEST, DEEPEST, "the limit")


def test_it_goes_back_to_where_the_gain_ended() -> None:
    depth = climb({1: 25, 8: 40, 64: 40})
    assert (depth.now, depth.reached) == (8, 64)
    assert depth.stopped == "deeper was not faster"


def test_it_goes_back_where_deeper_is_slower() -> None:
    depth = climb({1: 25, 8: 10})
    assert (depth.now, depth.reached, depth.stopped) == (1, 8, "deeper was slower")


def test_a_server_that_answers_one_at_a_time_is_asked_one_at_a_time() -> None:
    assert climb({1: 50}).now == 1


def test_one_bad_measurement_decides_nothing() -> None:
    depth = measured(Depth(), 25, FAST)
    depth = measured(depth, 20, FAST)
    assert depth.now == STEP
    assert measured(depth, 40, FAST).now == STEP * STEP


def test_slow_answers_are_not_made_to_wait_for_each_other() -> None:
    depth = measured(Depth(), 600, 1.5)
    assert (depth.now, depth.stopped) == (1, "answers are slow")


def test_it_tries_again_later_and_ever_later() -> None:
    depth, tried, was = Depth(), [], 1
    for epoch in range(400):
        depth = measured(depth, 50, FAST)
        if depth.now > was:
            tried.append(epoch)
        was = depth.now
    gaps = [after - before for before, after in pairwise(tried)]
    assert len(gaps) >= 3
    assert gaps == sorted(gaps)
    assert gaps[-1] > 2 * gaps[0]


def test_what_is_fixed_stays() -> None:
    depth = fixed(16)
    for rate in (10, 5, 1, 100):
        depth = measured(depth, rate, FAST)
    assert (depth.now, depth.stopped) == (16, "--pipeline")
    assert fixed(1).stopped == "--pipeline off"


def test_a_broken_connection_halves_it_for_a_while() -> None:
    depth = broke(fixed(16))
    assert (depth.now, depth.stopped) == (8, "connections broke with requests unanswered")
    for _ in range(30):
        depth = measured(depth, 100, FAST)
    assert depth.now == 16
    assert broke(Depth()) == Depth()


@pytest.mark.parametrize("start", [Depth(), fixed(64), Depth(now=16)])
def test_what_is_shut_stays_shut_and_says_the_first_reason(start: Depth) -> None:
    depth = shut(shut(start, "HTTP/1.0"), "another")
    for rate in (10, 100, 1000, 10000):
        depth = measured(depth, rate, FAST)
    assert (depth.now, depth.most, depth.stopped) == (1, 1, "HTTP/1.0")
    assert large(depth) == depth


def test_a_large_file_begins_anew() -> None:
    depth = large(climb({1: 25, 8: 40, 64: 60}))
    assert (depth.now, depth.stopped) == (1, "large files")
    for rate in [25] * 40:
        depth = measured(depth, rate, FAST)
    assert depth.reached == DEEPEST


def test_large_files_from_the_first_keep_it_at_one() -> None:
    depth = Depth()
    for rate in range(10, 25):
        depth = measured(large(depth), 2.0**rate, FAST)
    assert (depth.now, depth.reached, depth.stopped) == (1, 1, "large files")


def test_where_the_cpu_limits_it_grows_while_an_answer_costs_no_more_of_it() -> None:
    """However much of the core others take in the meantime."""
    depth = Depth()
    for cost, share in ((30e-6, 1.0), (30e-6, 0.7), (28e-6, 0.6), (28e-6, 0.9)):
        depth = measured(depth, share / cost, FAST, share)
    assert (depth.now, depth.stopped) == (DEEPEST, "the limit")


def test_where_the_cpu_limits_a_depth_without_a_gain_is_kept() -> None:
    depth = Depth()
    for cost in (30e-6, 32e-6, 32e-6):
        depth = measured(depth, 0.9 / cost, FAST, 0.9)
    assert (depth.now, depth.stopped) == (STEP, "deeper was not faster")


def test_what_is_not_stored_yet_is_no_gain() -> None:
    """The first answers after a step are held back: they come fast, and are still to be stored."""
    depth = measure(Depth(), Sample(40_000, FAST, 0.9))
    shallow = measure(depth, Sample(80_000, FAST, 0.8, debt=1.2))
    assert (shallow.now, shallow.tries) == (STEP, 1)
    assert measure(shallow, Sample(60_000, FAST, 0.9)).now == DEEPEST


def test_storing_what_came_before_is_no_loss() -> None:
    depth = measure(Depth(), Sample(40_000, FAST, 0.9))
    deeper = measure(depth, Sample(80_000, FAST, 0.8, debt=0.4))
    assert deeper.now == DEEPEST
    deeper = measure(deeper, Sample(60_000, FAST, 0.95, debt=-0.2))
    assert (deeper.now, deeper.stopped) == (DEEPEST, "the limit")


def test_where_the_server_limits_what_is_owed_costs_nothing() -> None:
    """It is stored while nothing comes."""
    depth = measure(Depth(), Sample(1000, FAST, 0.1))
    assert measure(depth, Sample(2000, FAST, 0.1, debt=0.3)).now == DEEPEST
