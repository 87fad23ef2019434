"""Move batches out of their slots in the ledger when a few of their items take long.

A worker has few slots, and each batch is in one until its last item is finished. An item may wait for a
retry for seconds, or for a host that asks for a pause, or its server may be slow. If one in a thousand
does, each batch has one, and soon all slots wait. So when a slot is needed and none is vacant, the batch
with the fewest open items is narrowed to these (``storage.ledger``), and its slot taken for another batch.
It costs one outcome more for that batch. While slots are vacant it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import gevent

from downloader.messages import Narrowed
from downloader.storage.ledger import Entries, Ledger, Slot
from downloader.worker.active_batch import ActiveBatch

__all__ = ["Narrowing"]

# A batch that was opened so lately (seconds) may be about to end.
_AGE = 0.25
# The memory that a narrowed batch takes, beside that of its items, in items; and bytes that are as much as
# an item.
_OF_BATCH, _OF_ITEM = 4, 512


class Narrowing:
    """The open batches of a worker that have slots in its ``ledger``, and those that had.

    ``most``: how many items may be left in all narrowed batches. ``send`` sends an outcome so far;
    ``again`` is called when it may be possible to narrow a batch that was too young before.
    """

    def __init__(
        self,
        ledger: Ledger,
        most: int,
        send: Callable[[ActiveBatch, Narrowed], None],
        again: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._most = most
        self._send = send
        self._again = again
        self._wide: dict[int, ActiveBatch] = {}  # the oldest first
        self._weights: dict[int, int] = {}
        self._weight = 0
        self._not_before = 0.0
        self._waiting = False

    def opened(self, batch: ActiveBatch) -> None:
        """Add ``batch``, which is newly leased."""
        if isinstance(batch.slot, Entries):
            self._weigh(batch)
        else:
            self._wide[batch.seq] = batch

    def closed(self, batch: ActiveBatch) -> None:
        """Remove ``batch``, which was reported."""
        self._wide.pop(batch.seq, None)
        self._weight -= self._weights.pop(batch.seq, 0)

    def make_room(self) -> bool:
        """Narrow a batch, so that a slot is vacant; return False if there is none that can be."""
        now = monotonic()
        if now < self._not_before:
            return False
        aged = []
        for batch in self._wide.values():
            if batch.opened + _AGE > now:
                self._try_again(batch.opened + _AGE - now)
                break
            if batch.left and self._weight + _weight_of(batch) <= self._most:
                aged.append(batch)
        for batch in sorted(aged, key=_left):
            if self._narrow(batch):
                return True
        self._not_before = now + _AGE
        return False

    def _narrow(self, batch: ActiveBatch) -> bool:
        slot = batch.slot
        if not batch.can_narrow or not isinstance(slot, Slot):
            return False
        indices = batch.open_items()
        if len(indices) != batch.left:
            return False  # one is finished and not counted yet
        if batch.astray() is not None:
            return False  # what is finished of it may have to be fetched again
        entries = self._ledger.narrow(batch.seq, slot, indices)
        if entries is None:
            return False
        del self._wide[batch.seq]
        self._send(batch, batch.narrow(entries, indices))
        self._weigh(batch)
        # Only now: until the outcome is sent, the slot is the only record if this process dies.
        self._ledger.close(slot)
        return True

    def _weigh(self, batch: ActiveBatch) -> None:
        self._weights[batch.seq] = weight = _weight_of(batch)
        self._weight += weight

    def _try_again(self, seconds: float) -> None:
        if not self._waiting:
            self._waiting = True
            gevent.spawn_later(seconds, self._wake)

    def _wake(self) -> None:
        self._waiting = False
        self._not_before = 0.0
        self._again()


def _left(batch: ActiveBatch) -> int:
    return batch.left


def _weight_of(batch: ActiveBatch) -> int:
    """Return how much memory ``batch`` takes when it is narrowed, in items."""
    kept = len(batch.lease.items) // _OF_ITEM + len(batch.failures) if batch.is_shard else 0
    return batch.left + _OF_BATCH + kept
