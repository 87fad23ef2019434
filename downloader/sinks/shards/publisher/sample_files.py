"""Write the samples of a part to files, at most a maximum size in each."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Final, cast

from downloader.core.checksum import crc32
from downloader.core.extras import ZSTD
from downloader.sinks.shards.options import LARGEST_VALUE
from downloader.sinks.shards.publisher.items import Items
from downloader.sinks.shards.publisher.part import STEP, Part, PartError, Sample, member_size, padded
from downloader.sinks.shards.publisher.tables import binary_array, open_table
from downloader.sinks.shards.ustar import BLOCK, END

__all__ = ["HashedFile", "groups", "write_parquet", "write_tar"]

# A tar ends with END. It is not padded to 10,240 bytes, as tape drives needed it.

_ROW_GROUP: Final = 64 << 20
_ROWS: Final = 20_000
_LEVEL_GZ: Final = 6
_LEVEL_ZST: Final = 3
_NO_TIME: Final = b"00000000000\0"
_TIME: Final = slice(136, 148)
_CHECKSUM: Final = slice(148, 156)


class HashedFile:
    """A file that is being written; ``size`` and ``md5`` (hex) are those of what was written.

    Not ``hashed``: ``md5`` is "", and ``crc32`` is the CRC-32, which is else -1.
    """

    def __init__(self, file: BinaryIO, *, hashed: bool = True) -> None:
        self._file = file
        self._md5 = hashlib.md5(usedforsecurity=False) if hashed else None
        self.size = 0
        self.crc32 = -1 if hashed else 0

    @property
    def md5(self) -> str:
        return self._md5.hexdigest() if self._md5 is not None else ""

    def write(self, data: Any) -> int:
        """Append ``data``, and return its length."""
        if self._md5 is not None:
            self._md5.update(data)
        else:
            self.crc32 = crc32(data, self.crc32)
        with memoryview(data) as view:
            written = self._file.write(data)
            while written < view.nbytes:  # an unbuffered file may write less
                written += self._file.write(view[written:])
            self.size += view.nbytes
            return view.nbytes

    def tell(self) -> int:
        """Return the position, which pyarrow asks for."""
        return self.size

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    closed = False


def groups(samples: Sequence[Sample], max_size: int) -> list[Sequence[Sample]]:
    """Return the samples of each file: at most ``max_size`` bytes of an uncompressed tar, or one sample."""
    found: list[Sequence[Sample]] = []
    first = 0
    size = len(END)
    for index, sample in enumerate(samples):
        length = sample.stop - sample.start
        if index > first and max_size and size + length > max_size:
            found.append(samples[first:index])
            first, size = index, len(END)
        size += length
    if samples:
        found.append(samples[first:])
    return found


def write_tar(
    out: HashedFile, part: Part, samples: Sequence[Sample], compression: str, *, without_times: bool
) -> None:
    """Write a tar of these samples, in this order. ``without_times``: all times are 0."""
    with _compressed(out, compression) as file:
        waiting = bytearray()
        for sample in samples:
            for piece in _without_times(part, sample) if without_times else _pieces(part, sample):
                waiting += piece
                if len(waiting) >= STEP:
                    file.write(waiting)
                    waiting = bytearray()
            part.used(sample.stop - sample.start)
        file.write(waiting + END)


@contextlib.contextmanager
def _compressed(out: HashedFile, compression: str) -> Iterator[Any]:
    if compression == "gz":
        # Without the time and the name that gzip stores: the same content gives the same bytes.
        target = cast(BinaryIO, out)
        with gzip.GzipFile("", "wb", compresslevel=_LEVEL_GZ, fileobj=target, mtime=0) as file:
            yield file
    elif compression == "zst":
        with importlib.import_module(ZSTD).open(out, "wb", level=_LEVEL_ZST) as file:
            yield file
    else:
        yield out


def _pieces(part: Part, sample: Sample) -> Iterator[memoryview]:
    for at in range(sample.start, sample.stop, STEP):
        with part.mapped[at : min(at + STEP, sample.stop)] as piece:
            yield piece


def _without_times(part: Part, sample: Sample) -> Iterator[memoryview | bytes]:
    at = sample.start
    while at < sample.stop:
        header = bytearray(part.mapped[at : at + BLOCK])
        if header[_TIME] != _NO_TIME:
            header[_TIME] = _NO_TIME
            header[_CHECKSUM] = b" " * 8  # the sum is of the header with blanks in this place
            header[_CHECKSUM] = b"%06o\0 " % sum(header)
        yield bytes(header)
        at += BLOCK
        end = at + padded(member_size(header))
        while at < end:
            with part.mapped[at : min(at + STEP, end)] as piece:
                yield piece
            at = min(at + STEP, end)


def write_parquet(out: HashedFile, part: Part, items: Items, first: int, samples: Sequence[Sample]) -> None:
    """Write a Parquet file of these samples, which begin at number ``first`` of ``items``.

    A row group has at most 64 MiB of content, or one sample. Raises PartError for content that Parquet
    cannot have.
    """
    kinds = {**_PARQUET, **items.kinds()}
    size = sum(sample.content_size for sample in samples)
    batch = max(1, min(1024, STEP * len(samples) // max(1, size)))  # about a page
    with open_table("parquet", cast(BinaryIO, out), kinds, batch) as table:
        start = 0
        while start < len(samples):
            stop, content, ends = _content(part, samples, start)
            columns = items.fitted(items.metadata(first + start, first + stop), stop - start)
            rows: dict[str, Any] = {name: columns[name] for name in kinds if name != "bytes"}
            rows["bytes"] = binary_array(content, ends)
            table.write(rows)
            start = stop


_PARQUET: Final = {
    "key": "text",
    "url": "text",
    "status": "int",
    "bytes": "bytes",
    "content_type": "text",
    "sha256": "text",
    "name": "text",
    "size": "int",
}


def _content(part: Part, samples: Sequence[Sample], start: int) -> tuple[int, bytearray, list[int]]:
    """Return where the row group ends that begins at ``start``, its content, and the ends of the values."""
    content = bytearray()
    ends: list[int] = []
    for stop in range(start, min(start + _ROWS, len(samples))):
        sample = samples[stop]
        if sample.content_size > LARGEST_VALUE:
            raise PartError(
                f"{sample.key} has {sample.content_size} bytes, and a value in Parquet below 2 GiB"
            )
        if ends and len(content) + sample.content_size > _ROW_GROUP:
            return stop, content, ends
        content += part.mapped[sample.content : sample.content + sample.content_size]
        part.used(sample.content_size)
        ends.append(len(content))
    return start + len(ends), content, ends
