"""Decide whether a worker should ask for more files than it holds, and how many may wait in it."""

from __future__ import annotations

from typing import Final

__all__ = ["max_resting", "wants_more"]

# Files that are held in memory while they wait for a retry, or for a host that is failing or paused: in all
# workers together, and at least in each.
_RESTING: Final = 200_000
_MIN_RESTING: Final = 10_000
# Each host takes as much memory as three files. Among so many, the next files are of yet other hosts, and
# nothing is gained by reading further.
_MAX_HOSTS: Final = 6_000


def max_resting(workers: int) -> int:
    """Return how many files may wait in each of ``workers`` while others are fetched."""
    return max(_RESTING // workers, _MIN_RESTING)


def wants_more(ready_target: int, unstarted: int, resting: int, most: int, hosts: int) -> bool:
    """Return whether there are fewer files that could start than ``ready_target``.

    ``unstarted``: files that wait, of which ``resting`` wait for a retry, or for a host that is failing or
    paused. These do not count, up to ``most``: while they wait, others are fetched. ``hosts``: hosts that
    have files which could start.
    """
    return unstarted - min(resting, most) < ready_target and hosts < _MAX_HOSTS
