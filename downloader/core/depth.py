"""How many requests one connection may have in flight: deeper while it pays, back when it does not.

Pipelining (RFC 9112 §9.3.2) is worth most where answers are small and fast, and nothing at all where a
server answers each connection's requests one at a time and slowly. No server says which it is. So the
depth of each origin starts at 1 and is multiplied by ``STEP`` as long as its goodput (answers a second,
over all connections of the worker to it) grows with it: hill climbing, as in TCP's slow start, with the
measured rate in the place of the absence of loss.

Everything here is a value and a function from one to the next; who measures is ``lanes.wire``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["DEEPEST", "STEP", "Depth", "broke", "fixed", "large", "measured", "shut"]

DEEPEST = 64
STEP = 4
SLOW = 0.2  # seconds to an answer at depth 1 from which on deeper is not tried
_GAIN = 1.02
_LOSS = 0.93
_TRIES = 2  # measurements that must agree before it grows no more
_PAUSE = 20  # measurements until it is tried again, doubled each time
_LONGEST_PAUSE = 640


@dataclass(frozen=True, slots=True)
class Depth:
    """``now``: requests in flight on one connection; ``most``: never more than that; ``reached``: the
    deepest so far; ``stopped``: why it is not deeper, "" while it grows; ``told``: the user said so.

    ``rate`` is the goodput before the last step, ``tries`` how often the present depth was measured
    without a gain, ``wait`` how many measurements are let pass before the next step, ``pause`` how many
    it will be the next time.
    """

    now: int = 1
    most: int = DEEPEST
    reached: int = 1
    stopped: str = ""
    told: bool = False
    rate: float = 0.0
    tries: int = 0
    wait: int = 0
    pause: int = _PAUSE


def fixed(depth: int) -> Depth:
    """``depth`` and no other, but where the server does not take it."""
    return Depth(depth, depth, depth, "--pipeline" if depth > 1 else "--pipeline off", told=True)


def measured(depth: Depth, rate: float, latency: float) -> Depth:
    """After ``rate`` answers a second were measured at this depth, ``latency`` seconds each in the mean."""
    if depth.now >= depth.most and (depth.now == 1 or depth.stopped):
        return depth
    if depth.wait:
        # It was decided already; the rate that a new try is compared with is the latest.
        depth = replace(depth, wait=depth.wait - 1)
        if depth.wait:
            return depth
        if depth.told:
            return replace(depth, now=depth.most, stopped="--pipeline")
        return _deeper(depth, rate)
    if depth.now == 1 and latency > SLOW:
        return _rest(depth, "answers are slow")
    if rate > depth.rate * _GAIN:
        return _deeper(depth, rate)
    if depth.tries + 1 < _TRIES:
        return replace(depth, tries=depth.tries + 1)
    # Not faster: what is in flight for nothing only waits. A little slower is within the noise.
    why = "deeper was slower" if rate < depth.rate * _LOSS else "deeper was not faster"
    return _rest(replace(depth, now=max(depth.now // STEP, 1)), why)


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
    """A large body came: what is behind it would wait. From 1 again; small ones may follow."""
    if depth.now == 1 or depth.most == 1:
        return depth
    return _rest(replace(depth, now=1), "large files")


def _deeper(depth: Depth, rate: float) -> Depth:
    if depth.now >= depth.most:
        return replace(depth, stopped=depth.stopped or "the limit", rate=rate, tries=0)
    now = min(depth.now * STEP, depth.most)
    return replace(depth, now=now, reached=max(now, depth.reached), rate=rate, tries=0, stopped="")


def _rest(depth: Depth, why: str) -> Depth:
    return replace(
        depth,
        stopped=why,
        rate=0.0,
        tries=0,
        wait=depth.pause,
        pause=min(depth.pause * 2, _LONGEST_PAUSE),
    )
