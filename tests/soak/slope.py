"""Decide whether a series grows: fit a straight line through the means of blocks, with a confidence
interval.

Consecutive samples are correlated, so that a line through all of them seems surer than it is: the means of
twelve blocks are nearly independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BLOCKS = 12
_T = 2.228  # Student's t, 95 % two-sided, BLOCKS - 2 degrees of freedom


class Slope(NamedTuple):
    """Growth in units per hour, and half the width of its 95 % interval."""

    per_hour: float
    margin: float

    def grows(self, tolerance: float) -> bool:
        """Return whether it rises significantly, and by more than ``tolerance`` per hour."""
        return self.per_hour > max(self.margin, tolerance)


def slope(seconds: Sequence[float], values: Sequence[float]) -> Slope:
    """Return the slope of ``values`` over ``seconds``. Raise ValueError for fewer than two samples per
    block."""
    each, rest = divmod(len(values), BLOCKS)
    if each < 2:
        raise ValueError(f"{len(values)} samples are too few")
    # The first samples are left out where the blocks are not of equal size.
    xs = [sum(seconds[at : at + each]) / each for at in range(rest, len(values), each)]
    ys = [sum(values[at : at + each]) / each for at in range(rest, len(values), each)]
    mean_x, mean_y = sum(xs) / BLOCKS, sum(ys) / BLOCKS
    spread = sum((x - mean_x) ** 2 for x in xs)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    left = sum((y - mean_y - rise * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    error = (left / (BLOCKS - 2) / spread) ** 0.5
    return Slope(rise * 3600, _T * error * 3600)
