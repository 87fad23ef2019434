"""Define the options of shards."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from downloader.config.extensions import Option, one_of
from downloader.core.units import parse_size

if TYPE_CHECKING:
    from downloader.config.config import Config

__all__ = [
    "LARGEST_VALUE",
    "MOST_SHARD_FILES",
    "SAMPLE_KEYS",
    "SHARD_OPTIONS",
    "ShardOptions",
    "parse_members",
    "shard_options",
]

MOST_SHARD_FILES: Final = 100_000
LARGEST_VALUE: Final = (1 << 31) - (1 << 16)
"""The most bytes of a value in Parquet: a page has a size of 32 bits, and more in it than the value."""
_COMPRESSIONS: Final = ("none", "gz", "zst")
SAMPLE_KEYS: Final = ("index", "name")
_DIGESTS: Final = ("sha256", "crc32")
_MEMBER = re.compile(r"([A-Za-z0-9_-]{1,12})=(.+)").fullmatch


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SHARD_FILES:
        raise ValueError(f"{text[:40]!r} is not a number from 1 to {MOST_SHARD_FILES:,}")
    return int(text)


def _size(text: str) -> int:
    size = parse_size(text)
    if size < 1:
        raise ValueError("must be at least 1")
    return size


def _members(text: str) -> str:
    parse_members(text)
    return text


def parse_members(text: str) -> dict[str, str]:
    """Return the extensions of --member, each with its column. Raises ValueError."""
    found: dict[str, str] = {}
    for each in filter(None, text.split(",")):
        match = _MEMBER(each)
        if match is None:
            raise ValueError(f"{each[:40]!r} is not EXT=COLUMN, as in txt=caption")
        if match[1].lower() == "json":
            raise ValueError(
                f"{each[:40]!r}: json is the member with the metadata of the sample, which has the columns "
                "of --keep-columns; choose another extension"
            )
        extension = match[1].lower()
        if extension.startswith("__") and extension.endswith("__"):
            raise ValueError(
                f"{each[:40]!r}: readers of WebDataset keep names between two underscores, as __key__ and "
                "__url__, to themselves; choose another extension"
            )
        if found.setdefault(extension, match[2]) != match[2]:
            raise ValueError(f"{extension} is given two columns, {found[extension]} and {match[2]}")
    return found


SHARD_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="shard_files",
        metavar="N",
        default=10_000,
        type=_count,
        help="tar, parquet: items of a shard.",
    ),
    Option(
        name="shard_size",
        metavar="SIZE",
        default=1 << 30,
        shown="1G",
        type=_size,
        help="tar, parquet: a shard that is larger is cut into several files.",
    ),
    Option(
        name="shard_compression",
        metavar="|".join(_COMPRESSIONS),
        default="none",
        type=one_of(_COMPRESSIONS),
        help="tar: compress whole shards.",
    ),
    Option(
        name="sample_key",
        metavar="|".join(SAMPLE_KEYS),
        type=one_of(SAMPLE_KEYS),
        help="tar, parquet: keys of samples; also --key, without --cert.  [index for a list, else name]",
    ),
    Option(
        name="member",
        metavar="EXT=COLUMN,…",
        type=_members,
        repeatable=True,
        help="tar: members of a sample that have a column of the list (repeatable).",
    ),
    Option(
        name="digests",
        metavar="|".join(_DIGESTS),
        default=_DIGESTS[0],
        type=one_of(_DIGESTS),
        help="tar: SHA-256 of each sample and MD5 of each shard, or only CRC-32 of each sample.",
    ),
    Option(
        name="endpoint_url",
        metavar="URL",
        help="s3://…: another store than that of AWS.",
    ),
    Option(name="region", metavar="NAME", help="s3://…: the region.  [that of the environment]"),
    Option(
        name="reproducible",
        default=False,
        help="tar, parquet: samples in the order of the list, times of 0: the same bytes each time.",
    ),
    Option(
        name="unsafe_extensions",
        default=False,
        help="tar: let members have extensions whose content readers execute: pickle, pkl, pt, npy, …",
    ),
)


class ShardOptions(NamedTuple):
    """The options of a job's shards. ``members``: see ``parse_members``.

    Those with a default are newer than the others, and are left out of an identity where they have it.
    """

    files: int
    size: int
    compression: str
    by_name: bool
    members: dict[str, str]
    reproducible: bool
    digests: str = _DIGESTS[0]
    unsafe: bool = False

    @property
    def hashed(self) -> bool:
        """Return whether samples have a SHA-256, and shards an MD5."""
        return self.digests == _DIGESTS[0]


def shard_options(config: Config) -> ShardOptions:
    """Return the options of ``config``."""
    option = config.store_option
    return ShardOptions(
        files=option("shard_files"),
        size=option("shard_size"),
        compression=option("shard_compression"),
        by_name=(option("sample_key") or ("index" if config.source_kind.editable else "name")) == "name",
        members=parse_members(option("member")),
        reproducible=option("reproducible"),
        digests=option("digests"),
        unsafe=option("unsafe_extensions"),
    )
