"""Pack what is recorded of stored files into frames, one for each group that is stored together.

A frame has a list for each property, in the order of its files. A list of one value stands for as many as
there are files. Frames of more than a few files are compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec

__all__ = ["Frame", "Record", "pack", "records", "same", "unpack"]

_PLAIN, _DEFLATED = b"\0", b"\1"
_WORTH_IT = 1024  # bytes: setting up the compression takes longer than packing a few files
T = TypeVar("T")


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """The records of files of one batch, by ``indices`` in the batch.

    ``names`` has the CRC-32 of each name, by which a record of another listing is recognized. ``fetched``
    is in milliseconds after ``since``, in seconds since 1970. ``hashes`` are of ``algorithm``. A URL is ""
    where the name gives it. ``finals``: URLs after redirects, by position in the lists.
    """

    indices: list[int]
    names: list[int]
    sizes: list[int]
    crcs: list[int]
    statuses: list[int]
    etags: list[str]
    modified: list[str]
    kinds: list[str]
    since: float
    fetched: list[int]
    algorithm: str = ""
    hashes: list[bytes] = []
    urls: list[str] = []
    columns: list[bytes] = []
    finals: dict[int, str] = {}


class Record(NamedTuple):
    """What is recorded of a file; ``hash`` is ``ALGORITHM:HEX``, or ""."""

    url: str
    final_url: str
    status: int
    etag: str
    last_modified: str
    content_type: str
    fetched_at: float
    hash: str
    columns: bytes


_decode = msgspec.msgpack.Decoder(Frame).decode
_encode = msgspec.msgpack.Encoder().encode


def same(values: list[T]) -> list[T]:
    """Return ``values``, or a list of one value if all are the same."""
    return values[:1] if len(set(values)) == 1 else values


def pack(frame: Frame) -> bytes:
    """Return ``frame`` as bytes."""
    raw = _encode(frame)
    return _DEFLATED + zlib.compress(raw, 1) if len(raw) > _WORTH_IT else _PLAIN + raw


def unpack(data: bytes) -> Frame:
    """Return the frame in ``data``. Raises ValueError if it is damaged."""
    try:
        return _decode(zlib.decompress(data[1:]) if data[:1] == _DEFLATED else data[1:])
    except zlib.error as error:
        raise ValueError(f"damaged records: {error}") from None


def records(frame: Frame) -> Iterator[tuple[int, tuple[int, int, int], Record]]:
    """Yield index, ``(CRC-32 of the name, size, CRC-32)`` and record of each file of ``frame``."""
    count = len(frame.indices)

    def each(values: Sequence[T], default: T) -> Sequence[T]:
        return values if len(values) == count else [*values, default][:1] * count

    hashes, algorithm = each(frame.hashes, b""), frame.algorithm
    for at, (
        index,
        name,
        size,
        crc,
        url,
        status,
        etag,
        modified,
        kind,
        after,
        digest,
        columns,
    ) in enumerate(
        zip(
            frame.indices,
            each(frame.names, 0),
            each(frame.sizes, 0),
            each(frame.crcs, 0),
            each(frame.urls, ""),
            each(frame.statuses, 0),
            each(frame.etags, ""),
            each(frame.modified, ""),
            each(frame.kinds, ""),
            each(frame.fetched, 0),
            hashes,
            each(frame.columns, b""),
            strict=True,
        )
    ):
        yield (
            index,
            (name, size, crc),
            Record(
                url,
                frame.finals.get(at, ""),
                status,
                etag,
                modified,
                kind,
                frame.since + after / 1000,
                f"{algorithm}:{digest.hex()}" if digest else "",
                columns,
            ),
        )
