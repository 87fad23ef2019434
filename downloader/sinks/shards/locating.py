"""Say which shard of its batch has an item, and under which key, for a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from downloader.core.shard_keys import name_keys
from downloader.errors import UNDECODABLE
from downloader.files.directory import Directory
from downloader.sinks.shards.files import STATS
from downloader.sinks.shards.inspecting import ShardInspector
from downloader.sinks.shards.options import ShardOptions
from downloader.sinks.shards.records import DamagedRecord, ShardRecord, has_index, read_record
from downloader.sinks.shards.stats import stats_name
from downloader.sinks.sink import Written

__all__ = ["ShardLocator"]


class _Ended(msgspec.Struct, frozen=True):
    """What is needed of the stats of a shard."""

    end_time: float = 0.0


class _OfBatch(NamedTuple):
    """The shards of a batch: those whose records say which items they have, newest first, and others.

    ``is_known``: no record is damaged, so that what the others say is all there is to say.
    """

    recorded: list[tuple[int, bytes]]
    others: list[int]
    is_known: bool = True


class ShardLocator:
    """See ``sinks.sink.Locate``. ``home``: of the tool's own files, with the records of the shards.

    The key follows from the item. Where a batch has several shards, their records say which has what. A
    shard is read only where an earlier version has published several: in a bucket that is not known.
    """

    def __init__(self, options: ShardOptions, home: Directory, inspector: ShardInspector) -> None:
        self._options = options
        self._home = home
        self._inspector = inspector

    def locate(self, written: Sequence[Written], names: Sequence[str]) -> list[tuple[str, str]]:
        """Return shard and key of each of ``written``; "" for what is in no shard, or is not known."""
        shards = written[0].shards if written else ()  # those of the batch
        if not shards:
            return [("", "")] * len(written)
        known = name_keys(names) if self._options.by_name and names else []
        keys = [(known[each.index],) if known else self._inspector.keys(each) for each in written]
        if len(keys[0]) > 1:
            return [
                self._inspector.find(each, possible) for each, possible in zip(written, keys, strict=True)
            ]
        if len(shards) == 1:
            shard = f"{shards[0]:05d}"
            return [(shard, key) for (key, *_) in keys]
        of_batch = self._of_batch(shards)
        return [self._place(each, possible, of_batch) for each, possible in zip(written, keys, strict=True)]

    def _of_batch(self, shards: Sequence[int]) -> _OfBatch:
        recorded: list[tuple[float, int, bytes]] = []
        unsaid, nowhere, is_known = [], [], True
        for shard in shards:
            try:
                record = read_record(self._home, shard)
            except DamagedRecord:
                record, is_known = None, False
            if record is not None and record.stored is not None:
                recorded.append((_ended(record), shard, record.stored))
            elif record is not None or self._is_published(shard):
                unsaid.append(shard)
            else:
                nowhere.append(shard)  # all its items have failed again, or a power cut took its record
        recorded.sort(reverse=True)
        return _OfBatch([(shard, stored) for _, shard, stored in recorded], unsaid or nowhere, is_known)

    def _is_published(self, shard: int) -> bool:
        return (self._home / STATS / stats_name(shard)).exists() or self._inspector.has_files(shard)

    def _place(self, written: Written, keys: Sequence[str], of_batch: _OfBatch) -> tuple[str, str]:
        # What was found damaged is in two of them: in the one that was published last it is whole.
        for shard, stored in of_batch.recorded if of_batch.is_known else ():
            if has_index(stored, written.index):
                return f"{shard:05d}", keys[0]
        if len(of_batch.others) == 1 and of_batch.is_known:
            return f"{of_batch.others[0]:05d}", keys[0]
        return self._inspector.find(written, keys)


def _ended(record: ShardRecord) -> float:
    """Return when the shard of ``record`` was complete, 0 if that is not known."""
    try:
        return msgspec.json.decode(record.stats, type=_Ended).end_time
    except UNDECODABLE:
        return 0.0
