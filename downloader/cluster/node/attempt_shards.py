"""Stage the shards of an attempt at a slice, and find what a slice that has been run has published."""

from __future__ import annotations

import contextlib
import os

from downloader.cluster.node.scratch import Scratch
from downloader.cluster.plan.configs import changed, in_slice
from downloader.cluster.plan.plan import PlanDirectory
from downloader.cluster.plan.staging import has_shards, staging_of
from downloader.config.config import Config
from downloader.core.file_errors import advice
from downloader.core.item_states import published
from downloader.errors import DestinationError
from downloader.files.directory import UnsafeFile, open_directory, open_home
from downloader.sinks.shards.files import STATS
from downloader.sinks.shards.records import read_record
from downloader.sinks.shards.staging import StagedShard, StagingDirectory, staged_shard, staging_path
from downloader.sinks.shards.stats import stats_name
from downloader.storage.homes import home_of
from downloader.storage.journal import Journal

__all__ = ["NodeShards", "shards_of_slice"]

_STAGING = "staging"
_LONGEST_NOTE = 1000  # bytes


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
