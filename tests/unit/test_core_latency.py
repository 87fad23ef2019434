"""The histogram: constant space, merges exactly, percentiles within the documented error."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.latency import RELATIVE_ERROR, Histogram

SECONDS = st.floats(1e-5, 3600) | st.floats(1e-5, 0.1)
SAMPLES = st.lists(SECONDS, min_size=1, max_size=300)


def filled(samples: list[float]) -> Histogram:
    histogram = Histogram()
    for sample in samples:
        histogram.add(sample)
    return histogram


def test_empty_histogram() -> None:
    histogram = Histogram()
    assert (histogram.total, histogram.max, histogram.percentile(99)) == (0, 0.0, 0.0)


@given(SAMPLES, st.sampled_from(["0", "50", "90", "99", "99.9", "100", "33.3"]))
def test_percentiles(samples: list[float], p: str) -> None:
    histogram = filled(samples)
    rank = int((Decimal(p) * len(samples) / 100).to_integral_value(ROUND_CEILING))
    true = sorted(samples)[max(rank, 1) - 1]
    assert histogram.percentile(float(p)) == pytest.approx(true, rel=RELATIVE_ERROR)
    assert histogram.max == pytest.approx(max(samples), rel=RELATIVE_ERROR)
    assert histogram.total == len(samples)


def test_nearest_rank_is_exact() -> None:
    histogram = filled([0.001] * 999 + [1.0])
    assert histogram.percentile(99.9) == pytest.approx(0.001, rel=RELATIVE_ERROR)
    assert histogram.percentile(99.91) == pytest.approx(1.0, rel=RELATIVE_ERROR)


@given(SAMPLES, SAMPLES)
def test_merge_is_adding_all(one: list[float], other: list[float]) -> None:
    merged = filled(one)
    merged.merge(filled(other).counts)
    assert merged.counts == filled(one + other).counts


@given(SAMPLES)
def test_counts_survive_serialization(samples: list[float]) -> None:
    counts = filled(samples).counts
    wire = msgspec.msgpack.encode(counts)
    assert Histogram(msgspec.msgpack.decode(wire, type=dict[int, int])).counts == counts


@pytest.mark.parametrize(
    ("sample", "counted"),
    [
        (0.0, 1e-5),
        (-1.0, 1e-5),
        (1e-300, 1e-5),
        (7200.0, 3600.0),
        (float("inf"), 3600.0),
        (float("nan"), 3600.0),
        (float("-inf"), 1e-5),
    ],
)
def test_values_out_of_range_count_as_the_limit(sample: float, counted: float) -> None:
    assert filled([sample]).max == pytest.approx(counted, rel=RELATIVE_ERROR)


def test_constant_space() -> None:
    samples = [1e-5 * 1.0005**power for power in range(45_000)]
    assert len(filled(samples).counts) < 3_800


@pytest.mark.parametrize("p", [-1, 100.1, float("nan")])
def test_invalid_percentile_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        Histogram().percentile(p)
