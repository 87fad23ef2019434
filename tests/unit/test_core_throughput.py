"""Whether a body is too slow; the time is made up."""

from __future__ import annotations

from downloader.core.throughput import SPAN, Pace


def test_nothing_is_said_before_the_span_is_over() -> None:
    pace = Pace(1000)
    assert not pace.too_slow(SPAN - 0.1, 0.0, 0)
    assert pace.too_slow(SPAN, 0.0, 0)


def test_fast_enough() -> None:
    pace = Pace(1000)
    for second in range(1, 100):
        assert not pace.too_slow(float(second), 0.0, second * 1000)


def test_a_fast_beginning_is_no_excuse() -> None:
    pace = Pace(1000)
    assert not pace.too_slow(SPAN, 0.0, 10**9)
    assert pace.too_slow(2 * SPAN, 0.0, 10**9 + 5000)


def test_each_body_is_measured_by_itself() -> None:
    pace = Pace(1000)
    assert not pace.too_slow(SPAN - 1, 0.0, 0)
    assert not pace.too_slow(SPAN + 1, 5.0, 0)
    assert pace.too_slow(SPAN + 5, 5.0, 0)
