"""The supply: what is asked of the feeder, what has come of it, and what a dead one still owes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from downloader.messages import Batch, Continue, Credit, Lease, Message, Recall
from downloader.storage.journal import BatchRow, Journal

__all__ = ["BatchQueue"]

_MORE = 3


class BatchQueue:
    """First the batches that the journal has unfinished, then the source from the journal's cursor.

    ``done``: nothing more will be asked for.
    """

    def __init__(self, journal: Journal, *, failed_only: bool) -> None:
        self._journal = journal
        # The source is read on when nothing is left to be recalled.
        self._read_on = not failed_only
        self._recalls: Iterator[BatchRow] = journal.unfinished(failed_only=failed_only)
        self._recalled: dict[int, BatchRow] = {}  # asked for again, and not come yet
        self._recalling = True
        self._rewrite = journal.unsynced
        self._wanted = 0  # batches asked for and not come yet, recalled ones too
        self._again: dict[int, Collection[int]] = {}
        self.done = False

    @property
    def over(self) -> bool:
        """Whether the feeder owes nothing more."""
        return self.done and not self._wanted

    def orders(self, least: int) -> Iterator[Message]:
        """What to send to a feeder that is ready and owes less than ``least`` batches.

        Then it is asked for a few more than that: to wake for each costs it as much as to read one.
        """
        if self._wanted >= least:
            return
        room = least + _MORE - self._wanted
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
            self._wanted += 1
            room -= 1
            yield Recall(row.seq, row.count, row.names, row.origin)
        if room > 0 and not self._recalling and not self.done:
            self._wanted += room
            yield Credit(room)

    def came(self, batch: Batch) -> Lease | None:
        """``batch`` has come; when it was recalled, the lease of what is left of it."""
        self._wanted -= 1
        if not batch.recalled:
            return None
        row = self._recalled.pop(batch.seq)
        if batch.cursor:
            self._journal.correct(batch)
        if not row.done:
            again = tuple(range(row.count)) if self._rewrite else ()
            return Lease(row.seq, row.count, batch.items, done=row.marks, earlier=row.marks, replace=again)
        failed = tuple(failure.index for failure in self._journal.failures(row.seq))
        only = tuple(sorted(self._again.pop(row.seq, failed)))
        replace = only if self._rewrite else ()
        return Lease(
            row.seq, row.count, batch.items, only=only, done=self._journal.marks(row.seq), replace=replace
        )

    def revisit(self, again: Mapping[int, Collection[int]]) -> None:
        """Ask for these failed items once more, by batch; when all else has come."""
        self._again = dict(again)
        self._recalls = (row for row in self._journal.unfinished(failed_only=True) if row.seq in again)
        self._recalling = True
        self._read_on = False
        self.done = False

    def end(self) -> None:
        """The feeder has read to the end: it owes what was recalled, and nothing else."""
        self.done = True
        self._wanted = len(self._recalled)

    def give_up(self) -> None:
        """Nothing more can come, not even what was recalled."""
        self._recalled.clear()
        self.end()

    def lost(self) -> None:
        """The feeder died: what it had not answered is asked again, in order, before the rest."""
        unanswered = [self._recalled.pop(seq) for seq in sorted(self._recalled)]
        self._recalls = chain(unanswered, self._recalls)
        self._recalling = True
        self._wanted = 0
        self.done = False
