"""Compare connections at the next depth with others of the same origin, in the same time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from downloader.core.pipeline_depth import Depth, trial_pays

__all__ = ["FEWEST", "MOST", "DepthTrial"]

FEWEST, MOST = 8, 32
"""Connections in a trial, of which each second one has the next depth."""


class Answered(Protocol):
    """A connection. ``served``: responses so far."""

    served: int


class DepthTrial:
    """A trial that begins now with ``connections``, which have requests in flight.

    ``deep``: those that use the next depth, with the number of their responses at the start.
    """

    def __init__(self, connections: Collection[Answered]) -> None:
        served = [(each, each.served) for each in connections]
        self.deep, self._usual = dict(served[::2]), dict(served[1::2])

    def pays(self, depth: Depth, open_ones: Collection[Answered]) -> bool | None:
        """Return whether the step from ``depth`` pays, or None if that is not known yet.

        It does not if a group has no connection left of ``open_ones``.
        """
        means = []
        for group in (self.deep, self._usual):
            answered = [each.served - start for each, start in group.items() if each in open_ones]
            if not answered:
                return False
            means.append(sum(answered) / len(answered))
        return trial_pays(depth, *means)
