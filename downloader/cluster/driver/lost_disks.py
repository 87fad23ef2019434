"""Tell which disks of nodes are gone, with --store local, and have their files fetched again.

The record of a slice has the mark of its disk (``node.local_disk``). A disk whose mark no node of the
cluster finds is gone, and the files of its slices with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from downloader.cluster.driver.retry import failed_items
from downloader.cluster.driver.verify import Damage, write_down
from downloader.cluster.plan.plan import PlanDirectory, SliceRecord
from downloader.config.options import OutputOptions

__all__ = ["gone", "is_local", "lost_text", "write_down_lost"]


def is_local(config: OutputOptions) -> bool:
    """Return whether ``config`` stores files on the disks of nodes."""
    return config.store == "local"


def gone(records: Iterable[SliceRecord], there: set[str]) -> list[SliceRecord]:
    """Return the slices with files on disks other than those ``there``."""
    return [done for done in records if done.disk not in there and done.report.stored + done.report.skipped]


def write_down_lost(directory: PlanDirectory, lost: list[SliceRecord], most: int) -> None:
    """Record that the files of ``lost`` slices are to be fetched again. The caller owns the plan.

    ``most``: --slice-files. Raises DestinationError, JournalError, SourceError, InUse.
    """
    slices = {slice_.name: slice_ for slice_ in directory.slices()}
    retried = {name for slice_ in slices.values() for name in slice_.retries}
    for done in lost:
        failed = failed_items(directory, slices[done.name], done).items
        items = enumerate(chain.from_iterable(directory.items(slices[done.name])))
        damaged = {
            number: Damage(item.name, f"its disk, on {done.node}, is gone")
            for number, item in items
            if number not in failed and not item.fault
        }
        write_down(directory, slices, done, damaged, None, most, retried=done.name in retried)


def lost_text(lost: list[SliceRecord]) -> str:
    """Return the message about slices whose disks are gone."""
    files = sum(done.report.stored + done.report.skipped for done in lost)
    nodes = sorted({done.node for done in lost})
    return (
        f"{len(lost)} slices with {files:,} files are on disks of nodes that are not in the cluster: "
        f"{', '.join(nodes[:5])}{' …' if len(nodes) > 5 else ''}; when they are back, the same command "
        "finds them; if they are lost for good, --retry-failed fetches their files again"
    )
