"""Make the members of a sample, and find the whole samples of a part.

A sample is written at once and ends with its ``KEY.json``. After a kill the last one may be torn, and after
a power cut any: so a sample counts only if all its members are there and its content has the SHA-256 that
``KEY.json`` says, or the CRC-32 where it says no SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from downloader.core.checksum import crc32
from downloader.core.column_types import OTHER, ColumnTypes, fit
from downloader.core.frames import MAX_FRAME
from downloader.core.shard_keys import KEY_BYTES, UNKNOWN
from downloader.errors import UNDECODABLE
from downloader.sinks.shards.jobs import METADATA
from downloader.sinks.shards.ustar import BLOCK, Member, Members, Readable, header, padding

__all__ = [
    "Sample",
    "WholeSample",
    "encode_kept",
    "encode_sample",
    "is_stated",
    "kept_fields",
    "kinds_of",
    "metadata_member",
    "samples",
]

# Of a name of 100 bytes, KEY.content.EXT.
_LONGEST_EXTENSION = 100 - KEY_BYTES - len("..content")
_LARGEST_METADATA = MAX_FRAME  # bytes of KEY.json: kept columns came in a frame
_encode_json = msgspec.json.Encoder().encode
_decode_columns = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The fields of ``KEY.json``, which are those of ``jobs.METADATA`` in that order."""

    key: str
    name: str
    url: str
    final_url: str
    status: int
    size: int
    sha256: str
    crc32: int
    content_type: str
    etag: str
    last_modified: str
    fetched_at: float


class _Stated(msgspec.Struct, frozen=True, gc=False):
    """The fields of ``KEY.json`` of which a table is made later, so each has its type.

    ``size`` and at least one of the two digests are compared with the content.
    """

    size: int
    sha256: str = ""
    crc32: int = -1
    key: str | None = None
    name: str | None = None
    url: str | None = None
    final_url: str | None = None
    status: int | None = None
    content_type: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    fetched_at: float | None = None


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
    sample: Sample,
    extension: str,
    columns: bytes,
    texts: dict[str, str],
    modified: int,
    kinds: Mapping[str, str] | None = None,
) -> tuple[bytes, bytes]:
    """Return what precedes the content of ``sample`` in a part, and what follows it.

    ``columns``: MessagePack of the kept columns, which go into ``KEY.json``; ``kinds``: see ``kinds_of``.
    ``texts``: extensions of further members, and the columns that they have. ``modified``: the time of all
    members.
    """
    key = sample.key
    if extension == "json" or extension in texts:
        # A reader takes what follows the first dot as the field's name.
        extension = f"content.{extension if len(extension) <= _LONGEST_EXTENSION else UNKNOWN}"
    before = header(f"{key}.{extension}".encode(), sample.size, modified)
    if not columns:
        # The same as below, for what most samples are.
        body = _encode_json(sample)
        last = header(f"{key}.json".encode(), len(body), modified)
        return before, padding(sample.size) + last + body + padding(len(body))
    values = _decode_columns(columns)
    parts = [padding(sample.size)]
    for text, column in texts.items():
        if (content := _member(values.get(column))) is not None:
            parts += (
                header(f"{key}.{text}".encode(), len(content), modified),
                content,
                padding(len(content)),
            )
    body = _encode_json(_with_columns(sample, values, kinds) if values else sample)
    parts += (header(f"{key}.json".encode(), len(body), modified), body, padding(len(body)))
    return before, b"".join(parts)


def _member(value: Any) -> bytes | None:
    """Return the content of a member that has ``value``, None where there is no value.

    Text and binary values are what they are, times are text, all else is JSON.
    """
    if isinstance(value, bytes):
        return value
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    text = value if isinstance(value, str) else msgspec.to_builtins(value)
    return text.encode() if isinstance(text, str) else _encode_json(text)


def _with_columns(
    sample: Sample, values: dict[str, Any], kinds: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the fields of ``KEY.json``."""
    return msgspec.structs.asdict(sample) | _fitted(values, kinds)


def encode_kept(columns: bytes, kinds: Mapping[str, str] | None) -> bytes:
    """Return the kept columns of an item without a sample, as JSON like those in ``KEY.json``."""
    return _encode_json(_fitted(_decode_columns(columns), kinds)) if columns else b"{}"


def kinds_of(types: ColumnTypes | None) -> dict[str, str] | None:
    """Return the kinds of the kept columns in ``KEY.json``, None if the job does not know them."""
    return kept_fields(types.kinds) if types is not None else None


def _fitted(values: Mapping[str, Any], kinds: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the fields for ``values`` in the types of the job: readers know those of the first samples."""
    found = kept_fields(values)
    if kinds is not None:
        fit(found, kinds)
    return found


def kept_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``KEY.json`` for the columns ``values``.

    One with the name of a field of ours is called ``list.NAME``. If the list has a column of that name
    too, ``list.list.NAME``. ``list.other`` is ours, too, and is called ``list.other_``.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        free = f"list.{name}" if name in METADATA else f"{OTHER}_" if name == OTHER else name
        while free != name and free in values:
            free = f"list.{free}"
        found[free] = value
    return found


def samples(file: Readable) -> Iterator[WholeSample]:
    """Yield the whole samples of the tar file ``file``, in order, up to the first member that is not whole.

    Reads it once, from its beginning. Raises what ``file.read`` raises.
    """
    members = Members(file)
    content: _Content | None = None  # the first member of the current sample
    while (member := members.next()) is not None:
        key = member.name.partition(".")[0]
        if content is not None and content.key != key:
            content = None
        if member.name == metadata_member(key):
            text: list[bytes] = []
            fits = member.size <= _LARGEST_METADATA
            if not members.content(member, text.append if fits else lambda piece: None):
                return
            if content is not None and content.is_stated(b"".join(text)):
                end = member.offset + member.size + len(padding(member.size))
                yield WholeSample(key, content.start, end, content.size, content.crc)
            content = None
        elif content is None:
            content = _Content(key, member)
            if not members.content(member, content.feed):
                return
        elif not members.content(member, lambda piece: None):
            return


class _Content:
    """The content of a sample that is read: where its header is, its size and its CRC-32."""

    __slots__ = ("_digest", "crc", "key", "size", "start")

    def __init__(self, key: str, member: Member) -> None:
        self.key = key
        self.start = member.offset - BLOCK
        self.size = member.size
        self.crc = 0
        self._digest = hashlib.sha256()

    def feed(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.crc = crc32(piece, self.crc)

    def is_stated(self, metadata: bytes) -> bool:
        """Return whether the content is what ``KEY.json`` says."""
        return is_stated(metadata, self.size, self.crc, self._digest.hexdigest)


def is_stated(metadata: bytes, size: int, crc: int, sha256: Callable[[], str]) -> bool:
    """Return whether a content with this size and these digests is what ``metadata``, a KEY.json, says."""
    try:
        stated = _decode_stated(metadata)
        metadata.decode()  # msgspec passes over what it has no field for
    except UNDECODABLE:
        return False
    if stated.sha256:
        return (size, sha256()) == (stated.size, stated.sha256)
    return (size, crc) == (stated.size, stated.crc32)
