"""Make slices of the items that failed in slices that are done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from downloader.cluster.plan import Done, Head, PlanDirectory
from downloader.cluster.shards import FreeNumbers, has_shards, keys_of
from downloader.config.config import Config
from downloader.errors import InUse
from downloader.messages import BATCH_ITEMS, Item
from downloader.sinks.shards.options import ShardOptions, shard_options
from downloader.sources.slice_file import write_items

__all__ = ["failed_numbers", "plan_failed"]


def plan_failed(
    directory: PlanDirectory, config: Config, failed: list[Done], heads: Mapping[str, Head]
) -> Iterator[Head]:
    """Write slices of what failed in the slices ``failed``, and yield their heads.

    Each has at most --slice-files items, unless one of ``failed`` has more. ``heads`` are all slices so
    far. With shards, the failed items of a batch are a batch again, and so a shard; the source must have
    been read to its end. Raises SourceError, DestinationError.
    """
    if not failed:
        return
    options = shard_options(config) if has_shards(config) else None
    numbers = FreeNumbers(directory, heads) if options else None
    number = sum(1 for head in heads.values() if head.covers)
    parts: dict[str, list[list[Item]]] = {}
    size = 0
    for done in failed:
        batches = list(_failed_batches(directory, done, heads[done.name], options))
        count = sum(map(len, batches))
        if parts and size + count > config.slice_files:
            yield _write(directory, f"r{number:08d}", parts, numbers)
            number, parts, size = number + 1, {}, 0
        parts[done.name] = batches
        size += count
    yield _write(directory, f"r{number:08d}", parts, numbers)


def failed_numbers(directory: PlanDirectory, done: Done) -> list[int]:
    """Return the numbers of the items that failed in a slice: those that a slice which covers it has."""
    return sorted({msgspec.json.decode(line)["item"] for line in directory.failed_lines(done)})


def _failed_batches(
    directory: PlanDirectory, done: Done, head: Head, options: ShardOptions | None
) -> Iterator[list[Item]]:
    """Yield the failed items of each batch that has some; with their keys, if there are shards."""
    wanted = set(failed_numbers(directory, done))
    before = 0
    for shard, items in enumerate(directory.items(head), head.first):
        chosen = [index for index in range(len(items)) if before + index in wanted]
        before += len(items)
        if chosen and options:
            keys = keys_of(items, shard, options, keyed=bool(head.covers))
            yield [msgspec.structs.replace(items[index], key=keys[index]) for index in chosen]
        elif chosen:
            yield [items[index] for index in chosen]


def _write(
    directory: PlanDirectory, name: str, parts: dict[str, list[list[Item]]], numbers: FreeNumbers | None
) -> Head:
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
    head = directory.add(Head(name, count, tuple(parts), seq=behind, first=first))
    if head is None:
        raise InUse(f"{directory.root}: another driver has made the slice {name}; wait for it, or stop it")
    return head
