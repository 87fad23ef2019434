"""Hold a window while some of its files are requested again, to compare; see ``core.pipeline_order``."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Sequence
from random import sample

from downloader.core.pipeline_order import MANY, Answer, Order, Verdict, judged
from downloader.errors import FetchError
from downloader.http.pipelined.parser import Body
from downloader.http.task import FetchTask

__all__ = ["Recheck"]

# Refusals that mean the file that was requested. Others come and go.
_REFUSALS = frozenset({"http-401", "http-403", "http-404", "http-410", "http-451"})
_ROUNDS = 2  # because those so far do not settle it

_Responses = list[tuple[FetchTask, Body]]


class Recheck:
    """A recheck of ``count`` files of the window ``held``. ``tasks``: those to be requested again now.

    There are none where all have failed in ways that mean no file.
    """

    __slots__ = ("_again", "_indices", "_left", "_rounds", "_wanted", "held", "tasks")

    def __init__(self, held: _Responses, count: int) -> None:
        self.held = held
        self._again: list[tuple[int, Answer]] = []
        self._rounds = _ROUNDS
        # In random order, so that a server with an order of its own does not repeat what it did.
        usable = [index for index, (_, body) in enumerate(held) if _answer(body) is not None]
        self._left = sample(usable, min(len(usable), max(count, MANY)))
        self._wanted = min(count, len(usable))
        self._choose(1)

    def _choose(self, count: int) -> None:
        self._indices, self._left = self._left[:count], self._left[count:]
        self.tasks = [self.held[index][0] for index in self._indices]

    def answered(self, responses: Sequence[tuple[FetchTask, Body]]) -> bool:
        """Take the responses to ``tasks``; return whether more are to be requested.

        That is so where they do not settle it: one differs, or all have failed.
        """
        for index, (_, body) in zip(self._indices, responses, strict=True):
            self._again.append((index, _answer(body)))
        known = [(index, answer) for index, answer in self._again if answer is not None]
        settled = known and all(_answer(self.held[index][1]) == answer for index, answer in known)
        if missing := self._wanted - len(self._again):
            self._choose(missing)
            return True
        if settled or not self._left or not self._rounds:
            return False
        self._rounds -= 1
        self._wanted = len(self._again) + min(MANY if known else self._wanted, len(self._left))
        self._choose(self._wanted - len(self._again))
        return True

    @property
    def in_step(self) -> bool:
        """Whether the last response shows that none was too many: else it would be the one before it."""
        answers = [(_answer(self.held[index][1]), again) for index, again in self._again]
        if not answers:
            return False
        before = answers[-2][1] if len(answers) > 1 else _answer(self.held[-1][1])
        last = answers[-1][1]
        return (
            all(first == again for first, again in answers)
            and None not in (last, before)
            and last != before
        )

    def verdict(self, order: Order) -> Verdict:
        """Return what follows from the responses, and from ``order``, what was known before."""
        held = [_answer(body) for _, body in self.held]
        return judged(order, held, [(held[index], again) for index, again in self._again])


def _answer(body: Body) -> Answer:
    if isinstance(body, (bytes, bytearray)):
        return body
    return body.code if isinstance(body, FetchError) and body.code in _REFUSALS else None
