"""Request batches from the feeder, and track which are requested, arrived, and outstanding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from downloader.messages import Batch, Continue, Credit, Lease, Message, Recall
from downloader.storage.journal import BatchRow, Journal

__all__ = ["BatchQueue"]

_EXTRA = 3


class BatchQueue:
    """The requests to the feeder: first the journal's unfinished batches, then the source from its cursor.

    ``done``: nothing more will be requested. ``types``: see ``Lease``. ``relisting``: from the
    beginning, until the first batch is there.
    """

    def __init__(
        self, journal: Journal, *, failed_only: bool, shards: bool = False, relisting: bool = False
    ) -> None:
        self._journal = journal
        self._relisting = relisting
        self._shards = shards
        # Read on from the cursor when nothing is left to recall.
        self._read_on = not failed_only
        # What has failed gets further shards, numbered behind those of the source: so it comes last.
        self._last: Iterator[BatchRow] | None = None
        if relisting:
            self._recalls: Iterator[BatchRow] = iter(())
        elif failed_only:
            self._recalls = journal.failed()
        elif shards:
            self._recalls = journal.unsettled()
            # Of a slice it is left to a later slice: the numbers behind its own are those of others.
            self._last = None if journal.shards.of_slice else journal.failed(journal.position().seq)
        else:
            self._recalls = journal.unfinished()
        self._recalled: dict[int, BatchRow] = {}  # requested again, not arrived yet
        self._recalling = True
        self._rewrite = journal.unsynced
        self._outstanding = 0  # batches requested and not arrived yet, recalled ones too
        self._revisited: dict[int, Collection[int]] = {}
        self.done = False
        self.types = ""

    @property
    def drained(self) -> bool:
        """Return whether no batch is outstanding, and none will be requested."""
        return self.done and not self._outstanding

    def next_requests(self, minimum: int) -> Iterator[Message]:
        """Yield the requests for a feeder that is ready, if fewer than ``minimum`` batches are outstanding.

        It requests a few more than that: waking up for a batch costs the feeder as much as reading one.
        """
        if self._outstanding >= minimum:
            return
        room = minimum + _EXTRA - self._outstanding
        while room > 0 and self._recalling:
            row = next(self._recalls, None)
            if row is None:
                self._recalling = False
                if self._read_on:
                    cursor, seq, listed = (b"", 0, 0) if self._relisting else self._journal.position()
                    yield Continue(cursor, listed, seq)
                else:
                    self.end()
                break
            self._recalled[row.seq] = row
            self._outstanding += 1
            room -= 1
            yield Recall(row.seq, row.count, row.names, row.recall_data)
        if room > 0 and not self._recalling and not self.done:
            self._outstanding += room
            yield Credit(room)

    def on_batch(self, batch: Batch) -> Lease | None:
        """Record that ``batch`` has arrived; return the lease of what is left of it if it was recalled."""
        self._outstanding -= 1
        self._relisting = False
        if not batch.recalled:
            return None
        row = self._recalled.pop(batch.seq)
        if batch.cursor:
            self._journal.correct(batch)
        shards = self._shards_of(row)
        if not row.done:
            replace = tuple(range(row.count)) if self._rewrite else ()
            return Lease(
                *(row.seq, row.count, batch.items),
                done=row.marks,
                earlier=row.marks,
                replace=replace,
                shards=shards,
                types=self._types,
            )
        failed = tuple(failure.index for failure in self._journal.failures(row.seq))
        only = tuple(sorted(self._revisited.pop(row.seq, failed)))
        replace = only if self._rewrite else ()
        return Lease(
            *(row.seq, row.count, batch.items),
            only=only,
            done=self._journal.marks(row.seq),
            replace=replace,
            shards=shards,
            types=self._types,
        )

    @property
    def _types(self) -> str:
        return self.types if self._shards else ""

    def lease(self, batch: Batch) -> Lease:
        """Return the lease of ``batch``, which is new and in the journal."""
        shards = self._journal.shards.first(batch.seq) if self._shards else ()
        known = batch.marks
        return Lease(
            *(batch.seq, batch.count, batch.items),
            done=known,
            earlier=known,
            shards=shards,
            types=self._types,
        )

    def _shards_of(self, row: BatchRow) -> tuple[int, ...]:
        if not self._shards:
            return ()
        numbers = self._journal.shards
        return numbers.again(row.seq) if row.done else numbers.first(row.seq)

    def revisit(self, items: Mapping[int, Collection[int]]) -> None:
        """Request these failed items once more, by batch, after all others have arrived."""
        self._revisited = dict(items)
        self._recalls = (row for row in self._journal.failed() if row.seq in items)
        self._recalling = True
        self._read_on = False
        self.done = False

    def end(self) -> None:
        """Record that the feeder has read to the end: only recalled batches are outstanding."""
        self._outstanding = len(self._recalled)
        if self._last is not None:
            self._recalls, self._last = self._last, None
            self._recalling, self._read_on = True, False
        else:
            self.done = True

    def give_up(self) -> None:
        """Expect nothing more, not even recalled batches."""
        self._recalled.clear()
        self._last = None
        self.end()

    def feeder_lost(self) -> None:
        """Requeue the outstanding recalls of a dead feeder, in order, before the rest."""
        unanswered = [self._recalled.pop(seq) for seq in sorted(self._recalled)]
        self._recalls = chain(unanswered, self._recalls)
        self._recalling = True
        self._outstanding = 0
        self.done = False
