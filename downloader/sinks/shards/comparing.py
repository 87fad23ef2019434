"""Compare all that was published of shards with what is there: samples, rows, stats and indexes.

What a record (``records``) says is compared; of a shard without one, what its stats say, and of one whose
record is damaged as well, which is named then. Readers of a tar
end at the first damaged header, in silence or not. So all samples count as damaged that are only in a shard
one of whose files is not what was published, and such a file is named as long as it is there. A file that
is not what was published is not trusted: no more of it is read than was published, a compressed one is
decompressed up to --shard-size only, and a Parquet file is not opened.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from downloader.core.bucket_place import is_bucket
from downloader.core.shard_keys import index_width, name_keys, possible_name_keys
from downloader.files.directory import Directory, UnsafeFile
from downloader.sinks.shards.files import INDEX, SIZES, STATS, unseal
from downloader.sinks.shards.indexes import Compared, Indexed, index_lines, sizes_lines
from downloader.sinks.shards.options import ShardOptions
from downloader.sinks.shards.places import PublishedFiles
from downloader.sinks.shards.reading import DigestingFile, SeenSample, TarReading, read_parquet, read_tar
from downloader.sinks.shards.records import (
    DamagedRecord,
    OtherFile,
    ShardRecord,
    read_record,
    record_name,
    unpack_sums,
)
from downloader.sinks.shards.stats import FileStats, file_name, stats_name
from downloader.sinks.sink import REWRITTEN, SUPERSEDED, Written

__all__ = ["JobComparison", "ShardComparison"]

_SHARDS_IN_MEMORY = 4
_MISSING = "missing"
_CHANGED = "changed since it was published"
_DAMAGED = (
    "damaged, so rows and stats of its shard were compared with nothing; remove it to leave it at that"
)


class _Shard(NamedTuple):
    """A shard that was read: its samples, and its files that are not what was published.

    ``strange``: names of files that it does not have; ``missing``: of files with samples that are gone.
    """

    samples: dict[str, SeenSample]
    changed: list[str]
    strange: list[str]
    missing: list[str]

    @property
    def is_whole(self) -> bool:
        return not (self.changed or self.missing)


class ShardComparison:
    """A comparison of the shards that are ``files``; see ``sinks.sink.Comparison``.

    ``record``: returns the record of a shard, None if it has none. Raises OSError, DestinationError where
    the disk fails.
    """

    def __init__(
        self,
        files: PublishedFiles,
        store: str,
        options: ShardOptions,
        record: Callable[[int], ShardRecord | None],
    ) -> None:
        self._files = files
        self._store = store
        self._options = options
        self._record = record
        self._width = index_width(options.files)
        self._read: OrderedDict[int, _Shard] = OrderedDict()
        self._compared: set[int] = set()
        self._anew: set[int] = set()
        self._damaged: set[int] = set()  # shards whose records are
        self.unrecorded = 0
        """How many shards have no record."""
        self.is_behind = False
        """Whether shards were published since the indexes were written, so that these are not compared."""

    # items

    def batch(self, written: Sequence[Written], names: Sequence[str]) -> list[str]:
        """Return what is wrong with each of the ``written`` items of a batch, "" if nothing is.

        ``names`` are those of all its items.
        """
        keys = name_keys(names) if self._options.by_name else []
        return [self._item(each, keys) for each in written]

    def _item(self, written: Written, keys: Sequence[str]) -> str:
        if not written.shards:
            return "in no shard"
        if keys:
            key = keys[written.index]
        elif self._options.by_name:
            key = possible_name_keys(written.name, written.index)[0]
        else:
            key = f"{written.shards[0]:05d}{written.index:0{self._width}d}"
        return self.problem(key, written.shards, (written.size, written.crc))

    def problem(self, key: str, shards: Sequence[int], content: tuple[int, int]) -> str:
        """Return what is wrong with the sample ``key``, which is in one of ``shards``.

        ``content``: its size and its CRC-32.
        """
        problem = _MISSING
        for shard in shards:
            read = self._shard(shard)
            found = read.samples.get(key)
            if found is None or ((found.size, found.crc) == content and found.intact):
                if found is not None and read.is_whole:
                    return ""
                if not read.is_whole and (found is not None or read.changed):
                    problem = f"{(read.changed or read.missing)[0]} is not what was published"
                continue
            problem = f"changed since it was stored in shard {shard:05d}"
        return problem

    # files

    def left(self, shard: int) -> list[tuple[str, str]]:
        """Return the files of ``shard`` that are not what was published, besides its samples.

        Each with what is wrong. Nothing of a shard whose files are all gone: its samples are found missing,
        or are elsewhere.
        """
        if shard in self._compared:
            return []
        self._compared.add(shard)
        stated = self._stated(shard)
        if stated.files and not any(self._files.has(name) for name in stated.names):
            return []
        read = self._shard(shard)
        what = REWRITTEN if shard in self._anew else SUPERSEDED
        return [
            *((name, (_CHANGED if self._files.has(name) else _MISSING) + what) for name in read.changed),
            *((name, f"not a file of this shard{SUPERSEDED}") for name in read.strange),
            *self._others(shard, stated),
        ]

    def publish_anew(self, shards: Sequence[int]) -> list[int]:
        """Return which of ``shards`` are to be published anew, since samples of their batch are damaged."""
        found = [shard for shard in shards if not self._shard(shard).is_whole]
        self._anew.update(found)
        return found

    def _stated(self, shard: int) -> ShardRecord:
        """Return what is known of the files of ``shard``."""
        if (record := self._record(shard)) is not None:
            return record
        stats = self._files.stats(shard)
        return ShardRecord(stats.files) if stats is not None else ShardRecord([])

    def _others(self, shard: int, stated: ShardRecord) -> Iterator[tuple[str, str]]:
        self.unrecorded += bool(stated.files) and not stated.others and shard not in self._damaged
        for other in stated.others:
            if problem := self._problem_of(other):
                yield other.name, problem

    def _problem_of(self, other: OtherFile) -> str:
        if self._files.is_gone(other.name):
            return _MISSING
        if other.size < 0:
            return ""
        try:
            with self._files.open(other.name) as file:
                digesting = DigestingFile(file, other.size)
                digesting.finish()
        except UnsafeFile:
            return _CHANGED
        agrees = (digesting.size, digesting.md5) == (other.size, other.md5 or digesting.md5)
        return "" if agrees else _CHANGED

    def indexes(self, files: Sequence[FileStats]) -> list[tuple[str, str]]:
        """Return which indexes do not have ``files``, all files with samples in order: name and problem."""
        found = []
        for name, lines in ((INDEX, index_lines(files)), (SIZES, sizes_lines(files))):
            if not files:
                continue
            if self._files.is_gone(name):
                found.append((name, _MISSING + REWRITTEN))
                continue
            try:
                with self._files.open(name) as file:
                    agrees = all(file.read(len(line)) == line for line in lines) and not file.read(1)
            except UnsafeFile:
                agrees = False
            if not agrees:
                found.append((name, f"does not agree with the shards{REWRITTEN}"))
        return found

    def files_of(self, shard: int) -> list[FileStats] | None:
        """Return the files with samples of ``shard``, None if they are not all there: no index has them."""
        files = self._stated(shard).files
        return files if all(self._files.has(file.name) for file in files) else None

    # reading

    def _shard(self, shard: int) -> _Shard:
        if shard not in self._read:
            self._read[shard] = self._read_shard(shard)
            if len(self._read) > _SHARDS_IN_MEMORY:
                self._read.popitem(last=False)
        return self._read[shard]

    def _read_shard(self, shard: int) -> _Shard:
        stated = self._stated(shard)
        by_name: dict[str, FileStats | None] = {file.name: file for file in stated.files}
        number = 0
        while (name := self._name(shard, number)) in by_name or self._files.has(name):
            by_name.setdefault(name, None)
            number += 1
        found = _Shard({}, [], [], [])
        for name, file in by_name.items():
            self._read_file(name, file, stated, found)
        if by_name and not self._is_known(shard):
            found.changed.append(stats_name(shard))  # after a power cut, all that says what was published
        elif shard in self._damaged and not self._is_known(shard):
            found.missing.append(self._name(shard, 0))  # moved away, to be published anew
        return found

    def _is_known(self, shard: int) -> bool:
        return self._record(shard) is not None or self._files.stats(shard) is not None

    def _name(self, shard: int, number: int) -> str:
        return file_name(shard, number, self._store, self._options.compression)

    def _read_file(self, name: str, stated: FileStats | None, record: ShardRecord, shard: _Shard) -> None:
        """Add the samples of a file to ``shard``, and its name if it is not what was published."""
        if self._files.is_gone(name):
            shard.missing.append(name)
            return
        if stated is None and record.others:
            shard.strange.append(name)
            return
        try:
            if self._store == "parquet":
                found, count, whole = self._parquet(name, stated)
            else:
                found, count, whole = self._tar(name, stated, record)
        except UnsafeFile:  # what is not a file has no samples
            found, count, whole = {}, 0, False
        shard.samples.update(found)
        if stated is not None and not (whole and count == stated.samples):
            shard.changed.append(name)

    def _tar(
        self, name: str, stated: FileStats | None, record: ShardRecord
    ) -> tuple[Mapping[str, SeenSample], int, bool]:
        sums = unpack_sums(record.sums) if record.sums else None
        reading, digesting = self._read_tar(name, stated, sums, self._options.size)
        if reading.cut and stated is not None and _may_be_larger(digesting, stated):
            reading, digesting = self._read_tar(name, stated, sums, sys.maxsize)
        return reading.samples, reading.count, _is_whole(digesting, stated, exact=reading.exact)

    def _read_tar(
        self, name: str, stated: FileStats | None, sums: frozenset[int] | None, most: int
    ) -> tuple[TarReading, DigestingFile]:
        with self._files.open(name) as file:
            digesting = DigestingFile(file, stated.size if stated is not None else -1)
            reading = read_tar(digesting, name, sums, most)
            digesting.finish()
        return reading, digesting

    def _parquet(self, name: str, stated: FileStats | None) -> tuple[Mapping[str, SeenSample], int, bool]:
        with self._files.open(name) as file:
            if stated is not None:
                digesting = DigestingFile(file, stated.size)
                digesting.finish()
                if not _is_whole(digesting, stated, exact=True):
                    return {}, 0, False
                file.seek(0)
            found = dict(read_parquet(file, vouched=stated is not None))
        return found, len(found), True


class JobComparison(ShardComparison):
    """That of a job on one machine, whose own files are in ``home``; see ``sinks.sink.Comparison``.

    ``root``: DEST, a directory or ``s3://…``.
    """

    def __init__(
        self, files: PublishedFiles, store: str, options: ShardOptions, home: Directory, root: str
    ) -> None:
        super().__init__(files, store, options, self._read_record)
        self._home = home
        self._in_bucket = is_bucket(root)
        self._indexed = Indexed(home, Path(home if self._in_bucket else root))
        self._changed_stats: list[int] = []

    def _read_record(self, shard: int) -> ShardRecord | None:
        try:
            return read_record(self._home, shard)
        except DamagedRecord:
            self._damaged.add(shard)
            return None

    def _is_there(self, shard: int) -> bool:
        """Return whether a file of ``shard``, which has no record, has its name."""
        return self._files.has(self._name(shard, 0)) or self._files.has(stats_name(shard))

    def left(self, shard: int) -> list[tuple[str, str]]:
        is_compared = shard in self._compared
        name, found = stats_name(shard), dict(super().left(shard))
        if shard in self._damaged and not is_compared and self._is_there(shard):
            found[record_name(self._home, shard)] = _DAMAGED + (REWRITTEN if shard in self._anew else "")
        if name in found:
            self._changed_stats.append(shard)
            record = self._record(shard)
            if record is not None and record.stats:
                found[name] += REWRITTEN
        return list(found.items())

    def publish_anew(self, shards: Sequence[int]) -> list[int]:
        """See ``sinks.sink.Comparison``. Let nothing in the home say that they are published."""
        found = super().publish_anew(shards)
        if found and not self._home.is_read_only():
            self._indexed.renew()
            for shard in found:
                unseal(self._home, shard)
                (self._home / STATS / stats_name(shard)).unlink(missing_ok=True)
        return found

    def finish(
        self, shards: Sequence[int], damaged: Sequence[int], *, complete: bool
    ) -> list[tuple[str, str]]:
        """See ``sinks.sink.Comparison``. Let the next run write again what it can."""
        files = {shard: self.files_of(shard) for shard in shards}
        writable = not self._home.is_read_only()
        if self._in_bucket and writable:
            lost = [shard for shard, found in files.items() if found is None and shard not in self._anew]
            Compared(lost, sorted(self._changed_stats)).note(self._home)
        if not self._indexed.counts(len(shards)):
            if self._indexed.counts(len(shards) + len(damaged)):  # no run has been at work since
                files |= {shard: self.files_of(shard) for shard in damaged}
            elif not complete:
                self.is_behind = bool(shards)
                return []
        wrong = self.indexes([file for _, found in sorted(files.items()) for file in found or ()])
        if (wrong or self._changed_stats) and writable:
            self._indexed.renew()
        return wrong


def _may_be_larger(found: DigestingFile, stated: FileStats) -> bool:
    """Return whether a file of which more than --shard-size comes out may be what was published.

    Then its digest is right; without one, it has one sample, as only such a shard may be so large.
    """
    has_digest = bool(stated.md5) or stated.crc32 >= 0
    return (has_digest or stated.samples == 1) and _is_whole(found, stated, exact=True)


def _is_whole(found: DigestingFile, stated: FileStats | None, *, exact: bool) -> bool:
    """Return whether a file is what was published; without a digest, whether it is ``exact``."""
    if stated is None:
        return True
    if found.size != stated.size:
        return False
    if stated.md5:
        return found.md5 == stated.md5
    return found.crc32 == stated.crc32 if stated.crc32 >= 0 else exact
