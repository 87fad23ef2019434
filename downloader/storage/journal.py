"""Record the progress of a job in the journal, an SQLite database under ``DEST/.downloader/``.

Only the supervisor writes it. There is one row for each batch, and one for each failed file. The row of a
batch, with the cursor after it, is written before the batch is leased. It becomes ``done`` only after the
files of the batch are published. So the cursor is never ahead of the journal, and the journal is never
ahead of the data (without --fsync: as the running kernel sees it). ``schema`` describes the tables.
Checksums and counts (``table``) detect a damaged journal, which is then not used at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from downloader.core.checksum import crc32
from downloader.core.column_types import ColumnTypes
from downloader.core.item_digests import Digest, decode_digests
from downloader.core.item_states import (
    OWNED,
    Claim,
    changed,
    claimed,
    merge,
    published,
    summed,
    unpack,
    written,
)
from downloader.core.limits import MOST_BATCH_ITEMS
from downloader.core.name_list import decode_names
from downloader.core.naming import is_keyed
from downloader.core.run_times import MOST, Times
from downloader.errors import UNDECODABLE, JournalError, failure_kind
from downloader.files.directory import Directory, Entry
from downloader.messages import Batch, BatchDone, Failure, Narrowed, Tally
from downloader.sinks.sink import Verify, Written
from downloader.storage.records import BatchRow, JobSpec
from downloader.storage.schema import (
    BATCH,
    DIGEST,
    FAILURE,
    JOB,
    LISTING,
    PUBLISHED,
    SHARD,
    AnyRow,
    BatchFigures,
    DigestRow,
    FailureRow,
    JobRow,
    Listing,
    PublishedRow,
    Table,
)
from downloader.storage.shard_numbers import ShardNumbers
from downloader.storage.table import Rows

__all__ = ["NAME", "BatchRow", "JobSpec", "Journal", "Position"]

NAME = "journal.sqlite"

# The code of a ``name-taken`` failure in a row until it is known whether another item owns the name. Such
# an item is pending.
_CONTESTED = "contested"
_NAME_TAKEN = "name-taken"

_KEYS = ("job", "ended", "running", "unsynced")  # each has a row from the start
_NUMBERS = ("relisted", "doubtful")
_Time = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Times = Annotated[tuple[tuple[_Time, _Time], ...], msgspec.Meta(max_length=MOST)]
_DIGITS = 19  # of a number that is recorded of the job: a time in ns
_UNFINISHED = "(done = 0 OR failed > 0)"


class Position(NamedTuple):
    """How far a source was read: the cursor after the last batch, the number of the next one, the items."""

    cursor: bytes
    seq: int
    listed: int


class Journal:
    """An open journal. Every method raises JournalError if SQLite fails, or if the journal is damaged.

    ``durable``: data is on the disk when a method returns. ``alone``: see ``Rows``.
    """

    def __init__(
        self, home: Directory, *, read_only: bool = False, durable: bool = False, alone: bool = False
    ) -> None:
        self._rows = Rows(home / NAME, read_only=read_only, durable=durable, alone=alone)
        self.path = self._rows.path
        self.shards = ShardNumbers(self._rows)

    def damaged(self, what: object) -> JournalError:
        """Return the error for a journal that is not as it was written."""
        return self._rows.damaged(what)

    def close(self) -> None:
        """Close the journal; SQLite checkpoints the write-ahead log."""
        self._rows.close()

    def lost(self) -> Entry | None:
        """See ``Rows.lost``."""
        return self._rows.lost()

    # the job

    def job(self) -> JobSpec | None:
        """Return the job of this journal, None if it is new. Checks the journal for damage."""
        text = self._get("job")
        if not text:
            if self._rows.figures("SELECT count(*) FROM batch") != (0,):
                raise self._rows.damaged("it does not say whose it is")
            return None
        try:
            job = msgspec.json.decode(text, type=JobSpec)
            ColumnTypes.decode(job.types)
        except UNDECODABLE as error:
            raise self._rows.damaged(error) from error
        self._inspect()
        return job

    def _inspect(self) -> None:
        """Raise JournalError if a row that records progress is missing or is not what was written."""
        rows = self._rows
        rows.inspect(JOB)
        rows.inspect(BATCH)
        rows.inspect(FAILURE)
        batches, first, last, failed, wrong = rows.figures(
            "SELECT count(*), min(seq), max(seq), sum(failed), sum(sum != "
            "row_sum(seq, count, done, stored, failed, bytes, unverified) "
            f"OR {_mistyped(BATCH)} OR count NOT BETWEEN 0 AND {MOST_BATCH_ITEMS}) FROM batch"
        )
        failures, strange = rows.figures(
            "SELECT count(*), sum(failure.sum != row_sum(seq, idx, name, url, code, detail, attempts) "
            f"OR {_mistyped(FAILURE)} OR idx NOT BETWEEN 0 AND ifnull(count, 0) - 1) "
            "FROM failure LEFT JOIN batch USING (seq)"
        )
        if wrong or strange:
            raise rows.damaged(f"{wrong + strange} rows are not what was written")
        try:
            for code in self._rows.counted("SELECT code, 1 FROM failure GROUP BY code"):
                failure_kind(_told(code))
        except (KeyError, ValueError):
            raise rows.damaged("a failure in it has a code that there is not") from None
        if batches and (first, last) != (0, batches - 1):
            raise rows.damaged("batches are missing")
        if failures != failed:
            raise rows.damaged(f"{failed} failures were written down, {failures} are there")
        _, _, ended = (self._get("ended") or "").partition(" ")
        if ended and ended != str(batches):
            raise rows.damaged(f"{ended} batches were listed, {batches} are there")
        if any(self._get(key) is None for key in _KEYS):
            raise rows.damaged("what is known of the job is missing")
        for key in _NUMBERS:
            self._number(key)
        _ = self.runs
        self.shards.inspect(expected=False)

    def begin(self, job: JobSpec, *, anew: bool = False) -> None:
        """Record ``job`` as the job of this journal; ``anew``: and forget the source read before.

        This is synced in any case, so that a power cut never leaves files without a job.
        """
        with self._rows.synced(), self._rows.transaction():
            self._put("job", msgspec.json.encode(job).decode())
            for key in _KEYS[1:]:
                if self._get(key) is None:
                    self._put(key, "")
            if anew:
                self._forget_listing()

    @property
    def ended(self) -> bool:
        """Return whether the source was read to its end."""
        return (self._get("ended") or "").startswith("end ")

    @property
    def read(self) -> bool:
        """Return whether the last run read the source as far as it should: to its end, or to --limit."""
        return bool(self._get("ended"))

    def end(self, *, limited: bool = False) -> None:
        """Record that the source was read to its end, or to --limit, and that every batch has a row.

        A source that was read to its end stays so where --limit is less.
        """
        if limited and self.ended:
            return
        (batches,) = self._rows.figures("SELECT count(*) FROM batch")
        self._put("ended", f"{'limit' if limited else 'end'} {batches}")

    @property
    def complete_since(self) -> str:
        """Time since when all listed items are stored, in ISO 8601; "" if they are not, or if unknown."""
        return (self._get("completed") or "") if self.ended and not self.unfinished_count() else ""

    def complete(self, when: str) -> None:
        """Record that all listed items are stored since ``when``."""
        self._put("completed", when)

    @property
    def relisted_ns(self) -> int:
        """Return what ``relist`` has recorded last, 0 if nothing."""
        return self._number("relisted")

    def relist(self, before_ns: int) -> None:
        """Record that the source is read again; ``before_ns``: ``core.ownership.Rules.known_before_ns``."""
        self._put("relisted", str(before_ns))

    def begin_anew(self) -> None:
        """Forget all listed items, so that the source is read again."""
        with self._rows.transaction():
            self._forget_listing()

    def _forget_listing(self) -> None:
        for table in (BATCH, LISTING, PUBLISHED, FAILURE, SHARD, DIGEST):
            self._rows.delete(table, "1")
        self._put("ended", "")

    @property
    def running(self) -> str:
        """Boot in which a run was started and not ended; "" if there is none."""
        return self._get("running") or ""

    @property
    def runs(self) -> Times:
        """When the job was active; () if it is new, or of a version that did not record it."""
        try:
            return msgspec.json.decode(self._get("runs") or "[]", type=_Times)
        except UNDECODABLE as error:
            raise self._rows.damaged(error) from error

    def run(self, boot: str, runs: Times) -> None:
        """Record that a run is active in ``boot``, "": that it has ended, and when the job was active.

        This is synced in any case: a power cut may lose all later writes, but not this one.
        """
        with self._rows.synced(), self._rows.transaction():
            self._put("running", boot)
            self._put("runs", msgspec.json.encode(runs).decode())

    @property
    def unsynced(self) -> bool:
        """Return whether files of open batches may not be on the disk, even if they look right."""
        return bool(self._get("unsynced"))

    def mark_unsynced(self) -> None:
        """Record that a sync failed, and that nothing is published of open batches."""
        with self._rows.transaction():
            for row in list(self._rows.select(BATCH, "WHERE done = 0")):
                self._rows.delete(PUBLISHED, "seq = ?", row.seq)
                self._recount(row.seq, b"")
            self._put("unsynced", "1")

    def mark_synced(self) -> None:
        """Record that every file was written again and synced after a failed sync."""
        self._put("unsynced", "")

    @property
    def doubtful(self) -> int:
        """Number of stored files that may have the bodies of others, in all runs."""
        return self._number("doubtful")

    def doubt(self, files: int) -> None:
        """Record that ``files`` more may have the bodies of others. Only --restart forgets that."""
        self._put("doubtful", str(self.doubtful + files))

    def _number(self, key: str) -> int:
        """Return what is recorded of the job as ``key``, 0 if nothing is."""
        text = self._get(key) or "0"
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
            raise self._rows.damaged(f"{key} is no number")
        return int(text)

    def _get(self, key: str) -> str | None:
        row = self._rows.find(JOB, "WHERE key = ?", key)
        return None if row is None else row.value

    def _put(self, key: str, value: str) -> None:
        self._rows.put(JOB, JobRow(key, value))

    # batches

    def position(self) -> Position:
        """Return how far the source was read."""
        (listed,) = self._rows.figures("SELECT sum(count) FROM batch")
        last = self._rows.find(BATCH, "ORDER BY seq DESC LIMIT 1")
        if last is None:
            return Position(b"", 0, 0)
        return Position(self._listing(last.seq).cursor, last.seq + 1, listed)

    def _listing(self, seq: int) -> Listing:
        """Return what the source has said of a batch."""
        row = self._rows.find(LISTING, "WHERE seq = ?", seq)
        if row is None:
            raise self._rows.damaged(f"what is in batch {seq} is missing")
        return row

    def open_batch(self, batch: Batch) -> None:
        """Record a batch before it is leased. A source that had ended has grown."""
        with self._rows.transaction():
            self._rows.add(BATCH, BatchFigures(batch.seq, batch.count))
            self._rows.add(LISTING, Listing(batch.seq, batch.cursor, batch.names, batch.recall_data))
            self._put_digests(batch)
            if batch.marks:
                self._recount(batch.seq, batch.marks)
            if self.read:
                self._put("ended", "")

    def correct(self, batch: Batch) -> None:
        """Replace cursor, names and origin of a batch, whose items the source has corrected."""
        with self._rows.transaction():
            self._rows.put(LISTING, Listing(batch.seq, batch.cursor, batch.names, batch.recall_data))
            self._put_digests(batch)

    def _put_digests(self, batch: Batch) -> None:
        if batch.digests:
            self._rows.put(DIGEST, DigestRow(batch.seq, crc32(batch.names), batch.digests))

    def digests(self, batch: BatchRow) -> list[Digest] | None:
        """Return the digests of the items of ``batch``, None if they are not known.

        So it is where names alone tell items apart, and in a journal of an earlier version. One that has
        gone on with a journal of this version has left digests behind that are of other items.
        """
        row = self._rows.find(DIGEST, "WHERE seq = ?", batch.seq)
        if row is None or row.names != crc32(batch.names):
            return None
        try:
            return decode_digests(row.digests, batch.count)
        except ValueError as error:
            raise self._rows.damaged(f"batch {batch.seq}: {error}") from error

    def marks(self, seq: int) -> bytes:
        """Return the packed item states of batch ``seq`` as last recorded; b"" if there are none."""
        row = self._rows.find(PUBLISHED, "WHERE seq = ?", seq)
        return b"" if row is None else row.marks

    def names(self, seq: int) -> list[str]:
        """Return the names of the items of batch ``seq``, none if there is no such batch."""
        row = self._rows.find(LISTING, "WHERE seq = ?", seq)
        return decode_names(row.names) if row is not None else []

    def has_keyed(self) -> bool:
        """Return whether a name of an item depends on the key of the job."""
        return any(is_keyed(name) for row in self.batches() for name in decode_names(row.names))

    def keep_marks(self, marks: dict[int, bytes], verify: Verify) -> None:
        """Record the item states of batches whose outcome is unknown (after a drain or a worker's death).

        In a batch that is done, failed files may have been retried: those that ``verify`` finds stored no
        longer count as failed. The files of an open batch are verified when it is leased; so are items that
        go into shards, whose outcome is kept until the journal has it (``sinks.shards.files``).
        """
        if not marks:
            return
        with self._rows.transaction():
            for seq, newer in marks.items():
                row = self._rows.find(BATCH, "WHERE seq = ?", seq)
                if row is None:
                    continue
                try:
                    self._keep(seq, newer, verify, row.items, bool(row.done))
                except (IndexError, ValueError) as error:
                    raise JournalError(
                        f"{self.path} or a ledger beside it is damaged (batch {seq}: {error}); "
                        "--restart begins anew"
                    ) from error

    def _keep(self, seq: int, newer: bytes, verify: Verify, count: int, done: bool) -> None:
        older = self.marks(seq)
        if not done:
            self._recount(seq, merge(older, newer, count))
            return
        failed = {each.index for each in self.failures(seq)}
        if not failed or self.shards.of(seq):
            return
        listed = decode_names(self._listing(seq).names)
        stored = {
            mark.index: mark.state
            for mark in written(newer)
            if mark.index in failed
            and verify(Written(seq, mark.index, listed[mark.index], mark.size, mark.crc))
        }
        if stored:
            crcs = unpack(newer)[1]
            for index in stored:
                self._rows.delete(FAILURE, "seq = ? AND idx = ?", seq, index)
            self._recount(seq, changed(older, count, stored, {index: crcs[index] for index in stored}))

    def _recount(self, seq: int, marks: bytes) -> None:
        row = self._rows.find(BATCH, "WHERE seq = ?", seq)
        if row is not None:
            (failed,) = self._rows.figures("SELECT count(*) FROM failure WHERE seq = ?", seq)
            stored, size = summed(marks)
            self._rows.put(BATCH, row._replace(stored=stored, failed=failed, bytes=size))
            self._rows.put(PUBLISHED, PublishedRow(seq, marks))

    def record_done(self, outcome: BatchDone, marks: bytes, *, retried: Sequence[int] = ()) -> None:
        """Record that a batch is done: its row and its failures, in one transaction.

        ``retried``: the batch was done before, and these items of it were retried. Their earlier failures
        are replaced, and ``marks`` has all items. Otherwise ``marks`` is that of ``outcome``; if nothing
        was skipped, the tally of ``outcome`` is its sum, so it need not be unpacked.
        """
        seq, tally = outcome.seq, outcome.tally
        sums = summed(marks) if retried or tally.skipped else (tally.stored, tally.bytes)
        with self._rows.transaction():
            self._settle(outcome, marks, sums, retried or None, done=True)
            if not retried or tally.stored:
                self.shards.finish(seq)

    def settle_some(
        self, outcome: Narrowed, marks: bytes, finished: Sequence[int], *, all_leased: bool
    ) -> None:
        """Record the items that are finished of a batch which goes on. It stays as open as it was.

        ``finished``: these, and their earlier failures are replaced; those of all items if ``all_leased``.
        """
        with self._rows.transaction():
            self._settle(outcome, marks, summed(marks), None if all_leased else finished, done=False)

    def _settle(
        self,
        outcome: BatchDone | Narrowed,
        marks: bytes,
        sums: tuple[int, int],
        finished: Sequence[int] | None,
        *,
        done: bool,
    ) -> None:
        seq, rows = outcome.seq, self._rows
        before = rows.find(BATCH, "WHERE seq = ?", seq)
        if before is None:
            raise rows.damaged(f"batch {seq} is missing")
        if finished is None:
            rows.delete(FAILURE, "seq = ?", seq)
        for index in finished or ():
            rows.delete(FAILURE, "seq = ? AND idx = ?", seq, index)
        for f in outcome.failures:
            code = _CONTESTED if f.code == _NAME_TAKEN else f.code
            rows.add(FAILURE, _row_of(seq, f, code))
        (failed,) = rows.figures("SELECT count(*) FROM failure WHERE seq = ?", seq)
        stored, size = sums
        unverified = before.unverified + outcome.tally.unverified
        done = done or bool(before.done)
        rows.put(BATCH, BatchFigures(seq, before.items, int(done), stored, failed, size, unverified))
        rows.put(PUBLISHED, PublishedRow(seq, marks))

    def tally(self, *, open_too: bool = False) -> Tally:
        """Return the sums over batches that are done and, with ``open_too``, over open ones as recorded.

        Items whose name is contested have not failed.
        """
        done = "" if open_too else " WHERE done = 1"
        stored, failed, size, unverified = self._rows.figures(
            f"SELECT sum(stored), sum(failed), sum(bytes), sum(unverified) FROM batch{done}"
        )
        (contested,) = self._rows.figures(
            f"SELECT count(*) FROM failure JOIN (SELECT seq FROM batch{done}) USING (seq) "
            f"WHERE code = '{_CONTESTED}'"
        )
        return Tally(stored, 0, failed - contested, size, unverified)

    def unfinished(self) -> Iterator[BatchRow]:
        """Yield batches that are open or have failures, ascending; rows may be settled meanwhile."""
        return self._batches(_UNFINISHED)

    def unsettled(self) -> Iterator[BatchRow]:
        """Yield open batches, ascending; rows may be settled meanwhile."""
        return self._batches("done = 0")

    def failed(self, before: int = 1 << 62) -> Iterator[BatchRow]:
        """Yield batches before ``before`` that are done and have failures, like ``unfinished``."""
        return self._batches(f"{_UNFINISHED} AND done = 1 AND seq < {before:d}")

    def _batches(self, condition: str) -> Iterator[BatchRow]:
        # One query per row: a long read would prevent checkpoints of the write-ahead log.
        after = -1
        while True:
            query = f"WHERE seq > ? AND {condition} ORDER BY seq LIMIT 1"
            row = self._rows.find(BATCH, query, after)
            if row is None:
                return
            seq = row.seq
            if seq <= after:
                raise self._rows.damaged("batches are not in order")
            after = seq
            listing, marks = self._listing(seq), self.marks(seq)
            try:
                if row.done and summed(marks) != (row.stored, row.bytes):
                    raise ValueError("its files are not those that were stored")
                if marks and len(unpack(marks)[0]) != row.items:
                    raise ValueError(f"it does not say what {row.items} items are")
            except ValueError as error:
                raise self._rows.damaged(f"batch {seq}: {error}") from error
            yield BatchRow(seq, row.items, listing.names, listing.origin, bool(row.done), marks)

    def batches(self) -> Iterator[BatchRow]:
        """Yield all batches in ascending order; rows may be changed meanwhile."""
        return self._batches("1")

    def is_open(self, seq: int) -> bool:
        """Return whether batch ``seq`` exists and is not done."""
        row = self._rows.find(BATCH, "WHERE seq = ?", seq)
        return row is not None and not row.done

    def unfinished_count(self) -> int:
        """Return the number of batches that are open or have failures."""
        return self._rows.figures(f"SELECT count(*) FROM batch WHERE {_UNFINISHED}")[0]

    def open_count(self) -> int:
        """Return the number of batches that are not done."""
        return self._rows.figures("SELECT count(*) FROM batch WHERE done = 0")[0]

    # failures

    def failures(self, seq: int | None = None) -> Iterator[Failure]:
        """Yield the failed files of one batch; or of all, except those whose name is contested."""
        where = () if seq is None else (seq,)
        query = "WHERE seq = ?" if where else f"WHERE code != '{_CONTESTED}'"
        for row in self._rows.select(FAILURE, f"{query} ORDER BY seq, idx", *where):
            yield _failure(row)

    def damaged_names(self) -> Iterator[str]:
        """Yield the names of the files that are recorded as damaged, in batches that are done."""
        for row in self._rows.select(FAILURE, "WHERE code = 'damaged' ORDER BY seq, idx"):
            yield row.name

    def failures_by_code(self) -> dict[str, int]:
        """Return the number of failures by code, without the items whose name is contested."""
        return self._rows.counted(
            f"SELECT code, count(*) FROM failure WHERE code != '{_CONTESTED}' GROUP BY code ORDER BY 2 DESC"
        )

    def contested(self, after: tuple[int, int], most: int) -> list[tuple[int, Failure]]:
        """Return at most ``most`` failures of finished batches, with these, in order: of contested names.

        They follow the item ``after`` (batch, index). It is not known yet whether another item owns the
        name.
        """
        finished = "(SELECT done FROM batch WHERE batch.seq = failure.seq) = 1"
        query = (
            f"WHERE (seq, idx) > (?, ?) AND code = '{_CONTESTED}' AND {finished} ORDER BY seq, idx LIMIT ?"
        )
        return [(row.seq, _failure(row)) for row in self._rows.select(FAILURE, query, *after, most)]

    def take_names(self, but: Mapping[int, Collection[int]], most: int) -> Iterator[Failure]:
        """Make contested items, except ``but`` (by batch), fail for good as ``name-taken``; yield those.

        Exhaust it. ``most``: how many are in memory at once.
        """
        after = (-1, -1)
        while found := self.contested(after, most):
            after = (found[-1][0], found[-1][1].index)
            taken = [(seq, each) for seq, each in found if each.index not in but.get(seq, ())]
            with self._rows.transaction():
                for seq, f in taken:
                    self._rows.put(FAILURE, _row_of(seq, f))
            yield from (each for _, each in taken)

    def mark_damaged(
        self, seq: int, damaged: list[Failure], files: Mapping[int, int], shards: Sequence[int] = ()
    ) -> None:
        """Record that files of a batch differ from what was stored: OWNED, to be replaced.

        Files of the user that were kept are UNOWNED. In a batch that is done all count as failed.
        ``files``: which files these are, by index; see ``core.item_states``. ``shards``: those that are to
        be published anew.
        """
        with self._rows.transaction():
            row = self._rows.find(BATCH, "WHERE seq = ?", seq)
            if row is None:
                return
            for f in damaged if row.done else ():
                self._rows.put(FAILURE, _row_of(seq, f))
            marks = self.marks(seq)
            lost = {mark.index: mark.lost for mark in published(marks)}
            given = {f.index: Claim(lost.get(f.index, OWNED), files.get(f.index, 0)) for f in damaged}
            self._recount(seq, claimed(marks, row.items, given))
            self.shards.reopen(seq, shards)

    def claim(self, seq: int, claims: Mapping[int, Claim]) -> None:
        """Record that items of batch ``seq`` are OWNED or UNOWNED; see ``core.item_states``."""
        with self._rows.transaction():
            row = self._rows.find(BATCH, "WHERE seq = ?", seq)
            if row is not None:
                self._claim(seq, row.items, claims)

    def _claim(self, seq: int, count: int, claims: Mapping[int, Claim]) -> None:
        self._recount(seq, claimed(self.marks(seq), count, claims))


def _told(code: str) -> str:
    """Return the failure code that ``code`` of a row stands for."""
    return _NAME_TAKEN if code == _CONTESTED else code


def _failure(row: FailureRow) -> Failure:
    """Return the failure in a row."""
    return Failure(row.idx, row.name, row.url, _told(row.code), row.detail, row.attempts)


def _row_of(seq: int, failure: Failure, code: str = "") -> FailureRow:
    """Return the row of a failure of batch ``seq``; ``code``: in the place of its own."""
    index, name, url = failure.index, failure.name, failure.url
    return FailureRow(seq, index, name, url, code or failure.code, failure.detail, failure.attempts)


def _mistyped(table: Table[AnyRow]) -> str:
    """Return the condition for a row of ``table`` that has a value of another type than it is to have."""
    kinds = {int: "integer", str: "text", bytes: "blob"}
    return " OR ".join(
        f"typeof({table.name}.{column}) != '{kinds[kind]}'" for column, kind in table.types.items()
    )
