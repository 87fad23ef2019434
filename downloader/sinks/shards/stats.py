"""Name the files of a shard, and define what its ``_stats.json`` says.

The fields up to ``status_dict`` are those of img2dataset 1.47 (``logger.write_stats``), so that what reads
its datasets reads these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from downloader.errors import UNDECODABLE
from downloader.files.directory import Entry
from downloader.sinks.shards.files import LARGEST_FILE
from downloader.sinks.shards.jobs import FileStats, ShardJob

__all__ = [
    "IS_OURS",
    "STATS_SUFFIX",
    "FileStats",
    "ShardStats",
    "file_name",
    "items_name",
    "make_stats",
    "read_stats",
    "stats_name",
]

STATS_SUFFIX: Final = "_stats.json"
IS_OURS: Final = re.compile(
    r"[0-9]{5,}(-[0-9]+)?\.(tar|tar\.gz|tar\.zst|parquet)|[0-9]{5,}(_items)?\.(parquet|jsonl)"
    r"|[0-9]{5,}_stats\.json|shards\.json|sizes\.json"
).fullmatch
"""Whether a name may be that of a file of a dataset, in any of the stores."""
_SUFFIXES: Final = {"none": "", "gz": ".gz", "zst": ".zst"}


class ShardStats(msgspec.Struct, frozen=True):
    """The content of ``_stats.json``.

    ``duration`` in seconds, ``start_time`` and ``end_time`` in seconds since 1970. ``status_dict``: items
    by "success" or code of failure. ``bytes``: the content of all samples, without headers and metadata.
    """

    count: int
    successes: int
    failed_to_download: int
    failed_to_resize: int
    duration: float
    start_time: float
    end_time: float
    status_dict: dict[str, int]
    shard: int
    bytes: int
    files: list[FileStats]


def make_stats(job: ShardJob, content: int, files: Sequence[FileStats]) -> ShardStats:
    """Return the stats of a shard whose samples have ``content`` bytes, in ``files``."""
    stored = job.count - len(job.failed)
    codes = {"success": stored} if stored else {}
    for code in sorted(item.code for item in job.failed):
        codes[code] = codes.get(code, 0) + 1
    return ShardStats(
        count=job.count,
        successes=stored,
        failed_to_download=len(job.failed),
        failed_to_resize=0,
        duration=max(0.0, job.ended - job.began),
        start_time=job.began,
        end_time=job.ended,
        status_dict=codes,
        shard=job.number,
        bytes=content,
        files=list(files),
    )


def read_stats(path: Entry) -> ShardStats | None:
    """Return the stats in the file ``path``, None if there is none or it is damaged. Raises OSError."""
    try:
        found = msgspec.json.decode(path.read(LARGEST_FILE), type=ShardStats)
    except (FileNotFoundError, *UNDECODABLE):
        return None
    return found if all(IS_OURS(file.name) for file in found.files) else None


def file_name(shard: int, index: int, store: str, compression: str) -> str:
    """Return the name of a shard's file with samples; ``index`` counts the files of the shard from 0."""
    part = f"-{index}" if index else ""
    suffix = "parquet" if store == "parquet" else f"tar{_SUFFIXES[compression]}"
    return f"{shard:05d}{part}.{suffix}"


def items_name(shard: int, store: str, form: str) -> str:
    """Return the name of the file with a row for every item; ``form`` is parquet or jsonl."""
    return f"{shard:05d}{'_items' if store == 'parquet' else ''}.{form}"


def stats_name(shard: int) -> str:
    """Return the name of a shard's stats."""
    return f"{shard:05d}{STATS_SUFFIX}"
