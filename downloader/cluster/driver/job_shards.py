"""Give the shards of slices that are done their names, and write the indexes of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from downloader.cluster.plan.configs import changed
from downloader.cluster.plan.local_home import local_home
from downloader.cluster.plan.plan import Slice, SliceRecord
from downloader.cluster.plan.staging import has_shards, staging_of
from downloader.config.config import Config
from downloader.config.options import OutputOptions
from downloader.core.file_errors import advice
from downloader.errors import DestinationError
from downloader.files.directory import open_directory, open_home
from downloader.sinks.shards.indexes import Indexed, write_indexes_of
from downloader.sinks.shards.stats import FileStats

__all__ = ["DriverShards", "align_to_shards"]


def align_to_shards(config: Config) -> Config:
    """Return ``config`` with slices of whole shards: --slice-files rounded down, to one shard at least."""
    items = config.sink_kind.shard_items(config)
    if not items:
        return config
    return changed(config, slice_files=max(config.slice_files // items, 1) * items)


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
