"""Find the items of a leased batch that need no request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from downloader.core.item_states import (
    OWNED,
    REPLACED,
    UNOWNED,
    Claim,
    ItemState,
    decoded,
    is_stored,
    written,
)
from downloader.core.lease_items import Items
from downloader.errors import FetchError, failure_kind
from downloader.messages import Item
from downloader.process.long_work import READ_AT_ONCE, Pauses, in_thread
from downloader.sinks import sink as sinks
from downloader.sinks.sink import Claims, Recovered, Sink, Unprepared, Written
from downloader.storage.reserved_names import Reserved
from downloader.worker.active_batch import ActiveBatch

__all__ = ["Exempt", "find_existing", "lost", "reconcile", "settled"]


class Exempt(msgspec.Struct, frozen=True):
    """The rules for items that need no request.

    ``reserved``: names that no item may have, since a file of the run itself has them. ``standing``: files
    that were there before the job are kept.
    """

    reserved: Reserved = Reserved()
    standing: bool = False


def reconcile(batch: ActiveBatch, items: Items, sink: Sink) -> set[int]:
    """Return the indices of the items that are stored already, and count them in ``batch``.

    They are those that the lease has as written and that agree with the disk. Reads the files; lets other
    greenlets run in between.
    """
    lease = batch.lease
    earlier = {mark.index for mark in written(lease.earlier)}
    wanted = set(lease.only)
    if batch.recovered is not None:
        return _recover(batch, items, batch.recovered, wanted, earlier)
    found = set()
    pause = Pauses()
    for mark in written(lease.done):
        if wanted and mark.index not in wanted:
            continue
        pause()
        stored = Written(lease.seq, mark.index, items[mark.index].name, mark.size, mark.crc)
        if _on_disk(sink, stored):
            batch.published(mark.index, mark.size, mark.crc, _how(mark, old=mark.index in earlier))
            found.add(mark.index)
        elif mark.published:
            # The file of that name was once this item's own, or one of the user's that was kept.
            claim = sink.claim(stored) if isinstance(sink, Claims) else Claim(OWNED)
            batch.claim(mark.index, claim._replace(state=UNOWNED) if mark.foreign else claim)
    return found


def _how(mark: ItemState, *, old: bool) -> int:
    """Return how an item that is stored was published; ``old``: in an earlier run."""
    if mark.foreign:
        return sinks.KEPT
    if old:
        return sinks.SAME
    return sinks.REPLACED if mark.flags & REPLACED else sinks.NEW


def _recover(
    batch: ActiveBatch, items: Items, recovered: Recovered, wanted: set[int], earlier: set[int]
) -> set[int]:
    found = set()
    for index, (size, crc) in recovered.written.items():
        if not wanted or index in wanted:
            batch.recover(index, size, crc, old=index in earlier)
            found.add(index)
    for each in recovered.failures:
        if each.index not in found:
            batch.failed_before(each)
            found.add(each.index)
    return found


def settled(
    batch: ActiveBatch, items: Items, done: Collection[int], rules: Exempt
) -> Iterator[tuple[int, FetchError]]:
    """Yield the items that fail without a request, except those in ``done``: index and failure."""
    poison = set(batch.lease.poison)
    if not (poison or rules.reserved):
        return
    for index in batch.wanted():
        item = items[index]
        if index in done or item.fault:
            continue
        if index in poison:
            yield index, FetchError("poison", failure_kind("poison").meaning)
        elif option := rules.reserved.option(item.name):
            yield index, FetchError("reserved", f"{option} is this file; give that another place")


def find_existing(
    items: Items, sink: Sink, indices: Iterable[int], claims: Mapping[int, Claim]
) -> Iterator[tuple[int, FetchError | tuple[int, int] | None]]:
    """Yield for each of ``indices`` whether a file is kept that was there before the job.

    So is one that ``claims`` say is UNOWNED. It is size and CRC-32 of that file, or why it may not be
    there, or None. Reads files, the large ones last; lets other greenlets run in between.
    """
    pause = Pauses()
    large = []
    for index in indices:
        pause()
        try:
            yield index, _standing(items[index], sink, claims.get(index))
        except Unprepared:
            large.append(index)
    for index in large:
        yield index, _standing(items[index], sink, claims.get(index))


def _standing(item: Item, sink: Sink, claim: Claim | None) -> FetchError | tuple[int, int] | None:
    try:
        if item.fault:
            return None
        if claim is not None and isinstance(sink, Claims):
            return sink.find_unowned(item.name, claim)
        return sink.find_existing(item.name)
    except FetchError as error:
        return error


def lost(batch: ActiveBatch, items: Items, sink: Sink) -> list[int]:
    """Return the indices of the published items that are not in the destination any more.

    Somebody has moved or removed their directory since the batch was leased. Reads the files that may be
    elsewhere; lets other greenlets run in between.
    """
    is_astray = batch.astray()
    batch.found()
    if is_astray is None:
        return []
    found = []
    pause = Pauses()
    for index in batch.wanted():
        state = batch.states[index]
        if is_stored(state) and is_astray(name := items[index].name):
            pause()
            crc = batch.marks.arrays[1][index]
            if not _on_disk(sink, Written(batch.seq, index, name, decoded(state)[0], crc)):
                found.append(index)
    return found


def _on_disk(sink: Sink, written: Written) -> bool:
    return sink.verify(written) if written.size <= READ_AT_ONCE else in_thread(sink.verify, written)
