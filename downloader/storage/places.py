"""Say whether a directory is the DEST of a job, before anything is opened or stored there."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Callable

from downloader.config.options import OutputOptions
from downloader.core.bucket_place import is_bucket, is_same_place
from downloader.errors import DestinationError
from downloader.files.directory import HOME

__all__ = [
    "began_at",
    "check_mounted",
    "clock_of",
    "foreign_before",
    "is_apart",
    "is_empty",
    "leads_to",
    "moved",
    "shown_output",
]

_ENTRIES = 10_000  # of DEST that are looked at


def check_mounted(output: str, began_ns: int, stored: int, has_all: Callable[[], bool]) -> None:
    """Raise DestinationError if DEST is not there, or not that of a job which has ``stored`` so many items.

    One that lacks files of the job, in which nothing was changed since the job began, at ``began_ns`` (0:
    that is not known), is another directory: say, the place of a mount, whose disk is not mounted. One that
    was emptied, copied, moved, or made anew has changed since, whatever device and inode it has. A bucket
    is not looked at.

    ``stored``: at least one item is, in DEST itself. ``has_all``: says whether DEST has all of them, where
    it has fewer files than there are items: items may share one, or have none.
    """
    if is_bucket(output):
        return
    if not os.path.lexists(output):
        raise DestinationError(
            f"{output} is not there, and this job has stored files in it: mount what they are on, or put "
            "it back, then run the same command again (if they are lost, run "
            f"`{shlex.join(['mkdir', '-p', output])}` first)"
        )
    try:
        found = os.stat(output)
        if not began_ns or found.st_ctime_ns >= began_ns or not _is_as_before(output, began_ns, stored):
            return
        # Of a clock that was set back nothing can be told: what was changed seems older than the job.
        if time.time_ns() < began_ns or has_all():
            return
        state = "is empty" if is_empty(output) else "lacks files of this job"
    except (DestinationError, OSError):
        return  # who opens it says why
    raise DestinationError(
        f"{output} {state}, and is as it was before this job began, so its files are elsewhere: mount "
        "what they are on, or put it back, then run the same command again (if they are lost, run "
        f"`{shlex.join(['touch', output])}` first)"
    )


def _is_as_before(output: str, began_ns: int, files: int) -> bool:
    """Return whether nothing below ``output`` has changed since ``began_ns``, and it has fewer ``files``.

    A job that kept the files that it found has changed nothing. Of many entries the first ones count.
    """
    folders, looked, found = [output], 0, 0
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name == HOME:
                    continue
                looked += 1
                found += entry.is_file(follow_symlinks=False)
                changed_ns = entry.stat(follow_symlinks=False).st_ctime_ns
                if changed_ns >= began_ns or found >= files or looked > _ENTRIES:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return True


def leads_to(recorded: str, output: str) -> bool:
    """Return whether ``recorded``, the DEST that a journal elsewhere has, is ``output``.

    Whoever moves DEST may leave a link to it where it was.
    """
    if recorded == output or not recorded or is_bucket(recorded) or is_bucket(output):
        return is_same_place(recorded, output)
    return os.path.realpath(recorded) == os.path.realpath(output)


def moved(recorded: str, output: str) -> str:
    """Return what to do if ``recorded``, see ``leads_to``, was moved to ``output``; "" if it is there."""
    if not recorded or not output or is_bucket(recorded) or is_bucket(output) or os.path.lexists(recorded):
        return ""
    link = shlex.join(["ln", "-s", os.path.realpath(output), recorded])
    return f"; nothing is there: if it was moved, run `{link}`, then the same command again"


def foreign_before(output: str) -> int:
    """Return ``core.ownership.Rules.foreign_before_ns`` of a job that begins now."""
    return 0 if is_empty(output) else clock_of(output)


def began_at(output: str, *, made: bool) -> int:
    """Return ``JobSpec.began_ns`` of a job that begins now; ``made``: this run has made ``output``.

    Then it is not older than the job, though nothing may be stored in it for long.
    """
    return os.stat(output).st_ctime_ns if made else clock_of(output)


def clock_of(output: str) -> int:
    """Return the time in ns by the clock of the file system, which stamps files."""
    with tempfile.TemporaryFile(dir=output) as stamped:
        return os.fstat(stamped.fileno()).st_ctime_ns


def is_empty(output: str) -> bool:
    with os.scandir(output) as entries:
        return all(entry.name == HOME for entry in entries)


def is_apart(config: OutputOptions) -> bool:
    """Return whether the journal is in another directory than the destination."""
    return os.path.realpath(config.journal_root) != os.path.realpath(config.local_output)


def shown_output(config: OutputOptions) -> str:
    """Return DEST where the journal is elsewhere, "" if it is in DEST."""
    if config.is_bucket:
        return config.output
    return os.path.realpath(config.output) if is_apart(config) else ""
