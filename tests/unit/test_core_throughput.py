"""Detection of a body that is too slow, with simulated time."""

from __future__ import annotations

from downloader.core.throughput import SPAN, Pace


def test_speed_is_not_judged_before_the_span_is_over() -> None:
    pace = Pace(1000)
    assert not pace.too_slow(SPAN - 0.1, 0.0, 0)
    assert pace.too_slow(SPAN, 0.0, 0)


def test_fast_body_is_accepted() -> None:
    pace = Pace(1000)
    for second in range(1, 100):
        assert not pace.too_slow(float(second), 0.0, second * 1000)


def test_fast_beginning_does_not_excuse_a_slow_rest() -> None:
    pace = Pace(1000)
    assert not pace.too_slow(SPAN, 0.0, 10**9)
    assert pace.too_slow(2 * SPAN, 0.0, 10**9 + 5000)


def test_each_body_is_measured_by_itself() -> None:
    pace = Pace(1000)
    assert not pace.too_slow(SPAN - 1, 0.0, 0)
    assert not pace.too_slow(SPAN + 1, 5.0, 0)
    assert pace.too_slow(SPAN + 5, 5.0, 0)
