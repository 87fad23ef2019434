"""Find whether greenlets queue for each other while connections are opened. Pure.

Once the connections are open nobody queues, so the time of the other passes does not show it. That they
waited long does not either: a login that is made once under a lock makes all others wait as long, and then
all go on. Here they go on one by one, each after a real time, while one greenlet at a time does not wait.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from diagnostics.source_places import Spot
from diagnostics.waits import in_look_up, in_network, in_pool, in_sleep, in_turn

__all__ = ["Queue", "queue_of"]

_LOOKED_AT = 50  # greenlets, by the probe
_MOSTLY = 0.4  # of the idle time of the pass; the last to have its turn and the first wait for nobody
_REAL = 0.25  # of the mean turn; who goes on sooner has waited for the same thing as the one before
_SOME = 3  # turns, and greenlets that wait at once
_ONE = (0.6, 2.0)  # greenlets that do not wait, on average, where one has the turn


class Queue(NamedTuple):
    """Where greenlets waited and went on one by one.

    ``sure``: one greenlet had what the others waited for. Otherwise several may have had it, or each may
    have waited for something of its own.
    """

    stack: list[Spot]
    sure: bool


def queue_of(told: dict[str, Any] | None, many: int) -> Queue | None:
    """Return the queue in a pass of ``many`` requests that open connections, None where there is none.

    ``told``: the record of the pass, see ``https_agent.openings``.
    """
    if not told or not told["seen"]:
        return None
    stacks: list[list[Spot]] = told["stacks"]
    standing = {number for number, stack in enumerate(stacks) if in_turn(stack) and not in_pool(stack)}
    found = []
    for number, stack in enumerate(stacks):
        if in_network(stack) or in_look_up(stack) or in_pool(stack):
            continue
        turns, most, free = _turns(told["seen"], number, standing)
        real = sum(each >= _REAL * sum(turns) / len(turns) for each in turns if each)
        rest = sum(turns) - max(turns, default=0.0)
        alone = min(real, most) >= _SOME and real >= len(turns) / 2
        if not alone or rest < _MOSTLY * told["seen"][-1][0]:
            continue
        one = _ONE[0] <= free < _ONE[1] and not in_sleep(stack)
        enough = min(real, most) >= min(many, _LOOKED_AT) / 2
        found.append(Queue(stack, one and enough and bool(told["ready"])))
    return max(found, key=lambda each: each.sure, default=None)


def _turns(seen: list[Any], number: int, standing: set[int]) -> tuple[list[float], int, float]:
    """Return after how many seconds each went on that waited at stack ``number``.

    Of several that went on at once, all but one did so after no time. Also return how many waited at most,
    and how many others were in no queue, on average.
    """
    turns: list[float] = []
    since = during = free = 0.0
    most = 0
    before: set[int] = set()
    for (idle, pairs), (later, _) in pairwise([*seen, seen[-1]]):
        at = {greenlet for greenlet, stack in pairs if stack == number}
        if left := before - at:
            turns += [idle - since, *[0.0] * (len(left) - 1)]
        if left or not before:
            since = idle
        before, most = at, max(most, len(at))
        if at:
            during += later - idle
            free += (later - idle) * sum(stack not in standing for _, stack in pairs)
    return turns, most, free / during if during else 0.0
