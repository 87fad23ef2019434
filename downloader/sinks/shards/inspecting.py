"""Find samples in published shards, and say whether the shards are whole."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from downloader.core.shard_keys import index_width, possible_name_keys
from downloader.files.directory import Directory, Entry, UnsafeFile
from downloader.sinks.shards.options import ShardOptions
from downloader.sinks.shards.places import open_shard
from downloader.sinks.shards.reading import (
    DigestingFile,
    SeenSample,
    compression_of,
    read_parquet,
    read_tar,
)
from downloader.sinks.shards.stats import FileStats, file_name
from downloader.sinks.sink import Written
from downloader.sinks.stored import crc_of, md5_of_file

__all__ = ["ShardInspector", "are_whole"]

_MOST_TIMES = 1032  # bytes that deflate makes of one
_MOST_UNKNOWN = 1 << 30  # bytes of a shard whose --shard-size is not known here: the default
_SHARDS_IN_MEMORY = 4  # items are inspected in order, each in the shard of its batch or in a later one


class ShardInspector:
    """Says what is wrong with a stored item, "" if nothing is; see ``Inspect``.

    A shard is read when the first of its items is inspected. Raises DestinationError where the disk fails.
    """

    def __init__(self, root: Path, store: str, options: ShardOptions) -> None:
        self._root = root
        self._store = store
        self._options = options
        self._width = index_width(options.files)
        self._read: OrderedDict[int, dict[str, tuple[int, int]]] = OrderedDict()

    def __call__(self, written: Written) -> str:
        """Return the problem of ``written``."""
        if not written.shards:
            return "in no shard"
        return self.problem(self.keys(written), written.shards, (written.size, written.crc))

    def problem(self, keys: Sequence[str], shards: Sequence[int], content: tuple[int, int]) -> str:
        """Return what is wrong with a sample that has one of ``keys`` and is in one of ``shards``.

        ``content``: its size and its CRC-32.
        """
        problem = "missing"
        for key in keys:
            for shard in shards:
                found = self._samples(shard).get(key)
                if found == content:
                    return ""
                if found is not None:
                    problem = f"changed since it was stored in shard {shard:05d}"
        return problem

    def find(self, written: Written, keys: Sequence[str]) -> tuple[str, str]:
        """Return the shard that has ``written`` under one of ``keys``, and the key; "" if not known.

        Shards are read for that.
        """
        for key in keys:
            for shard in written.shards:
                if self._samples(shard).get(key) == (written.size, written.crc):
                    return f"{shard:05d}", key
        return "", keys[0] if len(keys) == 1 else ""

    def has_files(self, shard: int) -> bool:
        """Return whether there is a file with samples of ``shard``."""
        return self._path(shard, 0).exists()

    def keys(self, written: Written) -> tuple[str, ...]:
        """Return the keys that ``written`` may have."""
        if self._options.by_name:
            return possible_name_keys(written.name, written.index)
        return (f"{written.shards[0]:05d}{written.index:0{self._width}d}",)

    def _samples(self, shard: int) -> dict[str, tuple[int, int]]:
        """Return size and CRC-32 of the samples of ``shard``, by key."""
        if shard not in self._read:
            found: dict[str, tuple[int, int]] = {}
            number = 0
            with contextlib.suppress(FileNotFoundError):
                while True:
                    found.update(self._samples_of(self._path(shard, number)))
                    number += 1
            self._read[shard] = found
            if len(self._read) > _SHARDS_IN_MEMORY:
                self._read.popitem(last=False)
        return self._read[shard]

    def _samples_of(self, path: Path) -> dict[str, tuple[int, int]]:
        try:
            with open_shard(path) as file:
                if self._store == "parquet":
                    return _parquet_samples(file)
                return _tar_samples(file, path.name, self._options.size)
        except UnsafeFile:
            return {}  # what is not a file, or leads elsewhere

    def _path(self, shard: int, number: int) -> Path:
        return self._root / file_name(shard, number, self._store, self._options.compression)


def are_whole(directory: Directory, files: Sequence[FileStats]) -> bool:
    """Return whether each of ``files`` is in ``directory`` with its size and its MD5. Raises OSError.

    Without an MD5 the CRC-32 counts; of an earlier version, which has neither, the number of samples.
    """
    return all(_is_whole(directory / each.name, each) for each in files)


def _is_whole(path: Entry, file: FileStats) -> bool:
    if path.size() != file.size:
        return False
    with path.reader() as content:
        if file.md5:
            return md5_of_file(content) == file.md5
        if file.crc32 >= 0:
            return crc_of(content.fileno()) == file.crc32
        return len(_tar_samples(content, path.leaf, _MOST_UNKNOWN)) == file.samples


def _tar_samples(shard: BinaryIO, name: str, most: int) -> dict[str, tuple[int, int]]:
    """Return size and CRC-32 of the samples in the open file ``shard``.

    No more is decompressed than ``most`` bytes and what gzip can make of so large a file.
    """
    if compression_of(name):
        most += _MOST_TIMES * os.fstat(shard.fileno()).st_size
    else:
        most = sys.maxsize
    return _found(read_tar(DigestingFile(shard), name, None, most).samples)


def _parquet_samples(shard: BinaryIO) -> dict[str, tuple[int, int]]:
    # As above: what cannot be read is missing.
    return _found(dict(read_parquet(shard, vouched=False)))


def _found(samples: Mapping[str, SeenSample]) -> dict[str, tuple[int, int]]:
    return {key: (seen.size, seen.crc) for key, seen in samples.items()}
