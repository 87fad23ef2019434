"""Give the samples of one shard their keys."""

from __future__ import annotations

from collections.abc import Iterable

from downloader.core.lease_items import items_of
from downloader.core.shard_keys import index_width, name_keys
from downloader.messages import Item, Lease
from downloader.sinks.shards.options import ShardOptions

__all__ = ["ShardKeys"]


class ShardKeys:
    """The keys of the items of ``lease``; the first of its shards is the one that counts.

    ``keyed``: each item has its key already. ``items``: the items, decoded when they are first needed.
    """

    def __init__(self, lease: Lease, options: ShardOptions, *, keyed: bool = False) -> None:
        self._lease = lease
        self._items: list[Item] | None = None
        self._home = f"{lease.shards[0]:05d}"
        self._width = index_width(options.files)
        self._names: list[str] | None = None
        if keyed:
            self._names = [item.earlier.key if item.earlier else "" for item in self.items]
        elif options.by_name:
            self._names = name_keys(item.name for item in self.items)

    @property
    def items(self) -> list[Item]:
        if self._items is None:
            items = items_of(self._lease)
            assert isinstance(items, list)  # as of every lease of a shard
            self._items = items
        return self._items

    def forget_items(self) -> None:
        """Discard the decoded items, which are needed at the start and at the end only."""
        self._items = None

    def go_on(self, lease: Lease) -> None:
        """Use ``lease`` from now on, which has the same items."""
        self._lease = lease
        self.forget_items()

    def key(self, index: int) -> str:
        """Return the key of item ``index`` of the batch."""
        if self._names is not None:
            return self._names[index]
        return f"{self._home}{index:0{self._width}d}"

    def indices(self, wanted: Iterable[int]) -> dict[str, int]:
        """Return the index of each of ``wanted``, by key."""
        return {self.key(index): index for index in wanted}
