"""Write the indexes of a whole dataset from the stats of its shards.

``shards.json`` is what wids reads (``wids-shard-index-v1``, written by ``wids_index.py`` of webdataset
0.2.111), ``sizes.json`` what open_clip reads. The supervisor calls this, so it imports neither pyarrow nor
gevent.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from downloader.core.bucket_place import is_bucket
from downloader.core.file_errors import advice
from downloader.core.frames import pack
from downloader.errors import DestinationError
from downloader.files.directory import Directory, Entry, UnsafeFile, open_directory
from downloader.process import isolation
from downloader.process.watching import STALL_TIMEOUT, Stalled, run_watched
from downloader.sinks.shards.files import INDEX, INDEXED, LARGEST_FILE, SIZES, STATS
from downloader.sinks.shards.jobs import PublisherSettings, bucket_settings
from downloader.sinks.shards.stats import STATS_NAME, FileStats, stats_name
from downloader.sinks.stored import md5_of_file
from downloader.sinks.taken_names import give_name

__all__ = ["Indexed", "index_lines", "sizes_lines", "write_indexes", "write_indexes_of"]

_encode = msgspec.json.Encoder().encode
_LONGEST_NOTE = 1000
_MOST_DIGESTS = 8  # of runs that were killed one after the other


class _Files(msgspec.Struct, frozen=True, gc=False):
    """The part of the stats that is needed here."""

    files: list[FileStats]


class _Shard(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A shard in the index. wids needs no MD5."""

    url: str
    md5sum: str = ""
    nsamples: int
    filesize: int


class Indexed:
    """A note in ``home`` of what the indexes in ``directory`` have; they take seconds for 100,000 shards.

    It counts only as long as the indexes have the sizes that they had.
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

    def forget(self) -> None:
        """Have them written again at the end of the next run."""
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


def write_indexes(
    root: str,
    home: Directory,
    endpoint_url: str = "",
    region: str = "",
    *,
    existing: str = "replace",
    stall_timeout: float = STALL_TIMEOUT,
) -> int:
    """Write ``shards.json`` and ``sizes.json`` for all shards that are published in ``root``.

    Both are sorted by the number of the shard, and replaced as a whole. A dataset without samples has
    neither, since wids refuses an empty one. If ``root`` is a bucket (``s3://…``), they are made from the
    copies of the stats in ``home``, and a process of its own puts them there.

    Return how many files of somebody else were replaced by them; ``existing``: see --existing. Raises
    DestinationError.
    """
    bucket = is_bucket(root)
    try:
        with (home / STATS).opened() if bucket else open_directory(root) as directory:
            files = list(_published(directory, beside=not bucket))
    except FileNotFoundError:
        if not bucket:
            raise _failed(root, "the destination was removed") from None
        files = []
    except OSError as error:
        raise _failed(root, advice(error)) from error
    return write_indexes_of(
        files, root, home, endpoint_url, region, existing=existing, stall_timeout=stall_timeout
    )


def write_indexes_of(
    files: list[FileStats],
    root: str,
    home: Directory,
    endpoint_url: str = "",
    region: str = "",
    *,
    existing: str = "replace",
    stall_timeout: float = STALL_TIMEOUT,
) -> int:
    """Do the same for ``files``, which are all files with samples, in order. Raises DestinationError."""
    if not files:
        return 0
    replaced = 0
    bucket = is_bucket(root)
    try:
        with contextlib.ExitStack() as opened:
            target = home if bucket else opened.enter_context(open_directory(root))
            for name, lines in ((INDEX, index_lines(files)), (SIZES, sizes_lines(files))):
                replaced += _write(target, name, lines, None if bucket else home, existing)
        failure = (
            _put(bucket_settings(root, str(home), endpoint_url, region, stall_timeout)) if bucket else ""
        )
    except OSError as error:
        failure = advice(error)
    if failure:
        raise _failed(root, failure)
    return replaced


def _failed(root: str, why: str) -> DestinationError:
    return DestinationError(f"cannot write the indexes of {root}: {why}")


def _put(settings: PublisherSettings) -> str:
    """Put both files from the home into the bucket; return why that failed, or ""."""
    argv, env = isolation.child("downloader.sinks.shards.publisher.process:serve_put", INDEX, SIZES)
    given = pack(msgspec.msgpack.encode(settings))
    try:
        status, answer = run_watched(argv, env, given, settings.stall_timeout, patient=True)
    except Stalled as error:
        return f"{error}; run the same command again"
    text = answer.decode("utf-8", "replace")
    return text or (f"the process for it ended with status {status}" if status else "")


def _published(directory: Directory, *, beside: bool) -> Iterator[FileStats]:
    """Yield the files with samples that have stats in ``directory``.

    ``beside``: the files are in the same directory, or their publishing was not finished.
    """
    names = set(directory.names())
    found = {int(match[1]) for match in map(STATS_NAME.fullmatch, names) if match}
    numbers = sorted(number for number in found if stats_name(number) in names)
    decode = msgspec.json.Decoder(_Files).decode
    for number in numbers:
        try:
            files = decode((directory / stats_name(number)).read(LARGEST_FILE)).files
        except (UnsafeFile, msgspec.DecodeError):
            continue  # a file of somebody else
        if not beside or all(file.name in names for file in files):
            yield from files


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
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with path.writer(0o666) as file:
            for line in content:
                digest.update(line)
                file.write(line)
        if home is None:
            path.rename(name)  # from where it is put into a bucket
            return False
        known = _Known(home, name)
        # Before it has the name: a run that is killed then finds that it is ours.
        known.add(digest.hexdigest())
        replaced = give_name(path, target, str(directory), existing, known.has)
        known.only(digest.hexdigest())
        return replaced
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


class _Known:
    """The MD5s of the files that this job has written, or is about to write, under the name of an index."""

    def __init__(self, home: Directory, name: str) -> None:
        self._note = home / f"{name}.md5"
        self._all = not self._note.exists() and (home / INDEXED).exists()  # by an earlier version
        try:
            self._digests = self._note.read(_LONGEST_NOTE).decode("ascii", "replace").split()
        except UnsafeFile:
            raise
        except OSError:
            self._digests = []

    def add(self, digest: str) -> None:
        """Note that a file with this MD5 is about to be written."""
        self._keep([*self._digests[-_MOST_DIGESTS:], digest])

    def only(self, digest: str) -> None:
        """Note that it has been written, in place of all others."""
        self._keep([digest])

    def _keep(self, digests: list[str]) -> None:
        self._digests = digests
        self._note.write("\n".join(digests).encode())

    def has(self, target: Entry) -> bool:
        """Return whether the file ``target`` is one of them."""
        if self._all:
            return True
        try:
            with target.reader() as file:
                return md5_of_file(file) in self._digests
        except UnsafeFile:
            return False
