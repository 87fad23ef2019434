"""What the server has done, counted by each process in its own slot of memory that all share."""

from __future__ import annotations

import mmap
from typing import Final

__all__ = [
    "BYTES",
    "CLOSES",
    "CONNECTIONS_OPEN",
    "CONNECTIONS_OPENED",
    "CONNECTIONS_PEAK",
    "DROPS",
    "GETS",
    "LISTS",
    "REQUESTS",
    "Counters",
]

(
    REQUESTS,
    GETS,
    LISTS,
    CONNECTIONS_OPENED,
    CONNECTIONS_OPEN,
    CONNECTIONS_PEAK,
    BYTES,
    DROPS,
    CLOSES,
) = range(9)

_NAMES: Final = (
    "requests",
    "gets",
    "lists",
    "connections_opened",
    "connections_open",
    "connections_peak",
    "bytes",
    "drops",
    "closes",
)
_SLOT: Final = 16  # int64s, some unused: a slot is two cache lines, written by one process


class Counters:
    """The counts of all processes; made before they fork, each then takes its slot.

    requests: all but those for ``/stats``, counted as they arrive; gets, lists: those whose path is
    ``/get/…`` or ``/list``, whatever the answer; bytes: bodies of files, as far as handed to the
    connection; connections_peak: most open at one time, over all processes; drops: answers that were
    spoiled; closes: connections that were ended because they had had ``close_after`` answers.
    """

    def __init__(self, processes: int) -> None:
        self._all = memoryview(mmap.mmap(-1, processes * _SLOT * 8)).cast("q")

    def slot(self, process: int) -> memoryview[int]:
        """The counts of one process, indexed by REQUESTS and the others; it alone writes them."""
        return self._all[process * _SLOT : (process + 1) * _SLOT]

    def total(self, which: int) -> int:
        """The sum over the processes; of the peaks, the highest: each is already one of all."""
        values = self._all[which::_SLOT].tolist()
        return max(values) if which == CONNECTIONS_PEAK else sum(values)

    def as_dict(self) -> dict[str, int]:
        """All totals by name: the record ``/stats`` answers with."""
        return {name: self.total(which) for which, name in enumerate(_NAMES)}
