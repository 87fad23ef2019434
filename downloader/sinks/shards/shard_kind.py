"""Define what the kinds of sinks with shards have in common."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from downloader.config.extras import Extra, require
from downloader.core.executed_extensions import ARRAYS, EXECUTED
from downloader.core.extras import ZSTD
from downloader.errors import ConfigError
from downloader.files.below import seen_from
from downloader.sinks.shards.options import (
    LARGEST_VALUE,
    SHARD_OPTIONS,
    ShardOptions,
    parse_members,
    shard_options,
)

if TYPE_CHECKING:  # the command line loads every kind, for its help
    from collections.abc import Callable, Iterator, Sequence

    from downloader.config.config import Config
    from downloader.core.bucket_access import BucketAccess
    from downloader.core.ownership import Rules
    from downloader.files.directory import Directory
    from downloader.sinks.shards.inspecting import ShardInspector
    from downloader.sinks.shards.staging_bucket import StagingBucket
    from downloader.sinks.sink import Comparison, Describe, Inspect, Locate, Sink

__all__ = ["ShardKind"]


class ShardKind:
    """The kind of ``ShardSink``; see ``SinkKind``. ``name`` is the format of the shards, tar or parquet."""

    options = SHARD_OPTIONS
    keeps = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.largest = LARGEST_VALUE if name == "parquet" else 0

    def check(self, config: Config) -> None:
        """Check the options. Raises ConfigError."""
        for option in self.options:
            value = config.store_option(option.name)
            if value == option.default:
                continue
            try:
                option.type(str(value))
            except ValueError as error:
                raise ConfigError(f"{option.flag}: {error}") from None
        self._check_options(config)
        self._check_packages(config)
        self._check_written(config)

    def columns(self, config: Config) -> tuple[str, ...]:
        """See ``StoresColumns``: those of --member."""
        try:
            return tuple(parse_members(str(config.store_option("member"))).values())
        except ValueError:
            return ()  # `check` says why

    def _check_options(self, config: Config) -> None:
        if config.layout != "flat":
            raise ConfigError(f"--layout {config.layout} is for --store files; a shard has no layout")
        if config.relist:
            raise ConfigError(
                "--relist is for --store files: items that are in published shards cannot move; "
                "store the new list in another -o"
            )
        options = shard_options(config)
        if self.name != "tar" and options.members:
            raise ConfigError("--member is for --store tar; parquet shards have columns (--keep-columns)")
        if self.name != "tar" and options.compression != "none":
            raise ConfigError("--shard-compression is for --store tar; parquet is compressed by itself")
        if self.name != "tar" and not options.hashed:
            raise ConfigError("--digests is for --store tar; parquet shards have SHA-256 and MD5")
        if self.name != "tar" and options.unsafe:
            raise ConfigError("--unsafe-extensions is for --store tar; parquet has no members")
        if (
            executed := []
            if options.unsafe
            else [name for name in options.members if name in EXECUTED - ARRAYS]
        ):
            raise ConfigError(
                f"--member {executed[0]}=…: what a list has in a member of this extension is executed by "
                "readers of samples; choose another one, or add --unsafe-extensions"
            )
        if options.members and all(option.name != "keep_columns" for option in config.source_kind.options):
            raise ConfigError("--member is for lists with columns; this kind of source has none")

    def _check_written(self, config: Config) -> None:
        """Raise ConfigError if a report or a manifest has the name of a file of a shard in DEST."""
        from downloader.sinks.shards.stats import IS_OURS

        output = os.path.realpath(config.local_output)
        for option, path in config.written_files:
            directory, leaf = os.path.split(seen_from(output, path))
            if directory == output and IS_OURS(leaf):
                raise ConfigError(f"{option}: {path} is the name of a file of a shard; name another")

    def _check_packages(self, config: Config) -> None:
        if self.name == "parquet":
            require(Extra("--store parquet", "pyarrow", "parquet"))
        if shard_options(config).compression == "zst":
            require(Extra("--shard-compression zst", ZSTD, "zstd"))

    def shard_items(self, config: Config) -> int:
        """Return how many items a shard has."""
        return shard_options(config).files

    def identity(self, config: Config) -> str:
        """Return the options that all shards of a job must have in common, as JSON."""
        import msgspec

        options = shard_options(config)
        # Without the last ones where they are the defaults, so that jobs continue which were begun without.
        count, newer = len(options), options._field_defaults
        while count and newer.get(options._fields[count - 1]) == options[count - 1]:
            count -= 1
        return msgspec.json.encode(options[:count]).decode()

    def describe(self, identity: str) -> str:
        """Return the options in ``identity``."""
        import msgspec

        options = msgspec.json.decode(identity, type=ShardOptions)
        words = [
            f"--shard-files {options.files} --shard-size {options.size}",
            f"--shard-compression {options.compression}",
            f"--sample-key {'name' if options.by_name else 'index'}",
        ]
        if options.members:
            words.append("--member " + ",".join(f"{ext}={name}" for ext, name in options.members.items()))
        if options.reproducible:
            words.append("--reproducible")
        if not options.hashed:
            words.append(f"--digests {options.digests}")
        if options.unsafe:
            words.append("--unsafe-extensions")
        return " ".join(words)

    def check_begin(self, config: Config) -> None:
        """Raise ConfigError if DEST has files with the names of shards: they may be another dataset's.

        The files of an attempt at a slice are not looked at: they are its own. A bucket is asked by a
        process of its own; raises DestinationError where it does not answer.
        """
        if config.slice:
            return
        found = _dataset_in_bucket(config) if config.is_bucket else _dataset_in(config.output)
        if found:
            raise ConfigError(
                f"{config.output} has {found}, which would be replaced and may be of another dataset; "
                "move the shards there away with the files beside them, or choose another -o"
            )

    def tidy(self, home: Directory, is_finished: Callable[[int], bool]) -> None:
        """Remove the outcomes of published shards that the journal has."""
        from downloader.sinks.shards.files import sealed_shards, unseal

        for shard in sealed_shards(home):
            if is_finished(shard):
                unseal(home, shard)

    def complete(self, config: Config, home: Directory, shards: Sequence[int]) -> int:
        """Write ``shards.json`` and ``sizes.json`` if they lack ``shards``. Raises DestinationError."""
        from downloader.sinks.shards.indexes import Indexed, write_indexes

        if config.slice:
            return 0  # those of the whole job are written when all slices are done
        indexed = Indexed(home, Path(home) if config.is_bucket else Path(config.output))
        if indexed.has(len(shards)):
            return 0
        indexed.renew()  # until they are written: what has their names may be somebody else's, and stay
        replaced = write_indexes(
            config.output,
            home,
            shards,
            config.bucket_access,
            store=self.name,
            existing=config.existing,
            stall_timeout=config.stall_timeout,
        )
        indexed.note(len(shards))
        return replaced

    def open(self, config: Config, rules: Rules) -> Sink:
        """Return a ShardSink."""
        from downloader.files.directory import open_home
        from downloader.sinks.shards.jobs import PublisherSettings
        from downloader.sinks.shards.sink import ShardSink

        options = shard_options(config)
        home = open_home(Path(config.journal_root) / ".downloader")
        settings = PublisherSettings(
            root=config.output,
            home=str(home),
            store=self.name,
            compression=options.compression,
            max_size=options.size,
            reproducible=options.reproducible,
            access=config.bucket_access,
            hashed=options.hashed,
            stall_timeout=config.stall_timeout,
            # An attempt at a slice has a directory of its own; what is in DEST is looked at later.
            existing="replace" if config.slice else config.existing,
            of_slice=bool(config.slice),
            which=rules.root,
        )
        return ShardSink(home, settings, options, again=config.slice.again)

    def locator(self, root: Path, identity: str, home: Directory) -> Locate:
        """See ``sinks.sink.Locates``."""
        import msgspec

        from downloader.sinks.shards.locating import ShardLocator

        options = msgspec.json.decode(identity, type=ShardOptions)
        return ShardLocator(options, home, self._inspector(root, identity)).locate

    def describer(self, root: Path, identity: str, home: Directory) -> Describe:
        """See ``sinks.sink.Describes``."""
        from downloader.sinks.shards.rows import ShardRows

        return ShardRows(root, self.name, home)

    def inspector(self, root: Path, identity: str) -> Inspect:
        """Return a function that reads the shard of an item below ``root``."""
        return self._inspector(root, identity)

    def comparison(self, root: str, identity: str, home: Directory, access: BucketAccess) -> Comparison:
        """See ``sinks.sink.Compares``."""
        import msgspec

        from downloader.sinks.shards.comparing import JobComparison
        from downloader.sinks.shards.places import open_published

        options = msgspec.json.decode(identity, type=ShardOptions)
        files = open_published(root, home, access)
        return JobComparison(files, self.name, options, home, root)

    def is_described(self, home: Directory, shards: int) -> bool:
        """See ``sinks.sink.Compares``."""
        from pathlib import Path

        from downloader.sinks.shards.indexes import Indexed

        return not shards or not Indexed(home, Path(home)).is_due(shards)

    def check_place(self, config: Config) -> None:
        """See ``sinks.sink.ChecksPlace``: that of a bucket."""
        if config.is_bucket:
            with _staging_bucket(config) as bucket:
                bucket.check()

    def check_published(
        self, root: str, identity: str, home: Directory, access: BucketAccess, shards: Sequence[int]
    ) -> None:
        """See ``sinks.sink.ChecksPublished``."""
        import msgspec

        from downloader.sinks.shards.published_there import check_published
        from downloader.sinks.shards.records import OtherFile, sound_record
        from downloader.sinks.shards.staging import StagedShard
        from downloader.sinks.shards.stats import FileStats, file_name, stats_name

        options = msgspec.json.decode(identity, type=ShardOptions)

        def published(shard: int) -> tuple[StagedShard, str]:
            try:
                record = sound_record(home, shard)
            except OSError:
                record = None  # who needs it says why; a bucket can be told without
            if record is not None:
                return StagedShard(shard, record.files, record.others), ""
            first = FileStats(file_name(shard, 0, self.name, options.compression), "", 0, 0)
            return StagedShard(shard, [first], [OtherFile(stats_name(shard))]), ""

        check_published(root, access, shards, published)

    def staged(self, home: Directory, shard: int) -> tuple[int, int]:
        """See ``sinks.sink.Stages``."""
        from downloader.sinks.shards.kept import kept_samples

        return kept_samples(home, shard)

    def distrust(self, home: Directory) -> None:
        """See ``sinks.sink.Stages``. What the journal has lost is published again, with other bytes."""
        from downloader.sinks.shards.files import INDEXED

        (home / INDEXED).unlink(missing_ok=True)

    def forget(self, home: Directory) -> None:
        """See ``sinks.sink.Stages``."""
        from downloader.sinks.shards.files import forget

        forget(home)

    def _inspector(self, root: Path, identity: str) -> ShardInspector:
        import msgspec

        from downloader.sinks.shards.inspecting import ShardInspector

        return ShardInspector(root, self.name, msgspec.json.decode(identity, type=ShardOptions))


def _dataset_in(directory: str) -> str:
    """Return a name in ``directory`` that a file of a dataset may have, "" if there is none."""
    from downloader.sinks.shards.stats import IS_OURS

    with os.scandir(directory) as entries:
        return min((entry.name for entry in entries if IS_OURS(entry.name)), default="")


def _dataset_in_bucket(config: Config) -> str:
    """Return a name in the bucket that an object of a dataset may have, "" if there is none."""
    with _staging_bucket(config) as bucket:
        return bucket.dataset()


@contextlib.contextmanager
def _staging_bucket(config: Config) -> Iterator[StagingBucket]:
    from downloader.sinks.shards.staging_bucket import StagingBucket

    with tempfile.TemporaryDirectory(prefix="downloader-") as home:  # there may be no journal yet
        yield StagingBucket(config.output, home, config.bucket_access, config.stall_timeout)
