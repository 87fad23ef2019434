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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from downloader.core.file_errors import advice
from downloader.errors import DestinationError
from downloader.files.directory import Directory, Entry, open_directory, open_home
from downloader.sinks.shards.records import OtherFile, Ours, ShardRecord
from downloader.sinks.shards.stats import IS_OURS, FileStats, items_name, read_stats
from downloader.sinks.stored import md5_of_file
from downloader.sinks.taken_names import give_name

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

HOME = ".downloader"
_ATTEMPTS = "attempts"
ATTEMPTS = f"{HOME}/{_ATTEMPTS}"


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

    def move(self, name: str, shards: Iterable[StagedShard]) -> int:
        """Give the files of ``shards`` their final names, and remove the staging ``name``.

        Files that have them already are left alone. Return how many files of somebody else were replaced.
        Raises NameTaken where --existing forbids that.
        """

    def remove(self, names: Iterable[str]) -> None:
        """Remove these stagings with all that is in them."""


def staging_path(root: str, name: str) -> str:
    """Return the staging ``name`` of DEST ``root``: a directory, or a prefix of the bucket."""
    return f"{root.rstrip('/')}/{ATTEMPTS}/{name}"


def staged_shard(
    number: int, store: str, stats: Entry, place: Directory | None, record: ShardRecord | None = None
) -> StagedShard:
    """Return shard ``number``, which has ``stats``, and perhaps a ``record``.

    ``place``: the directory that has its other files, None if they are in a bucket. Raises OSError,
    DestinationError.
    """
    found = read_stats(stats)
    if found is None:
        raise DestinationError(f"{stats} is missing, or damaged; its shard was published there")
    if record is not None and record.others:
        return StagedShard(number, found.files, record.others)
    forms = ("parquet", "jsonl")
    if place is None:
        from downloader.core.extras import is_installed

        others = [OtherFile(items_name(number, store, forms[not is_installed("pyarrow")]))]
    else:
        names = [items_name(number, store, form) for form in forms]
        others = [_other(place / name) for name in names if (place / name).exists()]
    return StagedShard(number, found.files, [*others, _other(stats)])


def _other(path: Entry) -> OtherFile:
    with path.reader() as file:
        return OtherFile(path.leaf, md5_of_file(file), os.fstat(file.fileno()).st_size)


def missing_text(root: str, name: str) -> str:
    """Return the message about a file that is neither in DEST nor in its staging."""
    return (
        f"{name}, which belongs to a slice that is done, is neither in {root} nor where the slice was "
        f"published; `downloader verify {root}` finds what it had, and the same command fetches that again"
    )


class StagingDirectory:
    """See ``Staging``. ``durable``: wait until the names are on the disk. ``existing``: see --existing."""

    def __init__(self, root: str, *, durable: bool = False, existing: str = "replace") -> None:
        self._root = root
        self._existing = existing
        self._durable = durable

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Directory, Directory]]:
        """Open DEST and the home in it."""
        with open_directory(self._root) as root, open_home(Path(self._root) / HOME) as home:
            yield root, home

    def names(self) -> list[str]:
        try:
            with self._opened() as (_, home):
                return (home / _ATTEMPTS).names()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failed(self._root, error) from error

    def make(self, name: str) -> None:
        """Make the staging ``name``."""
        try:
            with open_home(Path(self._root) / HOME, create=True) as home:
                (home / _ATTEMPTS).make_directory()
                (home / _ATTEMPTS / name).make_directory()
        except OSError as error:
            raise _failed(staging_path(self._root, name), error) from error

    def has(self, name: str) -> bool:
        """Return whether the staging ``name`` is there."""
        try:
            with self._opened() as (_, home):
                return (home / _ATTEMPTS / name).is_directory()
        except FileNotFoundError:
            return False

    def move(self, name: str, shards: Iterable[StagedShard], *, last: bool = True) -> int:
        """See ``Staging``. Not ``last``: keep what else is there."""
        replaced = 0
        try:
            with self._opened() as (root, home):
                staging = home / _ATTEMPTS / name
                if not staging.is_directory():
                    return 0
                for shard in shards:
                    ours = Ours([ShardRecord(shard.files, shard.others)])
                    for file in shard.in_order():
                        replaced += self._move(staging / file.name, root / file.name, file.size, ours)
                if self._durable:
                    root.sync()
        except FileNotFoundError:
            return 0  # there is no home
        except OSError as error:
            raise _failed(staging_path(self._root, name), error) from error
        if last:
            self.remove([name])
        return replaced

    def _move(self, staged: Entry, target: Entry, size: int, ours: Ours) -> bool:
        if not IS_OURS(target.name):
            raise DestinationError(
                f"{target.name!r}, which a slice has published, is not the name of a shard; the plan is "
                "damaged, --restart begins anew"
            )
        try:
            # Where it is not staged any more, another process has just moved a file of the same content.
            return give_name(
                staged, target, self._root, self._existing, lambda at: not staged.exists() or ours.has(at)
            )
        except FileNotFoundError:
            if target.size() == size:
                return False
            raise DestinationError(missing_text(self._root, target.name)) from None

    def remove(self, names: Iterable[str]) -> None:
        with contextlib.suppress(OSError), self._opened() as (_, home):
            for name in names:
                # An attempt that is at work there makes this fail; whoever comes next removes the rest.
                with contextlib.suppress(OSError):
                    (home / _ATTEMPTS / name).remove_tree()
            with contextlib.suppress(OSError):
                os.rmdir(_ATTEMPTS, dir_fd=home.fd)


def _failed(path: str, error: OSError) -> DestinationError:
    return DestinationError(f"{error.filename or path}: {advice(error)}")
