"""Say whether DEST has what a plan says was stored in it."""

from __future__ import annotations

import os
from itertools import chain

from downloader.cluster.plan.plan import PlanDirectory
from downloader.core.bucket_access import BucketAccess
from downloader.sinks.registry import sink_kind
from downloader.sinks.shards.published_there import check_published
from downloader.sinks.stored import place

__all__ = ["check_bucket", "has_all"]


def check_bucket(directory: PlanDirectory, output: str, access: BucketAccess) -> None:
    """Raise DestinationError where the bucket ``output`` has none of the shards of slices that are done.

    See ``check_published``. A driver may not have given them their names yet.
    """
    shards = {shard.number: (shard, done.staging) for done in directory.records() for shard in done.shards}
    check_published(output, access, sorted(shards), shards.__getitem__)


def has_all(directory: PlanDirectory, output: str) -> bool:
    """Return whether ``output`` has all files of the slices that are done, of those where none has failed.

    Where files are not stored one by one, that is not known, unless the store keeps nothing.
    """
    plan = directory.read()
    if plan is None or plan.store != "files":
        return plan is None or not sink_kind(plan.store).keeps
    whole = {done.name for done in directory.records() if not done.report.failed}
    slices = [slice_ for slice_ in directory.slices() if slice_.name in whole]
    items = chain.from_iterable(chain.from_iterable(map(directory.items, slices)))
    return bool(slices) and all(
        os.path.lexists(os.path.join(output, place(item.name, plan.identity)))
        for item in items
        if not item.fault
    )
