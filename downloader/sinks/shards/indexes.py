"""Write the indexes of a whole dataset from the stats of its shards.

``shards.json`` is what wids reads (``wids-shard-index-v1``, written by ``wids_index.py`` of webdataset
0.2.111), ``sizes.json`` what open_clip reads. The supervisor calls this, so it imports neither pyarrow nor
gevent.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import msgspec

from downloader.errors import DestinationError
from downloader.sinks.failing import advice
from downloader.sinks.shards.stats import STATS_NAME, FileStats, stats_name

__all__ = ["INDEX", "SIZES", "write_indexes"]

INDEX = "shards.json"
SIZES = "sizes.json"
_encode = msgspec.json.Encoder().encode


class _Files(msgspec.Struct, frozen=True, gc=False):
    """The part of the stats that is needed here."""

    files: list[FileStats]


class _Shard(msgspec.Struct, frozen=True, gc=False):
    url: str
    md5sum: str
    nsamples: int
    filesize: int


def write_indexes(root: str, home: str) -> None:
    """Write ``shards.json`` and ``sizes.json`` for all shards that are published in ``root``.

    Both are sorted by the number of the shard, and replaced as a whole. A dataset without samples has
    neither, since wids refuses an empty one. Raises DestinationError.
    """
    try:
        files = list(_published(root))
        if not files:
            return
        _replace(root, INDEX, _index(files))
        _replace(root, SIZES, _sizes(files))
    except OSError as error:
        raise DestinationError(f"cannot write the indexes of {root}: {advice(error)}") from error


def _published(root: str) -> Iterator[FileStats]:
    """Yield the files with samples; not those of a shard whose publishing was not finished."""
    names = set(os.listdir(root))
    found = {int(match[1]) for match in map(STATS_NAME.fullmatch, names) if match}
    numbers = sorted(number for number in found if stats_name(number) in names)
    decode = msgspec.json.Decoder(_Files).decode
    for number in numbers:
        with open(os.path.join(root, stats_name(number)), "rb", buffering=0) as file:
            content = file.read()
        try:
            files = decode(content).files
        except msgspec.DecodeError:
            continue  # a file of somebody else
        if all(file.name in names for file in files):
            yield from files


def _index(files: list[FileStats]) -> Iterator[bytes]:
    yield b'{"__kind__":"wids-shard-index-v1","wids_version":1,"shardlist":[\n'
    for number, file in enumerate(files):
        shard = _Shard(file.name, file.md5, file.samples, file.size)
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
