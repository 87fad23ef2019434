"""Mark the disk of a node that keeps files of a job, --store local.

Each disk has a mark in ``DEST/.downloader/``, made by the first slice of a plan that is run there; the
record of a slice has that of its disk. ``driver.lost_disks`` tells which are gone.
"""

from __future__ import annotations

import os

import msgspec

from downloader.core.file_errors import advice
from downloader.errors import UNDECODABLE, DestinationError
from downloader.files.directory import UnsafeFile, open_home
from downloader.storage.homes import home_of, make_home
from downloader.storage.places import foreign_before

__all__ = ["Disk", "disk_here", "mark_disk", "on_this_node"]


_LARGEST = 10_000  # bytes of a mark


class Disk(msgspec.Struct, frozen=True):
    """The mark of a disk. ``since_ns``: see ``core.ownership.Rules.foreign_before_ns``."""

    id: str
    since_ns: int


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
