"""Decide how many items a batch has, so that it fits into a frame, as must what is said of its items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from downloader.messages import Item

__all__ = ["MOST_OF_BATCH", "MOST_OF_ITEM", "MOST_OF_SHARD", "cut", "weight"]

MOST_OF_ITEM: Final = 16 << 20
"""Bytes of one item; see ``weight``."""
MOST_OF_SHARD: Final = 48 << 20
"""Bytes of the items of a shard, after which no more are read for it."""
MOST_OF_BATCH: Final = 60 << 20
"""Bytes of the items of a batch. ``core.frames.MAX_FRAME`` has room for its cursor, too."""

# Room for what is said of an item when it fails, besides name and URL: its key, code and detail.
_FAILURE = 300
_encode = msgspec.msgpack.Encoder().encode


def weight(item: Item) -> int:
    """Return how many bytes ``item`` takes in a batch, or in the outcome of a batch, if that is more.

    A batch has its name twice, and an outcome its name and its URL without its columns.
    """
    kept = len(item.columns)
    return 2 * (len(_encode(item)) - kept) + kept + _FAILURE


def cut(weights: Sequence[int], first: int, most: int) -> int:
    """Return the end of a batch that begins at item ``first``: at most ``most`` items, at least one.

    ``weights`` are those of all items.
    """
    end, room = first, MOST_OF_BATCH
    while end < len(weights) and end - first < most and (weights[end] <= room or end == first):
        room -= weights[end]
        end += 1
    return end
