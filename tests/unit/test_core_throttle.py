"""The pace of a host that refuses many requests: simulated servers, of which some refuse for the rate."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from downloader.core.throttle import Throttle

LIMIT = 100.0
FAST = 3000.0  # requests a second that are not paced


class Bucket:
    """A server that takes LIMIT requests a second, and ``burst`` at once."""

    def __init__(self, burst: float) -> None:
        self.burst = self.tokens = burst
        self.at = 0.0

    def accepts(self, now: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now - self.at) * LIMIT)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


def record(throttle: Throttle, now: float, began: float, taken: bool) -> None:
    if taken:
        throttle.succeeded(now, began, 1)
    else:
        throttle.was_refused(now, began)


def run(accepts: Callable[[float], bool], seconds: float, throttle: Throttle) -> list[tuple[float, bool]]:
    """Send as many requests as ``throttle`` allows; return when each was sent, and whether it succeeded."""
    sent, now = [], 0.0
    while now < seconds:
        taken = accepts(now)
        record(throttle, now, now, taken)
        sent.append((now, taken))
        now += throttle.gap or 1 / FAST
    return sent


@pytest.mark.parametrize("burst", [1, 20, 100, 1000])
def test_rate_limit_is_found_and_kept(burst: int) -> None:
    sent = run(Bucket(burst).accepts, 60.0, Throttle())
    late = [taken for at, taken in sent if at > 20]
    assert sum(late) > 0.7 * LIMIT * 40
    assert late.count(False) < 0.15 * len(late)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_files_that_fail_at_any_rate_do_not_slow_down_the_others(share: float, seed: int) -> None:
    draw = random.Random(seed)
    sent = run(lambda now: draw.random() >= share, 30.0, Throttle())
    assert len([at for at, _ in sent if at > 10]) > 0.8 * FAST * 20
    assert len(sent) > 0.6 * FAST * 30


def test_rate_is_raised_when_the_server_takes_more() -> None:
    throttle, limited = Throttle(), Bucket(1)
    assert run(lambda now: now > 10 or limited.accepts(now), 60.0, throttle)
    assert throttle.gap == 0


def test_both_kinds_together() -> None:
    draw, bucket, throttle = random.Random(1), Bucket(50), Throttle()
    sent = run(lambda now: bucket.accepts(now) and draw.random() >= 0.3, 60.0, throttle)
    late = [taken for at, taken in sent if at > 30]
    assert len(late) < 5 * LIMIT * 30
    assert sum(late) > 0.4 * LIMIT * 30


def test_few_requests_are_no_reason() -> None:
    throttle = Throttle()
    for now in range(100):
        throttle.was_refused(float(now), float(now))
    assert throttle.gap == 0


def test_an_outage_leaves_no_pace_behind() -> None:
    """What was counted before it is no measurement together with what comes after it."""
    throttle = Throttle()
    for number in range(40):
        record(throttle, number / 1000, number / 1000, number < 20)
    for number in range(40):
        record(throttle, 20 + number / 1000, 20 + number / 1000, True)
    assert throttle.gap == 0


def test_what_fails_as_a_host_goes_down_leaves_no_pace_behind() -> None:
    """A server that is restarted resets all that is in flight, and refuses connections until it is back."""
    throttle = Throttle()
    for number in range(300):
        record(throttle, number / 300, number / 300, number < 150 or number % 3 == 0)
    assert throttle.gap > 0
    throttle.interrupted(1.0)
    assert (throttle.gap, throttle.steps) == (0, 0)
    for number in range(300):
        record(throttle, 2 + number / 300, 2 + number / 300, True)
    assert throttle.gap == 0


def test_pace_that_has_helped_is_kept_where_the_host_goes_down() -> None:
    throttle = Throttle(gap=0.1, helps=True, unpaced=100.0)
    throttle.interrupted(1.0)
    assert (throttle.gap, throttle.helps) == (0.1, True)


def run_slots(
    accepts: Callable[[float], bool], took: float, refusing: float, seconds: float, throttle: Throttle
) -> list[tuple[float, bool]]:
    """Send requests of SLOTS at a time, as ``throttle`` allows; return when each ended, and how.

    A file takes ``took`` seconds to come, a refusal ``refusing``. The file of it is not requested at once.
    """
    ends: list[tuple[float, float, bool]] = []
    ended: list[tuple[float, bool]] = []
    now = last = 0.0
    while now < seconds:
        at = max(now, last + throttle.gap) if len(ends) < SLOTS else seconds
        if ends and ends[0][0] <= at:
            now, began, taken = heapq.heappop(ends)
            record(throttle, now, began, taken)
            ended.append((now, taken))
            continue
        now = last = at
        taken = accepts(now)
        heapq.heappush(ends, (now + (took if taken else refusing), now, taken))
    return ended


SLOTS = 64


@pytest.mark.parametrize(("took", "refusing"), [(3.0, 0.01), (1.0, 0.01), (0.3, 0.3), (0.01, 3.0)])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_files_that_fail_beside_others_that_take_long(took: float, refusing: float, share: float) -> None:
    """Refusals come at once, and files after seconds, or the reverse: that is no limit of the rate."""
    draw = random.Random(1)
    ended = run_slots(lambda now: draw.random() >= share, took, refusing, 120.0, Throttle())
    in_flight = (1 - share) * took + share * refusing
    late = sum(taken for at, taken in ended if at > 60)
    assert late > 0.8 * 60 * SLOTS / in_flight * (1 - share)


@pytest.mark.parametrize("took", [0.01, 0.1, 0.5])
def test_rate_limit_is_found_where_files_take_long(took: float) -> None:
    ended = run_slots(Bucket(20).accepts, took, 0.01, 120.0, Throttle())
    late = [taken for at, taken in ended if at > 60]
    assert sum(late) > 0.7 * LIMIT * 60
    assert late.count(False) < 0.25 * len(late)


def test_pace_that_is_far_too_low_rises_ever_faster() -> None:
    """What a host has refused at a bad moment says little once it refuses nothing."""
    sent = run(lambda now: True, 30.0, Throttle(gap=1.0, helps=True, unpaced=50.0, refusal_takes=0.0))
    assert len(sent) > 300


def test_pace_rises_slowly_where_some_requests_are_refused() -> None:
    number = iter(range(100_000))
    throttle = Throttle(gap=0.1, helps=True, unpaced=1000.0)
    run(lambda now: next(number) % 20 > 0, 20.0, throttle)
    assert 0.02 < throttle.gap < 0.1


def test_pace_near_what_was_too_fast_rises_slowly() -> None:
    """Raised at once beyond it, all begins anew: servers that work on so many at once refused most."""
    throttle = Throttle(gap=1 / 300, helps=True, unpaced=500.0, refusal_takes=0.0)
    run(lambda now: True, 1.0, throttle)
    assert (1 / 500 < throttle.gap < 1 / 300, throttle.helps) == (True, True)
