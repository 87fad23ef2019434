"""Find how many requests a second a host takes, where it refuses many of them.

A server that has too much to do refuses what exceeds its capacity. Then the number of requests that succeed
is that capacity: nothing is lost by sending no more. So where many first attempts fail, requests are paced
at nine tenths of the rate of successes. If fewer fail then, the pace is kept, is raised slowly as long as
few fail, and lowered at once when many do (as in TCP; the AWS SDKs pace requests so). Where none fails far
below the rate that was too fast, it is raised ever faster. If as many fail, it is not the rate: these files
fail at any, and the pace is given up. Their share is remembered.

A refusal may come at once, and a file after seconds, or the reverse, and where all take long they come in
waves. So a measurement lasts for twice as long as the slower of the two; else nearly all requests would
seem to fail until the first files have come, and few to succeed.

Pure state: the time (seconds, monotonic) is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

__all__ = ["Throttle"]

_OUTCOMES: Final = 50  # minimum of a measurement
_FAILED: Final = 20  # or as many as let so many fail, where it is compared with another
_SHORTEST: Final = 0.1  # seconds, of a measurement, and before it while older requests end
_LONGEST: Final = 2.0  # seconds, with however few outcomes, when paced
_MANY: Final = 0.2  # share of requests that fail, more than at any rate
_DEVIATIONS: Final = 3.0  # by which it must exceed that, or it may be chance
_STEPS: Final = 2  # times that the pace is lowered until it must have helped
_BELOW: Final = 0.9
_LESS: Final = 0.8  # of a pace that had helped, and is now too fast
_RAISE: Final = 1.1
_FASTEST_RAISE: Final = 2.0
_FAR: Final = 0.5  # of the rate that was too fast; as long as the pace is below, it is raised ever faster
_STEEPEST: Final = 4.0  # how much longer the gap becomes at once
_SLOWEST: Final = 1.0  # requests a second
_FORGET: Final = 0.125
_LONGEST_LATENCY: Final = 10.0  # seconds that count of what a file took: a large one says little


@dataclass(slots=True)
class Throttle:
    """The pace of one host.

    ``gap``: seconds between two requests, 0 if they are not paced. ``helps``: fewer requests fail at
    this pace. ``share``: of requests that fail at any rate. ``before``: of those that failed before the
    pace was lowered; ``steps``: how often it was since. ``unpaced``: requests a second before.
    ``raised``: by what factor the pace was last raised. ``good``, ``refused``: of the measurement that
    began at ``since``. ``good_takes``, ``refusal_takes``: seconds, lately; infinity before the first.
    """

    gap: float = 0.0
    helps: bool = False
    share: float = 0.0
    before: float = 0.0
    steps: int = 0
    unpaced: float = 0.0
    raised: float = 1.0
    good: int = 0
    refused: int = 0
    since: float = 0.0
    good_takes: float = inf
    refusal_takes: float = inf

    def succeeded(self, now: float, began: float, count: int) -> None:
        """Record ``count`` requests that succeeded, of which the last was sent at ``began``."""
        self.good_takes = _newer(self.good_takes, now - began)
        self._record(now, count, 0)

    def was_refused(self, now: float, began: float) -> None:
        """Record a request, sent at ``began``, that failed."""
        self.refusal_takes = _newer(self.refusal_takes, now - began)
        self._record(now, 0, 1)

    def _record(self, now: float, good: int, refused: int) -> None:
        if now < self.since:
            return
        takes = max(self.good_takes, self.refusal_takes)
        longest, shortest = max(_LONGEST, 2 * takes), max(_SHORTEST, 2 * takes)
        if not self.good + self.refused or now - self.since > 2 * longest:
            self.discard(now)
        self.good += good
        self.refused += refused
        count, elapsed = self.good + self.refused, now - self.since
        if not self.good and elapsed < longest:
            return  # a limit lets some through
        enough = max(_OUTCOMES, _FAILED / self.before) if self.steps else _OUTCOMES
        if (count >= enough and elapsed >= shortest) or (self.gap and elapsed >= longest):
            self._judge(self.refused / count, self.good / elapsed, count / elapsed)
            self.discard(now + max(_SHORTEST, takes) if self.gap else now)

    def interrupted(self, now: float) -> None:
        """Forget what failed as the host went down, until ``now``: it says nothing about a rate."""
        self.discard(now)
        if self.steps:  # the pace has not helped yet
            self.gap, self.helps, self.steps = 0.0, False, 0

    def discard(self, now: float) -> None:
        """Begin another measurement at ``now``."""
        self.good = self.refused = 0
        self.since = now

    def _judge(self, share: float, succeeding: float, rate: float) -> None:
        """Change the pace after a measurement: ``share`` failed, of ``rate`` requests a second."""
        chance = _DEVIATIONS * sqrt(self.share * (1 - self.share) / _OUTCOMES)
        many = share > self.share + max(_MANY, chance)
        if not self.gap:
            # Where nothing at all succeeds, it is no limit of the rate.
            if many and succeeding:
                self.unpaced = rate
                self._lower(share, succeeding, 1)
            else:
                self.share += (share - self.share) * _FORGET
        elif self.steps and share > (self.share + self.before) / 2:
            if self.steps < _STEPS:
                self._lower(self.before, succeeding, self.steps + 1)
            else:
                self.share, self.gap, self.helps, self.steps = share, 0.0, False, 0
        elif self.steps:
            self.helps, self.steps = True, 0
        elif many:
            self._lower(share, max(succeeding, _LESS / self.gap), 1)
        else:
            # Without any refusal the pace may be far too low: the host had a bad moment, or a quota spent.
            self.raised = min(max(self.raised**2, _RAISE), _FASTEST_RAISE)
            if share or self.raised > self.gap * self.unpaced * _FAR:
                self.raised = _RAISE  # near what was too fast, as CUBIC does (RFC 9438)
            self.gap /= self.raised
            if self.gap * self.unpaced < 1:
                self.gap, self.helps = 0.0, False

    def _lower(self, before: float, succeeding: float, steps: int) -> None:
        self.before, self.steps, self.raised = before, steps, 1.0
        if succeeding:
            self.gap = max(1 / max(succeeding * _BELOW, _SLOWEST), self.gap)
        else:  # what the host takes is not known, only that it is less
            self.gap = min(self.gap * _STEEPEST, 1 / _SLOWEST)


def _newer(mean: float, took: float) -> float:
    took = min(took, _LONGEST_LATENCY)
    return took if mean == inf else mean + (took - mean) * _FORGET
