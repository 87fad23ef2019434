"""Tell how far a job over many machines is, from its plan and what its driver last wrote."""

from __future__ import annotations

import contextlib
from collections import Counter

import msgspec

from downloader.cluster.driver.plan_home import has_driver, may_have_plan
from downloader.cluster.driver.slice_sums import SliceSums
from downloader.cluster.plan.plan import Plan, PlanDirectory, SliceRecord
from downloader.core.bucket_access import NO_OPTIONS, BucketAccess
from downloader.core.bucket_place import is_bucket
from downloader.errors import UNDECODABLE, ConfigError, DestinationError
from downloader.files.directory import open_home
from downloader.messages import Tally
from downloader.sinks.registry import sink_kind
from downloader.sinks.sink import Compares
from downloader.storage.homes import home_of
from downloader.storage.verify import Status

__all__ = ["Running", "cluster_status", "write_running"]


class Running(msgspec.Struct, frozen=True):
    """What the driver last knew of the slices that run; ``tally`` is of the whole run."""

    tally: Tally
    running: int
    nodes: int
    slots: int


def write_running(directory: PlanDirectory, tally: Tally, running: int, nodes: int, slots: int) -> None:
    """Write what the driver knows, for ``status``; what cannot be written is left out."""
    with contextlib.suppress(DestinationError):
        content = msgspec.json.encode(Running(tally, running, nodes, slots))
        directory.files.write("running.json", content)


def cluster_status(root: str, access: BucketAccess = NO_OPTIONS) -> Status | None:
    """Return a summary of the plan under ``root``, a DEST or --journal; None if there is no plan.

    ``root`` may be s3://BUCKET/PREFIX, with ``access`` to the bucket. Raises
    ConfigError if there is no plan in a bucket, DestinationError, JournalError.
    """
    if not may_have_plan(root):
        return None
    directory = PlanDirectory(root, access)
    plan = directory.read()
    if plan is None:
        if is_bucket(root):
            raise ConfigError(f"{root} has no plan of a job; give that of --journal")
        return None
    sums = SliceSums()
    slices = directory.slices()
    found = {done.name: done for done in directory.records()}
    left = 0
    for slice_ in slices:
        done = found.get(slice_.name)
        if done is not None:
            sums.add(done, slice_.retries)
        elif slice_.count:
            left += 1
    tally = sums.total()
    live = _running(directory)
    if live.running and not has_driver(root, access):
        live = msgspec.structs.replace(live, running=0)  # the driver has died
    counts: Counter[str] = Counter(
        planned=sum(1 for slice_ in slices if slice_.count), done=len(found), running=live.running
    )
    listed = sum(slice_.count for slice_ in slices if not slice_.retries)
    read = any(slice_.ended for slice_ in slices)
    stored = tally.stored + tally.skipped
    if live.running:
        stored = max(stored, live.tally.stored + live.tally.skipped)
    failed = tally.failed
    return Status(
        source=plan.source,
        store=plan.store,
        layout="",
        listed=listed,
        stored=stored,
        failed=failed,
        pending=listed - stored - failed,
        bytes=tally.bytes,
        source_read=read,
        complete=read and not left and _is_described(root, plan, list(found.values())),
        failed_by_error=sums.failed_by_error(),
        slices=dict(counts),
        doubtful=tally.doubtful,
    )


def _is_described(root: str, plan: Plan, records: list[SliceRecord]) -> bool:
    """Return whether a driver has written the indexes of all shards; True where that cannot be told."""
    if is_bucket(root) or plan.store == "local":
        return True
    kind = sink_kind(plan.store)
    if not isinstance(kind, Compares):
        return True
    with open_home(home_of(root), write=False) as home:
        return kind.is_described(home, sum(len(done.shards) for done in records))


def _running(directory: PlanDirectory) -> Running:
    try:
        return msgspec.json.decode(directory.files.read("running.json") or b"", type=Running)
    except (DestinationError, *UNDECODABLE):
        return Running(Tally(), 0, 0, 0)
