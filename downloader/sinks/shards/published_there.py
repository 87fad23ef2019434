"""Say whether a bucket has what a job has published in it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence

from downloader.core.bucket_access import BucketAccess
from downloader.core.naming import shown
from downloader.core.redact import redact_url
from downloader.errors import DestinationError
from downloader.sinks.bucket_store import endpoint_of
from downloader.sinks.shards.staging import ATTEMPTS, StagedShard
from downloader.sinks.shards.staging_bucket import StagingBucket

__all__ = ["check_published"]

_LOOKED_AT = 5  # shards: the first one, the last one, and some between


def check_published(
    root: str,
    access: BucketAccess,
    shards: Sequence[int],
    published: Callable[[int], tuple[StagedShard, str]],
) -> None:
    """Raise DestinationError if the bucket ``root`` has none of ``shards``, or cannot be read.

    It is another bucket of that name then, or another store's: nothing of it may be recorded. ``shards``:
    those that were published, in order. ``published``: returns what is known of one, and the name of the
    staging in which it may be still, or "". However many there are, so many requests are made.
    """
    if not shards:
        return
    last = len(shards) - 1
    some = sorted({last * step // (_LOOKED_AT - 1) for step in range(_LOOKED_AT)})
    files = [file for at in some for file in _two_files(*published(shards[at]))]
    try:
        with tempfile.TemporaryDirectory(prefix="downloader-") as home:
            found, other = StagingBucket(root, home, access).look(files)
    except DestinationError:
        raise
    except OSError as error:
        raise DestinationError(
            f"no temporary directory can be made ({error.strerror}), which the look at {root} needs; set "
            "TMPDIR to where one can, and run the same command again"
        ) from error
    if found:
        return
    endpoint = endpoint_of(access.endpoint_url)
    at_endpoint = shown(redact_url(endpoint)) if endpoint else "the endpoint of AWS"
    none = f"none of the {len(shards):,} shards" if last else "not the shard"
    strange = f" (its {other} is another job's)" if other else ""
    raise DestinationError(
        f"{root} at {at_endpoint} has {none} that this job has stored{strange}, so nothing was recorded; "
        "give the bucket, the --endpoint-url and the --region that they were stored with, or, if they are "
        "lost, --restart to begin anew"
    )


def _two_files(shard: StagedShard, staging: str) -> Iterator[tuple[str, str]]:
    """Yield names and MD5s of two files of ``shard``: one that each shard has, and one with samples."""
    of_all = [(file.name, file.md5) for file in shard.others[-1:]]
    for name, md5 in of_all + [(file.name, file.md5) for file in shard.files[:1]]:
        yield name, md5
        if staging:
            yield f"{ATTEMPTS}/{staging}/{name}", md5
