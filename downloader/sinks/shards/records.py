"""Keep a record of each published shard in the home: ``verify`` compares all of its files with it.

``published/N``: the files of shard N, with size and digest of each, the sum of each sample, and which items
it has: a manifest says so, and shards in a bucket are not read for that. A shard that an earlier version
has published has none, and a power cut may take one that was not synced. One that is there and is not what
was written is never taken for none: ``verify`` names it, and what needs it says so.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated

import msgspec

from downloader.core.checksum import crc32
from downloader.core.limits import MOST_BATCH_ITEMS
from downloader.errors import UNDECODABLE, JournalError
from downloader.files.directory import Directory, Entry, UnsafeFile
from downloader.sinks.shards.files import LARGEST_FILE, PUBLISHED
from downloader.sinks.shards.stats import IS_OURS, FileStats
from downloader.sinks.stored import crc_of, md5_of_file

__all__ = [
    "MOST_FORMER",
    "DamagedRecord",
    "OtherFile",
    "Ours",
    "ShardRecord",
    "has_index",
    "pack_indices",
    "pack_sums",
    "read_record",
    "record_name",
    "sound_record",
    "unpack_sums",
    "write_record",
]

MOST_FORMER = 10_000
"""Files of attempts at a shard that are known."""
_CHECKSUM = 4  # bytes in front of a record


class DamagedRecord(JournalError):
    """The record of a shard is there, and is not what was written."""


class OtherFile(msgspec.Struct, frozen=True):
    """A file of a shard without samples, its rows or its stats. ``md5``, ``size``: "", -1 if not known."""

    name: str
    md5: str = ""
    size: int = -1


class ShardRecord(msgspec.Struct, frozen=True):
    """What was published of a shard: its files with samples, the others, the sums of its samples.

    ``sums``: of a tar, in no order, as ``pack_sums`` packs them. The sum of a sample is the CRC-32 of
    what is in its members but the first, one behind the other. The last of them is ``KEY.json``, which has
    the key, and the CRC-32 of what is in the first. ``former``: the other files of attempts that were
    killed; stats have times, so those of each attempt differ. ``stats``: the content of the stats, to write
    them again; a record of an earlier version has none. ``stored``: which items of the batch it has, as
    ``pack_indices`` packs them; None in a record of an earlier version.
    """

    files: Annotated[list[FileStats], msgspec.Meta(max_length=MOST_BATCH_ITEMS)]
    others: Annotated[list[OtherFile], msgspec.Meta(max_length=MOST_FORMER)] = []
    sums: bytes = b""
    former: Annotated[list[OtherFile], msgspec.Meta(max_length=MOST_FORMER)] = []
    stats: bytes = b""
    stored: bytes | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of all files, without those of attempts that were killed."""
        return [file.name for file in self.files] + [file.name for file in self.others]


class Ours:
    """The files of one shard that attempts at it have made, or are about to; see ``records``."""

    def __init__(self, records: Sequence[ShardRecord]) -> None:
        self._known: dict[str, list[FileStats | OtherFile]] = {}
        for record in records:
            for file in record.files:
                self._known.setdefault(file.name, []).append(file)
            for other in (*record.others, *record.former):
                self._known.setdefault(other.name, []).append(other)

    def has(self, path: Entry) -> bool:
        """Return whether the file ``path`` is one of them. Raises OSError."""
        known = [file for file in self._known.get(path.leaf, ()) if file.size == path.size()]
        return any(map(partial(_is_file, path), known))

    def has_digest(self, name: str, size: int, md5: str) -> bool:
        """Return whether one of them has this name, size and MD5."""
        return any((size, md5) == (file.size, file.md5) for file in self._known.get(name, ()))


def _is_file(path: Entry, file: FileStats | OtherFile) -> bool:
    try:
        with path.reader() as content:
            if file.md5:
                return md5_of_file(content) == file.md5
            known = file.crc32 if isinstance(file, FileStats) else -1
            return known >= 0 and crc_of(content.fileno()) == known
    except UnsafeFile:
        return False


def pack_sums(sums: Iterable[int]) -> bytes:
    """Return ``sums`` as an array of u32, little-endian."""
    found = array("I", sums)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def unpack_sums(packed: bytes) -> frozenset[int]:
    """Return the sums that ``pack_sums`` has packed. Raises ValueError."""
    found = array("I")
    found.frombytes(packed)
    if sys.byteorder == "big":
        found.byteswap()
    return frozenset(found)


def pack_indices(indices: Iterable[int]) -> bytes:
    """Return ``indices`` as a bit for each number up to the largest one."""
    found = bytearray()
    for index in sorted(indices):
        found.extend(bytes(index // 8 + 1 - len(found)))
        found[index // 8] |= 1 << index % 8
    return bytes(found)


def has_index(packed: bytes, index: int) -> bool:
    """Return whether ``index`` is one of those that ``pack_indices`` has packed."""
    return index // 8 < len(packed) and bool(packed[index // 8] >> index % 8 & 1)


def _path(home: Directory, shard: int) -> Entry:
    return home / PUBLISHED / f"{shard:05d}"


def write_record(home: Directory, shard: int, record: ShardRecord) -> None:
    """Write the record of ``shard``. Raises OSError."""
    (home / PUBLISHED).make_directory()
    body = msgspec.msgpack.encode(record)
    _path(home, shard).write(crc32(body).to_bytes(_CHECKSUM, "little") + body)


def record_name(home: Directory, shard: int) -> str:
    """Return the path of the record of ``shard``, from the directory on in which the home is."""
    return f"{os.path.basename(os.fspath(home))}/{PUBLISHED}/{shard:05d}"


def read_record(home: Directory, shard: int) -> ShardRecord | None:
    """Return the record of ``shard``, None if there is none. Raises DamagedRecord, OSError."""
    path = _path(home, shard)
    try:
        content = path.read(LARGEST_FILE)
    except FileNotFoundError:
        return None
    if (record := _decoded(content, shard)) is None:
        raise DamagedRecord(
            f"{path} is damaged, which says what was published of shard {shard:05d}; `downloader verify` "
            "compares the rest, and says what to do"
        )
    return record


def sound_record(home: Directory, shard: int) -> ShardRecord | None:
    """Return the record of ``shard``, None also if it is damaged. Raises OSError.

    For what makes a new one, or gives up nothing without it.
    """
    try:
        return read_record(home, shard)
    except DamagedRecord:
        return None


def _decoded(content: bytes, shard: int) -> ShardRecord | None:
    """Return the record of ``shard`` in ``content``, None if it is damaged, or another's."""
    body = content[_CHECKSUM:]
    if crc32(body).to_bytes(_CHECKSUM, "little") != content[:_CHECKSUM]:
        return None
    try:
        record = msgspec.msgpack.decode(body, type=ShardRecord)
    except UNDECODABLE:
        return None
    is_whole = len(record.sums) % array("I").itemsize == 0
    number = f"{shard:05d}"
    names = [*record.names, *(file.name for file in record.former)]
    are_its = all(IS_OURS(name) and name.startswith(number) for name in names)
    return record if is_whole and are_its else None
