"""Who works on which batch: leasing, credit, and what becomes of a dead worker's batches.

Pure state, no sockets: the supervisor feeds it events and carries out what it decides. Its size is
bounded by the credit that it hands out, never by the number of files.

An item that kills workers is found like this: when a worker dies, its ledger names the items that
were in flight. One death says little of each of them (and one at a time, thousands would take long).
Those that were in flight at two are *suspects*: the next owner of the batch fetches them one at a
time, with nothing else in flight, so that the next death has exactly one item to blame. After
``DEATHS_TO_POISON`` deaths an item is *poison*.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from downloader.messages import Lease

__all__ = ["DEATHS_TO_POISON", "DEATHS_TO_SUSPECT", "LeaseBook"]

DEATHS_TO_SUSPECT = 2
DEATHS_TO_POISON = 3


@dataclass
class _Holder:
    credit: int = 0
    leases: dict[int, Lease] = field(default_factory=dict)


class LeaseBook:
    """Batches that wait, and batches that a worker holds."""

    def __init__(self) -> None:
        self._waiting: deque[Lease] = deque()
        self._holders: dict[int, _Holder] = {}
        self._deaths: dict[int, dict[int, int]] = {}  # of batches that are open: by item

    @property
    def open(self) -> int:
        """Batches that wait or are held."""
        return len(self._waiting) + sum(len(holder.leases) for holder in self._holders.values())

    @property
    def appetite(self) -> int:
        """Batches that workers could take at once, more than are waiting."""
        return sum(holder.credit for holder in self._holders.values()) - len(self._waiting)

    def lease(self, worker: int, seq: int) -> Lease | None:
        """The lease of batch ``seq``, when ``worker`` holds it."""
        holder = self._holders.get(worker)
        return holder.leases.get(seq) if holder else None

    def held_by(self, worker: int) -> dict[int, Lease]:
        """The leases of ``worker``, by batch."""
        holder = self._holders.get(worker)
        return dict(holder.leases) if holder else {}

    def busy(self) -> list[int]:
        """Workers that hold at least one batch."""
        return [worker for worker, holder in self._holders.items() if holder.leases]

    def add(self, lease: Lease) -> None:
        """A new batch waits for a worker."""
        self._waiting.append(lease)

    def hired(self, worker: int) -> None:
        """``worker`` is ready to give credit."""
        self._holders[worker] = _Holder()

    def grant(self, worker: int, batches: int) -> None:
        """``worker`` can take that many more."""
        self._holders[worker].credit += batches

    def assign(self) -> Iterator[tuple[int, Lease]]:
        """Lease what waits to those who have credit, the least loaded first."""
        while self._waiting:
            able = [
                (len(holder.leases), worker)
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
            yield worker, lease

    def settle(self, worker: int, seq: int) -> Lease:
        """``worker`` has reported batch ``seq``, done or given back.

        Raises KeyError when it does not hold it.
        """
        self._deaths.pop(seq, None)
        return self._holders[worker].leases.pop(seq)

    def died(self, worker: int, marks: Mapping[int, tuple[bytes, Iterable[int]]]) -> list[tuple[int, int]]:
        """``worker`` is dead and reaped; ``marks`` has, for its batches, what is published (packed)
        and which items were in flight.

        Its batches wait again, in front. Returns the items (batch, index) that are poison from now on.
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
                Lease(
                    seq=lease.seq,
                    count=lease.count,
                    items=lease.items,
                    only=lease.only,
                    done=done,
                    earlier=lease.earlier,
                    suspects=tuple(suspects),
                    poison=tuple(poison),
                    replace=lease.replace,
                )
            )
        return poisoned

    def forget_waiting(self) -> list[Lease]:
        """Take back all that waits (in a drain); they stay open in the journal."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting
