"""How many requests one connection may have in flight: deeper while it pays, back when it does not.

Pipelining (RFC 9112 §9.3.2) is worth most where answers are small and fast, and nothing at all where a
server answers each connection's requests one at a time and slowly. No server says which it is. So the
depth of each origin starts at 1 and is multiplied by ``STEP`` as long as that pays: hill climbing, as in
TCP's slow start, with a measured gain in the place of the absence of loss. It pays when the goodput of
the worker grows (answers a second, over all connections to the origin), or, where the worker's CPU is
what limits it, as long as an answer does not cost more of it. What it costs to store one is charged when
it is answered: the first windows after a step are answered and not stored yet, and would look too good.

Everything here is a value and a function from one to the next; ``http.pipelined.origin_state``
measures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = ["DEEPEST", "STEP", "Depth", "Sample", "broke", "fixed", "large", "measured", "shut"]

DEEPEST = 64
STEP = 8
SLOW = 0.2  # seconds to an answer at depth 1 from which on deeper is not tried
_GAIN, _DEARER, _LOSS = 1.05, 1.03, 0.9
_BUSY = 0.5  # of the time on the CPU, from which on that counts as what limits
_TRIES = 2  # measurements that must agree before it grows no more
_PAUSE = 20  # measurements until it is tried again, doubled each time
_LONGEST_PAUSE = 640


class Sample(NamedTuple):
    """A measurement: ``rate`` answers a second, each after ``latency`` seconds in the mean; the process
    was on the CPU for ``busy`` of the time (0 to 1), and would have been for ``debt`` more if all that was
    answered had been stored, and nothing that was answered before (below 0 where that was more)."""

    rate: float
    latency: float
    busy: float = 0.0
    debt: float = 0.0

    @property
    def goodput(self) -> float:
        """Answers a second, if each is stored in its turn."""
        return self.rate / max(self.busy + self.debt, 1.0)

    @property
    def cost(self) -> float:
        """Seconds of the CPU that an answer takes, stored."""
        return (self.busy + self.debt) / self.rate


@dataclass(frozen=True, slots=True)
class Depth:
    """``now``: requests in flight on one connection; ``most``: never more than that; ``reached``: the
    deepest so far; ``stopped``: why it is not deeper, "" while it grows; ``told``: the user said so.

    ``before`` is what was measured before the last step, ``tries`` how often the present depth was
    measured without a gain, ``wait`` how many measurements are let pass before the next step, ``pause``
    how many it will be the next time.
    """

    now: int = 1
    most: int = DEEPEST
    reached: int = 1
    stopped: str = ""
    told: bool = False
    before: Sample | None = None
    tries: int = 0
    wait: int = 0
    pause: int = _PAUSE


def fixed(depth: int) -> Depth:
    """``depth`` and no other, but where the server does not take it."""
    return Depth(depth, depth, depth, "--pipeline" if depth > 1 else "--pipeline off", told=True)


def measured(depth: Depth, sample: Sample) -> Depth:
    """What follows from ``sample``, taken at this depth."""
    if depth.now >= depth.most and (depth.now == 1 or depth.stopped):
        return depth
    if depth.wait:
        # It was decided already; what a new try is compared with is the latest.
        depth = replace(depth, wait=depth.wait - 1)
        if depth.wait:
            return depth
        if depth.told:
            return replace(depth, now=depth.most, stopped="--pipeline")
        return _deeper(depth, sample)
    if depth.now == 1 and sample.latency > SLOW:
        return _rest(depth, "answers are slow")
    before = depth.before
    if before is None or _pays(sample, before):
        return _deeper(depth, sample)
    if depth.tries + 1 < _TRIES:
        return replace(depth, tries=depth.tries + 1)
    if sample.goodput < before.goodput * _LOSS:
        return _rest(replace(depth, now=max(depth.now // STEP, 1)), "deeper was slower")
    if min(sample.busy, before.busy) < _BUSY:
        # Nobody was held up but by the server: what is in flight for nothing only waits.
        depth = replace(depth, now=max(depth.now // STEP, 1))
    return _rest(depth, "deeper was not faster")


def _pays(sample: Sample, before: Sample) -> bool:
    if sample.goodput > before.goodput * _GAIN:
        return True
    if min(sample.busy, before.busy) < _BUSY:
        return False
    # What an answer costs of the CPU; unlike the rate, it does not depend on who else runs. Where we are
    # the ones who are slow, nothing waits the longer for being asked early: not dearer is good enough.
    return sample.cost < before.cost * _DEARER


def broke(depth: Depth) -> Depth:
    """A connection ended with requests unanswered, and nothing had announced it."""
    if depth.now == 1:
        return depth
    return _rest(replace(depth, now=depth.now // 2), "connections broke with requests unanswered")


def shut(depth: Depth, why: str) -> Depth:
    """One at a time from now on."""
    if depth.most == 1 and depth.stopped:
        return depth
    return replace(depth, now=1, most=1, stopped=why)


def large(depth: Depth) -> Depth:
    """A large body came: what is behind it would wait, and come for nothing. From 1 again, or no deeper for
    the time being; small ones may follow."""
    if depth.most == 1 or (depth.now == 1 and depth.wait):
        return depth
    return _rest(replace(depth, now=1), "large files")


def _deeper(depth: Depth, sample: Sample) -> Depth:
    if depth.now >= depth.most:
        return replace(depth, stopped=depth.stopped or "the limit", before=sample, tries=0)
    now = min(depth.now * STEP, depth.most)
    return replace(depth, now=now, reached=max(now, depth.reached), before=sample, tries=0, stopped="")


def _rest(depth: Depth, why: str) -> Depth:
    return replace(
        depth,
        stopped=why,
        before=None,
        tries=0,
        wait=depth.pause,
        pause=min(depth.pause * 2, _LONGEST_PAUSE),
    )
