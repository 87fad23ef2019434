"""The journal: what of a job is done."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from downloader.core.item_states import OWNED, UNOWNED, Claim, ItemStates, claims, published
from downloader.core.name_list import decode_names, encode_names
from downloader.core.run_times import MOST
from downloader.errors import JournalError
from downloader.files.directory import open_home
from downloader.messages import Batch, BatchDone, Failure, Tally
from downloader.sinks.sink import Written
from downloader.storage.journal import NAME, JobSpec, Journal

JOB = JobSpec("digest", "http://x", "server", "files", "flat", 0)
COUNT = 5


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(open_home(tmp_path))
    yield made
    made.close()


def batch(seq: int, count: int = COUNT) -> Batch:
    names = encode_names([f"{seq}-{index}" for index in range(count)])
    return Batch(seq, count, b"cursor %d" % seq, names, b"origin", b"")


def marks(*indices: int, size: int = 100) -> bytes:
    made = ItemStates(COUNT)
    for index in indices:
        made.publish(index, size, index)
    return made.packed()


def done(seq: int, failures: list[Failure], stored: int) -> BatchDone:
    return BatchDone(seq, Tally(stored, 0, len(failures), 100 * stored, 0), 0, 0, 0, {}, {}, b"", failures)


def failure(index: int, code: str = "http-404") -> Failure:
    return Failure(index, f"name {index}", "http://x/", code, "detail", 1)


def there(written: Written) -> bool:
    """Report every file to be as its state records it."""
    return True


def indices(blob: bytes) -> list[int]:
    return [mark.index for mark in published(blob)]


def test_batch_counts_agree_with_its_states(journal: Journal) -> None:
    for seq in range(3):
        journal.open_batch(batch(seq))
    fresh = BatchDone(0, Tally(4, 0, 1, 400, 0), 0, 0, 0, {}, {}, b"", [failure(4)])
    journal.record_done(fresh, marks(0, 1, 2, 3))
    assert journal.tally() == Tally(4, 0, 1, 400, 0)
    # What an earlier run stored is in no count of this one: then the states are summed.
    met = BatchDone(1, Tally(1, 4, 0, 100, 0), 0, 0, 0, {}, {}, b"", [])
    journal.record_done(met, marks(0, 1, 2, 3, 4))
    assert journal.tally() == Tally(9, 0, 1, 900, 0)
    rest = BatchDone(2, Tally(1, 0, 0, 100, 0), 0, 0, 0, {}, {}, b"", [])
    journal.record_done(rest, marks(0, 1, 2, 3, 4), retried=[1])
    assert journal.tally() == Tally(14, 0, 1, 1400, 0)


def test_a_new_journal(journal: Journal) -> None:
    assert journal.job() is None
    assert journal.position() == (b"", 0, 0)
    assert (journal.ended, journal.tally(), journal.open_count()) == (False, Tally(), 0)
    assert journal.path.stat().st_mode & 0o777 == 0o600


def test_position_is_behind_the_last_batch(journal: Journal) -> None:
    for seq in range(3):
        journal.open_batch(batch(seq))
    journal.record_done(done(0, [], COUNT), marks(0, 1, 2, 3, 4))
    assert journal.position() == (b"cursor 2", 3, 3 * COUNT)
    assert [row.seq for row in journal.unfinished()] == [1, 2]
    assert journal.open_count() == 2
    with pytest.raises(JournalError):
        journal.open_batch(batch(2))


def test_another_process_reads_the_journal(tmp_path: Path) -> None:
    first = Journal(open_home(tmp_path))
    first.begin(JOB)
    first.open_batch(batch(0))
    first.record_done(done(0, [failure(4)], 4), marks(0, 1, 2, 3))
    first.end()
    # Not closed: the state that a killed process leaves.
    reader = Journal(open_home(tmp_path), read_only=True)
    assert (reader.job(), reader.ended) == (JOB, True)
    assert reader.tally() == Tally(4, 0, 1, 400, 0)
    assert list(reader.failures()) == [failure(4)]
    assert reader.failures_by_code() == {"http-404": 1}
    reader.close()
    first.close()


def test_failed_files_are_replaced_when_they_are_tried_again(journal: Journal) -> None:
    journal.open_batch(batch(0))
    journal.record_done(done(0, [failure(3), failure(4)], 3), marks(0, 1, 2))
    assert [row.seq for row in journal.failed()] == [0]
    journal.record_done(done(0, [failure(4, "reset")], 1), marks(0, 1, 2, 3), retried=[3, 4])
    assert list(journal.failures(0)) == [failure(4, "reset")]
    assert journal.tally() == Tally(4, 0, 1, 400, 0)


def test_states_are_kept_for_open_batches(journal: Journal) -> None:
    for seq in range(2):
        journal.open_batch(batch(seq))
    journal.keep_marks({0: marks(1), 1: marks(2), 99: marks(3)}, there)
    # A ledger that has less takes nothing back.
    journal.keep_marks({0: marks(3)}, there)
    journal.keep_marks({}, there)
    rows = list(journal.unfinished())
    assert [(row.seq, row.done, indices(row.marks)) for row in rows] == [
        (0, False, [1, 3]),
        (1, False, [2]),
    ]
    assert journal.tally() == Tally()


def test_states_of_a_done_batch_correct_earlier_failures(journal: Journal) -> None:
    journal.open_batch(batch(0))
    journal.record_done(done(0, [failure(2), failure(3), failure(4, "damaged")], 2), marks(0, 1))
    # A retry that was killed: 2 and 4 are stored now. And an old ledger that has 1 as well.
    journal.keep_marks({0: marks(1, 2, 4, size=7)}, there)
    assert [each.index for each in journal.failures(0)] == [3]
    assert indices(journal.marks(0)) == [0, 1, 2, 4]
    assert journal.tally() == Tally(4, 0, 1, 214, 0)
    assert journal.open_count() == 0


def test_states_of_a_done_batch_are_ignored_where_the_file_is_missing(journal: Journal) -> None:
    """After a power cut a ledger may be on the disk and its files not."""
    journal.open_batch(batch(0))
    journal.record_done(done(0, [failure(2), failure(3)], 3), marks(0, 1, 4))
    asked: list[tuple[str, int]] = []

    def verify(written: Written) -> bool:
        asked.append((written.name, written.size))
        return written.name == "0-3"

    journal.keep_marks({0: marks(1, 2, 3, size=7)}, verify)
    assert asked == [("0-2", 7), ("0-3", 7)]
    assert [each.index for each in journal.failures(0)] == [2]
    assert journal.tally() == Tally(4, 0, 1, 307, 0)


def test_failed_sync_leaves_nothing_published_in_open_batches(journal: Journal) -> None:
    for seq in range(2):
        journal.open_batch(batch(seq))
    journal.record_done(done(0, [failure(2)], 4), marks(0, 1, 3, 4))
    journal.keep_marks({1: marks(1)}, there)
    assert not journal.unsynced
    journal.mark_unsynced()
    journal.mark_unsynced()
    assert journal.unsynced
    assert (indices(journal.marks(0)), journal.marks(1)) == ([0, 1, 3, 4], b"")
    journal.mark_synced()
    assert not journal.unsynced


def test_running_boot_is_recorded(tmp_path: Path) -> None:
    first = Journal(open_home(tmp_path))
    assert first.running == ""
    first.run("this boot", ((1, 0),))
    # Killed: nothing is closed.
    second = Journal(open_home(tmp_path), durable=True)
    assert (second.running, second.runs) == ("this boot", ((1, 0),))
    second.run("", ((1, 2),))
    assert (first.running, first.runs) == ("", ((1, 2),))
    second.close()
    first.close()


@pytest.mark.parametrize("blob", [b"nonsense", ItemStates(COUNT + 3).packed()[:-1]])
def test_a_damaged_ledger_is_an_error_and_changes_nothing(journal: Journal, blob: bytes) -> None:
    journal.open_batch(batch(0))
    journal.open_batch(batch(1))
    with pytest.raises(JournalError, match="--restart"):
        journal.keep_marks({0: marks(1), 1: blob}, there)
    assert journal.marks(0) == b""


def test_damaged_files_fail(journal: Journal) -> None:
    journal.open_batch(batch(0))
    journal.record_done(done(0, [failure(4)], 4), marks(0, 1, 2, 3))
    journal.mark_damaged(0, [failure(1, "damaged")], {1: 7})
    assert journal.tally() == Tally(3, 0, 2, 300, 0)
    assert [each.index for each in journal.failures(0)] == [1, 4]
    assert claims(journal.marks(0)) == {1: Claim(OWNED, 7)}


def test_damaged_files_of_an_open_batch_are_pending(journal: Journal) -> None:
    journal.open_batch(batch(0))
    journal.keep_marks({0: marks(0, 1)}, there)
    journal.mark_damaged(0, [failure(1, "damaged")], {})
    assert journal.tally() == Tally()
    assert journal.tally(open_too=True) == Tally(1, 0, 0, 100, 0)
    assert list(journal.failures()) == []
    assert (indices(journal.marks(0)), claims(journal.marks(0))) == ([0], {1: Claim(OWNED)})


def test_only_some_failures_are_tried_again(journal: Journal) -> None:
    journal.open_batch(batch(0))
    journal.record_done(done(0, [failure(3), failure(4, "name-taken")], 3), marks(0, 1, 2))
    assert journal.contested((-1, -1), 10) == [(0, failure(4, "name-taken"))]
    assert journal.contested((0, 4), 10) == []
    journal.claim(0, {4: Claim(UNOWNED, 5)})
    assert claims(journal.marks(0)) == {4: Claim(UNOWNED, 5)}
    journal.record_done(done(0, [], 1), marks(0, 1, 2, 4), retried=[4])
    assert list(journal.failures(0)) == [failure(3)]
    assert journal.tally() == Tally(4, 0, 1, 400, 0)


def test_transactions_are_atomic(journal: Journal) -> None:
    journal.open_batch(batch(0))
    with pytest.raises(JournalError):
        journal.record_done(done(0, [failure(1), failure(1)], 3), marks(0))
    assert (journal.tally(), list(journal.failures()), journal.open_count()) == (Tally(), [], 1)
    journal.record_done(done(0, [failure(1)], 4), marks(0, 2, 3, 4))
    assert journal.tally().settled == COUNT


def test_full_disk_is_reported_and_the_journal_usable_afterwards(journal: Journal) -> None:
    pages = journal._rows._db.execute("PRAGMA page_count").fetchone()[0]
    journal._rows._db.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for seq in range(1000):
            journal.open_batch(batch(seq))

    with pytest.raises(JournalError, match=r"full.*free space"):
        fill()
    failures = [failure(index) for index in range(2000)]
    with pytest.raises(JournalError, match=r"full.*free space"):
        journal.record_done(done(0, failures, 0), b"")
    journal._rows._db.execute("PRAGMA max_page_count = 100000")
    seq = journal.position()[1]
    journal.open_batch(batch(seq))
    journal.record_done(done(seq, [], COUNT), marks(0, 1, 2, 3, 4))
    assert journal.tally() == Tally(COUNT, 0, 0, 500, 0)


def test_rows_may_change_while_they_are_read(journal: Journal) -> None:
    for seq in range(4):
        journal.open_batch(batch(seq))
    seen = []
    for row in journal.unfinished():
        seen.append(row.seq)
        journal.record_done(done(row.seq, [], COUNT), marks(0, 1, 2, 3, 4))
        if row.seq == 0:
            journal.record_done(done(2, [], COUNT), marks(0, 1, 2, 3, 4))
    assert seen == [0, 1, 3]
    assert [row.seq for row in journal.batches()] == [0, 1, 2, 3]


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.sqlite").write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(JournalError, match="--restart"):
            Journal(open_home(tmp_path), read_only=read_only)


def test_empty_and_foreign_databases(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"")
    with pytest.raises(JournalError, match="ended before it began"):
        Journal(open_home(tmp_path), read_only=True)
    journal = Journal(open_home(tmp_path))
    journal.begin(JOB)
    journal.close()
    database = sqlite3.connect(tmp_path / "journal.sqlite")
    with database:
        database.execute("UPDATE job SET value = '{}'")
    database.close()
    journal = Journal(open_home(tmp_path))
    with pytest.raises(JournalError, match="--restart"):
        journal.job()
    journal.close()


def test_names_round_trip_and_damage_is_detected() -> None:
    names = ["a", "b/c", "ü" * 300]
    assert decode_names(encode_names(names)) == names
    with pytest.raises(JournalError, match="--restart"):
        decode_names(encode_names(names)[:-5])


def test_new_batch_reopens_an_ended_source(journal: Journal) -> None:
    journal.open_batch(batch(0))
    journal.end()
    assert journal.ended
    journal.open_batch(batch(1))
    assert not journal.ended


@pytest.mark.parametrize(
    "value",
    ["{}", "[[1]]", "[[-1, 0]]", "[[9999999999999999999, 0]]", '[["1", 0]]', f"[{'[1, 2],' * MOST}[1, 2]]"],
)
def test_times_of_runs_that_no_version_has_written_are_damage(tmp_path: Path, value: str) -> None:
    with contextlib.closing(Journal(open_home(tmp_path))) as journal:
        journal.begin(JOB)
        journal.run("", ())
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as database, database:
        database.execute("UPDATE job SET value = ? WHERE key = 'runs'", (value,))
    with (
        contextlib.closing(Journal(open_home(tmp_path))) as journal,
        pytest.raises(JournalError, match="--restart"),
    ):
        journal.job()
