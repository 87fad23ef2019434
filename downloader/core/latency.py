"""Record the latencies of any number of requests in constant space.

Buckets are log-linear as in HdrHistogram (Gil Tene): each power of two is divided into 128 equal parts,
so the relative width of all buckets is about the same. From 10 µs to 1 h that is at most 3,700 buckets;
only those in use are stored.
"""

from __future__ import annotations

from math import ceil, frexp, ldexp
from typing import Final

__all__ = ["RELATIVE_ERROR", "Histogram"]

_LOWEST: Final = 1e-5  # seconds
_HIGHEST: Final = 3600.0
_PARTS: Final = 128  # of each power of two

RELATIVE_ERROR: Final = 1 / (2 * _PARTS)
"""The maximum relative error of a percentile (0.39 %, two significant digits)."""


class Histogram:
    """A histogram of latencies from 10 µs to 1 h; values outside that range count as the nearer limit.

    ``counts`` maps bucket numbers to samples, is sparse, and is the whole state: it is sent to other
    processes unchanged.
    """

    __slots__ = ("counts",)

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts) if counts else {}

    def add(self, seconds: float, samples: int = 1) -> None:
        """Add ``samples`` that took ``seconds`` each. NaN and infinity count as the upper limit."""
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
        """Longest sample in seconds, as exact as a percentile; 0.0 if there are none."""
        return _middle(max(self.counts)) if self.counts else 0.0

    def percentile(self, p: float) -> float:
        """Return the ``p``-th percentile (0 to 100) in seconds, by nearest rank.

        The result is within ``RELATIVE_ERROR`` of the true sample; 0.0 if there are no samples. Raises
        ValueError for any other ``p``.
        """
        if not 0 <= p <= 100:
            raise ValueError(f"a percentile is between 0 and 100, not {p}")
        # Round first: 99.9 % of 1000 must be the 999th in spite of binary fractions.
        rank = max(1, ceil(round(p * self.total / 100, 6)))
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                return _middle(bucket)
        return 0.0


def _middle(bucket: int) -> float:
    """Return the middle of a bucket in seconds. ``add`` numbers the parts of a power of two 128 … 255."""
    exponent, part = divmod(bucket - _PARTS, _PARTS)
    return ldexp((part + _PARTS + 0.5) / (2 * _PARTS), exponent)
