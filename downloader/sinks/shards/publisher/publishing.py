"""Publish one shard: the rows of its items and its stats first, the names of its samples last.

Every file is written under a temporary name and renamed, and what is written depends on the job alone. So a
kill at any instant, followed by the same job, ends as if there had been no kill. The part is what tells the
two apart: it is removed, or given its final name, in the last step.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Container, Sequence
from operator import attrgetter
from typing import Any, BinaryIO, Protocol, cast

import msgspec

from downloader.core.column_types import ColumnTypes
from downloader.files.directory import Directory as Home
from downloader.files.directory import Entry, check_same, open_directory
from downloader.sinks.shards.jobs import FailedItem, PublishedShard, PublisherSettings, ShardJob
from downloader.sinks.shards.publisher.items import Items
from downloader.sinks.shards.publisher.part import Part, PartError, Sample
from downloader.sinks.shards.publisher.sample_files import HashedFile, groups, write_parquet, write_tar
from downloader.sinks.shards.publisher.tables import form_of_items
from downloader.sinks.shards.records import (
    MOST_FORMER,
    OtherFile,
    Ours,
    ShardRecord,
    sound_record,
    write_record,
)
from downloader.sinks.shards.stats import (
    FileStats,
    ShardStats,
    file_name,
    items_name,
    make_stats,
    read_stats,
    stats_name,
)
from downloader.sinks.shards.ustar import END
from downloader.sinks.taken_names import give_name

__all__ = ["Directory", "Place", "publish"]

_by_key = attrgetter("key")
_MANY_FORMER = 20  # files of attempts that were killed; of more, it is looked which are there
_PIECE = 1 << 20


class Place(Protocol):
    """Where shards are published: a directory or a bucket."""

    def temporary(self, name: str) -> Entry:
        """Return where the file ``name`` is written."""

    def can_take(self, path: Entry) -> bool:
        """Return whether ``publish`` accepts ``path``, which is not one of ``temporary``."""

    def publish(self, path: Entry, name: str, md5: str, ours: Ours, existing: str) -> bool:
        """Give the complete file ``path`` its name; return whether it replaced a file of somebody else.

        ``md5``: that of the file, in hexadecimal, or "". ``ours``: what an earlier attempt at the shard may
        have left under the name. ``existing``: see --existing; raises NameTaken if it forbids that.
        Afterwards a path of ``temporary`` is gone.
        """

    def remove(self, name: str, ours: Ours) -> None:
        """Remove the file ``name``, which the shard does not have any more, if it is ``ours``."""

    def has(self, file: OtherFile) -> bool:
        """Return whether ``file`` is there, as it was made."""

    def record(self, stats: bytes, name: str) -> None:
        """Note that all files of the shard are published whose stats have this name."""

    def published(self, name: str) -> ShardStats | None:
        """Return the stats of this name if all files of their shard are published."""


def publish(job: ShardJob, settings: PublisherSettings, place: Place, home: Home) -> PublishedShard:
    """Publish ``job``, whose part is below ``home``, and return its files.

    Raises OSError, and PartError if the part is damaged, or missing and not published either. Then nothing
    is left but what is complete, and the part if there was one.
    """
    with contextlib.ExitStack() as stack:
        part = None
        job_files = _Files(job, settings, place, home)
        stack.callback(job_files.discard)
        if job_files.has_part():
            part = stack.enter_context(job_files.open_part())
        elif job.count > len(job.failed):
            stats = place.published(stats_name(job.number))
            if stats is None or stats.count != job.count:
                raise PartError("it is missing, and its shard is not published")
            return PublishedShard(job.number, stats.files)
        job_files.write(part)
        job_files.publish()
        return PublishedShard(job.number, job_files.with_samples, job_files.replaced)


class _Files:
    """The files of a shard, from the first temporary one to the last rename."""

    def __init__(self, job: ShardJob, settings: PublisherSettings, place: Place, home: Home) -> None:
        self._job = job
        self._part = home / os.path.relpath(job.part, home)
        self._settings = settings
        self._place = place
        self._form = form_of_items()
        self._hash: Any = None  # of the part, where it becomes the shard
        self._is_shard = False
        self._temporary: dict[str, Entry] = {}  # by name
        self._rename_part = ""
        self._end = 0
        self._stats = b""
        self._home = home
        self._others: list[OtherFile] = []
        self._sums = b""
        self.with_samples: list[FileStats] = []
        self.replaced = 0

    def has_part(self) -> bool:
        return self._part.exists()

    def open_part(self) -> Part:
        settings, path = self._settings, self._part
        plain = settings.store == "tar" and settings.compression == "none" and not settings.reproducible
        small = not settings.max_size or path.size() + len(END) <= settings.max_size
        if not (plain and small and self._place.can_take(path)):
            return Part(path)
        self._is_shard = True
        if not settings.hashed:
            return Part(path)
        import hashlib

        self._hash = hashlib.md5(usedforsecurity=False)
        return Part(path, self._hash.update)

    def write(self, part: Part | None) -> None:
        """Write all files under temporary names, or find that the part itself can be renamed."""
        job, store = self._job, self._settings.store
        samples, failed, keys = _in_order(job, part)
        items = Items(part, samples, failed, keys, ColumnTypes.decode(job.types))
        files: dict[str, str] = {}
        if part is not None and samples:
            self._write_samples(part, items, samples, files)
        name = items_name(job.number, store, self._form)
        where = self._rename_part or files
        self._write_other(name, lambda file: items.write(file, self._form, where, store == "tar"))
        stats = make_stats(job, sum([sample.content_size for sample in samples]), self.with_samples)
        self._stats = msgspec.json.format(msgspec.json.encode(stats), indent=2) + b"\n"
        self._write_other(stats_name(job.number), lambda file: file.write(self._stats))
        self._sums = part.sums(samples) if part is not None and store == "tar" else b""

    def _write_other(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        with self._begin(name) as file:
            out = HashedFile(file)
            write(cast(BinaryIO, out))
        self._others.append(OtherFile(name, out.md5, out.size))

    def _write_samples(
        self, part: Part, items: Items, samples: Sequence[Sample], files: dict[str, str]
    ) -> None:
        settings, number = self._settings, self._job.number
        if self._is_shard:
            name = file_name(number, 0, "tar", "none")
            self._rename_part, self._end = name, part.end
            md5 = ""
            if self._hash is not None:
                self._hash.update(END)
                md5 = self._hash.hexdigest()
            self.with_samples = [FileStats(name, md5, len(samples), part.end + len(END))]
            return
        first = 0
        for index, group in enumerate(groups(samples, settings.max_size)):
            name = file_name(number, index, settings.store, settings.compression)
            with self._begin(name, buffering=0) as file:
                out = HashedFile(file, hashed=settings.hashed)
                if settings.store == "parquet":
                    write_parquet(out, part, items, first, group)
                else:
                    write_tar(out, part, group, settings.compression, without_times=settings.reproducible)
            self.with_samples.append(FileStats(name, out.md5, len(group), out.size, out.crc32))
            files.update(dict.fromkeys([sample.key for sample in group], name))
            first += len(group)

    def _begin(self, name: str, *, buffering: int = -1) -> BinaryIO:
        path = self._temporary[name] = self._place.temporary(name)
        return path.writer(0o666, buffering=buffering)

    def publish(self) -> None:
        """Publish what was written; the file with the shard's own name last."""
        job, place = self._job, self._place
        if self._rename_part:
            # The part is whole, or has the beginning of an end that was cut off by a kill.
            with open(self._part.open(os.O_RDWR), "r+b") as file:
                file.seek(self._end)
                file.write(END)
                file.truncate()
        # Before the part is gone, from which it could be made again.
        files = self.with_samples
        earlier = sound_record(self._home, job.number)  # without it, its files count as those of others
        stale = _stale(earlier, {*(each.name for each in files), *(each.name for each in self._others)})
        former = [*earlier.others, *earlier.former] if earlier is not None else []
        former = [*stale, *(each for each in former if each not in stale)]
        if len(former) > _MANY_FORMER:  # of most attempts, what was made is not there, or not any more
            former = [each for each in former if place.has(each)][:MOST_FORMER]
        record = ShardRecord(files, self._others, self._sums, former, self._stats, job.stored)
        ours = Ours([record, *([earlier] if earlier is not None else [])])
        write_record(self._home, job.number, record)
        samples = {file.name: file.md5 for file in self.with_samples}
        for name in [name for name in self._temporary if name not in samples]:
            self._publish(name, "", ours)
        for name, md5 in reversed(samples.items()):
            self._publish(name, md5, ours)
        for each in stale:
            place.remove(each.name, Ours([ShardRecord([], [each])]))
        place.record(self._stats, stats_name(job.number))
        self._part.unlink(missing_ok=True)

    def _publish(self, name: str, md5: str, ours: Ours) -> None:
        path = self._part if name == self._rename_part else self._temporary[name]
        self.replaced += self._place.publish(path, name, md5, ours, self._settings.existing)
        self._temporary.pop(name, None)

    def discard(self) -> None:
        """Remove the temporary files that are left."""
        for path in self._temporary.values():
            with contextlib.suppress(OSError):
                path.unlink()
        self._temporary.clear()


def _stale(earlier: ShardRecord | None, names: Container[str]) -> list[OtherFile]:
    """Return the files of an earlier attempt that the shard, of files with ``names``, does not have.

    A shard that is published anew may be cut into fewer files.
    """
    if earlier is None:
        return []
    known = [*(OtherFile(file.name, file.md5, file.size) for file in earlier.files), *earlier.former]
    return [each for each in known if each.md5 and each.name not in names]


def _in_order(job: ShardJob, part: Part | None) -> tuple[list[Sample], list[FailedItem], list[str]]:
    """Return samples, failed items, and the keys of both, each in the order of the keys.

    Keys of digits are in the order of their numbers, whatever their length.
    """
    samples = sorted(part.samples, key=_by_key) if part is not None else []
    failed = sorted(job.failed, key=_by_key)
    keys = sorted([*map(_by_key, samples), *map(_by_key, failed)])
    if len(keys) != job.count:
        raise PartError(f"it has {len(samples)} samples, and {job.count - len(failed)} are expected")
    if "".join(keys).isdecimal() and len({len(key) for key in keys}) > 1:
        for each in (samples, failed):
            each.sort(key=lambda found: len(found.key))
        keys.sort(key=len)
    if len(set(keys)) != len(keys):
        twice = next(key for key, other in itertools.pairwise(keys) if key == other)
        raise PartError(f"the key {twice} is in it twice")
    return samples, failed, keys


class Directory:
    """See ``Place``. Temporary names stand beside the final ones."""

    def __init__(self, root: str, which: tuple[int, int]) -> None:
        self._root = open_directory(root)
        # Whatever has its path by now: what the run has stored is in the one that it holds open.
        check_same(self._root.fd, root, which)

    def temporary(self, name: str) -> Entry:
        return self._root / f".downloader-{name}"

    def can_take(self, path: Entry) -> bool:
        found = path.stat()
        return found is not None and found.st_dev == os.fstat(self._root.fd).st_dev

    def publish(self, path: Entry, name: str, md5: str, ours: Ours, existing: str) -> bool:
        try:
            return self._give_name(path, name, ours, existing)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        # One device, and yet nothing can be renamed: two mounts of it, or directories of two quotas.
        copy = self.temporary(name)
        try:
            with path.reader() as whole, copy.writer(0o666) as file:
                shutil.copyfileobj(whole, file, _PIECE)
            return self._give_name(copy, name, ours, existing)
        except BaseException:
            with contextlib.suppress(OSError):
                copy.unlink()
            raise

    def _give_name(self, path: Entry, name: str, ours: Ours, existing: str) -> bool:
        return give_name(path, self._root / name, str(self._root), existing, ours.has)

    def remove(self, name: str, ours: Ours) -> None:
        path = self._root / name
        if path.exists() and ours.has(path):
            path.unlink()

    def has(self, file: OtherFile) -> bool:
        path = self._root / file.name
        return path.exists() and Ours([ShardRecord([], [file])]).has(path)

    def record(self, stats: bytes, name: str) -> None:
        """Do nothing: the stats are beside the shard."""

    def published(self, name: str) -> ShardStats | None:
        stats = read_stats(self._root / name)
        if stats is not None and all((self._root / each.name).size() == each.size for each in stats.files):
            return stats
        return None
