"""Outcomes on their way: the disk first (with --fsync), then the journal, then the lease book.

What is not written down is still held by its worker: when the disk or the journal fails, the worker's
ledger is kept for the next run. One sync is for all that came in one turn of the supervisor's loop.
"""

from __future__ import annotations

from downloader.core import item_states as core_marks
from downloader.core.leases import LeaseBook
from downloader.messages import BatchDone, Outcome, Returned
from downloader.reporting.stats import RunStats
from downloader.storage.destination import Destination

__all__ = ["Checkpoint"]


class Checkpoint:
    """What workers have reported and the journal does not have yet."""

    def __init__(self, destination: Destination, book: LeaseBook, run: RunStats) -> None:
        self._destination = destination
        self._book = book
        self._run = run
        self._came: list[tuple[int, Outcome]] = []

    def add(self, worker: int, outcome: BatchDone | Returned) -> None:
        """``worker`` says what came of a batch."""
        self._came.append((worker, outcome))

    def write(self) -> bool:
        """Bring all of it into the journal; whether a batch was done.

        Raises DestinationError when it cannot be synced, JournalError.
        """
        came, self._came = self._came, []
        if came:
            self._destination.sync()
        done = False
        for worker, outcome in came:
            if self._book.lease(worker, outcome.seq) is None:
                continue
            if isinstance(outcome, BatchDone):
                self._settle(worker, outcome)
                done = True
            else:
                self._destination.keep({outcome.seq: outcome.marks})
            self._book.settle(worker, outcome.seq)
            self._run.add(outcome)
        return done

    def _settle(self, worker: int, outcome: BatchDone) -> None:
        journal = self._destination.journal
        lease = self._book.lease(worker, outcome.seq)
        marks, retried = outcome.marks, lease.only if lease is not None else ()
        if lease is not None and retried:
            others = core_marks.without(journal.marks(lease.seq), lease.count, retried)
            marks = core_marks.merge(others, marks, lease.count)
        journal.settle(outcome, marks, retried=retried)
