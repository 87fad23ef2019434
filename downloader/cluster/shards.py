"""Shards of a job over many machines: whose attempt's count, how they get their names, and the indexes.

::

    attempt ──► DEST/.downloader/attempts/NAME.ID ──► SliceRecord (the first one counts) ──► DEST

A shard is a batch of the source. A slice of the source is a whole number of batches, so the shards of a
slice have the numbers that a local run would give them. Items that failed get further shards behind those
of the source (``cluster.retry``), with the keys of their rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from downloader.cluster.configs import changed, in_slice
from downloader.cluster.plan import PlanDirectory, Slice, SliceRecord
from downloader.cluster.scratch import Scratch, journal_beside_bucket, own_temporary
from downloader.config.config import Config
from downloader.config.options import OutputOptions
from downloader.core.bucket_place import is_bucket
from downloader.core.file_errors import advice
from downloader.core.item_states import published
from downloader.core.shard_keys import index_width, name_keys
from downloader.errors import DestinationError
from downloader.files.directory import UnsafeFile, open_directory, open_home
from downloader.messages import Item
from downloader.sinks.shards.files import STATS
from downloader.sinks.shards.indexes import Indexed, write_indexes_of
from downloader.sinks.shards.options import ShardOptions
from downloader.sinks.shards.records import read_record
from downloader.sinks.shards.staging import (
    StagedShard,
    Staging,
    StagingDirectory,
    staged_shard,
    staging_path,
)
from downloader.sinks.shards.staging_bucket import StagingBucket
from downloader.sinks.shards.stats import FileStats, stats_name
from downloader.storage.homes import home_of
from downloader.storage.journal import Journal

__all__ = [
    "DriverShards",
    "FreeNumbers",
    "NodeShards",
    "align_to_shards",
    "has_shards",
    "keys_of",
    "shards_of_slice",
]

_STAGING = "staging"
_LONGEST_NOTE = 1000  # bytes


def has_shards(config: Config) -> bool:
    """Return whether ``config`` stores shards."""
    return config.sink_kind.shard_items(config) > 0


def align_to_shards(config: Config) -> Config:
    """Return ``config`` with slices of whole shards: --slice-files rounded down, to one shard at least."""
    items = config.sink_kind.shard_items(config)
    if not items:
        return config
    return changed(config, slice_files=max(config.slice_files // items, 1) * items)


def local_home(config: OutputOptions) -> str:
    """Return the directory of the tool's own files for the job ``config``, on this machine if need be."""
    if not is_bucket(config.journal_root):
        return os.fspath(home_of(config.journal_root))
    # Anybody can make a directory of the name of the first before us.
    open_home(Path(own_temporary()), create=True, option="TMPDIR").close()
    with open_home(home_of(journal_beside_bucket(config)), create=True, option="TMPDIR") as home:
        return os.fspath(home)


def staging_of(config: Config) -> Staging:
    """Return the stagings of the job ``config``."""
    if config.is_bucket:
        home = local_home(config)
        return StagingBucket(
            config.output, home, config.bucket_access, config.stall_timeout, existing=config.existing
        )
    return StagingDirectory(config.output, durable=config.fsync, existing=config.existing)


# on a node


class NodeShards:
    """The shards of one attempt at the slice ``name``; ``config`` is that of the job's slices.

    ``staging``: where they are published, "" before ``stage`` and where the job has no shards.
    ``replaced``: how many files of somebody else had the names that this object has given.
    """

    def __init__(self, config: Config, directory: PlanDirectory, name: str) -> None:
        self._config = config
        self._directory = directory
        self._name = name
        self._has = has_shards(config)
        self.staging = ""
        self.replaced = 0

    def is_done(self) -> bool:
        """Return whether the slice is done; its shards then have their names. Raises DestinationError."""
        done = self._directory.done(self._name)
        if done is not None and done.staging:
            self.replaced += staging_of(self._config).move(done.staging, done.shards)
        return done is not None

    def stage(self, scratch: Scratch) -> Config:
        """Return the Config of the attempt. Raises OSError, DestinationError.

        The staging is that of the earlier attempt whose journal is in ``scratch``.
        """
        slice_, root = self._directory.slice(self._name), self._config.output
        if slice_ is None:
            raise DestinationError(f"the slice {self._name} is not in the plan")
        config = in_slice(self._config, again=bool(slice_.retries))
        if not self._has:
            return config
        note = scratch.file(_STAGING)
        try:
            name = note.read(_LONGEST_NOTE).decode("ascii", "replace")
        except FileNotFoundError:
            name = ""
        staging = None if self._config.is_bucket else StagingDirectory(root)
        is_ours = name.startswith(f"{self._name}.") and name[len(self._name) + 1 :].isalnum()
        if name and not (is_ours and (staging is None or staging.has(name))):
            scratch.clear()  # its journal has shards that are gone
            name = ""
        if not name:
            name = f"{self._name}.{os.urandom(6).hex()}"
            if staging is not None:
                staging.make(name)
            note.write(name.encode())
        self.staging = name
        output = staging_path(root, name)
        return in_slice(changed(config, output=output), first_shard=slice_.first)

    def ended(self, scratch: Scratch) -> None:
        """Settle the slice if it is done; remove what the attempt has left, unless another goes on with it.

        Raises DestinationError.
        """
        if self._has and (self.is_done() or not scratch.path.exists()):
            done = self._directory.done(self._name)
            if done is None or done.staging != self.staging:
                staging_of(self._config).remove([self.staging])


def shards_of_slice(config: Config) -> list[StagedShard]:
    """Return the shards of a slice that has just been run to its end with ``config``.

    Raises DestinationError if one is missing, JournalError.
    """
    found = []
    try:
        with contextlib.ExitStack() as opened:
            home = opened.enter_context(open_home(home_of(config.journal_root)))
            place = None if config.is_bucket else opened.enter_context(open_directory(config.output))
            journal = opened.enter_context(contextlib.closing(Journal(home, read_only=True)))
            for row in journal.batches():
                # Of items that have failed again nothing is published: they have their rows.
                if not config.slice.again or any(published(row.marks)):
                    for number in journal.shards.of(row.seq):
                        name = stats_name(number)
                        stats = home / STATS / name if place is None else place / name
                        found.append(
                            staged_shard(number, config.store, stats, place, read_record(home, number))
                        )
    except UnsafeFile:
        raise
    except OSError as error:
        raise DestinationError(f"{error.filename}: {advice(error)}") from error
    return found


# in the driver


class DriverShards:
    """The shards of a job, for its driver. Every method raises DestinationError.

    ``replaced``: how many files of somebody else had the names that this object has given.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._has = has_shards(config)
        self._records: dict[str, SliceRecord] = {}
        self.replaced = 0

    def add(self, done: SliceRecord) -> None:
        """Add a slice that is done."""
        if self._has:
            self._records[done.name] = done

    def recover(self, known: Mapping[str, Slice]) -> None:
        """Complete what an earlier driver has begun; ``known`` are the slices of the plan.

        Stagings of slices that are not done are left to those that go on with them.
        """
        if not self._has:
            return
        staging = staging_of(self._config)
        unwanted = []
        for name in staging.names():
            slice_name = name.partition(".")[0]
            done = self._records.get(slice_name)
            if done is not None and done.staging == name:
                self.replaced += staging.move(name, done.shards)
            elif done is not None or slice_name not in known:
                unwanted.append(name)
        if unwanted:
            staging.remove(unwanted)

    def ended(self, done: SliceRecord, *, settled: bool) -> None:
        """Take in a slice that has just been done; ``settled``: its shards have their names already."""
        self.add(done)
        if not self._has or (settled and self._config.is_bucket):
            return  # a bucket is looked at in the end
        staging = staging_of(self._config)
        self.replaced += staging.move(done.staging, done.shards)
        others = [name for name in staging.names() if name.partition(".")[0] == done.name]
        staging.remove(others)

    def finish(self, known: Mapping[str, Slice]) -> None:
        """Write the indexes of all shards, and remove what attempts have left."""
        if not self._has:
            return
        self.recover(known)
        files: dict[int, list[FileStats]] = {}
        for done in self._records.values():
            files.update((shard.number, shard.files) for shard in done.shards)
        config = self._config
        there = _names_in(config)
        if there is not None:  # verify has named those that are gone, and their items are in others
            files = {
                number: found if all(file.name in there for file in found) else []
                for number, found in files.items()
            }
        in_order = [file for number in sorted(files) for file in files[number]]
        with open_home(Path(local_home(config))) as home:
            indexed = Indexed(home, Path(home) if config.is_bucket else Path(config.output))
            indexed.renew()
            self.replaced += write_indexes_of(
                in_order,
                config.output,
                home,
                config.bucket_access,
                existing=config.existing,
                stall_timeout=config.stall_timeout,
            )
            indexed.note(len(files))


def _names_in(config: OutputOptions) -> frozenset[str] | None:
    """Return the names in DEST; None for a bucket. Raises DestinationError."""
    if config.is_bucket:
        return None
    try:
        with open_directory(config.output) as directory:
            return frozenset(directory.names())
    except OSError as error:
        raise DestinationError(f"{config.output}: {advice(error)}") from error


# items that failed


def keys_of(items: list[Item], shard: int, options: ShardOptions) -> list[str]:
    """Return the keys of the ``items`` of a batch, which is ``shard``, or is fetched again."""
    if items and items[0].earlier:
        return [item.earlier.key for item in items if item.earlier]
    if options.by_name:
        return name_keys(item.name for item in items)
    width = index_width(options.files)
    return [f"{shard:05d}{index:0{width}d}" for index in range(len(items))]


class FreeNumbers:
    """The numbers behind the shards of the source that no shard has, and no slice may give to one."""

    def __init__(self, directory: PlanDirectory, slices: Mapping[str, Slice]) -> None:
        self._first = max((slice_.seq for slice_ in slices.values() if not slice_.retries), default=0)
        self._taken: set[int] = set()
        for slice_ in slices.values():
            if slice_.retries:
                done = directory.done(slice_.name)
                own = range(slice_.first, slice_.seq) if done is None else (s.number for s in done.shards)
                self._taken.update(own)

    def take(self, count: int) -> int:
        """Return the first of the lowest ``count`` numbers in a row that are free; they are no longer."""
        first = self._first
        while taken := self._taken.intersection(range(first, first + count)):
            first = max(taken) + 1
        self._taken.update(range(first, first + count))
        return first
