"""The batches that the feeder is asked for: requested, arrived, and still owed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from downloader.messages import Batch, Continue, Credit, Lease, Message, Recall
from downloader.storage.journal import BatchRow, Journal

__all__ = ["BatchQueue"]

_EXTRA = 3


class BatchQueue:
    """Requests the journal's unfinished batches first, then the source from the journal's cursor.

    ``done``: nothing more will be requested.
    """

    def __init__(self, journal: Journal, *, failed_only: bool) -> None:
        self._journal = journal
        # Read on from the cursor once nothing is left to be recalled.
        self._read_on = not failed_only
        self._recalls: Iterator[BatchRow] = journal.unfinished(failed_only=failed_only)
        self._recalled: dict[int, BatchRow] = {}  # requested again, and not arrived yet
        self._recalling = True
        self._rewrite = journal.unsynced
        self._owed = 0  # batches requested and not arrived yet, recalled ones too
        self._revisited: dict[int, Collection[int]] = {}
        self.done = False

    @property
    def drained(self) -> bool:
        """Return whether the feeder owes nothing more."""
        return self.done and not self._owed

    def next_requests(self, minimum: int) -> Iterator[Message]:
        """Yield what to send to a feeder that is ready and owes less than ``minimum`` batches.

        It is asked for a few more than that: waking for each costs it as much as reading one.
        """
        if self._owed >= minimum:
            return
        room = minimum + _EXTRA - self._owed
        while room > 0 and self._recalling:
            row = next(self._recalls, None)
            if row is None:
                self._recalling = False
                if self._read_on:
                    cursor, seq, listed = self._journal.position()
                    yield Continue(cursor, listed, seq)
                else:
                    self.end()
                break
            self._recalled[row.seq] = row
            self._owed += 1
            room -= 1
            yield Recall(row.seq, row.count, row.names, row.origin)
        if room > 0 and not self._recalling and not self.done:
            self._owed += room
            yield Credit(room)

    def on_batch(self, batch: Batch) -> Lease | None:
        """Record that ``batch`` has arrived; return the lease of what is left of it if it was recalled."""
        self._owed -= 1
        if not batch.recalled:
            return None
        row = self._recalled.pop(batch.seq)
        if batch.cursor:
            self._journal.correct(batch)
        if not row.done:
            again = tuple(range(row.count)) if self._rewrite else ()
            return Lease(row.seq, row.count, batch.items, done=row.marks, earlier=row.marks, replace=again)
        failed = tuple(failure.index for failure in self._journal.failures(row.seq))
        only = tuple(sorted(self._revisited.pop(row.seq, failed)))
        replace = only if self._rewrite else ()
        return Lease(
            row.seq, row.count, batch.items, only=only, done=self._journal.marks(row.seq), replace=replace
        )

    def revisit(self, again: Mapping[int, Collection[int]]) -> None:
        """Request these failed items once more, by batch, after all others have arrived."""
        self._revisited = dict(again)
        self._recalls = (row for row in self._journal.unfinished(failed_only=True) if row.seq in again)
        self._recalling = True
        self._read_on = False
        self.done = False

    def end(self) -> None:
        """The feeder has read to the end: it owes only what was recalled."""
        self.done = True
        self._owed = len(self._recalled)

    def give_up(self) -> None:
        """Expect nothing more, not even what was recalled."""
        self._recalled.clear()
        self.end()

    def feeder_lost(self) -> None:
        """The feeder died: what it had not answered is asked again, in order, before the rest."""
        unanswered = [self._recalled.pop(seq) for seq in sorted(self._recalled)]
        self._recalls = chain(unanswered, self._recalls)
        self._recalling = True
        self._owed = 0
        self.done = False
