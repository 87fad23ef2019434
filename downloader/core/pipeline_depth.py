"""Choose how many requests one connection may have in flight: increase while it pays, else decrease.

Pipelining (RFC 9112 §9.3.2) gains most where responses are small, and take long to arrive or cost
little; nothing where a server processes the requests of a connection slowly and one at a time. Servers
do not announce which applies, and latency does not tell: a server that takes seconds may process all
requests of a connection at once, and then a greater depth multiplies its rate. So the depth of each
origin starts at 1 and is multiplied by ``STEP`` as long as that pays. This is hill climbing as in TCP's
slow start, with a measured gain instead of the absence of loss.

A step pays if the goodput of the worker grows by more than chance (responses per second, over all
connections to the origin): few responses in a measurement call for a greater gain. Where the worker's
CPU is the limit, it pays as long as the CPU time per response does not grow. The cost of storing a
response is charged when the response is received. The first windows after a step are received but not
stored yet; without that charge they would look too good.

Where responses take seconds, so do these measurements, during which all connections wait for a server that
works on one request after the other. There a few connections try the next depth while connections are still
added, and are compared with as many others in the same time.

This module has values and functions from one value to the next; ``goodput`` says how long to measure,
``http.pipelined.origin_state`` measures, and ``http.pipelined.depth_trial`` tries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import NamedTuple

__all__ = [
    "DEEPEST",
    "STEP",
    "Depth",
    "Sample",
    "broke",
    "fixed",
    "large",
    "limited",
    "measured",
    "next_depth",
    "shut",
    "trial_pays",
    "tried",
    "waits",
]

DEEPEST = 64
STEP = 8
_SOON = 1.0  # seconds; if a measurement takes longer, responses are slow
_GAIN, _MAX_COST_GROWTH, _LOSS = 1.05, 1.03, 0.9
# Standard deviations that a gain must exceed. That of a rate, measured over n responses, is about 1 ÷ √n of
# it where latencies are exponentially distributed, and smaller where they vary less.
_CERTAINTY = 4.0
_BUSY = 0.5  # share of the time on the CPU from which on the CPU counts as the limit
_TRIES = 2  # measurements without a gain before the depth stops growing
_PAUSE = 20  # measurements until the next try, doubled each time
_MAX_PAUSE = 640
# A trial: the gain that few connections need, with so many mean latencies' responses, and after how many
# mean latencies without it there is none. Of STEP requests sent together, the last is answered after three
# mean latencies if these are exponentially distributed.
_TRIAL_GAIN, _LATENCIES_TO_PAY, _LATENCIES_TO_FAIL = 1.5, 3, 4


class Sample(NamedTuple):
    """A measurement: ``rate`` responses per second, of ``responses`` in all.

    ``busy`` is the share of the time (0 to 1) that the process was on the CPU. ``debt`` is the additional
    share that it would have taken to store exactly the responses received in this time; it is negative if
    more responses of earlier measurements were stored.
    """

    rate: float
    responses: int
    busy: float = 0.0
    debt: float = 0.0

    @property
    def seconds(self) -> float:
        """The duration of the measurement."""
        return self.responses / self.rate

    @property
    def goodput(self) -> float:
        """Responses per second, including the time to store them."""
        return self.rate / max(self.busy + self.debt, 1.0)

    @property
    def cost(self) -> float:
        """CPU seconds per response, including the time to store it."""
        return (self.busy + self.debt) / self.rate


@dataclass(frozen=True, slots=True)
class Depth:
    """The pipeline depth of an origin.

    ``now``: requests in flight on one connection; ``most``: the maximum; ``stopped``: why it is not
    greater, "" while it grows; ``by_user``: the user chose the depth.

    ``before``: the measurement before the last step; ``tries``: measurements at the present depth without
    a gain; ``wait``: measurements to skip before the next step; ``pause``: the next value of ``wait``.
    """

    now: int = 1
    most: int = DEEPEST
    stopped: str = ""
    by_user: bool = False
    before: Sample | None = None
    tries: int = 0
    wait: int = 0
    pause: int = _PAUSE


def waits(depth: Depth, seconds: float) -> bool:
    """Return whether connections are to be added first; ``seconds``: what a measurement takes at least.

    Where responses are fast, a greater depth costs less than more connections. Where they are slow, it is
    the other way round: to find out that a server processes one request after the other takes the time of
    many responses, and more connections make it faster in any case.
    """
    return depth.now == 1 and seconds > _SOON


def next_depth(depth: Depth) -> int:
    """Return the next greater depth; it is the present one if that is the maximum."""
    return min(depth.now * STEP, depth.most)


def trial_pays(depth: Depth, deep: float, usual: float) -> bool | None:
    """Return whether the next depth pays, or None if that is not known yet.

    ``deep``, ``usual``: responses since the trial began, per connection: of those that try the next depth,
    and of others at the present depth. On each of these, a mean latency brings ``depth.now`` of them.
    """
    if deep >= depth.now * _LATENCIES_TO_PAY and deep > usual * _TRIAL_GAIN:
        return True
    return False if usual >= depth.now * _LATENCIES_TO_FAIL else None


def tried(depth: Depth, *, pays: bool) -> Depth:
    """Return the depth that follows from a trial."""
    if not pays:
        return _stop_growing(depth, "deeper was not faster")
    return replace(depth, now=next_depth(depth), before=None, tries=0)


def fixed(depth: int) -> Depth:
    """Return a depth that changes only if the server does not support it."""
    return Depth(depth, depth, "--pipeline" if depth > 1 else "--pipeline off", by_user=True)


def measured(depth: Depth, sample: Sample) -> Depth:
    """Return the depth that follows from ``sample``, which was measured at ``depth``."""
    if depth.now >= depth.most and (depth.now == 1 or depth.stopped):
        return depth
    if depth.wait:
        # No decision is due. A new try is compared with the latest measurement.
        depth = replace(depth, wait=depth.wait - 1)
        if depth.wait:
            return depth
        if depth.by_user:
            return replace(depth, now=depth.most, stopped="--pipeline")
        return _deeper(depth, sample)
    before = depth.before
    if before is None or _pays(sample, before):
        return _deeper(depth, sample)
    if depth.tries + 1 < _TRIES:
        return replace(depth, tries=depth.tries + 1)
    if sample.goodput < before.goodput * _LOSS:
        return _stop_growing(replace(depth, now=max(depth.now // STEP, 1)), "deeper was slower")
    if min(sample.busy, before.busy) < _BUSY:
        # The server is the limit, not the CPU: the additional requests in flight only wait.
        depth = replace(depth, now=max(depth.now // STEP, 1))
    return _stop_growing(depth, "deeper was not faster")


def _pays(sample: Sample, before: Sample) -> bool:
    chance = _CERTAINTY * sqrt(1 / sample.responses + 1 / before.responses)
    if sample.goodput > before.goodput * max(_GAIN, 1 + chance):
        return True
    if min(sample.busy, before.busy) < _BUSY:
        return False
    # Unlike the rate, the CPU time per response does not depend on other processes. Where this process
    # is the limit, no response waits longer because it was requested early, so equal cost suffices.
    return sample.cost < before.cost * _MAX_COST_GROWTH


def broke(depth: Depth) -> Depth:
    """Return the depth after a connection ended unannounced with requests unanswered."""
    if depth.now == 1:
        return depth
    return _stop_growing(replace(depth, now=depth.now // 2), "connections broke with requests unanswered")


def limited(depth: Depth) -> Depth:
    """Return the depth after a server refused some of the requests as too many.

    What had been sent behind them is refused, too, before anything can wait.
    """
    if depth.now == 1:
        return depth
    return _stop_growing(replace(depth, now=max(depth.now // STEP, 1)), "the server limits requests")


def shut(depth: Depth, why: str) -> Depth:
    """Return depth 1, for good; ``why`` is the reason."""
    if depth.most == 1 and depth.stopped:
        return depth
    return replace(depth, now=1, most=1, stopped=why)


def large(depth: Depth) -> Depth:
    """Return the depth after a large body: 1, without growth for a while; small bodies may follow.

    Responses behind a large body wait for it, and are received in vain.
    """
    if depth.most == 1 or (depth.now == 1 and depth.wait):
        return depth
    return _stop_growing(replace(depth, now=1), "large files")


def _deeper(depth: Depth, sample: Sample) -> Depth:
    if depth.now >= depth.most:
        return replace(depth, stopped=depth.stopped or "the limit", before=sample, tries=0)
    return replace(depth, now=next_depth(depth), before=sample, tries=0, stopped="")


def _stop_growing(depth: Depth, why: str) -> Depth:
    return replace(
        depth,
        stopped=why,
        before=None,
        tries=0,
        wait=depth.pause,
        pause=min(depth.pause * 2, _MAX_PAUSE),
    )
