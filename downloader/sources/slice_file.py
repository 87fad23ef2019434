"""Write and read slice files: a part of a source as packed items, for one run of a larger job.

A slice file is a sequence of frames (``core.frames``), each with the compressed MessagePack of a
``list[Item]``. It has what the source says about its items, URLs and header fields included, which can be
secrets: only its owner may read it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Annotated, BinaryIO

import msgspec

from downloader.core.frames import MAX_FRAME, FrameError, pack
from downloader.core.inflate import inflate
from downloader.core.limits import MOST_BATCH_ITEMS
from downloader.core.name_list import decode_names, decoded_place
from downloader.errors import UNDECODABLE, SourceError
from downloader.files.directory import open_regular
from downloader.messages import Item, Page, Recall

__all__ = ["SliceLister", "read_items", "write_items"]

_HEADER = 4
_encode = msgspec.msgpack.encode
_decode_items = msgspec.msgpack.Decoder(
    Annotated[list[Item], msgspec.Meta(max_length=MOST_BATCH_ITEMS)]
).decode


class _At(msgspec.Struct, frozen=True, array_like=True):
    """A position: the offset of a frame in bytes, and an item in it."""

    offset: int = 0
    index: int = 0


def write_items(file: BinaryIO, items: bytes) -> None:
    """Append MessagePack of a ``list[Item]`` to a slice file. Raises OSError."""
    file.write(pack(zlib.compress(items, 1)))


def read_items(path: str, file: BinaryIO | None = None) -> Iterator[list[Item]]:
    """Yield the items of a slice file, frame by frame. ``file``: it, if it is open. Raises SourceError."""
    with _Reader(path, file) as reader:
        at = 0
        while (frame := reader.frame(at)) is not None:
            items, at = frame
            yield items


class SliceLister:
    """The lister of a slice file; see ``Lister``. Raises SourceError if it cannot be read."""

    def __init__(self, path: str) -> None:
        self._reader = _Reader(path)
        self._path = path

    def close(self) -> None:
        """See ``Closes``."""
        self._reader.close()

    def recall(self, batch: Recall) -> Page:
        """See ``Lister``. Reads the frame of the batch again."""
        at = decoded_place(batch.recall_data, _At)
        frame = self._reader.frame(at.offset)
        items = frame[0][at.index : at.index + batch.count] if frame else []
        if [item.name for item in items] != decode_names(batch.names):
            raise SourceError(f"{self._path}: batch {batch.seq} is not what was read before")
        return Page(items, b"", batch.recall_data)

    def pages(self, cursor: bytes, size: Callable[[], int]) -> Iterator[Page]:
        """See ``Lister``."""
        at = decoded_place(cursor, _At) if cursor else _At()
        while (frame := self._reader.frame(at.offset)) is not None:
            items, behind = frame
            while at.index < len(items):
                part = items[at.index : at.index + size()]
                recall_data = _encode(at)
                at = _At(at.offset, at.index + len(part))
                if at.index == len(items):
                    yield Page(part, _encode(_At(behind)), recall_data, self._reader.fraction(behind))
                else:
                    yield Page(part, _encode(at), recall_data, self._reader.fraction(at.offset))
            at = _At(behind)


class _Reader:
    def __init__(self, path: str, file: BinaryIO | None = None) -> None:
        self._path = path
        try:
            self._file: BinaryIO = file or open(open_regular(path), "rb")  # noqa: SIM115
            self._size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise SourceError(f"the slice {path} cannot be read: {error.strerror}") from error

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fraction(self, offset: int) -> float:
        return offset / self._size if self._size else 1.0

    def frame(self, offset: int) -> tuple[list[Item], int] | None:
        """Return the items of the frame at ``offset`` and the offset behind it; None at the end."""
        try:
            self._file.seek(offset)
            header = self._file.read(_HEADER)
            if not header:
                return None
            if (size := int.from_bytes(header, "big")) > MAX_FRAME:
                raise FrameError(f"a frame of {size:,} bytes")
            body = self._file.read(size)
            if len(header) + len(body) != _HEADER + size:
                raise FrameError("it is cut off")
            return _decode_items(inflate(body, MAX_FRAME)), offset + _HEADER + len(body)
        except OSError as error:
            raise SourceError(f"the slice {self._path} cannot be read: {error.strerror}") from error
        except UNDECODABLE as error:
            raise SourceError(
                f"the slice {self._path} is damaged ({error}); --restart begins anew"
            ) from error
