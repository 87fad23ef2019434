"""Which answers are spoiled, and where: what a server that dies, or a proxy that gives up, does to them."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

__all__ = ["Cut", "Drops"]


class Cut(NamedTuple):
    """The connection ends after so many bytes of the answer: in good order, or with a reset."""

    after: int
    reset: bool


class Drops:
    """Draws for each answer whether it is spoiled, with the probability ``rate``.

    The same ``seed`` spoils the same answers in the order in which a process gives them; each
    process of a server draws for itself.
    """

    def __init__(self, rate: float, seed: int | None, process: int = 0) -> None:
        self._rate = rate
        self._random = Random(None if seed is None else f"{seed}/{process}")

    def draw(self, head: int, body: int) -> Cut | None:
        """Where to cut an answer of ``head`` and ``body`` bytes; None, and it goes out whole.

        Each as often: before the first byte, within the head, within the body (where there is one,
        else within the head), and a reset anywhere. At least one byte is missing.
        """
        random = self._random
        if random.random() >= self._rate:
            return None
        kind = random.randrange(4)
        if kind == 0:
            return Cut(0, False)
        if kind == 3:
            return Cut(random.randrange(head + body), True)
        if kind == 2 and body:
            return Cut(head + random.randrange(body), False)
        return Cut(random.randrange(1, head), False)
