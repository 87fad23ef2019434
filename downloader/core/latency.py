"""Latencies of any number of requests, in constant space.

Log-linear buckets as in HdrHistogram (Gil Tene): each power of two is cut into 128 equal parts, so
the relative width of a bucket is the same everywhere. From 10 µs to 1 h that is 3,700 buckets at
most, and only those in use are kept.
"""

from __future__ import annotations

from math import ceil, frexp, ldexp
from typing import Final

__all__ = ["RELATIVE_ERROR", "Histogram"]

_LOWEST: Final = 1e-5  # seconds
_HIGHEST: Final = 3600.0
_PARTS: Final = 128  # of each power of two

RELATIVE_ERROR: Final = 1 / (2 * _PARTS)
"""A percentile is within this share (0.39 %, two significant digits) of the true sample."""


class Histogram:
    """How often which latency occurred; from 10 µs to 1 h, what is outside counts as the limit.

    ``counts`` is sparse, bucket number → samples, and is all there is: it travels as it is.
    """

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts) if counts else {}

    def add(self, seconds: float, samples: int = 1) -> None:
        """Count ``samples`` that took ``seconds`` each. NaN and infinity count as the highest."""
        if not _LOWEST <= seconds <= _HIGHEST:
            seconds = _LOWEST if seconds < _LOWEST else _HIGHEST
        mantissa, exponent = frexp(seconds)  # mantissa in [0.5, 1)
        bucket = exponent * 128 + int(mantissa * 256)
        try:
            self.counts[bucket] += samples
        except KeyError:
            self.counts[bucket] = samples

    def merge(self, counts: dict[int, int]) -> None:
        """Add the ``counts`` of another histogram."""
        mine = self.counts
        for bucket, count in counts.items():
            mine[bucket] = mine.get(bucket, 0) + count

    @property
    def total(self) -> int:
        """Number of samples."""
        return sum(self.counts.values())

    @property
    def max(self) -> float:
        """The longest sample, in seconds, as exact as a percentile; 0.0 if there is none."""
        return _middle(max(self.counts)) if self.counts else 0.0

    def percentile(self, p: float) -> float:
        """The sample that ``p`` per cent (0 to 100) do not exceed, in seconds, by nearest rank.

        Within ``RELATIVE_ERROR`` of that sample; 0.0 if there are none. Raises ValueError for
        another ``p``.
        """
        if not 0 <= p <= 100:
            raise ValueError(f"a percentile is between 0 and 100, not {p}")
        # Rounded first: 99.9 % of 1000 is the 999th, whatever binary fractions make of it.
        rank = max(1, ceil(round(p * self.total / 100, 6)))
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return _middle(bucket)
        return 0.0


def _middle(bucket: int) -> float:
    """Seconds in the middle of a bucket. Its parts are numbered 128 … 255, from ``add``."""
    exponent, part = divmod(bucket - _PARTS, _PARTS)
    return ldexp((part + _PARTS + 0.5) / (2 * _PARTS), exponent)
