"""Lease batches to workers: leases, credit, and the batches of workers that died.

This is pure state without sockets: the supervisor reports events and carries out the decisions. Its size
is bounded by the credit that workers grant, not by the number of files.

An item that kills workers is found as follows. When a worker dies, its ledger names the items that were
in flight. One death is weak evidence against each of them, and fetching thousands one at a time would
take long. Items that were in flight at two deaths are *suspects*: the next worker that holds the batch
fetches them one at a time, with nothing else in flight, so that the next death identifies one item.
After ``DEATHS_TO_POISON`` deaths an item is *poison*.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from downloader.messages import Lease

__all__ = ["DEATHS_TO_POISON", "DEATHS_TO_SUSPECT", "LeaseBook"]

DEATHS_TO_SUSPECT = 2
DEATHS_TO_POISON = 3


@dataclass
class _Holder:
    """``narrowed``: how many of the leases are, which leave room for others."""

    credit: int = 0
    leases: dict[int, Lease] = field(default_factory=dict)
    narrowed: int = 0


class LeaseBook:
    """The batches that wait for a worker, and those that a worker holds."""

    def __init__(self) -> None:
        self._waiting: deque[Lease] = deque()
        self._holders: dict[int, _Holder] = {}
        self._deaths: dict[int, dict[int, int]] = {}  # deaths by item, for each open batch

    @property
    def open(self) -> int:
        """Number of batches that wait or are held."""
        return len(self._waiting) + sum(len(holder.leases) for holder in self._holders.values())

    @property
    def ready_target(self) -> int:
        """Number of batches that workers could take now, beyond those that wait."""
        return sum(holder.credit for holder in self._holders.values()) - len(self._waiting)

    def lease(self, worker: int, seq: int) -> Lease | None:
        """Return the lease of batch ``seq``; None if ``worker`` does not hold it."""
        holder = self._holders.get(worker)
        return holder.leases.get(seq) if holder else None

    def held_by(self, worker: int) -> dict[int, Lease]:
        """Return the leases of ``worker``, by batch."""
        holder = self._holders.get(worker)
        return dict(holder.leases) if holder else {}

    def busy(self) -> list[int]:
        """Return the workers that hold at least one batch."""
        return [worker for worker, holder in self._holders.items() if holder.leases]

    def add(self, lease: Lease) -> None:
        """Add a new batch, which waits for a worker."""
        self._waiting.append(lease)

    def add_worker(self, worker: int) -> None:
        """Add ``worker``, which has no credit yet."""
        self._holders[worker] = _Holder()

    def grant(self, worker: int, batches: int) -> None:
        """Add credit: ``worker`` can take that many more ``batches``."""
        self._holders[worker].credit += batches

    def assign(self) -> Iterator[tuple[int, Lease]]:
        """Lease waiting batches to workers with credit, the least loaded first; yield each lease."""
        while self._waiting:
            able = [
                (len(holder.leases) - holder.narrowed, worker)
                for worker, holder in self._holders.items()
                if holder.credit > 0
            ]
            if not able:
                return
            worker = min(able)[1]
            lease = self._waiting.popleft()
            holder = self._holders[worker]
            holder.credit -= 1
            holder.leases[lease.seq] = lease
            holder.narrowed += lease.narrowed
            yield worker, lease

    def narrow(self, worker: int, lease: Lease) -> None:
        """Replace a lease of ``worker`` by ``lease``, which is narrowed: what is left of the same batch."""
        holder = self._holders[worker]
        holder.narrowed += not holder.leases[lease.seq].narrowed
        holder.leases[lease.seq] = lease

    def settle(self, worker: int, seq: int) -> Lease:
        """End and return the lease of batch ``seq``, which ``worker`` has reported as done or returned.

        Raises KeyError if ``worker`` does not hold it.
        """
        self._deaths.pop(seq, None)
        holder = self._holders[worker]
        lease = holder.leases.pop(seq)
        holder.narrowed -= lease.narrowed
        return lease

    def died(self, worker: int, marks: Mapping[int, tuple[bytes, Iterable[int]]]) -> list[tuple[int, int]]:
        """Remove ``worker``, which is dead and reaped; put its batches back at the front of the queue.

        ``marks`` has, for each of its batches, the packed item states and the items that were in flight.
        Returns the items (batch, index) that are poison from now on.
        """
        holder = self._holders.pop(worker, _Holder())
        poisoned: list[tuple[int, int]] = []
        for seq, lease in sorted(holder.leases.items(), reverse=True):
            done, in_flight = marks.get(seq, (lease.done, ()))
            suspects, poison = list(lease.suspects), list(lease.poison)
            for index in in_flight:
                deaths = self._deaths.setdefault(seq, {})
                deaths[index] = deaths.get(index, 0) + 1
                if deaths[index] >= DEATHS_TO_POISON:
                    poison.append(index)
                    poisoned.append((seq, index))
                    suspects = [suspect for suspect in suspects if suspect != index]
                elif deaths[index] == DEATHS_TO_SUSPECT:
                    suspects.append(index)
            self._waiting.appendleft(
                msgspec.structs.replace(lease, done=done, suspects=tuple(suspects), poison=tuple(poison))
            )
        return poisoned

    def held(self) -> list[Lease]:
        """Return the leases that workers hold."""
        return [lease for holder in self._holders.values() for lease in holder.leases.values()]

    def forget_waiting(self) -> list[Lease]:
        """Remove and return all waiting batches, for a drain; they stay open in the journal."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting
