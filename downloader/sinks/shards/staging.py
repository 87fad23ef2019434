"""Give the shards of a slice their final names, once it is decided that they count.

A slice of a larger job may be run by several attempts, which can overlap. Each publishes its shards under
their final names in a place of its own, its staging: ``DEST/.downloader/attempts/SLICE.ID``. Those of the
attempt that counts are moved to DEST, one file after another, those with samples last. Every step may be
repeated, also by two processes at a time: what has moved is in DEST, and nothing else moves there.

``StagingDirectory`` does it for directories, ``staging_bucket`` for buckets.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from downloader.errors import DestinationError
from downloader.sinks.failing import advice
from downloader.sinks.shards.stats import FileStats, items_name, read_stats, stats_name
from downloader.sinks.stored import md5_of_file

__all__ = [
    "ATTEMPTS",
    "OtherFile",
    "StagedShard",
    "Staging",
    "StagingDirectory",
    "missing_text",
    "staged_shard",
    "staging_path",
]

ATTEMPTS = ".downloader/attempts"


class OtherFile(msgspec.Struct, frozen=True):
    """A file of a shard without samples, its rows or its stats. ``md5``, ``size``: "", -1 if not known."""

    name: str
    md5: str = ""
    size: int = -1


class StagedShard(msgspec.Struct, frozen=True):
    """A shard that an attempt has published: its number, its files with samples, and the others."""

    number: int
    files: list[FileStats]
    others: list[OtherFile]

    def in_order(self) -> list[OtherFile]:
        """Return all files in the order in which they move: those with samples last, the first one last."""
        samples = [OtherFile(file.name, file.md5, file.size) for file in reversed(self.files)]
        return [*self.others, *samples]


class Staging(Protocol):
    """What attempts have published and DEST does not have yet. Every method raises DestinationError."""

    def names(self) -> list[str]:
        """Return the names of all stagings that are there."""

    def move(self, name: str, shards: Iterable[StagedShard]) -> None:
        """Give the files of ``shards`` their final names, and remove the staging ``name``.

        Files that have them already are left alone.
        """

    def remove(self, names: Iterable[str]) -> None:
        """Remove these stagings with all that is in them."""


def staging_path(root: str, name: str) -> str:
    """Return the staging ``name`` of DEST ``root``: a directory, or a prefix of the bucket."""
    return f"{root.rstrip('/')}/{ATTEMPTS}/{name}"


def staged_shard(number: int, store: str, stats: Path, place: Path | None) -> StagedShard:
    """Return shard ``number``, whose stats are in the directory ``stats``.

    ``place``: the directory that has its other files, None if they are in a bucket. Raises OSError,
    DestinationError.
    """
    found = read_stats(os.fspath(stats / stats_name(number)))
    if found is None:
        raise DestinationError(f"{stats} has no stats of shard {number:05d}, which was published there")
    forms = ("parquet", "jsonl")
    if place is None:
        from downloader.core.extras import is_installed

        others = [OtherFile(items_name(number, store, forms[not is_installed("pyarrow")]))]
    else:
        names = [items_name(number, store, form) for form in forms]
        others = [_other(place / name) for name in names if (place / name).exists()]
    return StagedShard(number, found.files, [*others, _other(stats / stats_name(number))])


def _other(path: Path) -> OtherFile:
    return OtherFile(path.name, md5_of_file(path), path.stat().st_size)


def missing_text(root: str, name: str) -> str:
    """Return the message about a file that is neither in DEST nor in its staging."""
    return (
        f"{name}, which belongs to a slice that is done, is neither in {root} nor where the slice was "
        f"published; `downloader verify {root}` finds what it had, and the same command fetches that again"
    )


class StagingDirectory:
    """See ``Staging``. ``durable``: wait until the names are on the disk."""

    def __init__(self, root: str, *, durable: bool = False) -> None:
        self._root = root
        self._attempts = Path(root) / ATTEMPTS
        self._durable = durable

    def names(self) -> list[str]:
        try:
            return os.listdir(self._attempts)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(self._attempts, error) from error

    def move(self, name: str, shards: Iterable[StagedShard], *, last: bool = True) -> None:
        """See ``Staging``. Not ``last``: keep what else is there."""
        staging = self._attempts / name
        if not staging.exists():
            return
        try:
            for file in (file for shard in shards for file in shard.in_order()):
                self._move(staging / file.name, file)
            if self._durable:
                fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        except OSError as error:
            raise _failed(staging, error) from error
        if last:
            self.remove([name])

    def _move(self, path: Path, file: OtherFile) -> None:
        target = os.path.join(self._root, file.name)
        try:
            os.replace(path, target)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError):
                if os.path.getsize(target) == file.size:
                    return
            raise DestinationError(missing_text(self._root, file.name)) from None

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            # An attempt that is at work there makes this fail; whoever comes next removes the rest.
            shutil.rmtree(self._attempts / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._attempts.rmdir()


def _failed(path: Path, error: OSError) -> DestinationError:
    return DestinationError(f"{error.filename or path}: {advice(error)}")
