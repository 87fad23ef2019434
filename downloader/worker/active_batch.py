"""A leased batch on its way, in the worker: its marks, its counts, and the exceptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from time import monotonic

import gevent
import msgspec

from downloader.core.checksum import crc32
from downloader.core.item_states import OWNED, UNTOUCHED, claims, written
from downloader.core.latency import Histogram
from downloader.core.scheduler import Host
from downloader.errors import DestinationError, FetchError, failure_kind
from downloader.http.task import FetchTask
from downloader.messages import BatchDone, Failure, FileRecord, Item, Lease, Returned, Tally
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import NEW, REPLACED, SAME, WRITTEN, FileWriter, Sink, Written
from downloader.storage.ledger import Slot

__all__ = ["ActiveBatch", "Exempt", "reconcile", "settled"]

_LARGE = 16 << 20
_LONGEST_TURN = 0.1


class ActiveBatch:
    """``left`` is how many items have not reached their end. Items are counted as they end.

    ``claims``: items whose mark is OWNED or UNOWNED (``core.item_states``), until they are published.
    """

    __slots__ = (
        "_bytes",
        "_crcs",
        "_failed",
        "_replaced",
        "_skipped",
        "_stored",
        "_unverified",
        "_writer",
        "_written",
        "claims",
        "errors",
        "failures",
        "latency",
        "lease",
        "left",
        "marks",
        "requests",
        "retries",
        "seq",
        "slot",
        "states",
        "wire",
    )

    def __init__(self, lease: Lease, slot: Slot, sink: Sink) -> None:
        self.lease = lease
        self._writer = sink.begin(lease)
        # What is written, and published when the batch is committed.
        self._written: dict[int, FileRecord] = {}
        self.seq = lease.seq
        self.slot = slot
        self.marks = slot.marks
        # As `core.marks` has them: what is written for every file is written without a call.
        self.states, self._crcs = slot.marks.arrays
        self.left = len(lease.only) or lease.count
        self.claims = claims(lease.done) | dict.fromkeys(lease.replace, OWNED)
        for index, claim in self.claims.items():
            self.states[index] = claim
        self.requests = 0
        self.wire = 0
        self.retries = 0
        self.errors: dict[str, int] = {}
        self.latency = Histogram()
        self.failures: list[Failure] = []
        self._stored = self._skipped = self._failed = self._bytes = self._unverified = 0
        self._replaced = 0

    def wanted(self) -> range | tuple[int, ...]:
        """The indices of the items that are leased."""
        return self.lease.only or range(self.lease.count)

    def forget(self, index: int) -> None:
        """Mark item ``index`` as not in flight any more, and not published."""
        self.states[index] = self.claims.get(index, UNTOUCHED)

    def claim(self, index: int, claim: int) -> None:
        """Keep ``claim`` for item ``index``, whatever attempts at it come to."""
        self.claims[index] = self.states[index] = claim

    def open(self, task: FetchTask) -> FileWriter:
        """See ``TaskBatch``."""
        claim = self.claims.get(task.index, UNTOUCHED)
        return self._writer.open(task.item, task.index, claim, task.response)

    def publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        """See ``TaskBatch``. To be followed by ``published``."""
        writer.finish()
        return self._publish(task, writer)

    def _publish(self, task: FetchTask, writer: FileWriter | CheckedWriter) -> int:
        # The ledger has size and checksum before the name appears.
        self.marks.intend(task.index, writer.size, writer.crc)
        how = writer.publish()
        if how == WRITTEN:
            item, response = task.item, task.response
            self._written[task.index] = FileRecord(
                index=task.index,
                name=item.name,
                url=response.url if response is not None else "",
                size=writer.size,
                crc=writer.crc,
                checksum=item.checksum,
                columns=item.columns,
                response=response,
            )
        return how

    def published(
        self, index: int, size: int, crc: int, how: int, requests: int = 0, wire: int = 0
    ) -> None:
        """Count item ``index``, which has its name now, or is WRITTEN, after ``requests``, ``wire`` of them
        pipelined. ``how``: what ``FileWriter.publish`` returned. An item that is not new adds no bytes."""
        self.requests += requests
        self.wire += wire
        if how == WRITTEN:
            self.left -= 1
            return
        self.marks.publish(index, size, crc)
        self._count(1, 0 if how else 1, size if how else 0, how == REPLACED)

    def commit(self) -> None:
        """Publish what is written: all items have come to their end. Raises DestinationError."""
        if not self._written:
            return
        self._writer.commit([self._written[index] for index in sorted(self._written)])
        self.left += len(self._written)
        for index, record in self._written.items():
            self.published(index, record.size, record.crc, NEW)
        self._written.clear()

    def put_all(self, responses: Iterable[tuple[FetchTask, object]]) -> tuple[int, Exception | None]:
        """See ``TaskBatch``. Counted together: one by one that is a tenth of a file's bytecodes."""
        put, states, crcs = self._writer.put, self.states, self._crcs
        count = old = size = replaced = written = 0
        host: Host | None = None
        problem: Exception | None = None
        try:
            for task, body in responses:
                if type(body) is not bytes or task.batch is not self or task.promised:
                    break
                if task.host is not host:
                    if host is not None:
                        break
                    host = task.host
                index = task.index
                length = len(body)
                # Before the name appears, and the checksum first; see `core.item_states`.
                crcs[index] = crc32(body)
                states[index] = -3 - length
                if not put(task.item, body, task.response):
                    how = self._put(task, body)
                    length = length if how else 0
                    old += not how
                    replaced += how == REPLACED
                    if how == WRITTEN:
                        written += 1
                        length = 0
                else:
                    states[index] = length + 2
                size += length
                count += 1
        except (FetchError, DestinationError) as error:
            problem = error
        self.requests += count
        self.wire += count
        self.left -= written
        self._count(count - written, old, size, replaced)
        return count, problem

    def _put(self, task: FetchTask, body: bytes) -> int:
        """Store ``body`` through a writer; return what ``FileWriter.publish`` does."""
        writer = self.open(task)
        try:
            writer.write(body)
            how = self._publish(task, writer)
        finally:
            writer.abort()
        if how != WRITTEN:
            self.marks.publish(task.index, writer.size, writer.crc)
        return how

    def _count(self, published: int, old: int, size: int, replaced: int) -> None:
        """Count so many as having their names; ``old`` of them had them before, the others have ``size``
        bytes; for ``replaced`` of those a file was replaced that belonged to no item."""
        self._stored += published - old
        self._skipped += old
        self._bytes += size
        self._replaced += replaced
        self.left -= published

    def unverified(self) -> None:
        """Nothing vouched for the length of an item that is published."""
        self._unverified += 1

    def failed(self, index: int, item: Item, url: str, error: FetchError, attempts: int) -> None:
        """Item ``index`` has failed for good; ``url`` is redacted."""
        self.failures.append(Failure(index, item.name, url, error.code, error.detail, attempts))
        self._failed += 1
        self.left -= 1

    def attempt_failed(self, code: str) -> None:
        """Count an attempt that ended with ``code``."""
        self.errors[code] = self.errors.get(code, 0) + 1

    @property
    def tally(self) -> Tally:
        """What has ended so far."""
        return Tally(
            self._stored, self._skipped, self._failed, self._bytes, self._unverified, self._replaced
        )

    def done(self) -> BatchDone:
        """The outcome of the whole."""
        return BatchDone(*self._outcome(), failures=self.failures)

    def returned(self) -> Returned:
        """What there is of it, to be given back; what is only written is not."""
        if self._written:
            for index in self._written:
                self.forget(index)
            self._written.clear()
            self._writer.abort()
        return Returned(*self._outcome())

    def _outcome(self) -> tuple[int, Tally, int, int, int, dict[str, int], dict[int, int], bytes]:
        return (
            self.lease.seq,
            self.tally,
            self.requests,
            self.wire,
            self.retries,
            self.errors,
            self.latency.counts,
            self.marks.packed(),
        )


class Exempt(msgspec.Struct, frozen=True):
    """Which items need no request. ``reserved``: names that no item may have, since a file of the run
    itself has them, and what that is; ``standing``: files that were there before the job are kept."""

    reserved: dict[str, str] = {}
    standing: bool = False


def reconcile(batch: ActiveBatch, items: list[Item], sink: Sink) -> set[int]:
    """Return the indices of the items that are stored already: of those that the lease has as written, the
    ones with which the disk agrees. They are counted in ``batch``.

    Reads the files; lets other greenlets run in between.
    """
    lease = batch.lease
    earlier = {mark.index for mark in written(lease.earlier)}
    wanted = set(lease.only)
    found = set()
    pause = _Pause()
    for mark in written(lease.done):
        if wanted and mark.index not in wanted:
            continue
        pause()
        if _on_disk(sink, Written(lease.seq, mark.index, items[mark.index].name, mark.size, mark.crc)):
            batch.published(mark.index, mark.size, mark.crc, SAME if mark.index in earlier else NEW)
            found.add(mark.index)
        elif mark.published:
            # What has the name was this item's own file once: the name is not taken by another.
            batch.claim(mark.index, OWNED)
    return found


def settled(
    batch: ActiveBatch, items: list[Item], sink: Sink, done: Collection[int], rules: Exempt
) -> Iterator[tuple[int, FetchError | tuple[int, int]]]:
    """Yield the items that nothing is asked for, but for those that are ``done``: the index, and size and
    CRC-32 of the file that is kept, or the failure.

    With --existing keep or fail it reads files, and lets other greenlets run in between.
    """
    poison = set(batch.lease.poison)
    if not (poison or rules.reserved or rules.standing):
        return
    pause = _Pause()
    for index in batch.wanted():
        item = items[index]
        if index in done or item.fault:
            continue
        if index in poison:
            yield index, FetchError("poison", failure_kind("poison").meaning)
        elif option := rules.reserved.get(item.name):
            yield index, FetchError("reserved", f"{option} is this file; give that another place")
        elif rules.standing:
            pause()
            try:
                kept = gevent.get_hub().threadpool.apply(sink.standing, (item.name,))
            except FetchError as error:
                yield index, error
            else:
                if kept is not None:
                    yield index, kept


class _Pause:
    """Called between files: lets heartbeats go on when reading them takes long."""

    def __init__(self) -> None:
        self._turn_ends = monotonic() + _LONGEST_TURN

    def __call__(self) -> None:
        if monotonic() > self._turn_ends:
            gevent.sleep(0.001)  # 0 may come back before any timer
            self._turn_ends = monotonic() + _LONGEST_TURN


def _on_disk(sink: Sink, written: Written) -> bool:
    if written.size < _LARGE:
        return sink.verify(written)
    # In a thread: reading it may take longer than a worker may be silent.
    return bool(gevent.get_hub().threadpool.apply(sink.verify, (written,)))
