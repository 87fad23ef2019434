"""What each worker of a run has counted, in memory that all workers share.

Workers that ask one server compete for it: one that opens more connections gets more of a server that is
overloaded, though all together get less. So the number of connections follows from what all of them
receive. The first worker of those that live decides for all, and each takes its decision over.

Each worker writes a row of its own and nobody waits: what is read may be of two instants, some milliseconds
apart.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from downloader.core.connection_limit import Counters
from downloader.core.limits import MOST_WORKERS

__all__ = ["Row", "Together", "WorkerCounts", "together"]

_ROWS: Final = MOST_WORKERS
_LIVING: Final = 2.0  # seconds since a row was written


class Row(NamedTuple):
    """What a worker writes four times a second.

    ``now``: when; ``cpu``, ``finished``, ``refused``: see ``connection_limit.Counters``; ``full``,
    ``deepening``, ``draining``: see ``Climb.observe``; ``steps``: how often the depth of its pipelines has
    changed; ``limit``, ``reason``, ``falls``: see ``ConnectionLimit``; ``works``: it has something to do.
    """

    now: float
    cpu: float
    finished: float
    refused: float
    full: float
    deepening: float
    draining: float
    steps: float
    limit: float
    reason: float
    falls: float
    works: float


class Together(NamedTuple):
    """What several workers have counted together; see ``Climb.observe``."""

    counted: Counters
    full: bool
    deepening: bool
    draining: bool


def together(rows: Collection[Row], now: float) -> Together:
    """Return what the workers of ``rows`` have counted until ``now``.

    They are full if most of those are that have something to do: a small job may be that of one of them.
    """
    finished, refused = sum(row.finished for row in rows), int(sum(row.refused for row in rows))
    rows = [row for row in rows if row.works] or rows
    workers = len(rows)
    cpu = sum(row.cpu for row in rows) / workers
    return Together(
        Counters(now, cpu, finished, refused, workers),
        sum(row.full for row in rows) * 2 > workers,
        sum(row.deepening for row in rows) * 2 >= workers,
        any(row.draining for row in rows),
    )


class WorkerCounts:
    """The rows of all workers, over ``buffer``: SIZE bytes of zeros at first."""

    SIZE: Final = _ROWS * len(Row._fields) * 8

    def __init__(self, buffer: memoryview) -> None:
        self._cells = buffer.cast("d")

    def write(self, worker: int, row: Row) -> None:
        """Write ``row``, that of ``worker``; when, last: others take a row that has it for whole."""
        at = self.place(worker)
        for field, value in reversed(list(enumerate(row))):
            self._cells[field * _ROWS + at] = value

    def withdraw(self, worker: int) -> None:
        """Count ``worker`` no more: it does not decide with the others."""
        self._cells[self.place(worker)] = 0.0

    @staticmethod
    def place(worker: int) -> int:
        """Return the place of the row of ``worker``."""
        return worker % _ROWS

    def living(self, now: float) -> dict[int, Row]:
        """Return the rows that were written lately, by their places; the first one decides."""
        cells = self._cells
        written = cells[:_ROWS].tolist()
        return {
            at: Row(*(cells[field * _ROWS + at] for field in range(len(Row._fields))))
            for at, then in enumerate(written)
            if then > now - _LIVING
        }
