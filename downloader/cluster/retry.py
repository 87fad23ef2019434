"""Make slices of the items that failed in slices that are done."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from downloader.cluster.plan import Done, Head, PlanDirectory
from downloader.messages import Item
from downloader.sources.slice_file import SliceWriter, read_items

__all__ = ["plan_failed"]


def plan_failed(directory: PlanDirectory, failed: list[Done], number: int, most: int) -> Iterator[Head]:
    """Write slices of what failed in the slices ``failed``, and yield their heads.

    ``number`` is that of the first; each has at most ``most`` items, unless one slice has more. Raises
    SourceError, DestinationError.
    """
    waiting: list[tuple[str, list[Item]]] = []
    for done in failed:
        items = _failed_items(directory, done)
        if waiting and sum(len(each) for _, each in waiting) + len(items) > most:
            yield _write(directory, f"r{number:08d}", waiting)
            number, waiting = number + 1, []
        waiting.append((done.name, items))
    if waiting:
        yield _write(directory, f"r{number:08d}", waiting)


def _failed_items(directory: PlanDirectory, done: Done) -> list[Item]:
    wanted = {msgspec.json.decode(line)["item"] for line in directory.failed_lines(done)}
    found, before = [], 0
    for items in read_items(str(directory.items(done.name))):
        found += [item for index, item in enumerate(items, before) if index in wanted]
        before += len(items)
    return found


def _write(directory: PlanDirectory, name: str, parts: list[tuple[str, list[Item]]]) -> Head:
    writer = SliceWriter(directory.items(name))
    for _, items in parts:
        for start in range(0, len(items), 1000):
            writer.write(msgspec.msgpack.encode(items[start : start + 1000]))
    writer.publish()
    head = Head(name, sum(len(items) for _, items in parts), tuple(covered for covered, _ in parts))
    directory.add(head)
    return head
