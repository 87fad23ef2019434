"""Record outcomes: sync the disk first (with --fsync), then write the journal, then update the lease book.

An outcome that is not recorded is still held by its worker: when the disk or the journal fails, the
worker's ledger is kept for the next run. One sync covers all outcomes of one iteration of the supervisor's
loop.
"""

from __future__ import annotations

from downloader.core import item_states
from downloader.core.leases import LeaseBook
from downloader.messages import BatchDone, Outcome, Returned
from downloader.reporting.stats import RunStats
from downloader.storage.destination import Destination

__all__ = ["Checkpoint"]


class Checkpoint:
    """The outcomes that workers have reported and the journal does not have yet."""

    def __init__(self, destination: Destination, book: LeaseBook, run: RunStats) -> None:
        self._destination = destination
        self._book = book
        self._run = run
        self._reported: list[tuple[int, Outcome]] = []

    def add(self, worker: int, outcome: BatchDone | Returned) -> None:
        """Add the outcome of a batch that ``worker`` reports."""
        self._reported.append((worker, outcome))

    def write(self) -> bool:
        """Write all outcomes to the journal; return whether a batch was done.

        Raises DestinationError when the disk cannot be synced, JournalError.
        """
        came, self._reported = self._reported, []
        if came:
            self._destination.sync()
        done = False
        for worker, outcome in came:
            if self._book.lease(worker, outcome.seq) is None:
                continue
            if isinstance(outcome, BatchDone):
                self._record_done(worker, outcome)
                done = True
            else:
                self._destination.keep({outcome.seq: outcome.marks})
            self._book.settle(worker, outcome.seq)
            self._run.add(outcome)
        return done

    def _record_done(self, worker: int, outcome: BatchDone) -> None:
        journal = self._destination.journal
        lease = self._book.lease(worker, outcome.seq)
        marks, retried = outcome.marks, lease.only if lease is not None else ()
        if lease is not None and retried:
            others = item_states.without(journal.marks(lease.seq), lease.count, retried)
            marks = item_states.merge(others, marks, lease.count)
        journal.settle(outcome, marks, retried=retried)
