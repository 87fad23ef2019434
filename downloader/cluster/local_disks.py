"""Keep files on the own disks of nodes, --store local: tell disks apart, and which of them are gone.

Each disk has a mark in ``DEST/.downloader/``, made by the first slice of a plan that is run there. The
record of a slice has that of its disk; a disk whose mark no node of the cluster finds is gone, and the
files of its slices with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain

import msgspec

from downloader.cluster.plan import PlanDirectory, SliceRecord
from downloader.cluster.retry import failed_items
from downloader.cluster.verify import Damage, write_down
from downloader.config.options import OutputOptions
from downloader.core.file_errors import advice
from downloader.errors import UNDECODABLE, DestinationError
from downloader.files.directory import UnsafeFile, open_home
from downloader.storage.homes import home_of, make_home
from downloader.storage.places import foreign_before

__all__ = [
    "Disk",
    "disk_here",
    "gone",
    "is_local",
    "lost_text",
    "mark_disk",
    "on_this_node",
    "write_down_lost",
]


_LARGEST = 10_000  # bytes of a mark


class Disk(msgspec.Struct, frozen=True):
    """The mark of a disk. ``since_ns``: see ``core.ownership.Rules.foreign_before_ns``."""

    id: str
    since_ns: int


def is_local(config: OutputOptions) -> bool:
    """Return whether ``config`` stores files on the disks of nodes."""
    return config.store == "local"


def on_this_node(output: str) -> str:
    """Return DEST with the variables of this node's environment. Raises DestinationError."""
    found = os.path.expandvars(output)
    if not os.path.isabs(found):
        raise DestinationError(f"-o {output} is {found} here, which is not an absolute path")
    return found


def disk_here(output: str, plan: str) -> Disk | None:
    """Return the mark of the plan ``plan`` on the disk of ``output``, None if it has none."""
    try:
        with open_home(home_of(output), write=False) as home:
            return msgspec.json.decode((home / f"disk-{plan}").read(_LARGEST), type=Disk)
    except (OSError, *UNDECODABLE):
        return None


def mark_disk(output: str, plan: str) -> Disk:
    """Return the mark, which is made if there is none. Raises ConfigError, DestinationError."""
    with make_home("-o", output) as home:
        found = disk_here(output, plan)
        if found is not None:
            return found
        mark = home / f"disk-{plan}"
        made = Disk(os.urandom(8).hex(), foreign_before(output))
        temporary = home / f".{mark.leaf}.{made.id}"
        try:
            with temporary.writer() as file:
                file.write(msgspec.json.encode(made))
            try:
                temporary.link(mark.leaf)
            except FileExistsError:
                return disk_here(output, plan) or made
            finally:
                temporary.unlink()
        except UnsafeFile:
            raise
        except OSError as error:
            raise DestinationError(f"{mark}: {advice(error)}") from error
        return made


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
