"""A leased batch on its way, in the worker: its marks, its counts, and the exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Any

import gevent
import msgspec

from downloader.core.latency import Histogram
from downloader.core.marks import UNTOUCHED, Mark, published, unpack
from downloader.core.schedule import Host
from downloader.errors import DestinationError, FetchError
from downloader.ledger import Slot
from downloader.model import BatchDone, Failure, Item, Lease, Returned, Tally
from downloader.sinks import Sink

__all__ = ["Job", "OpenBatch", "reconcile"]

_LARGE = 16 << 20
_LONGEST_TURN = 0.1


class OpenBatch:
    """``left`` is how many items have not reached their end. Items are counted as they end."""

    __slots__ = (
        "_bytes",
        "_crcs",
        "_failed",
        "_skipped",
        "_stored",
        "_unverified",
        "errors",
        "failures",
        "latency",
        "lease",
        "left",
        "marks",
        "replaced",
        "requests",
        "retries",
        "seq",
        "slot",
        "states",
        "wire",
    )

    def __init__(self, lease: Lease, slot: Slot) -> None:
        self.lease = lease
        self.seq = lease.seq
        self.slot = slot
        self.marks = slot.marks
        # As `core.marks` has them: what is written for every file is written without a call.
        self.states, self._crcs = slot.marks.arrays
        self.left = len(lease.only) or lease.count
        self.replaced = set(lease.replace)
        self.requests = 0
        self.wire = 0
        self.retries = 0
        self.errors: dict[str, int] = {}
        self.latency = Histogram()
        self.failures: list[Failure] = []
        self._stored = self._skipped = self._failed = self._bytes = self._unverified = 0

    def wanted(self) -> range | tuple[int, ...]:
        """The indices of the items that are leased."""
        return self.lease.only or range(self.lease.count)

    def published(
        self, index: int, size: int, crc: int, new: bool, requests: int = 0, wire: int = 0
    ) -> None:
        """Item ``index`` stands under its name, after ``requests``, ``wire`` of them through the wire
        lane; ``new``: it did not, with these bytes, before this run. An item that an earlier run stored
        adds no bytes."""
        self._crcs[index] = crc
        self.states[index] = size + 2
        self.requests += requests
        self.wire += wire
        self._count(1, 0 if new else 1, size if new else 0)

    def put_all(self, sink: Sink, answers: Iterable[tuple[Job, object]]) -> tuple[int, Exception | None]:
        """Store in ``sink``, as ``published`` after one request through the wire lane, as many of
        ``answers`` as are whole bodies of this batch and of one host; how many that are, and what went
        wrong with the next. Counted together: one by one that is a tenth of a file's bytecodes.
        """
        put, seq, replaced = sink.put, self.seq, self.replaced
        states, crcs = self.states, self._crcs
        count = old = size = 0
        host: Host | None = None
        problem: Exception | None = None
        try:
            for job, body in answers:
                if type(body) is not bytes or job.batch is not self or job.size >= 0:
                    break
                if job.host is not host:
                    if host is not None:
                        break
                    host = job.host
                index = job.index
                crc, new = put(job.name, body, seq, index, index in replaced)
                # The checksum first; see `core.marks`.
                crcs[index] = crc
                length = len(body)
                states[index] = length + 2
                count += 1
                if new:
                    size += length
                else:
                    old += 1
        except (FetchError, DestinationError) as error:
            problem = error
        self.requests += count
        self.wire += count
        self._count(count, old, size)
        return count, problem

    def _count(self, published: int, old: int, size: int) -> None:
        """So many stand under their names; ``old`` of them did before, the others have ``size`` bytes."""
        self._stored += published - old
        self._skipped += old
        self._bytes += size
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
        return Tally(self._stored, self._skipped, self._failed, self._bytes, self._unverified)

    def done(self) -> BatchDone:
        """The outcome of the whole."""
        return BatchDone(*self._outcome(), failures=self.failures)

    def returned(self) -> Returned:
        """What there is of it, to be given back."""
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


class Job(msgspec.Struct, eq=False, gc=False):
    """One item of an open batch, and its attempts so far; see ``core.schedule.Job``.

    ``target`` is what stands in the request line; ``url`` is "" where the source derives it from the
    name. ``sent``: when it was last asked for (seconds, monotonic). ``cut_off``: how often it was, by
    a connection that had served others, which counted as nobody's failure. ``path``: its origin, None
    for what does not go through the wire lane. A Struct, since one is made for every file.
    """

    batch: OpenBatch
    index: int
    item: Item
    name: str
    size: int
    url: str
    target: bytes
    origin: Any
    host: Host
    solo: bool
    path: object
    attempts: int = 0
    sent: float = 0.0
    cut_off: int = 0


def reconcile(batch: OpenBatch, items: list[Item], sink: Sink) -> set[int]:
    """Of what the ledger says is published, that which the disk agrees with: the indices, counted in
    ``batch``. Reads the files; lets other greenlets run in between."""
    lease = batch.lease
    earlier = unpack(lease.earlier)[0]
    wanted = set(lease.only)
    found = set()
    turn_ends = monotonic() + _LONGEST_TURN
    for mark in published(lease.done):
        if wanted and mark.index not in wanted:
            continue
        if monotonic() > turn_ends:
            gevent.sleep(0.001)  # so that heartbeats go on; 0 may come back before any timer
            turn_ends = monotonic() + _LONGEST_TURN
        if _on_disk(sink, items[mark.index].name, mark):
            was_there = mark.index < len(earlier) and earlier[mark.index] != UNTOUCHED
            batch.published(mark.index, mark.size, mark.crc, not was_there)
            found.add(mark.index)
        else:
            # What stands there was this item's own file once: its name is not taken by another.
            batch.replaced.add(mark.index)
    return found


def _on_disk(sink: Sink, name: str, mark: Mark) -> bool:
    if mark.size < _LARGE:
        return sink.verify(name, mark.size, mark.crc)
    # In a thread: reading it may take longer than a worker may be silent.
    return bool(gevent.get_hub().threadpool.apply(sink.verify, (name, mark.size, mark.crc)))
