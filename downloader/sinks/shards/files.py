"""Name the files of the tool's own that shards have, in the home of the job.

``shards/N.part``: the part of shard N. ``shards/N.sealed``: that all items of the shard are finished, and
how (``SealedShard``); written before the shard is published. Both are removed when it is. ``indexed``: see
``indexes.Indexed``. If the shards are in a bucket: ``stats/`` with copies of their stats, and the indexes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from downloader.messages import Failure

__all__ = [
    "INDEX",
    "INDEXED",
    "PUBLISHING",
    "SHARDS",
    "SIZES",
    "STATS",
    "SealedShard",
    "forget",
    "part_path",
    "read_sealed",
    "seal",
    "sealed_path",
    "sealed_shards",
    "unseal",
]

SHARDS = "shards"
STATS = "stats"
INDEX = "shards.json"
SIZES = "sizes.json"
INDEXED = "indexed"
PUBLISHING = "publishing-"


class SealedShard(msgspec.Struct, frozen=True):
    """The outcome of a shard: the item states that its ledger has, packed, and its failures."""

    marks: bytes
    failures: list[Failure]


def part_path(home: Path, shard: int) -> Path:
    """Return the path of the part of ``shard``."""
    return home / SHARDS / f"{shard:05d}.part"


def sealed_path(home: Path, shard: int) -> Path:
    """Return the path of the outcome of ``shard``."""
    return home / SHARDS / f"{shard:05d}.sealed"


def seal(home: Path, shard: int, sealed: SealedShard) -> None:
    """Write the outcome of ``shard``. Raises OSError."""
    path = sealed_path(home, shard)
    other = path.with_suffix(".writing")
    other.write_bytes(msgspec.msgpack.encode(sealed))
    other.replace(path)


def unseal(home: Path, shard: int) -> None:
    """Remove the outcome of ``shard``, if there is one."""
    sealed_path(home, shard).unlink(missing_ok=True)


def read_sealed(home: Path, shard: int) -> SealedShard | None:
    """Return the outcome of ``shard``, None if it has none or a damaged one. Raises OSError."""
    try:
        return msgspec.msgpack.decode(sealed_path(home, shard).read_bytes(), type=SealedShard)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def sealed_shards(home: Path) -> list[int]:
    """Return the shards that have an outcome."""
    try:
        names = os.listdir(home / SHARDS)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-7]) for name in names if name.endswith(".sealed"))


def forget(home: Path) -> None:
    """Remove everything of shards from ``home``. Raises OSError."""
    for directory in (SHARDS, STATS):
        shutil.rmtree(home / directory, ignore_errors=True)
    for path in (home / INDEX, home / SIZES, home / INDEXED, *home.glob(f"{PUBLISHING}*")):
        path.unlink(missing_ok=True)
