"""Damaged journals: either the damage is reported, or everything read is still true.

The journal is a real one, with what a run leaves: done batches, some with failures, and open ones with item
states. It is torn, cut, overwritten or has bits flipped, with its write-ahead log and without; then
everything is read that a resumed run, ``status`` and ``verify`` read.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from budget import bounded, rounds
from hypothesis import event, example, given
from hypothesis import strategies as st

from downloader.core.item_states import ItemState, ItemStates, published
from downloader.core.name_list import decode_names, encode_names
from downloader.errors import JournalError
from downloader.files.directory import open_home
from downloader.messages import Batch, BatchDone, Failure, Tally
from downloader.storage.journal import BatchRow, JobSpec, Journal

JOB = JobSpec("digest" * 10, "http://h", "server", "files", "flat", 1234567890)
BATCHES = 24
COUNT = 40


def names(seq: int) -> list[str]:
    return [f"file-{seq}-{index}" for index in range(COUNT)]


def write(home: Path) -> None:
    """Write a journal of three batches: one is done, one is done but for two files, and one is open."""
    journal = Journal(open_home(home))
    journal.begin(JOB)
    for seq in range(BATCHES):
        cursor = b"the cursor behind %d" % seq
        journal.open_batch(Batch(seq, COUNT, cursor, encode_names(names(seq)), b"origin", b""))
        marks = ItemStates(COUNT)
        kind = seq % 3
        for index in range(COUNT - 2 * (kind == 1) - 20 * (kind == 2)):
            marks.publish(index, 100 + index, seq * 1000 + index)
        if kind == 2:
            journal.keep_marks({seq: marks.packed()}, lambda name, mark: True)
            continue
        failures = [Failure(i, names(seq)[i], "", "http-404", "", 1) for i in (38, 39)] if kind else []
        stored = COUNT - len(failures)
        tally = Tally(stored, 0, len(failures), sum(range(100, 100 + stored)), 0)
        journal.record_done(BatchDone(seq, tally, 0, 0, 0, {}, {}, b"", failures), marks.packed())
    journal.end()
    journal.close()


@dataclass(frozen=True)
class Said:
    """Everything that a journal says."""

    job: JobSpec | None
    ended: bool
    position: tuple[bytes, int, int]
    tally: Tally
    batches: dict[int, tuple[int, list[str], bytes, bool, tuple[ItemState, ...]]]
    unfinished: tuple[int, ...]
    failed: tuple[int, ...]
    open_count: int
    failures: dict[int, list[Failure]]


def rows(found: Iterator[BatchRow]) -> Iterator[BatchRow]:
    """Return rows up to a limit: a damaged tree may be endless."""
    for number, row in enumerate(found):
        assert number < 10 * BATCHES, "rows without end"
        yield row


def read(home: Path, *, read_only: bool) -> Said:
    """Read everything. Raise JournalError for a damaged journal."""
    journal = Journal(open_home(home), read_only=read_only)
    try:
        job = journal.job()  # as at the start of every run
        batches = {
            row.seq: (
                row.count, decode_names(row.names), row.recall_data, row.done, tuple(published(row.marks)),
            )
            for row in rows(journal.batches())
        }  # fmt: skip
        return Said(
            job,
            journal.ended,
            journal.position(),
            journal.tally(),
            batches,
            tuple(row.seq for row in rows(journal.unfinished())),
            tuple(row.seq for row in rows(journal.failed())),
            journal.open_count(),
            {seq: list(journal.failures(seq)) for seq in batches},
        )
    finally:
        journal.close()


@contextmanager
def made() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fuzz-journal-") as directory:
        yield Path(directory)


def original() -> tuple[dict[str, bytes], Said]:
    """Return the files of a journal of a run that was killed, and what it says."""
    with made() as home:
        write(home)
        said = read(home, read_only=False)
        whole = {"journal.sqlite": (home / "journal.sqlite").read_bytes()}
    return whole, said


WHOLE, TRUE = original()
SIZE = len(WHOLE["journal.sqlite"])

PLACE = st.integers(0, SIZE - 1)
DAMAGE = st.one_of(
    st.tuples(st.just("bit"), PLACE, st.integers(0, 7)),
    st.tuples(st.just("cut"), PLACE, st.just(0)),
    st.tuples(st.just("zeros"), PLACE, st.integers(1, 9000)),
    st.tuples(st.just("byte"), PLACE, st.integers(0, 255)),
    st.tuples(st.just("page"), st.integers(0, SIZE // 4096 - 1), st.integers(0, SIZE // 4096 - 1)),
)


def damaged(content: bytes, how: str, where: int, what: int) -> bytes:
    """Draw a damaged journal: one bit or byte changed, the end lost, a stretch lost, or one page replaced
    by another."""
    if how == "bit":
        return content[:where] + bytes([content[where] ^ 1 << what]) + content[where + 1 :]
    if how == "byte":
        return content[:where] + bytes([what]) + content[where + 1 :]
    if how == "cut":
        return content[:where]
    if how == "zeros":
        return content[:where] + bytes(min(what, len(content) - where)) + content[where + what :]
    page = content[what * 4096 : (what + 1) * 4096]
    return content[: where * 4096] + page + content[(where + 1) * 4096 :]


def check(said: Said) -> None:
    """Check that nothing false is said; lost records are permitted."""
    if said.job is None:
        # An empty journal is a new job, which records nothing as stored.
        assert not said.batches
        return
    assert said.job == TRUE.job
    assert said.ended <= TRUE.ended
    last = len(said.batches)
    assert list(said.batches) == list(range(last))
    assert said.position[2] == last * COUNT
    assert said.position[:2] == ((b"the cursor behind %d" % (last - 1), last) if last else (b"", 0))
    for seq, (count, named, origin, done, marks) in said.batches.items():
        true = TRUE.batches[seq]
        assert (count, named, origin) == true[:3]
        assert done <= true[3]
        assert set(marks) <= set(true[4])
        if done:
            assert marks == true[4]
            assert said.failures[seq] == TRUE.failures[seq]
    if last == BATCHES:
        assert said == TRUE


def fuzz(damages: list[tuple[str, int, int]], read_only: bool) -> None:
    content = WHOLE["journal.sqlite"]
    for damage in damages:
        if content:
            how, where, what = damage
            content = damaged(content, how, min(where, len(content) - 1), what)
    with made() as home:
        (home / "journal.sqlite").write_bytes(content)
        try:
            said = read(home, read_only=read_only)
        except JournalError:
            event("refused")
            return
    event("the same" if said == TRUE else "less")
    check(said)


@bounded(200)
@given(st.lists(DAMAGE, min_size=1, max_size=3), st.booleans())
@example([("cut", 1, 0)], False)  # SQLite takes a file of one byte for an empty one
def any_damage(damages: list[tuple[str, int, int]], read_only: bool) -> None:
    fuzz(damages, read_only)


def test_any_damage_is_reported_or_harmless() -> None:
    rounds(any_damage)


def change(home: Path, statement: str) -> None:
    database = sqlite3.connect(home / "journal.sqlite")
    with database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(statement)
    database.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batch SET done = 1 WHERE seq = 2",  # never fetched, and not noticed
        "UPDATE listing SET cursor = x'00' WHERE seq = 23",
        "UPDATE batch SET count = count - 1 WHERE seq = 5",
        "UPDATE published SET marks = x'00' WHERE seq = 2",
        "UPDATE batch SET failed = 0 WHERE seq = 1",  # a failed file is never retried
        "UPDATE failure SET idx = 3 WHERE idx = 38",
        "UPDATE failure SET code = 'http-4x4'",
        "DELETE FROM batch WHERE seq = 7",
        "DELETE FROM failure WHERE seq = 1",
        "DELETE FROM job",
        "DELETE FROM job WHERE key = 'running'",  # after a power cut, unsynced files would count as stored
        "DELETE FROM batch WHERE seq = 23",
        "DELETE FROM batch",
        "DELETE FROM listing WHERE seq = 4",
        "DELETE FROM published WHERE seq = 0",
        "UPDATE job SET value = 'end 23' WHERE key = 'ended'",
        "UPDATE job SET value = '' WHERE key = 'ended'",
        "UPDATE batch SET stored = stored + 1 WHERE seq = 3",
    ],
)
def test_records_never_written_are_refused(statement: str, tmp_path: Path) -> None:
    """Found by fuzzing: the state that a flipped bit or a lost page may leave."""
    (tmp_path / "journal.sqlite").write_bytes(WHOLE["journal.sqlite"])
    change(tmp_path, statement)
    with pytest.raises(JournalError, match="--restart"):
        read(tmp_path, read_only=False)


def test_records_written_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(WHOLE["journal.sqlite"])
    assert read(tmp_path, read_only=False) == read(tmp_path, read_only=True) == TRUE
