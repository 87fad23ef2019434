"""Files of the tool's own that have a plausible content which nobody wrote, or none after a power cut."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from harness import Job, report_with
from servers import Answer, Request, Server, Until, ok, status

from downloader.core.item_states import FOREIGN, REPLACED, SKIPPED, ItemStates
from downloader.files.directory import open_home
from downloader.messages import Failure
from downloader.sinks.shards.files import SealedShard, read_sealed, seal, sealed_path
from downloader.storage.schema import row_sum

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., Job]

LOST = Failure(1, "b", "http://h/b", "http-404", "", 1)


@pytest.mark.parametrize(
    "failures",
    [
        [{"index": -1}],
        [{"index": 2}],
        [{"index": 1 << 40}],
        [{"code": "nonsense"}],
        [{"code": "http-abc"}],
        [{"attempts": -1}],
        [{"attempts": (1 << 64) - 1}],
    ],
)
@pytest.mark.parametrize("sums", [True, False])
def test_outcome_of_a_shard_that_no_worker_wrote(
    failures: Sequence[dict[str, Any]], sums: bool, tmp_path: Path
) -> None:
    """With a checksum, or without, as in an earlier version: what the journal would take is refused."""
    with open_home(tmp_path / ".downloader", create=True) as home:
        (home / "shards").make_directory()
        states = ItemStates(2)
        states.publish(0, 5, 6)
        sealed = SealedShard(states.packed(), [LOST])
        seal(home, 3, sealed)
        found = read_sealed(home, 3)
        assert found is not None
        assert (found.marks, found.failures) == (sealed.marks, sealed.failures)
        wrong = [msgspec.structs.replace(LOST, **each) for each in failures]
        if sums:
            seal(home, 3, SealedShard(sealed.marks, wrong))
        else:
            plain = {"marks": sealed.marks, "failures": wrong}
            sealed_path(home, 3).write(msgspec.msgpack.encode(plain))
        assert read_sealed(home, 3) is None


def test_outcome_of_another_shard_and_of_a_flipped_bit(tmp_path: Path) -> None:
    with open_home(tmp_path / ".downloader", create=True) as home:
        (home / "shards").make_directory()
        seal(home, 3, SealedShard(ItemStates(2).packed(), [LOST]))
        path = tmp_path / ".downloader" / "shards" / "00003.sealed"
        shutil.copyfile(path, path.with_name("00004.sealed"))
        assert read_sealed(home, 3) is not None
        assert read_sealed(home, 4) is None
        path.write_bytes(path.read_bytes().replace(b"http-404", b"http-403"))
        assert read_sealed(home, 3) is None
        plain = {"marks": ItemStates(2).packed(), "failures": [LOST]}  # of an earlier version
        sealed_path(home, 5).write(msgspec.msgpack.encode(plain))
        assert read_sealed(home, 5) is not None


@contextmanager
def changed(journal: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(journal)) as database, database:
        database.create_function("row_sum", -1, row_sum)
        yield database


@contextmanager
def three_shards(run_downloader: Run, tmp_path: Path) -> Iterator[tuple[object, ...]]:
    """Yield the arguments of a job that has stored six files in three shards."""
    with Server(default=lambda request: ok(request.target.encode())) as server:
        source = tmp_path / "l.txt"
        source.write_text("".join(f"{server.url}/{number}\n" for number in range(6)))
        argv = (source, "-o", tmp_path / "d", "--store", "tar", "--shard-files", 2)
        assert run_downloader(*argv).returncode == 0
        yield argv


def refused(run_downloader: Run, *argv: object) -> None:
    """See that whatever looks at the journal says that it is damaged, and changes nothing."""
    dest = Path(str(argv[argv.index("-o") + 1]))
    before = sorted(dest.glob("*"))
    for command in (("status", dest), ("verify", dest), argv):
        done = run_downloader(*command)
        assert (done.returncode, "is damaged" in done.stderr) == (4, True), (command, done)
        assert len(done.stderr.strip().splitlines()) == 1, done
    assert sorted(dest.glob("*")) == before


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM shard WHERE number = 0",
        "DELETE FROM shard WHERE number = 1",
        "DELETE FROM shard WHERE number = 2",
        "UPDATE shard SET number = -1, sum = row_sum(-1, seq, done) WHERE number = 0",
        "UPDATE shard SET number = 7, sum = row_sum(7, seq, done) WHERE number = 2",
        "UPDATE shard SET done = 5, sum = row_sum(number, seq, 5)",
        "UPDATE shard SET seq = 0, sum = row_sum(number, 0, done)",
    ],
)
def test_journal_that_does_not_know_all_shards(change: str, run_downloader: Run, tmp_path: Path) -> None:
    """They would be published again, beside those that are there."""
    with three_shards(run_downloader, tmp_path) as argv:
        with changed(tmp_path / "d" / ".downloader" / "journal.sqlite") as database:
            assert database.execute(change).rowcount
        refused(run_downloader, *argv)


def test_journal_that_knows_no_shard(run_downloader: Run, tmp_path: Path) -> None:
    """Only what knows that the job is one of shards can say that they are missing."""
    with three_shards(run_downloader, tmp_path) as argv:
        with changed(tmp_path / "d" / ".downloader" / "journal.sqlite") as database:
            database.execute("DELETE FROM shard")
        for command in (("verify", tmp_path / "d"), argv):
            done = run_downloader(*command)
            assert (done.returncode, "is damaged" in done.stderr) == (4, True), (command, done)


@pytest.mark.parametrize("name", ["sizes.json", "shards.json", "00001_stats.json", "00001.tar"])
def test_what_has_another_size_is_not_read(name: str, run_downloader: Run, tmp_path: Path) -> None:
    """A sparse file of a terabyte: nobody would see the end of it."""
    dest = tmp_path / "d"
    with three_shards(run_downloader, tmp_path) as argv:
        before = {path.name: path.read_bytes() for path in dest.glob("*.*") if path.is_file()}
        (dest / name).unlink()
        with open(dest / name, "xb") as file:
            os.truncate(file.fileno(), 1 << 40)
        assert run_downloader("verify", dest).returncode == 1
        done = run_downloader(*argv)
        assert done.returncode == 0, done
        after = {path.name: path.stat().st_size for path in dest.glob("*.*") if path.is_file()}
        assert after.keys() == before.keys()
        assert after[name] < 1 << 20
        assert run_downloader("verify", dest).returncode == 0


@pytest.mark.parametrize("value", ["x", "-5", "1" * 5000, "1e3", " 1", "\u0661"])
@pytest.mark.parametrize("key", ["doubtful", "relisted"])
def test_what_a_journal_has_as_a_number_is_none(
    key: str, value: str, run_downloader: Run, tmp_path: Path
) -> None:
    with Server(default=lambda request: ok(request.target.encode())) as server:
        source = tmp_path / "l.txt"
        source.write_text(f"{server.url}/1\n")
        argv = (source, "-o", tmp_path / "d")
        assert run_downloader(*argv).returncode == 0
        with changed(tmp_path / "d" / ".downloader" / "journal.sqlite") as database:
            database.execute("REPLACE INTO job VALUES (?, ?, row_sum(?, ?))", (key, value, key, value))
        refused(run_downloader, *argv)


def held(opened: Event, asked: Event, *numbers: int) -> Callable[[Request], Answer]:
    """Answer all but ``numbers``, and those once ``opened`` is set; ``asked``: when all were requested."""
    left = {f"/{number}" for number in numbers}
    waiting = frozenset(left)

    def answer(request: Request) -> Answer:
        body = b"of %s" % request.target.encode()
        if request.target not in waiting:
            return status(404) if request.target == "/1" else ok(body)
        left.discard(request.target)
        if not left:
            asked.set()
        return [Until(opened), *ok(body)]

    return answer


@contextmanager
def interrupted(
    start: Start, tmp_path: Path, count: int, numbers: Sequence[int], *more: object
) -> Iterator[tuple[object, ...]]:
    """Yield the arguments of a job that was killed when it waited for the files ``numbers``."""
    opened, asked = Event(), Event()
    with Server(default=held(opened, asked, *numbers)) as server:
        source = tmp_path / "l.txt"
        source.write_text("".join(f"{server.url}/{number}\n" for number in range(count)))
        argv = (source, "-o", tmp_path / "d", "--workers", 1, *more)
        job = start(*argv)
        assert asked.wait(60)
        if "tar" in more:  # what the others were answered is written
            job.until((tmp_path / "d" / ".downloader" / "shards" / "00000.part").exists)
        job.kill(signal.SIGKILL)
        job.alone()
        opened.set()
        yield argv


@pytest.mark.parametrize("state", [(1 << 63) - 1, -(1 << 63), 5 * 10**18, 80 << 56, FOREIGN + (1 << 50)])
def test_ledger_with_sizes_that_no_file_has(
    state: int, start: Start, run_downloader: Run, tmp_path: Path
) -> None:
    """Each is as if nothing were known of the item; the sum of all did not fit into the journal."""
    with interrupted(start, tmp_path, 40, [39]) as argv:
        changed = 0
        for path in (tmp_path / "d" / ".downloader").glob("ledger-*"):
            content = bytearray(path.read_bytes())
            _, items, slots, _ = struct.unpack_from("<QQQQ", content)
            for slot in range(slots):
                at = 32 + slot * (-(-(16 + 12 * items) // 16) * 16)
                owner, count = struct.unpack_from("<QQ", content, at)
                for index in range(count if owner else 0):
                    struct.pack_into("<q", content, at + 16 + 8 * index, state)
                    changed += 1
            path.write_bytes(content)
        assert changed
        assert run_downloader("status", tmp_path / "d").returncode == 4
        assert run_downloader("verify", tmp_path / "d").returncode == 0
        done = run_downloader(*argv, "--json")
        report = json.loads(done.stdout)
        assert (done.returncode, report["stored"] + report["skipped"], report["failed"]) == (1, 39, 1), done
        assert len(list((tmp_path / "d").glob("[0-9]*"))) == 39


def test_states_that_items_can_have_are_kept() -> None:
    states = ItemStates(12)
    values = [0, 1, 2, 5, (1 << 44) + 2, -1, -2, -3, -9, SKIPPED, FOREIGN + 7, -3 - REPLACED - 8]
    for index, value in enumerate(values):
        states.arrays[0][index] = value
    states.forget_impossible()
    assert states.arrays[0].tolist() == values


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + bytes(5000)])
@pytest.mark.parametrize("name", ["records-known.sqlite", "known.sqlite"])
def test_tables_of_what_was_known_before_a_source_is_read_again(
    name: str, content: bytes, start: Start, run_downloader: Run, tmp_path: Path
) -> None:
    """An empty one, as a power cut leaves it, is none; a damaged one is named, and is not needed."""
    dest, table = tmp_path / "d", tmp_path / "d" / ".downloader" / name
    argv: Sequence[object] = (
        tmp_path / "l.txt",
        "-o",
        dest,
        "--workers",
        1,
        "--manifest",
        tmp_path / "m.csv",
    )
    opened, asked = Event(), Event()
    with Server(default=held(opened, asked, 19)) as server:
        (tmp_path / "l.txt").write_text("".join(f"{server.url}/{number}\n" for number in range(2, 19)))
        assert run_downloader(*argv).returncode == 0
        # Read again, with one more, and killed before the end.
        (tmp_path / "l.txt").write_text("".join(f"{server.url}/{number}\n" for number in range(2, 20)))
        job = start(*argv, "--relist")
        assert asked.wait(60)
        job.kill(signal.SIGKILL)
        job.alone()
        opened.set()
        assert table.exists()
        for suffix in ("-wal", "-shm"):
            table.with_name(f"{name}{suffix}").unlink(missing_ok=True)
        table.write_bytes(content)
        done = run_downloader(*argv, "--json")
        if content:
            assert done.returncode == 4, done
            assert f"{table} is damaged" in done.stderr
            assert "move it away, then run the same command again" in done.stderr
            table.rename(tmp_path / "moved")
            done = run_downloader(*argv, "--json")
        report = json.loads(done.stdout)
        assert (done.returncode, report["stored"] + report["skipped"]) == (0, 18), done
        report_with(run_downloader(*argv, "--relist", "--json"))
        assert run_downloader("verify", dest).returncode == 0


def test_part_of_another_shard_is_not_counted_beyond_its_items(
    start: Start, run_downloader: Run, tmp_path: Path
) -> None:
    with interrupted(start, tmp_path, 15, [9, 14], "--store", "tar", "--shard-files", 10) as argv:
        parts = tmp_path / "d" / ".downloader" / "shards"
        shutil.copyfile(parts / "00000.part", parts / "00001.part")
        said = json.loads(run_downloader("status", tmp_path / "d", "--json").stdout)
        assert said["stored"] + said["failed"] + said["pending"] == said["listed"] == 15
        assert said["pending"] >= 0
        # What a run makes of it: it says which part, and what to do.
        done = run_downloader(*argv)
        assert (done.returncode, f"{parts / '00001.part'} is damaged" in done.stderr) == (4, True), done
        (parts / "00001.part").unlink()
        assert run_downloader(*argv).returncode == 1
        assert run_downloader("verify", tmp_path / "d").returncode == 0
