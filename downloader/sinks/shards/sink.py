"""Store the items of each batch in one shard.

::

    lease ──► Part (append samples, in the worker) ──seal──► Publisher (a process) ──► {shard:05d}.tar, …

A kill leaves the part, whose whole samples are found again by the next worker that has the batch. Once all
items are finished their outcome is written down (``files.SealedShard``), so that a kill from then on only
repeats the publishing, and fetches nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from downloader.core.bucket_place import is_bucket
from downloader.core.item_states import written
from downloader.files.directory import Directory, Entry, UnsafeFile, open_directory
from downloader.messages import Lease
from downloader.process.long_work import in_thread
from downloader.sinks.failing import destination_error
from downloader.sinks.shards.batch import ShardBatch
from downloader.sinks.shards.files import SHARDS, STATS, part_path, read_sealed, unseal
from downloader.sinks.shards.inspecting import are_whole
from downloader.sinks.shards.jobs import PublisherSettings
from downloader.sinks.shards.keys import ShardKeys
from downloader.sinks.shards.options import ShardOptions
from downloader.sinks.shards.part import Part, recover
from downloader.sinks.shards.publisher import Publisher
from downloader.sinks.shards.records import sound_record
from downloader.sinks.shards.salvaging import salvage
from downloader.sinks.shards.stats import read_stats, stats_name
from downloader.sinks.sink import Recovered, Written

__all__ = ["ShardSink"]


class ShardSink:
    """A sink whose batches are shards; see ``Sink``. Raises DestinationError.

    ``home``: the directory of the tool's own files. ``again``: all items have failed in earlier slices, and
    have their keys and their rows.
    """

    wants_records = False
    shards = True

    def __init__(
        self, home: Directory, settings: PublisherSettings, options: ShardOptions, *, again: bool = False
    ) -> None:
        self.home = home
        self.options = options
        self.again = again
        self._settings = settings
        self.publisher = Publisher(settings)
        # Published shards whose outcomes were reported since the last lease, and before that.
        self._reported: list[int] = []
        self._recorded: list[int] = []
        try:
            (home / SHARDS).make_directory()
            self.directory = (home / SHARDS).opened()
        except UnsafeFile:
            raise
        except OSError as error:
            raise destination_error(error, str(home / SHARDS)) from error

    def say_by(self, say: Callable[[str], None]) -> None:
        """See ``sinks.sink.Says``."""
        self.publisher.say = say

    def begin(self, lease: Lease) -> ShardBatch:
        """See ``Sink``. Reads the part that a killed worker has left, in a thread."""
        self._unseal_recorded()
        shard = lease.shards[-1]
        keys = ShardKeys(lease, self.options, keyed=self.again)
        try:
            recovered = in_thread(self._recover, lease, shard, keys)
        except UnsafeFile:
            raise
        except OSError as error:
            raise destination_error(error, str(part_path(self.home, shard))) from error
        keys.forget_items()
        return ShardBatch(self, lease, keys, Part(part_path(self.home, shard)), recovered)

    def published(self, shard: int) -> None:
        """Record that ``shard`` is published, and that its batch will be reported at once."""
        self._reported.append(shard)

    def _unseal_recorded(self) -> None:
        """Remove the outcomes of the shards that the journal has.

        A lease answers a credit. One credit may have been on its way when a batch was reported, so the
        second lease after the report proves that the supervisor has read it.
        """
        for shard in self._recorded:
            unseal(self.home, shard)
        self._recorded, self._reported = self._reported, []

    def _recover(self, lease: Lease, shard: int, keys: ShardKeys) -> Recovered:
        """Return what is known of the items of ``lease``, and prepare its part."""
        wanted = lease.only or range(lease.count)
        sealed = read_sealed(self.home, shard)
        path = part_path(self.home, shard)
        indices = keys.indices(wanted) if lease.only or path.exists() else {}
        if path.exists():
            expected = {keys.key(mark.index): (mark.size, mark.crc) for mark in written(lease.done)}
            found = {
                indices[sample.key]: (sample.size, sample.crc)
                for sample in recover(path, expected)
                if sample.key in indices
            }
        elif sealed is not None and not self._is_published(shard):
            sealed, found = None, {}  # a power cut took the part, or what it had become
        elif sealed is not None:
            found = {mark.index: (mark.size, mark.crc) for mark in written(sealed.marks)}
        else:
            found = {}
        if lease.only and sealed is None:
            found |= self._salvaged(
                shard, path, {key: at for key, at in indices.items() if at not in found}
            )
        return Recovered(found, sealed.failures if sealed else [])

    def _salvaged(self, shard: int, part: Entry, indices: dict[str, int]) -> dict[int, tuple[int, int]]:
        """Take samples that are whole from the damaged files of ``shard``; see ``salvaging``.

        ``indices``: those of the items that are wanted, by key. In a bucket nothing is read, nor without
        the record of the shard: all of them are fetched then.
        """
        root = self._settings.root
        record = sound_record(self.home, shard) if indices and not is_bucket(root) else None
        if record is None:
            return {}
        with open_directory(root) as directory:
            found = salvage(directory, record, part, indices, self.options.size)
        return {indices[key]: what for key, what in found.items()}

    def _is_published(self, shard: int) -> bool:
        """Return whether the files of ``shard`` are there and whole.

        They are read: after a power cut there may be names without bytes.
        """
        root = self._settings.root
        if is_bucket(root):
            return read_stats(self.home / STATS / stats_name(shard)) is not None
        with open_directory(root) as directory:
            stats = read_stats(directory / stats_name(shard))
            return stats is not None and are_whole(directory, stats.files)

    def find_existing(self, name: str) -> tuple[int, int] | None:
        """Return None: --existing is for files."""
        return None

    def verify(self, written: Written) -> bool:
        """Return False: what a batch has is found by ``begin``."""
        return False

    def close(self) -> None:
        """See ``Sink``."""
        self.publisher.close()
        self.directory.close()
