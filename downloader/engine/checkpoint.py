"""Record outcomes: sync the disk first (with --fsync), then write the journal, then update the lease book.

An outcome that is not recorded is still held by its worker: when the disk or the journal fails, the
worker's ledger is kept for the next run. One sync covers all outcomes of one iteration of the supervisor's
loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from downloader.core import item_states
from downloader.core.leases import LeaseBook
from downloader.messages import BatchDone, Lease, Narrowed, Outcome, Returned, Tally
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

    def add(self, worker: int, outcome: Outcome) -> None:
        """Add the outcome of a batch that ``worker`` reports, or the outcome so far."""
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
            lease = self._book.lease(worker, outcome.seq)
            if lease is None:
                continue
            if isinstance(outcome, BatchDone):
                self._record(outcome, lease, lease.only)
                done = True
            elif isinstance(outcome, Narrowed) and not lease.shards:
                left = set(outcome.lease.only)
                self._record(outcome, lease, tuple(index for index in lease.only if index not in left))
            elif outcome.marks:
                self._destination.ledgers.keep({outcome.seq: outcome.marks})
            if isinstance(outcome, Narrowed):
                self._book.narrow(worker, outcome.lease)
            else:
                self._book.settle(worker, outcome.seq)
            self._run.add(_counted(outcome, lease))
        return done

    def _record(self, outcome: BatchDone | Narrowed, lease: Lease, finished: Sequence[int]) -> None:
        """Record ``outcome``; ``finished``: the items that it is about, where ``lease`` has not all."""
        journal = self._destination.journal
        marks = outcome.marks
        if lease.only:
            others = item_states.without(journal.marks(lease.seq), lease.count, finished)
            marks = item_states.merge(others, marks, lease.count)
        if isinstance(outcome, Narrowed):
            journal.settle_some(outcome, marks, finished, all_leased=not lease.only)
        else:
            journal.record_done(outcome, marks, retried=finished)


def _counted(outcome: Outcome, lease: Lease) -> Outcome:
    """Return ``outcome``, which ends or narrows ``lease``, with the counts that a report is to have.

    Items of a shard that were fetched again have failed for the journal until that is published. Items
    whose name is contested are pending until it is known who owns it.
    """
    if isinstance(outcome, Returned) and lease.shards and lease.only:
        return msgspec.structs.replace(outcome, tally=Tally())
    if not isinstance(outcome, (BatchDone, Narrowed)):
        return outcome
    contested = len([each for each in outcome.failures if each.code == "name-taken"])
    tally = outcome.tally + Tally(failed=-contested)
    return msgspec.structs.replace(outcome, tally=tally) if contested else outcome
