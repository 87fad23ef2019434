"""Hold a window while some of its files are requested again, to compare; see ``core.pipeline_order``."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Iterator, Sequence
from itertools import islice
from random import random

from downloader.core.lone_responses import Received
from downloader.core.pipeline_order import (
    MANY,
    Answer,
    Order,
    Verdict,
    broken_off,
    judged,
    next_alone,
    repeated,
)
from downloader.errors import FetchError
from downloader.http.pipelined.parser import Body, NeedsRequestsClient
from downloader.http.task import FetchTask

__all__ = ["Recheck"]

# Refusals that come and go; other ones of the client's fault mean the file that was requested.
_PASSING = frozenset({"http-408", "http-421", "http-425", "http-429"})
_ELSEWHERE = "elsewhere"
_ROUNDS = 2  # because those so far do not settle it

_Responses = list[tuple[FetchTask, Body]]


class Recheck:
    """A recheck of ``count`` files of the window ``held``. ``tasks``: those to be requested again now.

    There are none where all have failed in ways that mean no file. ``received``: what has come for them, in
    its order. ``single``: the window is one file, which was in flight alone.
    """

    __slots__ = (
        "_alone",
        "_by_themselves",
        "_indices",
        "_places",
        "_rounds",
        "_seen",
        "_wanted",
        "held",
        "received",
        "single",
        "tasks",
    )

    def __init__(self, held: _Responses, count: int, *, single: bool = False) -> None:
        self.held = held
        self.single = single
        self.received: list[Received] = []
        self._seen: dict[int, Answer] = {}
        self._alone: dict[int, list[Answer]] = {}
        self._rounds = _ROUNDS
        self._by_themselves = False
        # In random order, so that a server with an order of its own does not repeat what it did.
        usable = (index for index in _shuffled(len(held)) if _answer(held[index][1]) is not None)
        self._places = islice(usable, max(count, MANY))
        self._wanted = count
        self._choose(1)

    def _choose(self, count: int) -> bool:
        """Choose up to ``count`` further files; return whether there are any."""
        return self._ask_for(list(islice(self._places, count)))

    def _ask_for(self, indices: list[int]) -> bool:
        self._indices = indices
        self.tasks = [self.held[index][0] for index in indices]
        return bool(indices)

    def answered(self, responses: Sequence[tuple[FetchTask, Body]]) -> bool:
        """Take the responses to ``tasks``; return whether more are to be requested.

        That is so where they do not settle it: one differs, or all have failed. Last of all, files are
        requested one by one without which it is not known what a difference means.
        """
        answers = [_ELSEWHERE if _is_elsewhere(body) else _answer(body) for _, body in responses]
        self.received += zip(self.tasks, answers, strict=True)
        if self._by_themselves:
            self._alone.setdefault(self._indices[0], []).append(answers[0])
            return self._ask_alone()
        self._seen.update(zip(self._indices, answers, strict=True))
        seen = self._seen
        if self.single:
            return False
        if len(seen) < self._wanted and self._choose(self._wanted - len(seen)):
            return True
        known = {index: answer for index, answer in seen.items() if answer is not None}
        if known and all(_answer(self.held[index][1]) == answer for index, answer in known.items()):
            return False
        if self._rounds and self._choose(MANY if known else len(seen)):
            self._rounds -= 1
            return True
        return self._ask_alone()

    def _ask_alone(self) -> bool:
        index = next_alone(self._held_answers(), self._seen, self._alone)
        self._by_themselves = index is not None
        return self._ask_for([] if index is None else [index])

    def _held_answers(self) -> list[Answer]:
        # Most are bodies, and this is done for each window.
        return [body if body.__class__ is bytes else _answer(body) for _, body in self.held]

    @property
    def in_step(self) -> bool:
        """Whether the last response shows that none was too many: else it would be the one before it.

        After a single file that is not another one now, that is as after any other with one request in
        flight.
        """
        if self.single:
            return self.same or not self._seen
        answers = [(_answer(self.held[index][1]), again) for index, again in self._seen.items()]
        if not answers:
            return False
        before = answers[-2][1] if len(answers) > 1 else _answer(self.held[-1][1])
        last = answers[-1][1]
        return (
            all(first == again for first, again in answers)
            and None not in (last, before)
            and last != before
        )

    @property
    def same(self) -> bool:
        """Whether a single file was the same when it was requested again."""
        again = self._seen.get(0)
        return again is not None and again == _answer(self.held[0][1])

    def verdict(self, order: Order) -> Verdict:
        """Return what follows from the responses, and from ``order``, what was known before."""
        if self.single:
            return repeated(order, _answer(self.held[0][1]), self._seen.get(0))
        return judged(order, self._held_answers(), self._seen, self._alone)

    def broken_off(self, order: Order) -> Verdict:
        """Return what follows from the responses so far, where the connection ended before the others."""
        if self.single:
            return self.verdict(order)
        return broken_off(order, self._held_answers(), self._seen)


def _shuffled(count: int) -> Iterator[int]:
    """Yield the numbers below ``count`` in random order; mostly one or two of them are taken."""
    numbers = list(range(count))
    while numbers:
        place = int(random() * len(numbers))
        numbers[place], numbers[-1] = numbers[-1], numbers[place]
        yield numbers.pop()


def _answer(body: Body) -> Answer:
    if isinstance(body, (bytes, bytearray)):
        return body
    code = body.code if isinstance(body, FetchError) else ""
    return code if code.startswith("http-4") and code not in _PASSING else None


def _is_elsewhere(body: Body) -> bool:
    """Return whether the response is a redirect, or another one that this client cannot take."""
    return isinstance(body, NeedsRequestsClient)
