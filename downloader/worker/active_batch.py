"""Track a leased batch in the worker: its marks, its counts, and its failures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from time import monotonic

import gevent
import msgspec

from downloader.core.checksum import crc32
from downloader.core.host import Host
from downloader.core.item_states import OWNED, SKIPPED, UNTOUCHED, claims, written
from downloader.core.latency import Histogram
from downloader.errors import DestinationError, FetchError, failure_kind
from downloader.http.task import FetchTask
from downloader.messages import DUPLICATE, BatchDone, Failure, FileRecord, Item, Lease, Returned, Tally
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import NEW, REPLACED, SAME, WRITTEN, FileWriter, Sink, Written
from downloader.storage.ledger import Slot

__all__ = ["ActiveBatch", "Exempt", "reconcile", "settled"]

_LARGE = 16 << 20
_MAX_BUSY = 0.1


class ActiveBatch:
    """A leased batch. ``left`` is how many items are not finished. Items are counted as they finish.

    ``claims``: items whose mark is OWNED or UNOWNED (``core.item_states``), until they are published.
    """

    __slots__ = (
        "_bytes",
        "_crcs",
        "_encoded",
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
        # Files that are written, and published when the batch is committed.
        self._written: dict[int, FileRecord] = {}
        self.seq = lease.seq
        self.slot = slot
        self.marks = slot.marks
        # The arrays of `core.item_states`: the state of each file is written to them without a call.
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
        self._replaced = self._encoded = 0

    def wanted(self) -> range | tuple[int, ...]:
        """Return the indices of the leased items."""
        return self.lease.only or range(self.lease.count)

    def forget(self, index: int) -> None:
        """Mark item ``index`` as neither in flight nor published."""
        self.states[index] = self.claims.get(index, UNTOUCHED)

    def claim(self, index: int, claim: int) -> None:
        """Keep ``claim`` for item ``index``, whatever the result of attempts at it."""
        self.claims[index] = self.states[index] = claim

    def open(self, task: FetchTask) -> FileWriter:
        """See ``TaskBatch``."""
        claim = self.claims.get(task.index, UNTOUCHED)
        return self._writer.open(task.item, task.index, claim, task.response)

    def publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        """See ``TaskBatch``. Call ``published`` afterwards."""
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
        """Count item ``index`` as published or WRITTEN, after ``requests``, ``wire`` of them pipelined.

        ``how``: what ``FileWriter.publish`` returned. An item that is not new adds no bytes.
        """
        self.requests += requests
        self.wire += wire
        if how == WRITTEN:
            self.left -= 1
            return
        self.marks.publish(index, size, crc)
        self._count(1, 0 if how else 1, size if how else 0, how == REPLACED)

    def commit(self) -> None:
        """Publish the written files, once all items are finished. Raises DestinationError."""
        if not self._written:
            return
        self._writer.commit([self._written[index] for index in sorted(self._written)])
        self.left += len(self._written)
        for index, record in self._written.items():
            self.published(index, record.size, record.crc, NEW)
        self._written.clear()

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
                if type(body) is not bytes or task.batch is not self or task.promised:
                    break
                if task.host is not host:
                    if host is not None:
                        break
                    host = task.host
                index = task.index
                length = len(body)
                # Recorded before the name appears, the checksum first; see `core.item_states`.
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
        """Store ``body`` through a writer; return what ``FileWriter.publish`` returns."""
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
        self.failures.append(Failure(index, item.name, url, error.code, error.detail, attempts))
        self._failed += 1

    def attempt_failed(self, code: str) -> None:
        """Count an attempt that ended with ``code``."""
        self.errors[code] = self.errors.get(code, 0) + 1

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
        """Return the outcome of the whole batch."""
        return BatchDone(*self._outcome(), failures=self.failures)

    def returned(self) -> Returned:
        """Return the outcome so far of a batch that is given back; discard what is only written."""
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
    """The rules for items that need no request.

    ``reserved``: names that no item may have, since a file of the run itself has them, and what that file
    is. ``standing``: files that were there before the job are kept.
    """

    reserved: dict[str, str] = {}
    standing: bool = False


def reconcile(batch: ActiveBatch, items: list[Item], sink: Sink) -> set[int]:
    """Return the indices of the items that are stored already, and count them in ``batch``.

    They are those that the lease has as written and that agree with the disk. Reads the files; lets other
    greenlets run in between.
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
            # The file of that name was once this item's own: the name is not taken by another item.
            batch.claim(mark.index, OWNED)
    return found


def settled(
    batch: ActiveBatch, items: list[Item], sink: Sink, done: Collection[int], rules: Exempt
) -> Iterator[tuple[int, FetchError | tuple[int, int]]]:
    """Yield the items that need no request, except those in ``done``.

    Each is the index, and either size and CRC-32 of the file that is kept, or the failure. With --existing
    keep or fail this reads files, and lets other greenlets run in between.
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
            kept = gevent.get_hub().threadpool.apply(_standing, (sink, item.name))
            if kept is not None:
                yield index, kept


def _standing(sink: Sink, name: str) -> FetchError | tuple[int, int] | None:
    """Return what ``Sink.standing`` returns or raises: gevent prints what is raised in its threads."""
    try:
        return sink.standing(name)
    except FetchError as error:
        return error


class _Pause:
    """A function to call between files: lets heartbeats continue when reading them takes long."""

    def __init__(self) -> None:
        self._pause_at = monotonic() + _MAX_BUSY

    def __call__(self) -> None:
        if monotonic() > self._pause_at:
            gevent.sleep(0.001)  # sleep(0) may return before any timer runs
            self._pause_at = monotonic() + _MAX_BUSY


def _on_disk(sink: Sink, written: Written) -> bool:
    if written.size < _LARGE:
        return sink.verify(written)
    # In a thread: reading it may take longer than a worker may be silent.
    return bool(gevent.get_hub().threadpool.apply(sink.verify, (written,)))
