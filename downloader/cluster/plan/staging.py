"""Say which jobs have shards, and where the attempts at their slices publish them.

::

    attempt ──► DEST/.downloader/attempts/NAME.ID ──► SliceRecord (the first one counts) ──► DEST

A shard is a batch of the source. A slice of the source is a whole number of batches, so the shards of a
slice have the numbers that a local run would give them. Items that failed get further shards behind those
of the source (``driver.retry``), with the keys of their rows.
"""

from __future__ import annotations

from downloader.cluster.plan.local_home import local_home
from downloader.config.config import Config
from downloader.sinks.shards.staging import Staging, StagingDirectory
from downloader.sinks.shards.staging_bucket import StagingBucket

__all__ = ["has_shards", "staging_of"]


def has_shards(config: Config) -> bool:
    """Return whether ``config`` stores shards."""
    return config.sink_kind.shard_items(config) > 0


def staging_of(config: Config) -> Staging:
    """Return the stagings of the job ``config``."""
    if config.is_bucket:
        home = local_home(config)
        return StagingBucket(
            config.output, home, config.bucket_access, config.stall_timeout, existing=config.existing
        )
    return StagingDirectory(config.output, durable=config.fsync, existing=config.existing)
