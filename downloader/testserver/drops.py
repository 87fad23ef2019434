"""Choose responses to cut, and where, to simulate a server that dies or a proxy that gives up."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

__all__ = ["Cut", "Drops"]


class Cut(NamedTuple):
    """The end of a connection after ``after`` bytes of a response, in order or with a reset."""

    after: int
    reset: bool


class Drops:
    """A random choice of responses to cut, each with the probability ``rate``.

    The same ``seed`` cuts the same responses, in the order in which a process sends them. Each process of a
    server draws separately.
    """

    def __init__(self, rate: float, seed: int | None, process: int = 0) -> None:
        self._rate = rate
        self._random = Random(None if seed is None else f"{seed}/{process}")

    def draw(self, head: int, body: int) -> Cut | None:
        """Return where to cut a response of ``head`` and ``body`` bytes; None: send it whole.

        Four kinds are equally likely: before the first byte, within the head, within the body (within the
        head if there is none), and a reset anywhere. At least one byte is missing.
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
