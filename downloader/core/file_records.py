"""Pack what is recorded of stored files into frames, one for each group that is stored together.

A frame has a list for each property, in the order of its files. A list of one value stands for as many as
there are files. Frames of more than a few files are compressed.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec

from downloader.core.checksum import crc32
from downloader.core.frames import MAX_FRAME
from downloader.core.inflate import inflate
from downloader.core.item_states import decoded, is_stored
from downloader.core.limits import MOST_BATCH_ITEMS
from downloader.errors import UNDECODABLE

__all__ = ["Frame", "Record", "pack", "packed", "records", "same", "sum_of", "unpack"]

_PLAIN, _DEFLATED = b"\0", b"\1"
_WORTH_IT = 8  # texts: setting up the compression takes longer than packing a few
T = TypeVar("T")
_Bounded = msgspec.Meta(max_length=MOST_BATCH_ITEMS)
_Texts = Annotated[list[str], _Bounded]
_Numbers = Annotated[list[int], _Bounded]
_Blobs = Annotated[list[bytes], _Bounded]


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """The records of files of one batch, by ``indices`` in the batch.

    ``indices``, ``sizes`` and ``crcs`` are arrays of u32, u64 and u32, little-endian. ``names`` is the
    CRC-32 of all names, which tells a frame of another listing. ``fetched`` is in seconds since 1970.
    ``hashes`` are of ``algorithm``. A URL is "" where the name gives it. ``finals``: URLs after redirects,
    by position in the lists.
    """

    indices: bytes
    names: int
    sizes: bytes
    crcs: bytes
    fetched: _Numbers
    statuses: _Numbers
    etags: _Texts
    modified: _Texts
    kinds: _Texts
    algorithm: str = ""
    hashes: _Blobs = []
    urls: _Texts = []
    columns: _Blobs = []
    finals: Annotated[dict[int, str], _Bounded] = {}


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is recorded of a file; ``hash`` is ``ALGORITHM:HEX``, or ""."""

    url: str
    final_url: str
    status: int
    etag: str
    last_modified: str
    content_type: str
    fetched_at: int
    hash: str
    columns: bytes


_decode = msgspec.msgpack.Decoder(Frame).decode
_encode = msgspec.msgpack.Encoder().encode


def same(values: list[T]) -> list[T]:
    """Return ``values``, or a list of one value if all are the same."""
    return values[:1] if len(set(values)) == 1 else values


def packed(kind: str, values: Sequence[int]) -> bytes:
    """Return ``values`` as an array of ``kind``: I or Q, as ``struct`` has them; little-endian."""
    found = array(kind, values)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def _unpacked(kind: str, data: bytes) -> list[int]:
    found = array(kind)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tolist()


def sum_of(names: Sequence[str]) -> int:
    """Return ``Frame.names``."""
    return crc32("\0".join(names).encode())


def pack(frame: Frame) -> bytes:
    """Return ``frame`` as bytes. Texts that differ from file to file are worth compressing."""
    raw = _encode(frame)
    texts = max(
        len(frame.etags), len(frame.modified), len(frame.kinds), len(frame.urls), len(frame.columns)
    )
    return _DEFLATED + zlib.compress(raw, 1) if texts > _WORTH_IT else _PLAIN + raw


def unpack(data: bytes) -> Frame:
    """Return the frame in ``data``. Raises ValueError if it is damaged, or of another version."""
    try:
        return _decode(inflate(data[1:], 2 * MAX_FRAME) if data[:1] == _DEFLATED else data[1:])
    except UNDECODABLE as error:
        raise ValueError(f"damaged records: {error}") from None


def records(
    frame: Frame, names: Sequence[str], states: Sequence[int], crcs: Sequence[int]
) -> dict[int, Record]:
    """Return the records of ``frame`` that are those of stored files of its batch, by index.

    They agree with the ``names`` of the batch and its item states (``core.item_states``).
    """
    if len(frame.indices) > 4 * len(names):
        return {}
    indices = _unpacked("I", frame.indices)
    if not indices or max(indices) >= len(names) or sum_of([names[at] for at in indices]) != frame.names:
        return {}
    count = len(indices)

    def each(values: Sequence[T], default: T) -> Sequence[T]:
        return values if len(values) == count else [*values, default][:1] * count

    finals: Sequence[str] = [""] * count
    if frame.finals:
        finals = [frame.finals.get(at, "") for at in range(count)]
    mark = f"{frame.algorithm}:"
    made = map(
        Record,
        each(frame.urls, ""),
        finals,
        each(frame.statuses, 0),
        each(frame.etags, ""),
        each(frame.modified, ""),
        each(frame.kinds, ""),
        each(frame.fetched, 0),
        [mark + digest.hex() for digest in frame.hashes] or [""] * count,
        each(frame.columns, b""),
    )
    sizes, sums = _unpacked("Q", frame.sizes), _unpacked("I", frame.crcs)
    found = dict(zip(indices, made, strict=True))
    if [states[at] - 2 for at in indices] != sizes or [crcs[at] for at in indices] != sums:
        for at, size, crc in zip(indices, sizes, sums, strict=True):
            if not is_stored(states[at]) or (decoded(states[at])[0], crcs[at]) != (size, crc):
                del found[at]
    return found
