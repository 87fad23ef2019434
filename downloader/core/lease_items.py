"""Read and write the items of a lease, which are fewer, or compressed, where it was narrowed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from downloader.messages import Item, Lease

__all__ = ["Items", "items_of", "narrowed_items"]

Items: TypeAlias = Sequence[Item] | Mapping[int, Item]
"""Items by their index in the batch; of a narrowed lease only those of ``Lease.only``."""

_decode = msgspec.msgpack.Decoder(list[Item]).decode
_encode = msgspec.msgpack.Encoder().encode


def items_of(lease: Lease) -> list[Item] | dict[int, Item]:
    """Return the items of ``lease``, by index."""
    if not lease.narrowed:
        return _decode(lease.items)
    items = _decode(zlib.decompress(lease.items))
    return items if lease.shards else dict(zip(lease.only, items, strict=True))


def narrowed_items(lease: Lease, indices: Sequence[int]) -> bytes:
    """Return ``Lease.items`` of ``lease`` when it is narrowed to the items ``indices``.

    A shard is published as a whole, so it keeps all items.
    """
    if lease.shards:
        return lease.items if lease.narrowed else zlib.compress(lease.items, 1)
    items = items_of(lease)
    return zlib.compress(_encode([items[index] for index in indices]), 1)
