"""Write the indexes of a whole dataset from the records of its shards.

``shards.json`` is what wids reads (``wids-shard-index-v1``, written by ``wids_index.py`` of webdataset
0.2.111), ``sizes.json`` what open_clip reads. The supervisor calls this, so it imports neither pyarrow nor
gevent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from downloader.core.bucket_access import NO_OPTIONS, BucketAccess
from downloader.core.bucket_place import is_bucket
from downloader.core.file_errors import advice
from downloader.core.frames import pack
from downloader.errors import UNDECODABLE, DestinationError
from downloader.files.directory import Directory, Entry, UnsafeFile, open_directory
from downloader.process import isolation
from downloader.process.watching import STALL_TIMEOUT, Stalled, run_watched
from downloader.sinks.shards.files import COMPARED, INDEX, INDEXED, LARGEST_FILE, SIZES, STATS
from downloader.sinks.shards.jobs import PublisherSettings, bucket_settings
from downloader.sinks.shards.records import DamagedRecord, Ours, ShardRecord, read_record
from downloader.sinks.shards.stats import FileStats, read_stats, stats_name
from downloader.sinks.stored import md5_of_file
from downloader.sinks.taken_names import give_name

__all__ = ["Compared", "Indexed", "index_lines", "sizes_lines", "write_indexes", "write_indexes_of"]

_encode = msgspec.json.Encoder().encode
_LONGEST_NOTE = 1000
_DUE = b" to be written again\n"
_MD5_LENGTH = 32
_MOST_DIGESTS = 8  # of runs that were killed one after the other


class _Shard(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A shard in the index. wids needs no MD5."""

    url: str
    md5sum: str = ""
    nsamples: int
    filesize: int


class Indexed:
    """A note in ``home`` of what the indexes in ``directory`` have; they take seconds for 100,000 shards.

    It counts only as long as the indexes have the sizes that they had. Where they are to be written again,
    it still says for how many shards they were written: until then ``verify`` goes on to compare them.
    """

    def __init__(self, home: Directory, directory: Path) -> None:
        self._note = home / INDEXED
        self._directory = directory

    def has(self, shards: int) -> bool:
        """Return whether the indexes were written when ``shards`` shards were published."""
        return self._read() == self._text(shards)

    def counts(self, shards: int) -> bool:
        """Return whether they were written then, whatever has become of them since."""
        return self._read().startswith(_count(shards))

    def _read(self) -> bytes:
        """Return the note, b"" if there is none."""
        try:
            return self._note.read(_LONGEST_NOTE)
        except UnsafeFile:
            raise
        except OSError:
            return b""

    def is_due(self, shards: int) -> bool:
        """Return whether they are to be written at the end of the next run, which has ``shards``."""
        return not self.counts(shards) or self._read().endswith(_DUE)

    def renew(self) -> None:
        """Have them written again at the end of the next run."""
        count, comma, _ = self._read().partition(b",")
        try:
            if comma:
                self._note.write(count + comma + _DUE)
        except OSError:  # no room for it
            self._note.unlink(missing_ok=True)

    def note(self, shards: int) -> None:
        """Note that the indexes have ``shards`` shards. Without the note they are written again."""
        with contextlib.suppress(OSError):
            self._note.write(self._text(shards))

    def _text(self, shards: int) -> bytes:
        sizes = [_size(self._directory / name) for name in (INDEX, SIZES)]
        return _count(shards) + f"indexes of {sizes} bytes\n".encode()


def _count(shards: int) -> bytes:
    return f"{shards} shards, ".encode()


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


class DamagedNote(DestinationError):
    """A note of the tool's own is there, and is not what was written."""


class Compared(msgspec.Struct, frozen=True):
    """What ``verify`` has found in a bucket, which a run need not be allowed to look at.

    ``lost``: the shards whose files with samples are not all there. ``stats``: those whose stats are not
    what was published.
    """

    lost: list[int] = []
    stats: list[int] = []

    @classmethod
    def read(cls, home: Directory) -> Compared:
        """Return what was noted in ``home`` last. Raises DamagedNote, OSError."""
        path = home / COMPARED
        try:
            return msgspec.json.decode(path.read(LARGEST_FILE), type=cls)
        except FileNotFoundError:
            return cls()
        except UNDECODABLE:
            raise DamagedNote(
                f"{path} is damaged, which says which shards are lost; verify, which finds that again, and "
                "run the same command again"
            ) from None

    def note(self, home: Directory) -> None:
        """Note it in ``home``, in place of what was noted, also of what is damaged. Raises OSError."""
        try:
            is_known = self == Compared.read(home)
        except DamagedNote:
            is_known = False
        if not is_known:
            (home / COMPARED).write(_encode(self))


def write_indexes(
    root: str,
    home: Directory,
    shards: Iterable[int],
    access: BucketAccess = NO_OPTIONS,
    *,
    store: str,
    existing: str = "replace",
    stall_timeout: float = STALL_TIMEOUT,
) -> int:
    """Write ``shards.json`` and ``sizes.json`` for ``shards``, which the job has published in ``root``.

    ``store``: their format.

    Both are sorted by the number of the shard, and replaced as a whole. A dataset without samples has
    neither, since wids refuses an empty one. What a shard has is in its record in ``home``; only of one
    that has none, its stats are asked. A shard whose files are gone is left out; of a bucket
    (``s3://…``), where a process of its own puts the indexes, ``verify`` has found which these are.

    Stats that are not what was published are written again. A record that is damaged is told at the end;
    the stats of its shard are asked.

    Return how many files of somebody else were replaced; ``existing``: see --existing. Raises
    DestinationError.
    """
    bucket = is_bucket(root)
    replaced = 0
    try:
        with contextlib.ExitStack() as opened:
            compared = Compared.read(home) if bucket else Compared()
            directory = None if bucket else opened.enter_context(open_directory(root))
            published = _Published(home, directory, compared, store)
            files = [file for shard in sorted(shards) for file in published.files(shard)]
            for name, record in published.stats.items():
                if directory is None:
                    (home / STATS).make_directory()
                    (home / STATS / name).write(record.stats)
                else:
                    replaced += _write_stats(directory, name, record, existing)
    except FileNotFoundError:
        raise _failed(root, "the destination was removed") from None
    except DestinationError:
        raise
    except OSError as error:
        raise _failed(root, advice(error)) from error
    replaced += write_indexes_of(
        files,
        root,
        home,
        access,
        existing=existing,
        stall_timeout=stall_timeout,
        stats=list(published.stats),
    )
    if bucket:
        Compared(compared.lost).note(home)
    if published.changed:
        raise _failed(root, published.changed)
    return replaced


class _Published:
    """What the job has published of each shard.

    ``stats``: the names of the stats that are to be written again, with the records that have them.
    ``changed``: that others cannot be, and what to do.
    """

    def __init__(
        self, home: Directory, directory: Directory | None, compared: Compared, store: str
    ) -> None:
        self._home = home
        self._directory = directory
        self._names = set(directory.names()) if directory is not None else None
        self._with_data = _shards_among(self._names or (), store)
        self._lost = frozenset(compared.lost)
        self._changed_stats = frozenset(compared.stats)
        self.stats: dict[str, ShardRecord] = {}
        self.changed = ""

    def files(self, shard: int) -> list[FileStats]:
        """Return the files with samples of ``shard``, none if they are not all there. Raises OSError."""
        if shard in self._lost:
            return []
        try:
            record = read_record(self._home, shard)
        except DamagedRecord as error:
            files = self._there(self._files_of_stats(shard))
            self.changed = self.changed or (str(error) if self._is_there(shard) else "")
            return files
        if record is None:
            return self._there(self._files_of_stats(shard))
        self._check_stats(shard, record)
        return self._there(record.files)

    def _there(self, files: list[FileStats]) -> list[FileStats]:
        return files if self._names is None or all(file.name in self._names for file in files) else []

    def _is_there(self, shard: int) -> bool:
        """Return whether there is a file of ``shard``, as far as a run may know that."""
        return self._names is None or stats_name(shard) in self._names or f"{shard:05d}" in self._with_data

    def _files_of_stats(self, shard: int) -> list[FileStats]:
        """Return what the stats of ``shard`` have, which has no record."""
        name = stats_name(shard)
        path = self._home / STATS / name if self._directory is None else self._directory / name
        try:
            stats = read_stats(path)
        except UnsafeFile:
            stats = None
        if stats is not None:
            return stats.files
        if path.exists() or f"{shard:05d}" in self._with_data:
            self._tell(name)
        return []

    def _check_stats(self, shard: int, record: ShardRecord) -> None:
        """Note if the stats of ``shard`` are not what ``record`` says, unless all of the shard is gone."""
        name = stats_name(shard)
        if self._directory is None or self._names is None:
            is_right = shard not in self._changed_stats
        elif record.files and not any(file.name in self._names for file in record.files):
            return
        else:
            is_right = _has_md5(self._directory / name, record)
        if is_right:
            return
        if record.stats:
            self.stats[name] = record
        elif self._names is not None and name in self._names:
            self._tell(name)

    def _tell(self, name: str) -> None:
        self.changed = self.changed or (
            f"{name} is not what was published, and cannot be written again; verify, and run the same "
            "command again, which publishes its shard anew"
        )


def _shards_among(names: Collection[str], store: str) -> set[str]:
    """Return the numbers of the shards of which ``names`` have a file of samples."""
    # Beside a tar, a table in Parquet has the rows.
    ends = (".parquet",) if store == "parquet" else (".tar", ".tar.gz", ".tar.zst")
    return {name.partition(".")[0].partition("-")[0] for name in names if name.endswith(ends)}


def _has_md5(path: Entry, record: ShardRecord) -> bool:
    """Return whether the file ``path`` is one of the others of ``record``."""
    try:
        content = path.read(LARGEST_FILE)
    except OSError:
        return False
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return any(other.name == path.leaf and other.md5 in ("", digest) for other in record.others)


def _write_stats(directory: Directory, name: str, record: ShardRecord, existing: str) -> bool:
    """Write the stats ``name`` again; return whether they replaced something else. Raises OSError."""
    path = directory / f".downloader-{name}"
    try:
        with path.writer(0o666) as file:
            file.write(record.stats)
        return give_name(path, directory / name, str(directory), existing, Ours([record]).has)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def write_indexes_of(
    files: list[FileStats],
    root: str,
    home: Directory,
    access: BucketAccess = NO_OPTIONS,
    *,
    existing: str = "replace",
    stall_timeout: float = STALL_TIMEOUT,
    stats: Sequence[str] = (),
) -> int:
    """Do the same for ``files``, which are all files with samples, in order. Raises DestinationError.

    ``stats``: the names of stats in ``home`` that are put into a bucket as well.
    """
    if not files:
        return 0
    replaced = 0
    bucket = is_bucket(root)
    try:
        with contextlib.ExitStack() as opened:
            target = home if bucket else opened.enter_context(open_directory(root))
            for name, lines in ((INDEX, index_lines(files)), (SIZES, sizes_lines(files))):
                replaced += _write(target, name, lines, None if bucket else home, existing)
        failure = _put(bucket_settings(root, str(home), access, stall_timeout), stats) if bucket else ""
    except OSError as error:
        failure = advice(error)
    if failure:
        raise _failed(root, failure)
    return replaced


def _failed(root: str, why: str) -> DestinationError:
    return DestinationError(f"cannot write the indexes of {root}: {why}")


def _put(settings: PublisherSettings, stats: Sequence[str]) -> str:
    """Put both files, and ``stats``, from the home into the bucket; return why that failed, or ""."""
    argv, env = isolation.child("downloader.sinks.shards.publisher.process:serve_put")
    names = [*stats, INDEX, SIZES]
    given = pack(msgspec.msgpack.encode(settings)) + pack(msgspec.msgpack.encode(names))
    try:
        status, answer = run_watched(argv, env, given, settings.stall_timeout, patient=True)
    except Stalled as error:
        return f"{error}; run the same command again"
    text = answer.decode("utf-8", "replace")
    return text or (f"the process for it ended with status {status}" if status else "")


def index_lines(files: Sequence[FileStats]) -> Iterator[bytes]:
    """Yield ``shards.json`` of these files."""
    yield b'{"__kind__":"wids-shard-index-v1","wids_version":1,"shardlist":[\n'
    for number, file in enumerate(files):
        shard = _Shard(url=file.name, md5sum=file.md5, nsamples=file.samples, filesize=file.size)
        yield (b",\n" if number else b"") + _encode(shard)
    yield b"\n]}\n"


def sizes_lines(files: Sequence[FileStats]) -> Iterator[bytes]:
    """Yield ``sizes.json`` of these files."""
    yield b"{\n"
    for number, file in enumerate(files):
        yield b"%s%s:%d" % (b",\n" if number else b"", _encode(file.name), file.samples)
    yield b"\n}\n"


def _write(
    directory: Directory, name: str, content: Iterator[bytes], home: Directory | None, existing: str
) -> bool:
    """Write an index; return whether it replaced a file of somebody else.

    Raises DestinationError, OSError.
    """
    path, target = directory / f".downloader-{name}", directory / name
    digest, size = hashlib.md5(usedforsecurity=False), 0
    try:
        with path.writer(0o666) as file:
            for line in content:
                digest.update(line)
                size += file.write(line)
        if home is None:
            path.rename(name)  # from where it is put into a bucket
            return False
        known = _Known(home, name)
        # Before it has the name: a run that is killed then finds that it is ours.
        known.add(digest.hexdigest(), size)
        replaced = give_name(path, target, str(directory), existing, known.has)
        known.only(digest.hexdigest(), size)
        return replaced
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


class _Known:
    """The files that this job has written, or is about to write, under the name of an index.

    The note has the MD5 and the size of each; earlier versions wrote MD5s alone, and take sizes for further
    ones.
    """

    def __init__(self, home: Directory, name: str) -> None:
        self._note = home / f"{name}.md5"
        self._files: list[tuple[str, int]] = []
        try:
            words = self._note.read(_LONGEST_NOTE).decode("ascii", "replace").split()
        except UnsafeFile:
            raise
        except OSError:
            return
        for word, following in pairwise([*words, ""]):
            if len(word) == _MD5_LENGTH:
                self._files.append((word, int(following) if following.isdecimal() else -1))

    def add(self, digest: str, size: int) -> None:
        """Note that a file with this MD5 and size is about to be written."""
        self._keep([*self._files[-_MOST_DIGESTS:], (digest, size)])

    def only(self, digest: str, size: int) -> None:
        """Note that it has been written, in place of all others."""
        self._keep([(digest, size)])

    def _keep(self, files: list[tuple[str, int]]) -> None:
        self._files = files
        self._note.write("\n".join(f"{digest} {size}" for digest, size in files).encode())

    def has(self, target: Entry) -> bool:
        """Return whether the file ``target`` is one of them; one that may be is read."""
        try:
            with target.reader() as file:
                size = os.fstat(file.fileno()).st_size
                digests = [digest for digest, known in self._files if known in (size, -1)]
                return bool(digests) and md5_of_file(file) in digests
        except UnsafeFile:
            return False
