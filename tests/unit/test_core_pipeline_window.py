"""A window ends where its responses have been held for long, and its rest outlasts the answer behind it."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from downloader.core.pipeline_window import is_long, rest_after

SHORTEST = 0.005


@pytest.mark.parametrize("gap", [0.001, 0.1, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("depth", [4, 8, 64])
def test_requests_that_wait_for_one_another(gap: float, depth: int) -> None:
    """They are held for a few seconds, or a few responses, and for what is in flight already."""
    age = 0.0
    while not is_long(age, min(age, depth * gap), gap):
        age += gap
    assert age <= max(4.0, 7 * gap)
    assert age + depth * gap >= 4.0


@pytest.mark.parametrize("latency", [0.005, 0.2, 1.0, 4.0])
def test_requests_that_are_answered_together(latency: float) -> None:
    """A rest is an eighth of the time, at most."""
    age = latency
    while not is_long(age, latency, latency):
        age += latency
    rest = rest_after(latency, latency, latency, SHORTEST)
    assert rest <= latency
    assert rest <= (age + latency + rest) / 8


@pytest.mark.parametrize("latency", [0.001, 0.02, 0.3, 1.0])
def test_rest_of_up_to_a_second_is_the_slowest_latency(latency: float) -> None:
    for elapsed in (0.0, latency / 2, latency):
        assert rest_after(latency, latency / 10, elapsed, SHORTEST) == max(latency, SHORTEST)


def test_rest_after_requests_that_wait_for_one_another_is_that_of_one() -> None:
    assert rest_after(8.0, 1.5, 8.0, SHORTEST) == 1.5
    assert rest_after(8.0, 0.2, 8.0, SHORTEST) == 1.0
    assert rest_after(60.0, 30.0, 0.0, SHORTEST) == 5.0


def arrivals(
    took: list[float], depth: int, surplus: int, *, together: bool
) -> tuple[list[float], list[float]]:
    """Return when requests were sent and when responses arrived, that of ``surplus`` twice."""
    sent: list[float] = []
    arrived: list[float] = []
    for nth, seconds in enumerate(took):
        sent.append(arrived[nth - depth] if nth >= depth else 0.0)
        before = arrived[-1:]
        begun = sent[nth] if together else max([sent[nth], *before])
        arrived.append(max([begun + seconds, *before]))
        if nth == surplus:
            arrived.append(arrived[-1])
    return sent, arrived


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_answer_behind_a_surplus_response_arrives_within_the_rest(seed: int, together: bool) -> None:
    """Wherever that was, if the last answer takes no longer than one before it."""
    random = Random(seed)
    count, depth = random.choice([16, 64, 256]), random.choice([4, 8, 64])
    shortened = 0
    for surplus in range(count - 1):
        took = [random.uniform(0.1, 1.5) for _ in range(count)]
        sent, arrived = arrivals(took, depth, surplus, together=together)
        last, seen = arrived[-1], arrived[:-1]
        true = [*seen[:surplus], *arrived[surplus + 1 :]]
        latencies = [at - since for since, at in zip(sent, true, strict=True)]
        slowest = max(at - since for since, at in zip(sent, seen, strict=True))
        gap = max(seen[0], *(later - earlier for earlier, later in pairwise(seen)))
        rest = rest_after(slowest, gap, seen[-1] - sent[-1], SHORTEST)
        shortened += rest < min(slowest, 5.0)
        if latencies[-1] <= max(latencies[:-1]) and last - seen[-1] <= min(slowest, 5.0):
            assert last - seen[-1] <= rest + 1e-9
    assert shortened or together or depth > count
