"""Decide whether a worker should ask for more files than it holds."""

from __future__ import annotations

from typing import Final

__all__ = ["wants_more"]

_MAX_RESTING: Final = 10_000  # files of failing or paused hosts that are held in memory
# Each host takes as much memory as three files. Among so many, the next files are of yet other hosts, and
# nothing is gained by reading further.
_MAX_HOSTS: Final = 6_000


def wants_more(appetite: int, unstarted: int, resting: int, hosts: int) -> bool:
    """Return whether there are fewer files that could start than ``appetite``.

    ``unstarted``: files that wait, of which ``resting`` are of hosts that are failing or paused. These do
    not count, up to a limit: while they wait, others are fetched. ``hosts``: hosts that have files
    which could start.
    """
    return unstarted - min(resting, _MAX_RESTING) < appetite and hosts < _MAX_HOSTS
