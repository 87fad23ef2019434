"""Write the indexes of a whole dataset from the stats of its shards.

``shards.json`` is what wids reads (``wids-shard-index-v1``, written by ``wids_index.py`` of webdataset
0.2.111), ``sizes.json`` what open_clip reads. The supervisor calls this, so it imports neither pyarrow nor
gevent.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from downloader.core.bucket_place import is_bucket
from downloader.core.frames import pack
from downloader.errors import DestinationError
from downloader.process import isolation
from downloader.sinks.failing import advice
from downloader.sinks.shards.files import INDEX, INDEXED, SIZES
from downloader.sinks.shards.jobs import bucket_settings
from downloader.sinks.shards.stats import STATS_NAME, FileStats, stats_directory, stats_name

__all__ = ["Indexed", "write_indexes", "write_indexes_of"]

_encode = msgspec.json.Encoder().encode


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

    def __init__(self, home: Path, directory: Path) -> None:
        self._note = home / INDEXED
        self._directory = directory

    def has(self, shards: int) -> bool:
        """Return whether the indexes were written when ``shards`` shards were published."""
        try:
            return self._note.read_text() == self._text(shards)
        except (OSError, ValueError):
            return False

    def note(self, shards: int) -> None:
        """Note that the indexes have ``shards`` shards. Without the note they are written again."""
        with contextlib.suppress(OSError):
            self._note.write_text(self._text(shards))

    def _text(self, shards: int) -> str:
        sizes = [_size(self._directory / name) for name in (INDEX, SIZES)]
        return f"{shards} shards, indexes of {sizes} bytes\n"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def write_indexes(root: str, home: str, endpoint_url: str = "", region: str = "") -> None:
    """Write ``shards.json`` and ``sizes.json`` for all shards that are published in ``root``.

    Both are sorted by the number of the shard, and replaced as a whole. A dataset without samples has
    neither, since wids refuses an empty one. If ``root`` is a bucket (``s3://…``), they are made from the
    copies of the stats in ``home``, and a process of its own puts them there. Raises DestinationError.
    """
    bucket = is_bucket(root)
    try:
        files = list(_published(stats_directory(home) if bucket else root, beside=not bucket))
    except OSError as error:
        raise _failed(root, advice(error)) from error
    write_indexes_of(files, root, home, endpoint_url, region)


def write_indexes_of(
    files: list[FileStats], root: str, home: str, endpoint_url: str = "", region: str = ""
) -> None:
    """Do the same for ``files``, which are all files with samples, in order. Raises DestinationError."""
    if not files:
        return
    bucket = is_bucket(root)
    target = home if bucket else root
    try:
        _replace(target, INDEX, _index(files))
        _replace(target, SIZES, _sizes(files))
        failure = _put(root, home, endpoint_url, region) if bucket else ""
    except OSError as error:
        failure = advice(error)
    if failure:
        raise _failed(root, failure)


def _failed(root: str, why: str) -> DestinationError:
    return DestinationError(f"cannot write the indexes of {root}: {why}")


def _put(root: str, home: str, endpoint_url: str, region: str) -> str:
    """Put both files from ``home`` into the bucket; return why that failed, or ""."""
    settings = bucket_settings(root, home, endpoint_url, region)
    argv, env = isolation.child("downloader.sinks.shards.publisher.process:serve_put", INDEX, SIZES)
    done = subprocess.run(
        argv, input=pack(msgspec.msgpack.encode(settings)), stdout=subprocess.PIPE, env=env, check=False
    )
    text = done.stdout.decode("utf-8", "replace")
    return text or (f"the process for it ended with status {done.returncode}" if done.returncode else "")


def _published(directory: str, *, beside: bool) -> Iterator[FileStats]:
    """Yield the files with samples that have stats in ``directory``.

    ``beside``: the files are in the same directory, or their publishing was not finished.
    """
    try:
        names = set(os.listdir(directory))
    except FileNotFoundError:
        if beside:
            raise
        return
    found = {int(match[1]) for match in map(STATS_NAME.fullmatch, names) if match}
    numbers = sorted(number for number in found if stats_name(number) in names)
    decode = msgspec.json.Decoder(_Files).decode
    for number in numbers:
        with open(os.path.join(directory, stats_name(number)), "rb", buffering=0) as file:
            content = file.read()
        try:
            files = decode(content).files
        except msgspec.DecodeError:
            continue  # a file of somebody else
        if not beside or all(file.name in names for file in files):
            yield from files


def _index(files: list[FileStats]) -> Iterator[bytes]:
    yield b'{"__kind__":"wids-shard-index-v1","wids_version":1,"shardlist":[\n'
    for number, file in enumerate(files):
        shard = _Shard(url=file.name, md5sum=file.md5, nsamples=file.samples, filesize=file.size)
        yield (b",\n" if number else b"") + _encode(shard)
    yield b"\n]}\n"


def _sizes(files: list[FileStats]) -> Iterator[bytes]:
    yield b"{\n"
    for number, file in enumerate(files):
        yield b"%s%s:%d" % (b",\n" if number else b"", _encode(file.name), file.samples)
    yield b"\n}\n"


def _replace(root: str, name: str, content: Iterator[bytes]) -> None:
    path = os.path.join(root, f".downloader-{name}")
    try:
        with open(path, "wb") as file:
            file.writelines(content)
        os.replace(path, os.path.join(root, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
