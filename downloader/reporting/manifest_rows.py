"""Keep rows of a manifest in a file, so that the manifest of a larger job can be made from several.

The file is a sequence of frames (``core.frames``), each with compressed MessagePack: the numbers of the
items in the source, and their rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, BinaryIO, NamedTuple

import msgspec

from downloader.core.frames import MAX_FRAME, FrameError, pack
from downloader.core.inflate import inflate
from downloader.core.limits import MOST_BATCH_ITEMS
from downloader.errors import UNDECODABLE, JournalError

__all__ = ["Fields", "Numbered", "RowsMade", "read_rows", "write_rows"]

_HEADER = 4
_MOST_BYTES = 4 * MAX_FRAME  # of the rows of a batch
_Bounded = msgspec.Meta(max_length=MOST_BATCH_ITEMS)
_Text = str | None
Fields = tuple[
    str,
    _Text,
    _Text,
    int | None,
    int,
    _Text,
    _Text,
    _Text,
    _Text,
    datetime | None,
    _Text,
    _Text,
    dict[str, Any],
]
"""The fields of a ``manifest_formats.Row``, up to ``columns``."""


class RowsMade(msgspec.Struct, frozen=True):
    """How many rows there are, and of how many of them no record, no hash or no shard is known."""

    count: int = 0
    without_record: int = 0
    without_hash: int = 0
    without_shard: int = 0

    def __add__(self, other: RowsMade) -> RowsMade:
        return RowsMade(
            self.count + other.count,
            self.without_record + other.without_record,
            self.without_hash + other.without_hash,
            self.without_shard + other.without_shard,
        )


class Numbered(NamedTuple):
    """A row, and the number of its item."""

    number: int
    fields: Fields


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    numbers: Annotated[list[int], _Bounded]
    rows: Annotated[list[Fields], _Bounded]


_decode = msgspec.msgpack.Decoder(_Frame).decode
_encode = msgspec.msgpack.Encoder().encode


def write_rows(file: BinaryIO, numbered: Iterable[tuple[list[int], list[Any]]]) -> None:
    """Write rows with the numbers of their items. Raises OSError."""
    for numbers, rows in numbered:
        packed = _encode([numbers, [msgspec.structs.astuple(row)[:-1] for row in rows]])
        file.write(pack(zlib.compress(packed, 1)))


def read_rows(file: BinaryIO, shown: str) -> Iterator[list[Numbered]]:
    """Yield what ``write_rows`` wrote. Raises JournalError; ``shown`` names the file."""
    try:
        while header := file.read(_HEADER):
            size = int.from_bytes(header, "big")
            if size > MAX_FRAME:
                raise FrameError(f"a frame of {size:,} bytes")
            body = file.read(size)
            if len(header) < _HEADER or len(body) < size:
                raise FrameError("it is cut off")
            frame = _decode(inflate(body, _MOST_BYTES))
            yield list(map(Numbered, frame.numbers, frame.rows))
    except OSError as error:
        raise JournalError(f"{shown} cannot be read: {error.strerror}") from error
    except UNDECODABLE as error:
        raise JournalError(f"{shown} is damaged ({error}); --restart begins anew") from error
