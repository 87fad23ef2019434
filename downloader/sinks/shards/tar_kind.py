"""Define the kind of sink that stores items in tar shards, as WebDataset has them."""

from __future__ import annotations

from downloader.sinks.shards.shard_kind import ShardKind

__all__ = ["KIND"]

KIND = ShardKind("tar")
