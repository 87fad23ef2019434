"""Count what the server does; each process counts in its own slot of shared memory."""

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
    """The counters of all processes. Create them before forking; then each process takes its slot.

    requests: all except those for ``/stats``, counted on arrival; gets, lists: those whose path is
    ``/get/…`` or ``/list``, whatever the response; bytes: bodies of files, as far as passed to the
    connection; connections_peak: maximum open at one time, over all processes; drops: responses that were
    cut; closes: connections that were closed after ``close_after`` responses.
    """

    def __init__(self, processes: int) -> None:
        self._all = memoryview(mmap.mmap(-1, processes * _SLOT * 8)).cast("q")

    def slot(self, process: int) -> memoryview[int]:
        """Return the counts of one process, indexed by REQUESTS and the others; only it writes them."""
        return self._all[process * _SLOT : (process + 1) * _SLOT]

    def total(self, which: int) -> int:
        """Return the sum over all processes; the maximum for the peak, which each records for all."""
        values = self._all[which::_SLOT].tolist()
        return max(values) if which == CONNECTIONS_PEAK else sum(values)

    def as_dict(self) -> dict[str, int]:
        """Return all totals by name: the response to ``/stats``."""
        return {name: self.total(which) for which, name in enumerate(_NAMES)}
