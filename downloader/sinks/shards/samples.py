"""Make the members of a sample, and find the whole samples of a part.

A sample is written at once and ends with its ``KEY.json``. After a kill the last one may be torn, and after
a power cut any: so a sample counts only if all its members are there and its content has the SHA-256 that
``KEY.json`` says.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from downloader.core.checksum import crc32
from downloader.sinks.shards.jobs import METADATA
from downloader.sinks.shards.ustar import BLOCK, Member, header, members, padding

__all__ = ["Sample", "WholeSample", "encode_sample", "metadata_member", "samples"]

_encode_json = msgspec.json.Encoder().encode
_decode_columns = msgspec.msgpack.Decoder(dict[str, Any]).decode
_BLOCK = 1 << 20


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The fields of ``KEY.json``, which are those of ``jobs.METADATA`` in that order."""

    key: str
    name: str
    url: str
    final_url: str
    status: int
    size: int
    sha256: str
    content_type: str
    etag: str
    last_modified: str
    fetched_at: float


class _Stated(msgspec.Struct, frozen=True):
    """The part of ``KEY.json`` that is compared with the content."""

    size: int
    sha256: str


class WholeSample(NamedTuple):
    """A sample in a part, from ``start`` to ``end``: its key, and size and CRC-32 of its content."""

    key: str
    start: int
    end: int
    size: int
    crc: int


_decode_stated = msgspec.json.Decoder(_Stated).decode


def metadata_member(key: str) -> str:
    """Return the name of the last member of a sample."""
    return f"{key}.json"


def encode_sample(
    sample: Sample, extension: str, columns: bytes, texts: dict[str, str], modified: int
) -> tuple[bytes, bytes]:
    """Return what precedes the content of ``sample`` in a part, and what follows it.

    ``columns``: MessagePack of the kept columns, which go into ``KEY.json``. ``texts``: extensions of
    further members, and the columns that they have. ``modified``: the time of all members.
    """
    key = sample.key
    values = _decode_columns(columns) if columns else {}
    if extension == "json" or extension in texts:
        extension = f"content.{extension}"  # a reader takes what follows the first dot as the field's name
    parts = [padding(sample.size)]
    for text, column in texts.items():
        if (value := values.get(column)) is not None:
            body = value.encode() if isinstance(value, str) else _encode_json(value)
            parts += (header(f"{key}.{text}".encode(), len(body), modified), body, padding(len(body)))
    body = _encode_json(_with_columns(sample, values) if values else sample)
    parts += (header(f"{key}.json".encode(), len(body), modified), body, padding(len(body)))
    return header(f"{key}.{extension}".encode(), sample.size, modified), b"".join(parts)


def _with_columns(sample: Sample, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of ``KEY.json``; a kept column with a name of ours is called ``list.NAME``.

    If the list has a column of that name too, ``list.list.NAME``.
    """
    fields = msgspec.structs.asdict(sample)
    for name, value in values.items():
        free = f"list.{name}" if name in METADATA else name
        while free != name and free in values:
            free = f"list.{free}"
        fields[free] = value
    return fields


def samples(fd: int) -> Iterator[WholeSample]:
    """Yield the whole samples of the part ``fd``, in order. Reads the content of each."""
    found: list[Member] = []
    for member in members(fd, os.fstat(fd).st_size):
        key = member.name.partition(".")[0]
        if found and found[0].name.partition(".")[0] != key:
            found = []
        found.append(member)
        if member.name == metadata_member(key):
            if len(found) > 1 and (crc := _checked(fd, found[0], member)) is not None:
                start = found[0].offset - BLOCK
                end = member.offset + member.size + len(padding(member.size))
                yield WholeSample(key, start, end, found[0].size, crc)
            found = []


def _checked(fd: int, content: Member, metadata: Member) -> int | None:
    """Return the CRC-32 of ``content``, None if it is not what ``metadata`` says."""
    try:
        stated = _decode_stated(os.pread(fd, metadata.size, metadata.offset))
    except msgspec.DecodeError:
        return None
    digest, crc = hashlib.sha256(), 0
    at, end = content.offset, content.offset + content.size
    while at < end:
        chunk = os.pread(fd, min(_BLOCK, end - at), at)
        digest.update(chunk)
        crc = crc32(chunk, crc)
        at += len(chunk)
    return crc if (content.size, digest.hexdigest()) == (stated.size, stated.sha256) else None
