"""The journal: what of a job is done, in SQLite under ``DEST/.downloader/``, written by the
supervisor alone.

One row for each batch, one for each failed file. A batch's row is there, with the cursor behind it,
before the batch is leased, and says ``done`` only after its files are published: the cursor is never
ahead of the journal, the journal never ahead of the data (without --fsync: as the running kernel
sees it). The tables: ``schema``.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from downloader.core.marks import Mark, merge, published, summed, without
from downloader.errors import JournalError
from downloader.model import Batch, BatchDone, Failure, Tally
from downloader.schema import FORMAT, SCHEMA

__all__ = ["BatchRow", "Holds", "Job", "Journal", "decode_names", "encode_names", "exists"]

Holds = Callable[[str, Mark], bool]
"""Whether the file of that name is as the mark says."""

_END, _LIMIT = "1", "limit"
_UNFINISHED = "(done = 0 OR failed > 0)"  # as the index has it


def encode_names(names: Sequence[str]) -> bytes:
    """The names of a batch as one blob."""
    return zlib.compress(msgspec.msgpack.encode(names), 1)


def decode_names(blob: bytes) -> list[str]:
    """The names of a batch again; JournalError when the blob is damaged."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(blob), type=list[str])
    except (zlib.error, msgspec.DecodeError) as error:
        raise JournalError(f"the journal is damaged ({error}); --restart begins anew") from error


class Job(msgspec.Struct, frozen=True):
    """What a journal belongs to. ``source`` is a digest, ``shown`` the same without secrets.

    ``foreign_before_ns``: a file in the destination whose ctime is older was there before the job.
    """

    source: str
    shown: str
    kind: str
    store: str
    layout: str
    foreign_before_ns: int
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as the journal has it."""

    seq: int
    count: int
    names: bytes
    origin: bytes
    done: bool
    marks: bytes


def exists(home: Path) -> bool:
    """Whether there is a journal under ``home``."""
    return (home / "journal.sqlite").exists()


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise JournalError(f"{path}: {error}; free space or mend the disk, then resume") from error
    except sqlite3.DatabaseError as error:
        raise JournalError(f"{path} is damaged ({error}); --restart begins anew") from error


class Journal:
    """An open journal. Every method raises JournalError when SQLite does.

    ``durable``: what is written is on the disk when the method returns.
    """

    def __init__(self, home: Path, *, read_only: bool = False, durable: bool = False) -> None:
        self.path = home / "journal.sqlite"
        with _translated(self.path):
            mode = "ro" if read_only else "rwc"
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            if not read_only:
                _make_private(self.path)
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10)
            try:
                self._prepare(read_only, durable)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, read_only: bool, durable: bool) -> None:
        if not read_only:
            # A commit in WAL mode without a sync costs tens of microseconds. A power cut may
            # take the last commits with it, never the consistency of the rest.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._synchronous = "FULL" if durable else "NORMAL"
            self._db.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._db.execute("PRAGMA secure_delete = ON")
            if not self._has_schema():
                self._db.executescript(f"BEGIN; {SCHEMA} COMMIT;")
        elif not self._has_schema():
            raise JournalError(f"{self.path} is empty; the run that made it ended before it began")

    def _has_schema(self) -> bool:
        row = self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'batch'").fetchone()
        return bool(row[0])

    def close(self) -> None:
        """Close, folding the write-ahead log into the file."""
        with _translated(self.path):
            self._db.close()

    # the job

    def job(self) -> Job | None:
        """What this journal belongs to; None when it is new."""
        text = self._get("job")
        if text is None:
            return None
        try:
            job = msgspec.json.decode(text, type=Job)
        except msgspec.DecodeError as error:
            raise JournalError(f"{self.path} is damaged ({error}); --restart begins anew") from error
        if job.format != FORMAT:
            raise JournalError(
                f"{self.path} has format {job.format}, this version reads {FORMAT}; --restart begins anew"
            )
        return job

    def begin(self, job: Job) -> None:
        """This journal belongs to ``job`` from now on."""
        self._put("job", msgspec.json.encode(job).decode())

    @property
    def ended(self) -> bool:
        """Whether the source was read to its end."""
        return self._get("ended") == _END

    @property
    def read(self) -> bool:
        """Whether the source was read as far as the last run wanted: to its end, or to --limit."""
        return self._get("ended") is not None

    def end(self, *, limited: bool = False) -> None:
        """The source was read to its end, or to --limit, and every batch of it has a row."""
        self._put("ended", _LIMIT if limited else _END)

    @property
    def running(self) -> str:
        """The boot in which a run went to work here and did not come to its end; empty: none did."""
        return self._get("running") or ""

    def run(self, boot: str) -> None:
        """A run is at work from now on, in ``boot``; "": no more. On the disk in any case: after a power
        cut all that follows may be missing, but this not."""
        with _translated(self.path):
            self._db.execute("PRAGMA synchronous = FULL")
            self._put("running", boot)
            self._db.execute(f"PRAGMA synchronous = {self._synchronous}")

    @property
    def unsynced(self) -> bool:
        """Whether files of batches that are not done may be in memory alone, whatever they look like."""
        return self._get("unsynced") is not None

    def distrust(self) -> None:
        """A sync failed: nothing is published of batches that are not done."""
        with _translated(self.path), self._transaction():
            self._db.execute("UPDATE batch SET marks = x'' WHERE done = 0")
            self._db.execute("INSERT OR REPLACE INTO job VALUES ('unsynced', '1')")

    def trust(self) -> None:
        """Every file was written again since, and synced."""
        with _translated(self.path):
            self._db.execute("DELETE FROM job WHERE key = 'unsynced'")

    def _get(self, key: str) -> str | None:
        with _translated(self.path):
            row = self._db.execute("SELECT value FROM job WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _put(self, key: str, value: str) -> None:
        with _translated(self.path):
            self._db.execute("INSERT OR REPLACE INTO job VALUES (?, ?)", (key, value))

    # batches

    def position(self) -> tuple[bytes, int, int]:
        """Cursor behind the last batch, number of the next one, items listed so far."""
        with _translated(self.path):
            row = self._db.execute("SELECT cursor, seq + 1 FROM batch ORDER BY seq DESC LIMIT 1").fetchone()
            listed = self._db.execute("SELECT coalesce(sum(count), 0) FROM batch").fetchone()[0]
        return (b"", 0, 0) if row is None else (row[0], row[1], listed)

    def open_batch(self, batch: Batch) -> None:
        """Write down a batch before it is leased. A source that had ended has grown."""
        with _translated(self.path), self._transaction():
            self._db.execute(
                "INSERT INTO batch (seq, count, cursor, names, origin) VALUES (?, ?, ?, ?, ?)",
                (batch.seq, batch.count, batch.cursor, batch.names, batch.origin),
            )
            self._db.execute("DELETE FROM job WHERE key = 'ended'")

    def marks(self, seq: int) -> bytes:
        """What is published of batch ``seq``, as it was last written down."""
        with _translated(self.path):
            row = self._db.execute("SELECT marks FROM batch WHERE seq = ?", (seq,)).fetchone()
        return b"" if row is None else bytes(row[0])

    def keep_marks(self, marks: dict[int, bytes], holds: Holds) -> None:
        """Also published of batches whose outcome is not known (after a drain or a death).

        Of a batch that is done, failed files may have been tried again: those that are published
        now, and are there as it ``holds``, failed no more. (Not those that ``verify`` found damaged
        since: which of the two came first, marks do not tell.) Those of an open batch are looked at
        when it is leased.
        """
        if not marks:
            return
        with _translated(self.path), self._transaction():
            for seq, newer in marks.items():
                row = self._db.execute(
                    "SELECT count, marks, done, names FROM batch WHERE seq = ?", (seq,)
                ).fetchone()
                if row is not None:
                    self._keep(seq, newer, holds, *row)

    def _keep(
        self, seq: int, newer: bytes, holds: Holds, count: int, older: bytes, done: int, names: bytes
    ) -> None:
        try:
            if not done:
                merged = merge(older, newer, count)
                self._db.execute("UPDATE batch SET marks = ? WHERE seq = ?", (merged, seq))
                return
            query = "SELECT idx FROM failure WHERE seq = ? AND code != 'damaged'"
            failed = {index for (index,) in self._db.execute(query, (seq,))}
            listed = decode_names(names)
            mended = {
                mark.index
                for mark in published(newer)
                if mark.index in failed and holds(listed[mark.index], mark)
            }
            if mended:
                merged = merge(older, without(newer, count, set(range(count)) - mended), count)
                self._db.executemany(
                    "DELETE FROM failure WHERE seq = ? AND idx = ?", [(seq, index) for index in mended]
                )
                self._recount(seq, merged)
        except (IndexError, ValueError) as error:
            raise JournalError(
                f"{self.path} or a ledger beside it is damaged (batch {seq}: {error}); "
                "--restart begins anew"
            ) from error

    def _recount(self, seq: int, marks: bytes) -> None:
        self._db.execute(
            "UPDATE batch SET stored = ?, bytes = ?, marks = ?,"
            " failed = (SELECT count(*) FROM failure WHERE seq = batch.seq) WHERE seq = ?",
            (*summed(marks), marks, seq),
        )

    def settle(self, outcome: BatchDone, marks: bytes, *, merged: bool = True) -> None:
        """A batch is done: its row and its failures, in one transaction.

        For a batch that was done before and had failures, the earlier failures are replaced;
        ``marks`` are the ``merged`` ones. Where they are those of ``outcome`` alone and nothing was
        skipped, its tally says what they come to, and they need not be unpacked.
        """
        tally = outcome.tally
        stored, size = summed(marks) if merged or tally.skipped else (tally.stored, tally.bytes)
        with _translated(self.path), self._transaction():
            self._db.execute("DELETE FROM failure WHERE seq = ?", (outcome.seq,))
            self._db.executemany(
                "INSERT INTO failure VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (outcome.seq, f.index, f.name, f.url, f.code, f.detail, f.attempts)
                    for f in outcome.failures
                ],
            )
            self._db.execute(
                "UPDATE batch SET done = 1, stored = ?, failed = ?, bytes = ?,"
                " unverified = unverified + ?, marks = ? WHERE seq = ?",
                (stored, len(outcome.failures), size, tally.unverified, marks, outcome.seq),
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            # SQLite may have rolled back by itself (disk full); then this fails and says nothing.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def tally(self) -> Tally:
        """The whole job so far: items of batches that are done, and what is published of open ones."""
        with _translated(self.path):
            row = self._db.execute(
                "SELECT coalesce(sum(stored), 0), 0, coalesce(sum(failed), 0),"
                " coalesce(sum(bytes), 0), coalesce(sum(unverified), 0) FROM batch WHERE done = 1"
            ).fetchone()
        return Tally(*row)

    def unfinished(self, *, failed_only: bool) -> Iterator[BatchRow]:
        """Batches that are open or have failures, in ascending order; rows may be settled meanwhile."""
        return self._rows(f"{_UNFINISHED} AND done = 1" if failed_only else _UNFINISHED)

    def _rows(self, condition: str) -> Iterator[BatchRow]:
        # Row by row, each by its own query: no long read keeps the write-ahead log from being folded.
        after = -1
        while True:
            with _translated(self.path):
                row = self._db.execute(
                    "SELECT seq, count, names, origin, done, marks FROM batch"
                    f" WHERE seq > ? AND {condition} ORDER BY seq LIMIT 1",
                    (after,),
                ).fetchone()
            if row is None:
                return
            after = row[0]
            yield BatchRow(row[0], row[1], row[2], row[3], bool(row[4]), row[5])

    def batches(self) -> Iterator[BatchRow]:
        """All batches, in ascending order; rows may be changed meanwhile."""
        return self._rows("1")

    def open_count(self) -> int:
        """Batches that are not done."""
        with _translated(self.path):
            row = self._db.execute(
                f"SELECT count(*) FROM batch WHERE {_UNFINISHED} AND done = 0"
            ).fetchone()
        return int(row[0])

    # failures

    def failures(self, seq: int | None = None) -> Iterator[Failure]:
        """The failed files, of one batch or of all, one at a time."""
        with _translated(self.path):
            rows = self._db.execute(
                "SELECT idx, name, url, code, detail, attempts FROM failure"
                + ("" if seq is None else " WHERE seq = ?")
                + " ORDER BY seq, idx",
                () if seq is None else (seq,),
            )
            for row in rows:
                yield Failure(*row)

    def failures_by_code(self) -> dict[str, int]:
        """How many failed with each code."""
        with _translated(self.path):
            rows = self._db.execute("SELECT code, count(*) FROM failure GROUP BY code ORDER BY 2 DESC")
            return {code: count for code, count in rows}

    def mark_damaged(self, seq: int, damaged: list[Failure], marks: bytes) -> None:
        """``verify`` found these files of a batch that is done changed or missing."""
        with _translated(self.path), self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO failure VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(seq, f.index, f.name, f.url, f.code, f.detail, f.attempts) for f in damaged],
            )
            self._recount(seq, marks)


def _make_private(path: Path) -> None:
    """The journal names every file: readable by its owner only."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
