"""The pace of a host that refuses many requests: simulated servers, of which some refuse for the rate."""

from __future__ import annotations

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


def run(accepts: Callable[[float], bool], seconds: float, throttle: Throttle) -> list[tuple[float, bool]]:
    """Send as many requests as ``throttle`` allows; return when each was sent, and whether it succeeded."""
    sent, now = [], 0.0
    while now < seconds:
        taken = accepts(now)
        throttle.record(now, good=int(taken), refused=int(not taken))
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
        throttle.record(float(now), refused=1)
    assert throttle.gap == 0


def test_an_outage_leaves_no_pace_behind() -> None:
    """What was counted before it is no measurement together with what comes after it."""
    throttle = Throttle()
    for number in range(40):
        throttle.record(number / 1000, good=number < 20, refused=number >= 20)
    for number in range(40):
        throttle.record(20 + number / 1000, good=1)
    assert throttle.gap == 0
