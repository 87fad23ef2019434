"""Define what a worker asks of the publisher of shards, and what the publisher answers.

A part is an uncompressed tar file. The members of a sample are consecutive and have its key: ``KEY.EXT``
with the content, then ``KEY.MEMBER`` for each column of --member, and last ``KEY.json`` with the fields of
``METADATA`` and the kept columns. No field of ``METADATA`` is missing, but a text may be "".
"""

from __future__ import annotations

import msgspec

from downloader.core.bucket_access import NO_OPTIONS, BucketAccess

__all__ = [
    "METADATA",
    "FailedItem",
    "FileStats",
    "NotPublished",
    "PublishedShard",
    "PublisherSettings",
    "ShardJob",
    "bucket_settings",
]

METADATA = (
    "key",
    "name",
    "url",
    "final_url",
    "status",
    "size",
    "sha256",
    "crc32",
    "content_type",
    "etag",
    "last_modified",
    "fetched_at",
)
"""The fields of ``KEY.json``, besides kept columns: ``status``, ``size``, ``crc32`` and ``fetched_at``
(seconds since 1970) are numbers, the others texts. ``sha256`` is "" with ``--digests crc32``."""


class PublisherSettings(msgspec.Struct, frozen=True):
    """What a publisher is started with.

    ``root``: where shards are published, a directory or ``s3://BUCKET/PREFIX``. ``home``: the directory of
    the tool's own files, on the same machine. ``store``: tar or parquet. ``compression``: none, gz or zst.
    ``max_size``: --shard-size, in bytes. ``reproducible``: samples are in the order of their keys, with
    times of 0. ``access``: to a bucket. ``hashed``: shards have an MD5. ``stall_timeout``: see ``Config``.
    ``existing``: see --existing. ``of_slice``: ``root`` is that of an attempt at a slice.
    ``which``: device and inode of ``root``, see ``core.ownership.Rules``.
    """

    root: str
    home: str
    store: str
    compression: str
    max_size: int
    reproducible: bool
    access: BucketAccess = NO_OPTIONS
    hashed: bool = True
    stall_timeout: float = 30.0
    existing: str = "replace"
    of_slice: bool = False
    which: tuple[int, int] = (0, 0)


def bucket_settings(root: str, home: str, access: BucketAccess, stall_timeout: float) -> PublisherSettings:
    """Return the settings of a process that works on the bucket ``root`` and publishes no shard."""
    return PublisherSettings(
        root=root,
        home=home,
        store="tar",
        compression="none",
        max_size=0,
        reproducible=False,
        access=access,
        stall_timeout=stall_timeout,
    )


class FailedItem(msgspec.Struct, frozen=True, array_like=True):
    """An item of a shard that is not stored: ``key`` would have been that of its sample.

    ``columns``: its kept columns, in MessagePack.
    """

    key: str
    name: str
    url: str
    code: str
    detail: str
    columns: bytes = b""


class ShardJob(msgspec.Struct, frozen=True, array_like=True):
    """A whole part to publish as shard ``number``.

    ``part``: the path of the part; it does not exist if no item is stored. ``count``: the items of the
    shard, ``failed`` ones included. ``began``, ``ended``: when they were fetched, in seconds since 1970.
    ``types``: see ``messages.Types``. ``stored``: see ``records.ShardRecord``.
    """

    number: int
    part: str
    count: int
    failed: list[FailedItem]
    began: float
    ended: float
    types: str = ""
    stored: bytes | None = None


class FileStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """A published file with samples: its name below ``root``, its MD5 (hex, or ""), samples, and bytes.

    ``crc32``: that of a file without an MD5, -1 where there is none either. ``_stats.json`` has it so.
    """

    name: str
    md5: str
    samples: int
    size: int
    crc32: int = -1


class PublishedShard(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An answer: the shard is published, in these files (none if it has no sample); the part is removed.

    ``replaced``: how many files of others had the names of its files.
    """

    number: int
    files: list[FileStats]
    replaced: int = 0


class Waiting(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """No answer yet: the publisher is alive, and a bucket is asked. ``text``: what the user is to know."""

    text: str = ""


class NotPublished(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """An answer: publishing failed. ``text`` says what happened, to what, and what to do next."""

    number: int
    text: str
