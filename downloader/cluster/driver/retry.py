"""Make slices of the items that failed in slices that are done, or were found damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from downloader.cluster.plan.plan import PlanDirectory, Slice, SliceRecord
from downloader.core.item_states import UNOWNED, Claim
from downloader.core.shard_keys import index_width, name_keys
from downloader.errors import InUse
from downloader.messages import BATCH_ITEMS, Earlier, Item
from downloader.sinks.shards.options import ShardOptions
from downloader.sources.slice_file import write_items

__all__ = ["DAMAGED", "RetryItems", "failed_items", "keys_of", "plan_again"]

DAMAGED = "damaged"


class RetryItems(NamedTuple):
    """Items of ``slice`` to be fetched again: their numbers in it.

    With the claim of a damaged one on the file that has its name (``core.item_states``), None for others.
    """

    slice: Slice
    items: Mapping[int, Claim | None]


def failed_items(directory: PlanDirectory, slice_: Slice, done: SliceRecord) -> RetryItems:
    """Return the items that failed in a slice that is done. Raises DestinationError, JournalError."""
    failed = directory.failed(done)
    return RetryItems(slice_, {each.item: each.claim if each.code == DAMAGED else None for each in failed})


def plan_again(
    directory: PlanDirectory,
    again: Iterable[RetryItems],
    slices: Mapping[str, Slice],
    options: ShardOptions | None,
    most: int,
) -> list[Slice]:
    """Write slices of the items ``again``, and return them.

    Each has at most ``most`` items, unless there are more of one slice. ``slices`` are all so far.
    ``options``: of shards, if there are any; then the items of a batch are a batch again, and so a shard,
    and the source must have been read to its end. Raises SourceError, DestinationError, InUse.
    """
    number = sum(1 for slice_ in slices.values() if slice_.retries)
    numbers = FreeNumbers(directory, slices) if options else None
    types = next((slice_.types for slice_ in slices.values() if slice_.types), "")
    made: list[Slice] = []
    parts: dict[str, list[list[Item]]] = {}
    size = 0
    for each in again:
        batches = list(_batches(directory, each, options))
        count = sum(map(len, batches))
        if parts and size + count > most:
            made.append(_write(directory, f"r{number + len(made):08d}", parts, numbers, types))
            parts, size = {}, 0
        parts[each.slice.name] = batches
        size += count
    if parts:
        made.append(_write(directory, f"r{number + len(made):08d}", parts, numbers, types))
    return made


def _batches(
    directory: PlanDirectory, again: RetryItems, options: ShardOptions | None
) -> Iterator[list[Item]]:
    """Yield those items of each batch that has some."""
    slice_, before = again.slice, 0
    for shard, items in enumerate(directory.items(slice_), slice_.first):
        chosen = [index for index in range(len(items)) if before + index in again.items]
        if chosen:
            keys = keys_of(items, shard, options) if options else [""] * len(items)
            yield [
                _again(items[index], slice_.name, before + index, keys[index], again.items[before + index])
                for index in chosen
            ]
        before += len(items)


def _again(item: Item, name: str, number: int, key: str, damaged: Claim | None) -> Item:
    earlier = item.earlier or Earlier(name, number, key)
    if damaged is not None:
        foreign = damaged.state == UNOWNED
        earlier = msgspec.structs.replace(earlier, owned=True, file=damaged.file, foreign=foreign)
    return msgspec.structs.replace(item, earlier=earlier)


def _write(
    directory: PlanDirectory,
    name: str,
    parts: dict[str, list[list[Item]]],
    numbers: FreeNumbers | None,
    types: str,
) -> Slice:
    batches = [batch for of_slice in parts.values() for batch in of_slice]
    count, first, behind = sum(map(len, batches)), 0, 0
    if numbers is not None:
        first = numbers.take(len(batches))
        behind = first + len(batches)
    else:
        items = [item for batch in batches for item in batch]
        batches = [items[start : start + BATCH_ITEMS] for start in range(0, len(items), BATCH_ITEMS)]
    writer = directory.items_writer(name)
    for batch in batches:
        write_items(writer.file, msgspec.msgpack.encode(batch))
    writer.publish()
    slice_ = directory.add(Slice(name, count, tuple(parts), seq=behind, first=first, types=types))
    if slice_ is None:
        raise InUse(f"{directory.root}: another driver has made the slice {name}; wait for it, or stop it")
    return slice_


def keys_of(items: list[Item], shard: int, options: ShardOptions) -> list[str]:
    """Return the keys of the ``items`` of a batch, which is ``shard``, or is fetched again."""
    if items and items[0].earlier:
        return [item.earlier.key for item in items if item.earlier]
    if options.by_name:
        return name_keys(item.name for item in items)
    width = index_width(options.files)
    return [f"{shard:05d}{index:0{width}d}" for index in range(len(items))]


class FreeNumbers:
    """The numbers behind the shards of the source that no shard has, and no slice may give to one."""

    def __init__(self, directory: PlanDirectory, slices: Mapping[str, Slice]) -> None:
        self._first = max((slice_.seq for slice_ in slices.values() if not slice_.retries), default=0)
        self._taken: set[int] = set()
        for slice_ in slices.values():
            if slice_.retries:
                done = directory.done(slice_.name)
                own = range(slice_.first, slice_.seq) if done is None else (s.number for s in done.shards)
                self._taken.update(own)

    def take(self, count: int) -> int:
        """Return the first of the lowest ``count`` numbers in a row that are free; they are no longer."""
        first = self._first
        while taken := self._taken.intersection(range(first, first + count)):
            first = max(taken) + 1
        self._taken.update(range(first, first + count))
        return first
