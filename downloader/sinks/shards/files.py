"""Name the files of the tool's own that shards have, in the home of the job.

``shards/N.part``: the part of shard N. ``shards/N.sealed``: that all items of the shard are finished, and
how (``SealedShard``); written before the shard is published. Both are removed when it is. ``indexed``: see
``indexes.Indexed``. ``published/``: see ``records``. If the shards are in a bucket: ``stats/`` with
copies of their stats, the indexes, and ``compared``: see ``indexes.Compared``.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

import msgspec

from downloader.core.item_states import unpack
from downloader.errors import UNDECODABLE, failure_kind
from downloader.files.directory import Directory, Entry
from downloader.messages import Failure

__all__ = [
    "COMPARED",
    "INDEX",
    "INDEXED",
    "LARGEST_FILE",
    "PUBLISHED",
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
COMPARED = "compared"
PUBLISHED = "published"
PUBLISHING = "publishing-"
LARGEST_FILE: Final = 256 << 20
"""Bytes of the largest file of the tool's own about a shard, its outcome or its stats."""


_MOST_ATTEMPTS = 1 << 31
_SEALED = re.compile(r"([0-9]{5,18})\.sealed").fullmatch


class SealedShard(msgspec.Struct, frozen=True):
    """The outcome of a shard: the item states that its ledger has, packed, and its failures.

    ``sum``: see ``_sum_of``; None in that of an earlier version.
    """

    marks: bytes
    failures: list[Failure]
    sum: int | None = None


def part_path(home: Directory, shard: int) -> Entry:
    """Return the part of ``shard``."""
    return home / SHARDS / f"{shard:05d}.part"


def sealed_path(home: Directory, shard: int) -> Entry:
    """Return the file with the outcome of ``shard``."""
    return home / SHARDS / f"{shard:05d}.sealed"


def seal(home: Directory, shard: int, sealed: SealedShard) -> None:
    """Write the outcome of ``shard``. Raises OSError."""
    whole = msgspec.structs.replace(sealed, sum=_sum_of(shard, sealed))
    sealed_path(home, shard).write(msgspec.msgpack.encode(whole))


def unseal(home: Directory, shard: int) -> None:
    """Remove the outcome of ``shard``, if there is one."""
    sealed_path(home, shard).unlink(missing_ok=True)


def read_sealed(home: Directory, shard: int) -> SealedShard | None:
    """Return the outcome of ``shard``, None if it has none or a damaged one. Raises OSError."""
    try:
        sealed = msgspec.msgpack.decode(sealed_path(home, shard).read(LARGEST_FILE), type=SealedShard)
        if sealed.sum not in (None, _sum_of(shard, sealed)):
            return None
        _check(sealed)
    except (FileNotFoundError, KeyError, *UNDECODABLE):
        return None
    return sealed


def _sum_of(shard: int, sealed: SealedShard) -> int:
    """Return the CRC-32 of the outcome, and of whose it is."""
    return zlib.crc32(msgspec.msgpack.encode((shard, sealed.marks, sealed.failures)))


def _check(sealed: SealedShard) -> None:
    """Raise ValueError or KeyError for what no worker writes: the journal would take it."""
    count = len(unpack(sealed.marks)[0])
    for each in sealed.failures:
        failure_kind(each.code)
        if not (0 <= each.index < count and 0 <= each.attempts < _MOST_ATTEMPTS):
            raise ValueError(f"item {each.index} of {count}")


def sealed_shards(home: Directory) -> list[int]:
    """Return the shards that have an outcome. Raises OSError."""
    return sorted(int(match[1]) for match in map(_SEALED, (home / SHARDS).names()) if match)


def forget(home: Directory) -> None:
    """Remove everything of shards from ``home``. Raises OSError."""
    notes = (f"{INDEX}.md5", f"{SIZES}.md5")
    own = (SHARDS, STATS, INDEX, SIZES, INDEXED, COMPARED, PUBLISHED, *notes)
    for name in (*own, *home.names(f"{PUBLISHING}.*")):
        (home / name).remove_tree()
