"""Track a leased batch in the worker: its marks, its counts, and its failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from downloader.core import item_states
from downloader.core.checksum import crc32
from downloader.core.host import Host
from downloader.core.invisible import told_of
from downloader.core.item_states import (
    IN_FLIGHT,
    NO_CLAIM,
    SKIPPED,
    UNOWNED,
    UNTOUCHED,
    Claim,
    ItemStates,
    claims,
)
from downloader.core.latency import Histogram
from downloader.core.lease_items import narrowed_items
from downloader.errors import DestinationError, FetchError
from downloader.http.task import FetchTask
from downloader.messages import (
    DUPLICATE,
    BatchDone,
    Failure,
    FileRecord,
    Item,
    Lease,
    Narrowed,
    Returned,
    Tally,
)
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import (
    KEPT,
    NEW,
    OLD,
    REPLACED,
    WRITTEN,
    BatchContent,
    FileWriter,
    Recovered,
    Sink,
    Strays,
    Suspends,
    Unprepared,
)
from downloader.storage.ledger import Entries, Slot

__all__ = ["ActiveBatch"]

_FLAGS = {KEPT: item_states.FOREIGN, REPLACED: item_states.REPLACED}


class ActiveBatch:
    """A leased batch. ``left`` is how many items are not finished. Items are counted as they finish.

    ``slot``: its slot in the ledger, or the entries of its open items once it is narrowed. ``opened``: when
    it was leased (seconds, monotonic). ``claims``: of items whose mark is OWNED or
    UNOWNED (``core.item_states``), until they are published.
    """

    __slots__ = (
        "_before",
        "_bytes",
        "_crcs",
        "_encoded",
        "_failed",
        "_old",
        "_records",
        "_replaced",
        "_skipped",
        "_stored",
        "_unverified",
        "_writer",
        "_written",
        "claims",
        "errors",
        "failures",
        "is_shard",
        "latency",
        "lease",
        "left",
        "marks",
        "opened",
        "pipelined",
        "requests",
        "retries",
        "seq",
        "slot",
        "states",
    )

    def __init__(self, lease: Lease, slot: Slot | Entries, sink: Sink, opened: float = 0.0) -> None:
        self.lease = lease
        self.opened = opened
        self._writer = sink.begin(lease)
        self.is_shard = sink.shards
        # How many files are WRITTEN, to be published when the batch is committed. Their states are intents.
        self._written = 0
        self._records: dict[int, FileRecord] | None = {} if sink.wants_records else None
        self.seq = lease.seq
        self.slot = slot
        self.marks: ItemStates = slot.marks
        # The states of a shard when it was narrowed; those of the open items are in `marks`.
        self._before = b""
        # The arrays of `core.item_states`: the state of each file is written to them without a call.
        self.states, self._crcs = slot.marks.arrays
        self.left = len(lease.only) or lease.count
        self.claims = claims(lease.done)
        for index in lease.replace:
            self.claims[index] = self.claims.get(index, NO_CLAIM)._replace(unsynced=True)
        if lease.narrowed and lease.only:
            self.claims = {index: self.claims[index] for index in lease.only if index in self.claims}
        for index, claim in self.claims.items():
            self.marks.set(index, claim)
        self._begin_counting()

    def _begin_counting(self) -> None:
        self.requests = 0
        self.pipelined = 0
        self.retries = 0
        self.errors: dict[str, int] = {}
        self.latency = Histogram()
        self.failures: list[Failure] = []
        self._stored = self._skipped = self._failed = self._bytes = self._unverified = 0
        self._replaced = self._encoded = 0
        self._old: set[int] = set()  # items whose names were there before

    def wanted(self) -> range | tuple[int, ...]:
        """Return the indices of the leased items."""
        return self.lease.only or range(self.lease.count)

    def forget(self, index: int) -> None:
        """Mark item ``index`` as neither in flight nor published."""
        self.marks.set(index, self.claims.get(index, NO_CLAIM))

    def claim(self, index: int, claim: Claim) -> None:
        """Keep ``claim`` for item ``index``, whatever the result of attempts at it."""
        self.claims[index] = claim
        self.marks.set(index, claim)

    def open(self, task: FetchTask) -> FileWriter:
        """See ``TaskBatch``."""
        claim = self.claims.get(task.index, NO_CLAIM)
        return self._writer.open(task.item, task.index, claim, task.response)

    def publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        """See ``TaskBatch``. Call ``published`` afterwards."""
        writer.finish()
        return self._publish(task, writer)

    def _publish(self, task: FetchTask, writer: FileWriter | CheckedWriter, hash: str = "") -> int:
        # The ledger has size and checksum before the name appears.
        self.marks.intend(task.index, writer.size, writer.crc)
        try:
            how = writer.publish()
        except Unprepared:
            self.marks.begin(task.index)  # other greenlets run before it is published
            raise
        if how == WRITTEN and self._records is not None:
            item, response = task.item, task.response
            self._records[task.index] = FileRecord(
                index=task.index,
                name=item.name,
                url=response.url if response is not None else "",
                size=writer.size,
                crc=writer.crc,
                checksum=item.checksum,
                columns=item.columns,
                response=response,
                hash=hash,
            )
        return how

    def published(
        self, index: int, size: int, crc: int, how: int, requests: int = 0, pipelined: int = 0
    ) -> None:
        """Count item ``index`` as published or WRITTEN, after ``requests``, ``pipelined`` of them there.

        ``how``: what ``FileWriter.publish`` returned. An item that is not new adds no bytes.
        """
        self.requests += requests
        self.pipelined += pipelined
        if how == WRITTEN:
            self._written += 1
        else:
            self.marks.publish(index, size, crc, _FLAGS.get(how, 0))
        if old := how in OLD:
            self._old.add(index)
        self._count(1, old, 0 if old else size, how == REPLACED)

    @property
    def recovered(self) -> Recovered | None:
        """See ``BatchWriter``."""
        return self._writer.recovered

    def recover(self, index: int, size: int, crc: int, *, old: bool) -> None:
        """Count item ``index``, which an earlier attempt has WRITTEN; ``old``: in an earlier run."""
        self.marks.intend(index, size, crc)
        self._written += 1
        self._count(1, old, 0 if old else size, 0)

    def commit(self) -> None:
        """Publish the written files, once all items are finished. Raises DestinationError.

        Waits for that if the batch is a shard.
        """
        if not self._written and not self.is_shard:
            return
        found = self._records or {}
        records = [found[index] for index in sorted(found)]
        if self._before:
            # The ledger has those that were open; the process itself needs all from here on.
            self._use(item_states.restored(self._packed(), self.lease.count))
            self._before = b""
        replaced = self._writer.commit(BatchContent(records, self.failures, self.marks.packed()))
        self._replaced += replaced or 0
        self.marks.publish_intents()
        self._written = 0

    def put_all(self, responses: Iterable[tuple[FetchTask, object]]) -> tuple[int, Exception | None]:
        """See ``TaskBatch``.

        The items are counted together: to count one by one takes a tenth of the bytecodes of a file.
        """
        put, states, crcs = self._writer.put, self.states, self._crcs
        count = old = size = replaced = written = 0
        host: Host | None = None
        problem: Exception | None = None
        try:
            for task, body in responses:
                if type(body) is not bytes and type(body) is not bytearray:
                    break
                if task.batch is not self or task.promised:
                    break
                if task.host is not host:
                    if host is not None:
                        break
                    host = task.host
                index = task.index
                length = len(body)
                # Recorded before the name appears, the checksum first; see `core.item_states`.
                crc = crcs[index] = crc32(body)
                states[index] = -3 - length
                how = put(task.item, index, body, crc, task.response)
                if how == NEW:
                    states[index] = length + 2
                elif how == WRITTEN:
                    written += 1
                else:
                    how = self._put(task, body)
                    is_old = how in OLD
                    length = 0 if is_old else length
                    old += is_old
                    replaced += how == REPLACED
                    written += how == WRITTEN
                size += length
                count += 1
        except (FetchError, DestinationError, Unprepared) as error:
            problem = error
        self._count(count, old, size, replaced)
        return count, self._put_together(count, written, problem)

    def _put_together(self, count: int, written: int, problem: Exception | None) -> Exception | None:
        """Count ``count`` responses that were stored together, ``written`` of them into a shard.

        Return what has gone wrong, which is ``problem`` so far.
        """
        self.requests += count
        self.pipelined += count
        self._written += written
        if written and not isinstance(problem, DestinationError):
            try:
                self._writer.flush()
            except DestinationError as error:
                return error
        return problem

    def _put(self, task: FetchTask, body: bytes | bytearray, hash: str = "") -> int:
        """Store ``body`` through a writer; return what ``FileWriter.publish`` returns."""
        writer = self.open(task)
        try:
            writer.write(body)
            how = self._publish(task, writer, hash)
        finally:
            writer.abort()
        if how != WRITTEN:
            self.marks.publish(task.index, writer.size, writer.crc, _FLAGS.get(how, 0))
        if how in OLD:
            self._old.add(task.index)
        return how

    def _count(self, published: int, old: int, size: int, replaced: int) -> None:
        """Count ``published`` items, ``old`` of which had their names before.

        The others have ``size`` bytes; ``replaced`` of them replaced a file that belonged to no item.
        """
        self._stored += published - old
        self._skipped += old
        self._bytes += size
        self._replaced += replaced
        self.left -= published

    def unverified(self) -> None:
        """Count a published item whose length nothing confirmed."""
        self._unverified += 1

    def encoded(self) -> None:
        """Count a stored item whose content coding was not requested."""
        self._encoded += 1

    def failed(self, index: int, item: Item, url: str, error: FetchError, attempts: int) -> None:
        """Record that item ``index`` has failed for good, or is a DUPLICATE; ``url`` is redacted."""
        self.left -= 1
        if error.code == DUPLICATE:
            self.states[index] = SKIPPED
            self._skipped += 1
            return
        detail = told_of(item.url, error.code, error.detail)
        self.failures.append(Failure(index, item.name, url, error.code, detail, attempts))
        self._failed += 1

    def failed_before(self, failure: Failure) -> None:
        """Count an item that failed for good in an earlier attempt at the batch."""
        self.left -= 1
        self.failures.append(failure)
        self._failed += 1

    def attempt_failed(self, code: str) -> None:
        """Count an attempt that ended with ``code``."""
        self.errors[code] = self.errors.get(code, 0) + 1

    # directories that were moved

    def astray(self) -> Callable[[str], bool] | None:
        """See ``Strays``; None for a batch whose sink has no such files."""
        return self._writer.astray() if isinstance(self._writer, Strays) else None

    def found(self) -> None:
        """See ``Strays``."""
        if isinstance(self._writer, Strays):
            self._writer.found()

    def lose(self, index: int) -> None:
        """Take back that item ``index`` is published: it is to be fetched again."""
        size, old = item_states.decoded(self.states[index])[0], index in self._old
        self._old.discard(index)
        self.forget(index)
        self._count(-1, -old, 0 if old else -size, 0)

    # narrowing

    @property
    def can_narrow(self) -> bool:
        """Return whether the batch can be moved out of its slot; not if its sink needs it as a whole."""
        if self.is_shard:
            return isinstance(self._writer, Suspends)
        return not self._written and self._records is None

    def open_items(self) -> list[int]:
        """Return the indices of the items that are not finished, ``left`` of them."""
        failed = {failure.index for failure in self.failures}
        states = self.states
        # What is about to be published is finished if it is a sample, which waits for its shard.
        last = UNOWNED if self.is_shard else -SKIPPED
        return [
            index for index in self.wanted() if last <= states[index] <= IN_FLIGHT and index not in failed
        ]

    def narrow(self, entries: Entries, indices: list[int]) -> Narrowed:
        """Go on with ``entries`` for the items ``indices``, which are left; return the outcome so far."""
        lease, states, crcs = self.lease, self.states, self._crcs
        for index in indices:
            states[index] = crcs[index] = UNTOUCHED
        if self.is_shard:
            self._before = self.marks.packed()
        open_claims = {index: self.claims[index] for index in indices if index in self.claims}
        for index, claim in open_claims.items():
            self.marks.set(index, claim)
        marks = self.marks.packed()
        items = narrowed_items(lease, indices)
        if self.is_shard:
            self.lease = msgspec.structs.replace(lease, items=items, done=marks, narrowed=True)
            assert isinstance(self._writer, Suspends)
            self._writer.suspend(self.lease)
            outcome = Narrowed(lease.seq, Tally(), 0, 0, 0, {}, {}, marks, [], self.lease)
        else:
            left = set(indices)
            self.lease = msgspec.structs.replace(
                lease,
                items=items,
                only=tuple(indices),
                done=item_states.claimed(b"", lease.count, open_claims) if open_claims else b"",
                earlier=b"",
                suspects=tuple(left.intersection(lease.suspects)),
                poison=tuple(left.intersection(lease.poison)),
                replace=tuple(left.intersection(lease.replace)),
                narrowed=True,
            )
            outcome = Narrowed(*self._outcome(), failures=self.failures, lease=self.lease)
            self._begin_counting()
        self.claims = open_claims
        self.slot = entries
        self._use(entries)
        return outcome

    def _use(self, marks: ItemStates) -> None:
        self.marks = marks
        self.states, self._crcs = marks.arrays

    def _packed(self) -> bytes:
        """Return the packed states of the batch; of those that are left, if it was narrowed."""
        if not self._before or not isinstance(self.marks, Entries):
            return self.marks.packed()
        return item_states.changed(self._before, self.lease.count, *self.marks.known())

    @property
    def fetched(self) -> int:
        """Return how many items were stored or have failed, and are not reported."""
        return self._stored + self._failed

    @property
    def tally(self) -> Tally:
        """Return the counts of the items finished so far."""
        return Tally(
            self._stored,
            self._skipped,
            self._failed,
            self._bytes,
            self._unverified,
            self._replaced,
            self._encoded,
        )

    def done(self) -> BatchDone:
        """Return the outcome of the whole batch.

        Raises DestinationError where the ledger has other items than were stored, so that the journal would
        not agree with itself: others have changed it.
        """
        is_whole = not (self._before or self.lease.only or isinstance(self.marks, Entries))
        counted = self._stored, self._bytes
        if is_whole and not self._skipped and item_states.sums_of(self.states) != counted:
            raise DestinationError(
                "a ledger beside the journal was changed by another program while the run was at work; run "
                "the same command again"
            )
        return BatchDone(*self._outcome(), failures=self.failures)

    def returned(self) -> Returned:
        """Return the outcome so far of a batch that is given back."""
        if self._written and not self.is_shard:
            # What is only written is discarded.
            sizes = self.marks.drop_intents()
            for index in sizes:
                self.forget(index)
            self._count(-len(sizes), 0, -sum(sizes.values()), 0)
        self._writer.abort()
        return Returned(*self._outcome())

    def _outcome(self) -> tuple[int, Tally, int, int, int, dict[str, int], dict[int, int], bytes]:
        return (
            self.lease.seq,
            self.tally,
            self.requests,
            self.pipelined,
            self.retries,
            self.errors,
            self.latency.counts,
            self._packed(),
        )
