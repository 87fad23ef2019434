"""Decide from responses whether a server answers the requests of a connection in their order.

Only the order determines which request a response belongs to. A server that handles the requests of a
connection concurrently, and writes each response when it is ready, sends as many as it should, and each of
them looks right. So before a window is stored, some of its files, chosen at random, are requested again and
compared: many in the first windows of an origin, one in each window once enough have agreed. The first of
them is requested alone: a server may confuse only what is in flight together. Windows are compared as long
as there are any, since a server may begin late, or be several behind one name.

This module has values and functions from one value to the next; ``http.pipelined.recheck`` has the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from downloader.core.units import show_count

__all__ = [
    "MANY",
    "OUT_OF_ORDER",
    "UNCHECKED",
    "Answer",
    "Order",
    "Verdict",
    "asking",
    "contradicted",
    "doubtful_text",
    "judged",
    "recheck_size",
    "room_before_recheck",
]

OUT_OF_ORDER = "answers are out of order"
UNCHECKED = "the order of answers could not be checked"
_DIFFER = "answers differ each time"

MANY = 32
"""Files of a window that are requested again where one of them differs, at most."""

_FIRST, _SHARE, _FEW = 16, 4, 3  # in the first windows; at most 1 of so many, but a few
_NEXT = 4  # in those behind them, and where responses are slow
_SLOW = 0.25  # seconds
_ENOUGH = 128  # files that were requested again; that agreed and could not have been others
_ENOUGH_ALIKE = 512  # files that agreed, with the body of most others
_VAIN, _VAIN_LATER = 8, 64  # windows in a row of which nothing could be compared, at first and later
_WEAK = 2  # contradictions that one changed file does not explain
_DOUBTS = 8  # returns to many because of the source; a list may have many outdated checksums

Answer = bytes | bytearray | str | None
"""A body; or the code of a refusal, by which the server means this file; None says nothing about it."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is known about the order of an origin's responses.

    ``asked``: files that were requested again; ``shown``: those that agreed, and whose body few others of
    their window had; ``alike``: others that agreed; ``vain``: windows in a row of which nothing could be
    compared; ``doubts``: how often the source contradicted a response; ``why``: why no more than one
    request may be in flight, "" where more may.
    """

    asked: int = 0
    shown: int = 0
    alike: int = 0
    vain: int = 0
    doubts: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to store a window, and what is known of the ``order`` after it."""

    order: Order
    store: bool


def _is_known(order: Order) -> bool:
    return order.shown >= _ENOUGH or order.alike >= _ENOUGH_ALIKE


def recheck_size(order: Order, count: int, latency: float) -> int:
    """Return how many files of a window of ``count`` to request again; ``latency``: the longest in it.

    Where responses are slow, those to many would take long on a server that works on one after the other.
    """
    if _is_known(order):
        return 1
    most = _FIRST if order.asked < _ENOUGH and latency < _SLOW else _NEXT
    return min(most, max(count // _SHARE, _FEW), count)


def asking(order: Order, files: int) -> Order:
    """Return what follows from ``files`` that are requested again now."""
    return replace(order, asked=order.asked + files)


def room_before_recheck(order: Order, left: int) -> int:
    """Return how many requests a window may have where the server closes after ``left`` more responses.

    The last of these is not for a window; see ``pipeline_window.room``.
    """
    return max((left - 1) // 2, left - 1 - (1 if _is_known(order) else _FIRST), 1)


def contradicted(order: Order) -> Order:
    """Return what follows where a response is not what the source states: many are rechecked again."""
    if order.doubts >= _DOUBTS:
        return order
    return replace(order, asked=0, shown=0, alike=0, doubts=order.doubts + 1)


def judged(order: Order, held: Sequence[Answer], pairs: Sequence[tuple[Answer, Answer]]) -> Verdict:
    """Return what follows from a recheck of a window whose answers are ``held``.

    ``pairs``: the answers for a file in the window and to the second request. A file whose second answer
    is that of one other in the window has exchanged answers with it. So have two of which one was refused
    first, and the other is now. One that shared its answer with others and has one of its own now may have
    got theirs: two of these are too many for files that change. Another difference is that of a file that
    has changed, or may be fetched once only; where that is so for most, no order can be shown. A window of
    failures that mean no file has no order.
    """
    if order.why == OUT_OF_ORDER:
        return Verdict(order, store=False)
    if all(answer is None for answer in held):
        return Verdict(order, store=True)
    known = [(first, again) for first, again in pairs if first is not None and again is not None]
    if not known:
        return _shows_nothing(order)
    agreed = [first for first, again in known if first == again]
    other = [(first, again) for first, again in known if first != again]
    weak = sum(_may_be_of_others(first, again, held) for first, again in other)
    exchanged = any(not isinstance(again, str) and held.count(again) == 1 for _, again in other)
    found = any(isinstance(first, str) and again in held for first, again in other)
    lost = any(isinstance(again, str) and again in held for _, again in other)
    if exchanged or weak >= _WEAK or (found and lost):
        return Verdict(replace(order, why=OUT_OF_ORDER), store=False)
    if weak:
        return _shows_nothing(replace(order, asked=0, shown=0, alike=0))
    shown = sum(held.count(answer) * 2 <= len(held) for answer in agreed)
    order = replace(order, shown=order.shown + shown, alike=order.alike + len(agreed) - shown, vain=0)
    if len(agreed) * 2 >= len(known):
        return Verdict(order, store=True)
    # What can be fetched once only would be lost if it were fetched again.
    once = all(isinstance(again, str) for _, again in other)
    return Verdict(replace(order, why=order.why or _DIFFER), store=once)


def _may_be_of_others(first: Answer, again: Answer, held: Sequence[Answer]) -> bool:
    return not isinstance(first, str) and held.count(first) > 1 and held.count(again) == 0


def doubtful_text(files: int) -> str:
    """Return the line about ``files`` that were stored before disorder was found."""
    return (
        f"{show_count(files)} stored files may have the bodies of others, since their server answered "
        "requests out of order; the same command with --restart --pipeline off fetches them again"
    )


def _shows_nothing(order: Order) -> Verdict:
    vain = order.vain + 1
    why = UNCHECKED if vain >= (_VAIN_LATER if _is_known(order) else _VAIN) else ""
    return Verdict(replace(order, vain=vain, why=order.why or why), store=False)
