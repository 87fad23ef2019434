"""Write the samples of one shard."""

from __future__ import annotations

import hashlib
import os
from time import time
from typing import Protocol

from downloader.core.checksum import crc32
from downloader.core.column_types import ColumnTypes
from downloader.core.executed_extensions import EXECUTED
from downloader.core.item_states import IN_FLIGHT, NO_CLAIM, SKIPPED, UNOWNED, Claim, unpack
from downloader.core.redact import redact_url
from downloader.core.shard_keys import UNKNOWN, extension_of
from downloader.errors import failure_kind
from downloader.files.directory import Directory
from downloader.messages import DUPLICATE, Item, Lease, ResponseInfo
from downloader.process.long_work import close_file
from downloader.sinks.failing import content_error, shard_error
from downloader.sinks.shards.files import SealedShard, part_path, seal
from downloader.sinks.shards.jobs import FailedItem, ShardJob
from downloader.sinks.shards.keys import ShardKeys
from downloader.sinks.shards.options import ShardOptions
from downloader.sinks.shards.part import Part, Room
from downloader.sinks.shards.publisher import Publisher
from downloader.sinks.shards.records import pack_indices
from downloader.sinks.shards.samples import Sample, encode_sample, kinds_of
from downloader.sinks.sink import WRITTEN, BatchContent, Recovered, Unprepared

__all__ = ["SampleWriter", "ShardBatch"]

_IN_MEMORY = 1 << 20
_NOTHING = ResponseInfo(status=0, url="", etag="", last_modified="", content_type="", fetched_at=0.0)


class ShardOwner(Protocol):
    """The part of a ``ShardSink`` that its batches use."""

    home: Directory
    directory: Directory
    options: ShardOptions
    again: bool
    publisher: Publisher

    def published(self, shard: int) -> None:
        """Record that ``shard`` is published."""


class SampleWriter:
    """The writer of one sample; see ``FileWriter``.

    A large content is in a temporary file until it is whole: a part has the content of whole files only,
    and its size before it.
    """

    __slots__ = (
        "_batch",
        "_digest",
        "_file",
        "_index",
        "_item",
        "_memory",
        "_response",
        "_room",
        "crc",
        "size",
    )

    def __init__(self, batch: ShardBatch, item: Item, index: int, response: ResponseInfo | None) -> None:
        self._batch = batch
        self._item = item
        self._index = index
        self._response = response
        self._digest = hashlib.sha256()
        self._memory = bytearray()
        self._file = -1
        self._room: Room | None = None  # which has the content, and is to be filled
        self.size = 0
        self.crc = 0

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``. Raises DestinationError."""
        if self._batch.hashed:
            self._digest.update(chunk)
        self.crc = crc32(chunk, self.crc)
        self.size += len(chunk)
        self._memory += chunk
        if len(self._memory) > _IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        try:
            if self._file < 0:
                self._file = self._batch.directory.unnamed()
            at = 0
            while at < len(self._memory):
                at += os.write(self._file, memoryview(self._memory)[at:])
        except OSError as error:
            raise content_error(error, self._item.name) from error
        self._memory.clear()

    def publish(self) -> int:
        """Append the sample to the part; return WRITTEN."""
        part = self._batch.part
        if self._file < 0:
            before, after = self._members()
            part.append(before, self._memory, after)
            part.flush()
        elif self._room is None:
            raise Unprepared
        else:
            try:
                part.fill(self._room)
            except OSError as error:
                raise content_error(error, self._item.name) from error
            self._room = None
            self.abort()  # the temporary file
        return WRITTEN

    def _members(self) -> tuple[bytes, bytes]:
        digest = self._digest.hexdigest() if self._batch.hashed else ""
        return self._batch.members(self._item, self._index, self._response, self.size, digest, self.crc)

    def prepare(self) -> None:
        """Copy the content into the part, see ``Prepares``."""
        self._spill()
        before, after = self._members()
        part = self._batch.part
        try:
            self._room = part.reserve(before, self.size, after)
            part.copy(self._room, self._file)
        except OSError as error:
            raise content_error(error, self._item.name) from error

    def abort(self) -> None:
        """Discard the content, which the part has if it was published."""
        if self._room is not None:
            self._batch.part.free(self._room)
            self._room = None
        if self._file >= 0:
            close_file(self._file, self.size)
            self._file = -1


class ShardBatch:
    """A shard that is being filled; see ``BatchWriter``."""

    def __init__(
        self, sink: ShardOwner, lease: Lease, keys: ShardKeys, part: Part, recovered: Recovered
    ) -> None:
        self._sink = sink
        self._lease = lease
        self._keys = keys
        self._shard = lease.shards[-1]
        self._kinds = kinds_of(ColumnTypes.decode(lease.types))
        self._texts = sink.options.members
        self._unsafe = sink.options.unsafe
        self._reproducible = sink.options.reproducible
        self.hashed = sink.options.hashed
        self._began = time()
        self.directory = sink.directory
        self.part = part
        self.flush = part.flush
        self.recovered = recovered
        self._samples = len(recovered.written)

    def suspend(self, lease: Lease) -> None:
        """See ``Suspends``."""
        self._lease = lease
        self._keys.go_on(lease)
        self.part.suspend()

    def put(
        self, item: Item, index: int, body: bytes | bytearray, crc: int, response: ResponseInfo | None
    ) -> int:
        """Append the sample of ``item``, to be written by the next ``flush``; return WRITTEN."""
        digest = hashlib.sha256(body).hexdigest() if self.hashed else ""
        before, after = self.members(item, index, response, len(body), digest, crc)
        self.part.append(before, body, after)
        return WRITTEN

    def open(
        self, item: Item, index: int, claim: Claim = NO_CLAIM, response: ResponseInfo | None = None
    ) -> SampleWriter:
        """See ``BatchWriter``."""
        return SampleWriter(self, item, index, response)

    def members(
        self, item: Item, index: int, response: ResponseInfo | None, size: int, digest: str, crc: int
    ) -> tuple[bytes, bytes]:
        """Return what precedes and what follows the content of ``item`` in the part.

        ``digest``: its SHA-256 in hexadecimal, or ""; ``crc``: its CRC-32.
        """
        info = response or _NOTHING
        self._samples += 1
        sample = Sample(
            self._keys.key(index),
            item.name,
            # Nothing is to be redacted of what is equal to a redacted one.
            redact_url(item.url) if item.url and item.url != info.url else info.url,
            info.url,
            info.status,
            size,
            digest,
            crc,
            info.content_type,
            info.etag,
            info.last_modified,
            0.0 if self._reproducible else info.fetched_at,
        )
        modified = 0 if self._reproducible else int(info.fetched_at)
        extension = extension_of(item.name, info.content_type, item.url)
        if extension in EXECUTED and not self._unsafe:
            extension = UNKNOWN
        return encode_sample(sample, extension, item.columns, self._texts, modified, self._kinds)

    def commit(self, content: BatchContent) -> int:
        """Publish the shard; wait for that; return how many files of others it replaced.

        Raises DestinationError.

        Nothing is published for items that are fetched again and fail again: they have their rows.
        """
        path = part_path(self._sink.home, self._shard)
        self.part.flush()
        try:
            self.part.mend()
        except OSError as error:
            raise shard_error(error, str(path)) from error
        self.part.close()
        if not self._samples:
            path.unlink(missing_ok=True)
        if self._samples or not (self._lease.only or self._sink.again):
            try:
                seal(self._sink.home, self._shard, SealedShard(content.marks, list(content.failures)))
            except OSError as error:
                raise shard_error(error, str(path)) from error
            published = self._sink.publisher.publish(
                ShardJob(
                    self._shard,
                    str(path),
                    len(self._lease.only) or self._lease.count,
                    self._failed(content),
                    self._began,
                    time(),
                    self._lease.types,
                    self._stored(content),
                )
            )
            self._sink.published(self._shard)
            return published.replaced
        return 0

    def _stored(self, content: BatchContent) -> bytes:
        """Return which items have a sample in this shard, not in an earlier one of the batch."""
        states = unpack(content.marks)[0].tolist()  # as `item_states.written`, in a fifth of the time
        indices = self._lease.only or range(len(states))
        return pack_indices(
            [at for at in indices if IN_FLIGHT < states[at] < SKIPPED or states[at] < UNOWNED]
        )

    def _failed(self, content: BatchContent) -> list[FailedItem]:
        """Return the items of the shard that have no sample."""
        key, items = self._keys.key, self._keys.items
        failed = [
            FailedItem(
                key(each.index),
                each.name,
                each.url,
                each.code,
                each.detail or failure_kind(each.code).meaning,
                items[each.index].columns,
            )
            for each in content.failures
        ]
        for index in self._lease.only or range(self._lease.count):
            if items[index].fault == DUPLICATE:
                text = "an earlier item has its name (--on-duplicate skip)"
                columns = items[index].columns
                failed.append(FailedItem(key(index), items[index].name, "", DUPLICATE, text, columns))
        return failed

    def abort(self) -> None:
        """Keep the part, which the next run goes on with."""
        self.part.flush()
        self.part.close()
