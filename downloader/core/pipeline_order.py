"""Decide from responses whether a server answers the requests of a connection in their order.

Only the order determines which request a response belongs to. A server that handles the requests of a
connection concurrently, and writes each response when it is ready, sends as many as it should, and each of
them looks right. So before a window is stored, some of its files, chosen at random, are requested again and
compared: many in the first windows of an origin, one in each window once enough have agreed. The first of
them is requested alone: a server may confuse only what is in flight together. Windows are compared as long
as there are any, since a server may begin late, or be several behind one name. Before the first window,
a few files that were in flight alone are requested again: what can be fetched once only has no windows.

This module has values and functions from one value to the next; ``http.pipelined.recheck`` has the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from downloader.core.units import show_count

__all__ = [
    "MANY",
    "OUT_OF_ORDER",
    "REPEATS",
    "UNCHECKED",
    "Alone",
    "Answer",
    "Order",
    "Seen",
    "Verdict",
    "asking",
    "broken_off",
    "contradicted",
    "doubtful_text",
    "is_repeatable",
    "judged",
    "next_alone",
    "recheck_size",
    "repeated",
    "room_before_recheck",
]

OUT_OF_ORDER = "answers are out of order"
UNCHECKED = "the order of answers could not be checked"
_DIFFER = "answers differ each time"

MANY = 32
"""Files of a window that are requested again where one of them differs, at most."""

REPEATS = 3
"""Files that were in flight alone, and are the same when requested again, before anything is pipelined."""

_SPENT = 1  # files that were not, of which one may have changed
_FIRST, _SHARE, _FEW = 16, 4, 3  # in the first windows; at most 1 of so many, but a few
_NEXT = 4  # in those behind them, and where responses are slow
_SLOW = 0.25  # seconds
_ENOUGH = 128  # files that were requested again; that agreed and could not have been others
_ENOUGH_ALIKE = 512  # files that agreed, with the body of most others
_VAIN, _VAIN_LATER = 8, 64  # windows in a row of which nothing could be compared, at first and later
_WEAK = 2  # files with answers of their own that one changed file does not explain
_UNSETTLED = 2  # windows that ended with differences of which it was not known what they mean
_EXCHANGED, _SHARED, _FOUND, _LOST = "exchanged", "shared", "found", "lost"
_SUSPECTS = 2  # differing files of each kind that are requested alone
_TIMES = 6  # how often, to tell what differs each time from what has changed
_CHANGING = 1  # suspects that differ each time: with more, it would be luck that none seems to last
_DOUBTS = 8  # returns to many because of the source; a list may have many outdated checksums

Answer = bytes | bytearray | str | None
"""A body; or the code of a refusal, by which the server means this file; None says nothing about it."""

Seen = Mapping[int, Answer]
"""The answers to the second requests for files of a window, by the place of each in it."""

Alone = Mapping[int, Sequence[Answer]]
"""The answers to further requests for such files, each of which was in flight alone."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is known about the order of an origin's responses.

    ``asked``: files that were requested again; ``shown``: those that agreed, and whose body few others of
    their window had; ``alike``: others that agreed; ``vain``: windows in a row of which nothing could be
    compared; ``doubts``: how often the source contradicted a response; ``changing``: suspects that differ
    each time; ``unsettled``: see ``broken_off``; ``repeated``, ``spent``: files that were in flight alone,
    and were the same, or not, when requested again; ``why``: why no more than one request may be in flight,
    "" where more may.
    """

    asked: int = 0
    shown: int = 0
    alike: int = 0
    vain: int = 0
    doubts: int = 0
    changing: int = 0
    unsettled: int = 0
    repeated: int = 0
    spent: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to store a window, and what is known of the ``order`` after it."""

    order: Order
    store: bool


def _is_known(order: Order) -> bool:
    return order.shown >= _ENOUGH or order.alike >= _ENOUGH_ALIKE


def is_repeatable(order: Order) -> bool:
    """Return whether files may be requested again; otherwise nothing is pipelined yet."""
    return order.repeated >= REPEATS


def repeated(order: Order, first: Answer, again: Answer) -> Verdict:
    """Return what follows from two answers for a file, neither of which was in flight with others.

    The first one is right, whatever the second is. What may be fetched once only must not be pipelined: to
    compare answers is to fetch them again, and where they differ nothing is known of their order. Nothing
    follows any more once enough were the same.
    """
    if first is None or is_repeatable(order):
        return Verdict(order, store=True)
    if again is None:
        return replace(_shows_nothing(order), store=True)
    if first == again:
        return Verdict(replace(order, repeated=order.repeated + 1, vain=0), store=True)
    spent = order.spent + 1
    why = order.why or (_DIFFER if spent > _SPENT else "")
    return Verdict(replace(order, spent=spent, vain=0, why=why), store=True)


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


def next_alone(held: Sequence[Answer], seen: Seen, alone: Alone) -> int | None:
    """Return which file of a window to request next, alone, to know what the differences mean; None: none.

    Those that may show disorder, some times, as their answers may be others each time. Then one that would
    be wrong, too: the one that has the right answer, or another one with the same answer.
    """
    for index in _suspects(held, seen):
        answers = alone.get(index, ())
        if None in answers or not _last(answers):
            continue
        if len(answers) < _TIMES:
            return index
        witness = _witness(index, held, answers[0], alone)
        if witness is not None and witness not in alone:
            return witness
    return None


def judged(order: Order, held: Sequence[Answer], seen: Seen, alone: Alone) -> Verdict:
    """Return what follows from a recheck of a window whose answers are ``held``.

    A difference may be that of a file that has changed, or may be fetched once only. Where that is so for
    most, no order can be shown. What may be more was requested ``alone``; see ``_evidence``. A window of
    failures that mean no file has no order.
    """
    if order.why == OUT_OF_ORDER:
        return Verdict(order, store=False)
    if all(answer is None for answer in held):
        return Verdict(order, store=True)
    known = [index for index, again in seen.items() if None not in (held[index], again)]
    if not known:
        return _shows_nothing(order)
    found = {index: _evidence(index, held, seen, alone) for index in _suspects(held, seen)}
    kinds = set(found.values())
    own = _different([alone[index][0] for index, kind in found.items() if kind is _Evidence.OWN])
    if _Evidence.DISORDER in kinds or own >= _WEAK or kinds >= {_Evidence.FOUND, _Evidence.LOST}:
        return Verdict(replace(order, why=OUT_OF_ORDER), store=False)
    if kinds & {_Evidence.OWN, _Evidence.UNKNOWN}:
        return _shows_nothing(replace(order, asked=0, shown=0, alike=0))
    agreed = [held[index] for index in known if seen[index] == held[index]]
    shown = sum(held.count(answer) * 2 <= len(held) for answer in agreed)
    changing = order.changing + list(found.values()).count(_Evidence.CHANGES)
    order = replace(
        order,
        shown=order.shown + shown,
        alike=order.alike + len(agreed) - shown,
        vain=0,
        changing=changing,
        why=order.why or (_DIFFER if changing > _CHANGING else ""),
    )
    if len(agreed) * 2 >= len(known):
        return Verdict(order, store=True)
    # What can be fetched once only would be lost if it were fetched again.
    once = _are_spent([(held[index], seen[index]) for index in known if seen[index] != held[index]])
    return Verdict(replace(order, why=order.why or _DIFFER), store=once)


class _Evidence(Enum):
    """What the answers for a file show that were alone, beside that in the window.

    DISORDER: it was the answer for another file. CHANGED, CHANGES: nothing, as the file has changed, or is
    another one each time. FOUND, LOST: a file was refused that is there, or the reverse. OWN: it shared its
    answer, and has one of its own: several such files have got that of another one. UNKNOWN: no answer, or
    one that can mean this and that.
    """

    DISORDER = auto()
    CHANGED = auto()
    CHANGES = auto()
    FOUND = auto()
    LOST = auto()
    OWN = auto()
    UNKNOWN = auto()


def _evidence(index: int, held: Sequence[Answer], seen: Seen, alone: Alone) -> _Evidence:
    """Return what the answers for file ``index`` of a window show; those that were alone are right."""
    answers = alone.get(index, ())
    if not answers or None in answers:
        return _Evidence.UNKNOWN
    first, right = held[index], answers[0]
    if not _last(answers):
        return _Evidence.CHANGES
    if right == first:
        # The answers to the recheck were not in order, if this one and another were exchanged.
        confused = [each for each, again in seen.items() if again == first and held[each] == seen[index]]
        return _Evidence.DISORDER if confused else _Evidence.UNKNOWN
    if isinstance(first, str) and right in held:
        return _Evidence.FOUND
    if isinstance(right, str):
        return _Evidence.LOST if right in held else _Evidence.CHANGED
    witness = _witness(index, held, right, alone)
    if witness is None:
        return _Evidence.CHANGED
    now = alone.get(witness, (None,))[0]
    if now not in (held[witness], right, None):
        return _Evidence.DISORDER
    return _Evidence.UNKNOWN if right in held else _Evidence.OWN


def broken_off(order: Order, held: Sequence[Answer], seen: Seen) -> Verdict:
    """Return what follows where the connection ended before it was known what the differences mean.

    Where that is so again and again, as on a server that closes after a few requests, they must do.
    """
    kinds = _differences(held, seen)
    own = _different([seen[index] for index in kinds.get(_SHARED, ())])
    if not (_EXCHANGED in kinds or own >= _WEAK or kinds.keys() >= {_FOUND, _LOST}):
        return Verdict(order, store=False)
    unsettled = order.unsettled + 1
    why = OUT_OF_ORDER if unsettled > _UNSETTLED else order.why
    return Verdict(replace(order, unsettled=unsettled, why=why), store=False)


def _suspects(held: Sequence[Answer], seen: Seen) -> list[int]:
    """Return files whose differences may show disorder, a few of each kind."""
    return [index for kind in _differences(held, seen).values() for index in kind[:_SUSPECTS]]


def _differences(held: Sequence[Answer], seen: Seen) -> dict[str, list[int]]:
    """Return the files whose differences may show disorder, by kind."""
    found: dict[str, list[int]] = {}
    for index, again in seen.items():
        first = held[index]
        if None in (first, again) or first == again:
            continue
        if isinstance(again, str):
            kind = _LOST if again in held else ""
        elif isinstance(first, str):
            kind = _FOUND if again in held else ""
        elif again in held:
            kind = _EXCHANGED if held.count(again) == 1 else ""
        else:
            kind = _SHARED if held.count(first) > 1 else ""
        if kind:
            found.setdefault(kind, []).append(index)
    return found


def _witness(index: int, held: Sequence[Answer], right: Answer, alone: Alone) -> int | None:
    """Return a file whose answer would be wrong, too, if that of ``index`` was; None if there is none.

    It has the right answer for ``index``, and should have another one; or it has the same answer as that.
    """
    if isinstance(held[index], str) or isinstance(right, str) or right == held[index]:
        return None
    answer = right if right in held else held[index]
    holders = [each for each, other in enumerate(held) if other == answer and each != index]
    return next((each for each in holders if each in alone), holders[0] if holders else None)


def _last(answers: Sequence[Answer]) -> bool:
    """Return whether the answers to requests for one file are the same."""
    return all(answer == answers[0] for answer in answers)


def _are_spent(other: Sequence[tuple[Answer, Answer]]) -> bool:
    """Return whether different files have become the same, or refusals: what may be fetched once only."""
    if all(isinstance(again, str) for _, again in other):
        return True
    return _different([again for _, again in other]) == 1 < _different([first for first, _ in other])


def _different(answers: Sequence[Answer]) -> int:
    """Return how many different ones there are."""
    return len({bytes(answer) if isinstance(answer, bytearray) else answer for answer in answers})


def doubtful_text(files: int) -> str:
    """Return the line about ``files`` that were stored before disorder, or a surplus, was found."""
    return (
        f"{show_count(files)} stored files may have the bodies of others, since their server answered "
        "requests out of order, or twice; the same command with --restart --pipeline off fetches them again"
    )


def _shows_nothing(order: Order) -> Verdict:
    vain = order.vain + 1
    why = UNCHECKED if vain >= (_VAIN_LATER if _is_known(order) else _VAIN) else ""
    return Verdict(replace(order, vain=vain, why=order.why or why), store=False)
