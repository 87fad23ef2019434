"""Verify, hash and record the files of a batch, in the groups in which responses are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from downloader.config.config import Config
from downloader.core.checksum import crc32
from downloader.core.content_check import mismatch
from downloader.core.digests import digest_of
from downloader.core.file_records import Frame, pack, packed, same, sum_of
from downloader.core.host import Host
from downloader.core.redact import redact_url
from downloader.errors import DestinationError, FetchError
from downloader.http.task import FetchTask
from downloader.messages import Lease, ResponseInfo
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import NEW, OLD, REPLACED, WRITTEN, Sink, Unprepared
from downloader.storage.ledger import Entries, Slot
from downloader.storage.record_spool import SpoolWriter
from downloader.worker.active_batch import ActiveBatch
from downloader.worker.requests import TaskBuilder
from downloader.worker.setup import Setup

__all__ = ["RecordedBatch", "Recorder", "batch_maker"]

_UNKNOWN = ResponseInfo(0, "", "", "", "", 0.0)


def batch_maker(
    config: Config, setup: Setup, builder: TaskBuilder
) -> tuple[Callable[[Lease, Slot | Entries, Sink, float], ActiveBatch], Callable[[], None]]:
    """Return a function that makes the batch of a lease, of the kind that the options need, and its end.

    The second function is to be called when no further batch is made or stored.
    """
    if not config.recording and config.checksums != "all":
        return ActiveBatch, lambda: None
    spool = SpoolWriter(setup.records) if setup.records is not None else None
    recorder = Recorder(spool, config.hash_algorithm, builder)
    return partial(RecordedBatch, recorder=recorder), recorder.close


class Recorder:
    """What the recorded batches of a worker share. ``algorithm``: see --hash; "" without it."""

    def __init__(self, spool: SpoolWriter | None, algorithm: str, builder: TaskBuilder) -> None:
        self._spool = spool
        self._algorithm = algorithm
        self._digest = digest_of(algorithm) if algorithm else None
        self._builder = builder

    def hashes(self, bodies: list[bytes | bytearray]) -> list[bytes]:
        """Return the digest of each of ``bodies``, none without --hash."""
        return list(map(self._digest, bodies)) if self._digest is not None else []

    def shown(self, digest: bytes) -> str:
        """Return ``digest`` as ``ALGORITHM:HEX``, "" for b""."""
        return f"{self._algorithm}:{digest.hex()}" if digest else ""

    def record(
        self, seq: int, tasks: list[FetchTask], sizes: list[int], crcs: list[int], hashes: list[bytes]
    ) -> None:
        """Record files of batch ``seq`` that are about to be stored. Raises DestinationError."""
        if self._spool is None:
            return
        items = [task.item for task in tasks]
        infos = [task.response or _UNKNOWN for task in tasks]
        first = infos[0]
        if all([info is first for info in infos]):
            infos = [first]  # then a value of it stands for all; see `Frame`
        urls: list[str] = []
        if not self._builder.has_base:
            urls = list(map(self._builder.shown, items))
        elif any([item.url for item in items]):
            urls = [item.url and redact_url(item.url) for item in items]
        frame = Frame(
            packed("I", [task.index for task in tasks]),
            sum_of([item.name for item in items]),
            packed("Q", sizes),
            packed("I", crcs),
            same([int(info.fetched_at) for info in infos]),
            same([info.status for info in infos]),
            same([info.etag for info in infos]),
            same([info.last_modified for info in infos]),
            same([info.content_type for info in infos]),
            self._algorithm,
            hashes,
            urls,
            same([item.columns for item in items]),
            {at: info.url for at, info in enumerate(infos) if info.redirected},
        )
        self._spool.write(seq, pack(frame))

    def close(self) -> None:
        """Close the spool."""
        if self._spool is not None:
            self._spool.close()


class RecordedBatch(ActiveBatch):
    """An ``ActiveBatch`` that verifies what responses state of small files, and records every file.

    A record is written before the name appears. That of a file that is then not stored is ignored, since
    the journal does not have the file.
    """

    __slots__ = ("_recorder",)

    def __init__(
        self, lease: Lease, slot: Slot | Entries, sink: Sink, opened: float = 0.0, *, recorder: Recorder
    ) -> None:
        super().__init__(lease, slot, sink, opened)
        self._recorder = recorder

    def publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        """See ``TaskBatch``."""
        writer.finish()
        digest = writer.hash
        self._recorder.record(self.seq, [task], [writer.size], [writer.crc], [digest] if digest else [])
        return self._publish(task, writer, self._recorder.shown(digest))

    def put_all(self, responses: Iterable[tuple[FetchTask, object]]) -> tuple[int, Exception | None]:
        """See ``TaskBatch``."""
        tasks, bodies, problem = self._leading(responses)
        crcs = list(map(crc32, bodies))
        hashes = self._recorder.hashes(bodies)
        count = old = size = replaced = written = 0
        put, states, sums = self._writer.put, self.states, self._crcs
        try:
            if tasks:
                self._recorder.record(self.seq, tasks, list(map(len, bodies)), crcs, hashes)
            for task, body, crc in zip(tasks, bodies, crcs, strict=True):
                index = task.index
                length = len(body)
                # As in `ActiveBatch.put_all`.
                sums[index] = crc
                states[index] = -3 - length
                how = put(task.item, index, body, crc, task.response)
                if how == NEW:
                    states[index] = length + 2
                elif how == WRITTEN:
                    written += 1
                else:
                    how = self._put(task, body, self._recorder.shown(hashes[count]) if hashes else "")
                    is_old = how in OLD
                    length = 0 if is_old else length
                    old += is_old
                    replaced += how == REPLACED
                    written += how == WRITTEN
                size += length
                count += 1
        except (FetchError, DestinationError, Unprepared) as error:
            problem = error
        self._count(count, old, size, replaced)
        return count, self._put_together(count, written, problem)

    def _leading(
        self, responses: Iterable[tuple[FetchTask, object]]
    ) -> tuple[list[FetchTask], list[bytes | bytearray], Exception | None]:
        """Return the leading ``responses`` that can be stored together, and the error of the next one."""
        tasks: list[FetchTask] = []
        bodies: list[bytes | bytearray] = []
        host: Host | None = None
        for task, body in responses:
            if type(body) is not bytes and type(body) is not bytearray:
                break
            if task.batch is not self or task.promised:
                break
            if task.host is not host:
                if host is not None:
                    break
                host = task.host
            if (stated := task.stated) is not None:
                found = digest_of(stated.algorithm)(body)
                if found != stated.digest:
                    return tasks, bodies, mismatch(stated, found)
            tasks.append(task)
            bodies.append(body)
        return tasks, bodies, None
