"""Wait until something can be read."""

from __future__ import annotations

import math
import select
from typing import Protocol

__all__ = ["readable"]


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


def readable(source: int | _HasFileno, within: float | None = None) -> bool:
    """Wait for data or an end at ``source``, ``within`` seconds at most; return whether there is one.

    Not ``select.select()``, which refuses a descriptor above 1,023: a program that holds many files hands
    them down.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(None if within is None else math.ceil(within * 1000)))
