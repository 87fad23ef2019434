"""Decide from responses whether a server answers the requests of a connection in their order.

Only the order determines which request a response belongs to. A server that handles the requests of a
connection concurrently, and writes each response when it is ready, sends as many as it should, and each of
them looks right. So before the responses of several requests in flight are stored, those of a few windows
are not: their files are requested again, one at a time, and compared. Any disorder within a window shows as
the answer for another of its files. A server may answer in order mostly, so this is done again at growing
intervals, and for each greater depth, where more can overtake.

Where all the responses of a window are the same, their order neither shows nor matters.

This module has values and functions from one value to the next; ``http.pipelined.order_check`` has the
tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

__all__ = [
    "OUT_OF_ORDER",
    "Answer",
    "Order",
    "answered",
    "check_depth",
    "check_size",
    "contradicted",
    "due",
    "stored",
]

OUT_OF_ORDER = "answers are out of order"

# Responses in a check, at least: in that of a new depth, also for each request in flight, and in others.
_LEAST_NEW, _FOR_EACH, _LEAST = 128, 2, 64
_SHORT = 0.25  # seconds
_ENOUGH = 16  # answers that differ from others and agree; where responses are slow, a window has few more
_MOST = 8  # checks in a row that show nothing
_DOUBTS = 8  # checks because of a contradiction; a list may have many outdated checksums
# Windows until a depth is checked again, their growth, and at most how many more.
_FIRST_AGAIN, _GROWTH, _MOST_MORE = 1, 2, 64

Answer = tuple[int, int]
"""Length and CRC-32 of a body; or -1 and the status of a refusal, by which the server means one file."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is known about the order of an origin's responses.

    ``proven``: the greatest depth at which they may be stored, 1 before the first check, 0 where they were
    out of order or could not be compared; ``why``: the reason for that. ``windows``: stored ones of several
    requests in flight; ``again``: the number of them after which the next check is due. ``shown``: answers
    in the present series of checks that agreed and differ from others; ``vain``: checks in a row that
    showed nothing; ``doubts``: how often the source contradicted an answer.
    """

    proven: int = 1
    why: str = ""
    windows: int = 0
    again: int = _FIRST_AGAIN
    shown: int = 0
    vain: int = 0
    doubts: int = 0


def check_size(order: Order, depth: int) -> int:
    """Return how many requests a check at ``depth`` has, at most."""
    return max(_LEAST_NEW, _FOR_EACH * depth) if depth > order.proven else _LEAST


def check_depth(order: Order, wanted: int, most: int, latency: float) -> int:
    """Return how many requests to send together in a check: ``wanted``, or ``most`` in the first one.

    That proves all depths, in the time of few latencies. A server that takes ``latency`` for each request,
    and may process one after the other, would hold them for too long.
    """
    return max(wanted, most) if order.proven == 1 and wanted > 1 and latency < _SHORT else wanted


def due(order: Order, depth: int) -> bool:
    """Return whether a check is due of an origin that is to have ``depth`` requests in flight."""
    return order.proven > 0 and depth > 1 and (depth > order.proven or order.windows >= order.again)


def stored(order: Order) -> Order:
    """Return what follows from one more window that was stored."""
    return replace(order, windows=order.windows + 1)


def contradicted(order: Order) -> Order:
    """Return what follows where an answer is not what the source states: a check is due."""
    if order.doubts >= _DOUBTS:
        return order
    return replace(order, again=order.windows, doubts=order.doubts + 1)


def answered(order: Order, depth: int, pairs: Sequence[tuple[Answer, Answer]]) -> Order:
    """Return what follows from a check at ``depth``: of each file, the answer in the window and alone.

    An answer that is that for another file, and not its own, is out of order. One that nothing else had
    may have changed, and shows nothing. Where most have changed, no order can be proven.
    """
    if not order.proven:
        return order
    alone = {own for _, own in pairs}
    if any(deep != own and deep in alone for deep, own in pairs):
        return replace(order, proven=0, why=OUT_OF_ORDER)
    agreed = [own for deep, own in pairs if deep == own]
    if len(agreed) * 2 < len(pairs):
        return replace(order, proven=0, why="answers differ each time")
    telling = _telling(agreed)
    shown, vain = order.shown + telling, 0 if telling else order.vain + 1
    if shown >= _ENOUGH:
        again = order.again
        if order.windows >= again:
            again = min(max(order.windows, 1) * _GROWTH, order.windows + _MOST_MORE)
        return replace(order, proven=max(order.proven, depth), again=again, shown=0, vain=0)
    if vain >= _MOST:
        return replace(order, proven=0, why="the order of answers could not be checked")
    return replace(order, shown=shown, vain=vain)


def _telling(answers: Collection[Answer]) -> int:
    """Return how many of ``answers`` differ from the most frequent one, whose files may change places."""
    return len(answers) - max(Counter(answers).values(), default=0)
