"""Shards of slices: numbers and keys, attempts that overlap, kills before they have their names."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import tarfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checker import Truth
from harness import AFTER_IMPORT, DevServer, run, serving, stored
from ray_nodes import slice_processes
from servers import Request, Server, ok, status
from shard_checker import check_dataset
from slice_parts import ShardPlan, run_attempt

# Kills the process that gives files their final names, before number $KILL_AT of them.
_KILLED = """
MODULE = "downloader.sinks.shards.staging"

def change(staging):
    import signal
    move, at = staging.StagingDirectory._move, [int(os.environ["KILL_AT"])]

    def _move(self, *which):
        if not at[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        at[0] -= 1
        return move(self, *which)

    staging.StagingDirectory._move = _move
"""


def until(holds: Callable[[], object]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def keys(dest: Path) -> dict[str, list[str]]:
    """Return the keys of each shard, in order."""
    found = {}
    for path in sorted(dest.glob("*.tar")):
        with tarfile.open(path) as shard:
            found[path.name] = sorted(name[:-5] for name in shard.getnames() if name.endswith(".json"))
    return found


def kill_attempt(plan: ShardPlan, name: str, scratch: Path) -> Path:
    """Kill an attempt that has published two shards, wait for its end; return where attempts publish."""
    attempts = plan.dest / ".downloader/attempts"
    argv = (name, str(plan.dest), str(scratch), plan.slices, "here")
    process = multiprocessing.get_context("spawn").Process(target=run_attempt, args=argv)
    process.start()
    until(lambda: list(attempts.glob("*/00001.tar")))
    process.kill()
    process.join(60)
    until(lambda: not slice_processes(plan.dest))
    return attempts


slow = pytest.mark.slow


@pytest.mark.parametrize("store", ["tar", pytest.param("parquet", marks=slow)])
def test_slices_have_the_shards_of_a_local_run(
    dev_server: Callable[..., DevServer], tmp_path: Path, store: str
) -> None:
    source = dev_server(files=230)
    truth = Truth(230)
    names = [truth.name(index) for index in range(230)]
    plan = ShardPlan(tmp_path / "d", source.url, 50, {"store": store})
    slices = [plan.add(names[:100]), plan.add(names[100:200]), plan.add(names[200:], ended=True)]
    # In any order, as nodes do.
    for name in reversed(slices):
        assert plan.attempt(name, tmp_path / "s").how == "done"
    assert [shard.number for name in slices for shard in plan.done(name).shards] == list(range(5))
    plan.drive()
    check_dataset(plan.dest, truth, store, 50)
    # Again, nothing changes: the records are there.
    before = {path.name: path.stat().st_ino for path in plan.dest.glob("0*")}
    for name in slices:
        assert plan.attempt(name, tmp_path / "s").how == "done"
    plan.drive()
    assert {path.name: path.stat().st_ino for path in plan.dest.glob("0*")} == before
    assert source.stats()["gets"] == 230


def test_what_failed_gets_further_shards_with_the_keys_of_its_rows(tmp_path: Path) -> None:
    down = {"f-3", "f-4", "f-25", "f-31", "f-35"}

    def answer(request: Request) -> list[bytes]:
        name = request.target.rpartition("/")[2]
        return status(404) if name in down else ok(name.encode())  # type: ignore[return-value]

    names = [f"f-{number}" for number in range(36)]
    with Server(default=answer) as server:  # type: ignore[arg-type]
        plan = ShardPlan(tmp_path / "d", server.url, 10, {"sample_key": "index"})
        slices = [plan.add(names[:20]), plan.add(names[20:], ended=True)]
        for name in slices:
            assert plan.attempt(name, tmp_path / "s").how == "done"
        # Some can be fetched now; of shard 3 one, of shard 2 none.
        down.difference_update({"f-3", "f-4", "f-31"})
        again = plan.again(*slices)
        assert (again.retries, again.first, again.seq) == (tuple(slices), 4, 7)
        assert plan.attempt(again.name, tmp_path / "s").how == "done"
        found = keys(plan.dest)
        assert (found["00004.tar"], found["00006.tar"]) == (["000000003", "000000004"], ["000030001"])
        assert list(found) == [f"{number:05d}.tar" for number in (0, 1, 2, 3, 4, 6)]
        down.clear()
        last = plan.again(again.name)
        # The items of two batches: two shards, behind all others.
        assert (last.count, last.first, last.seq) == (2, 7, 9)
        assert plan.attempt(last.name, tmp_path / "s").how == "done"
        plan.drive()
    found = keys(plan.dest)
    every = [key for shard in found.values() for key in shard]
    assert sorted(every) == [f"{number // 10:05d}{number % 10:04d}" for number in range(36)]
    assert json.loads((plan.dest / "sizes.json").read_bytes()) == {
        name: len(shard) for name, shard in found.items()
    }
    rows = [row["nsamples"] for row in json.loads((plan.dest / "shards.json").read_bytes())["shardlist"]]
    assert sum(rows) == 36
    assert not (plan.dest / ".downloader/attempts").exists()


@slow
@pytest.mark.parametrize("disks", [("a", "b"), ("a", "a")], ids=["two nodes", "one node"])
def test_attempts_that_overlap_publish_one_dataset(tmp_path: Path, disks: tuple[str, str]) -> None:
    """The first is stopped when it has published a shard, until the second has ended."""
    files = 400
    truth = Truth(files)
    with serving(files=files, delay="10ms-20ms") as server:
        plan = ShardPlan(tmp_path / "d", server.url, 100, {})
        name = plan.add([truth.name(index) for index in range(files)], ended=True)
        attempts = plan.dest / ".downloader/attempts"
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            argv = [(name, str(plan.dest), str(tmp_path / disk), plan.slices, disk) for disk in disks]
            first = pool.apply_async(run_attempt, argv[0])
            until(lambda: list(attempts.glob("*/00000.tar")))
            stopped = slice_processes(plan.dest)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            outcomes = [pool.apply_async(run_attempt, argv[1]).get(60)]
            published = {path.name: path.read_bytes() for path in plan.dest.glob("*.tar")}
            assert len(published) == 4
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            outcomes.append(first.get(60))
        gets = server.stats()["gets"]
    assert [outcome.how for outcome in outcomes] == ["done", "done"]
    assert gets > files  # they did overlap
    plan.drive()
    check_dataset(plan.dest, truth, "tar", 100)
    assert {path.name: path.read_bytes() for path in plan.dest.glob("*.tar")} == published
    assert not list(tmp_path.glob("[ab]/*"))


@pytest.mark.parametrize("at", [1, *(pytest.param(at, marks=slow) for at in (0, 4, 5))])
def test_kill_while_shards_get_their_names(
    dev_server: Callable[..., DevServer], tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is there, and the task dies; the driver completes it, or another task does.

    Either counts the file of somebody else that it replaces.
    """
    source = dev_server(files=120)
    truth = Truth(120)
    plan = ShardPlan(tmp_path / "d", source.url, 60, {})
    name = plan.add([truth.name(index) for index in range(120)], ended=True)
    (tmp_path / "sitecustomize.py").write_text(_KILLED + textwrap.dedent(AFTER_IMPORT))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("KILL_AT", str(at))
    argv = (name, str(plan.dest), str(tmp_path / "s"), plan.slices, "here")
    process = multiprocessing.get_context("spawn").Process(target=run_attempt, args=argv)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert plan.done(name).shards
    assert len(list(plan.dest.glob("0*"))) == at
    (plan.dest / "00001.tar").write_bytes(b"somebody else's")
    if at % 2:
        again = plan.attempt(name, tmp_path / "s")
        assert (again.how, again.replaced) == ("done", 1)
    assert plan.drive() == 1 - at % 2
    check_dataset(plan.dest, truth, "tar", 60)
    assert source.stats()["gets"] == 120


@slow
def test_attempt_goes_on_with_what_an_earlier_one_has_published(
    dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    source = dev_server(files=300, delay="5ms-10ms")
    truth = Truth(300)
    plan = ShardPlan(tmp_path / "d", source.url, 50, {})
    name = plan.add([truth.name(index) for index in range(300)], ended=True)
    attempts = kill_attempt(plan, name, tmp_path / "s")
    (staging,) = attempts.iterdir()
    before = (staging / "00000.tar").stat().st_ino
    assert plan.attempt(name, tmp_path / "s").how == "done"
    assert plan.done(name).staging == staging.name
    assert (plan.dest / "00000.tar").stat().st_ino == before
    plan.drive()
    check_dataset(plan.dest, truth, "tar", 50)
    assert source.stats()["gets"] < 300 + 50


@slow
def test_what_fails_in_an_attempt_that_is_killed_is_left_to_another_slice(
    dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    """A further shard would have the number of another slice's."""
    source = dev_server(files=300, delay="5ms-10ms")
    plan = ShardPlan(tmp_path / "d", source.url, 50, {})
    names = ["missing", *(Truth(299).name(index) for index in range(299))]
    name = plan.add(names, ended=True)
    kill_attempt(plan, name, tmp_path / "s")
    assert plan.attempt(name, tmp_path / "s").how == "done"
    record = plan.done(name)
    assert [shard.number for shard in record.shards] == list(range(6))
    assert [json.loads(line)["item"] for line in plan.directory.failed_lines(record)] == [0]
    plan.drive()
    assert sum(map(len, keys(plan.dest).values())) == 299
    assert source.stats()["gets"] < 300 + 50 + 10


@slow
def test_journal_whose_shards_are_gone_is_begun_anew(
    dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    source = dev_server(files=300, delay="5ms-10ms")
    truth = Truth(300)
    plan = ShardPlan(tmp_path / "d", source.url, 50, {})
    name = plan.add([truth.name(index) for index in range(300)], ended=True)
    attempts = kill_attempt(plan, name, tmp_path / "s")
    shutil.rmtree(attempts)
    assert plan.attempt(name, tmp_path / "s").how == "done"
    plan.drive()
    check_dataset(plan.dest, truth, "tar", 50)


@slow
@pytest.mark.parametrize("store", ["files", "tar"])
def test_verify_finds_what_is_damaged_and_it_is_fetched_again(
    dev_server: Callable[..., DevServer], tmp_path: Path, store: str
) -> None:
    """Twice: also in slices whose damaged items were fetched again already."""
    source = dev_server(files=120, size="600")
    truth = Truth(120, 600, 600)
    names = [truth.name(index) for index in range(120)]
    plan = ShardPlan(tmp_path / "d", source.url, 30, {"store": store})
    slices = [plan.add(names[:60]), plan.add(names[60:], ended=True)]
    for name in slices:
        assert plan.attempt(name, tmp_path / "s").how == "done"
    plan.drive()
    assert verify(plan.dest) == (0, 120, 120, [])

    # Of a shard that is damaged, all of it is fetched again, into others.
    size = 30 if store == "tar" else 1
    lost = spoiled(names, size, 3, 70)
    changed = damage(plan.dest, store, truth, [names[3], names[70]])
    assert verify(plan.dest) == (1, 120, 120 - 2 * size, lost)
    assert verify(plan.dest) == (1, 120 - 2 * size, 120 - 2 * size, lost)  # until it is fetched again
    assert [plan.done(name).report.failed_by_error for name in slices] == [{"damaged": size}] * 2
    again = plan.again(*slices)
    assert plan.attempt(again.name, tmp_path / "s").how == "done"
    assert plan.done(again.name).report.stored == 2 * size
    assert verify(plan.dest) == (int(store == "tar"), 120, 120, [])
    remove(store, changed)
    plan.drive()
    assert verify(plan.dest) == (0, 120, 120, [])

    # What the first slice has lost is fetched again already, so `verify` makes another slice.
    lost = spoiled(names, size, 35, 70)
    changed = damage(plan.dest, store, truth, [names[35], names[70]])
    assert verify(plan.dest) == (1, 120, 120 - 2 * size, lost)
    assert verify(plan.dest) == (1, 120 - 2 * size, 120 - 2 * size, lost)
    (made,) = [slice_ for slice_ in plan.directory.slices() if slice_.name not in plan.by_name]
    assert (made.retries, made.count) == ((slices[0],), size)
    plan.by_name[made.name] = made
    for slice_ in (made, plan.again(again.name)):
        assert plan.attempt(slice_.name, tmp_path / "s").how == "done"
    remove(store, changed)
    plan.drive()
    assert verify(plan.dest) == (0, 120, 120, [])
    if store == "files":
        assert stored(plan.dest) == {name: truth.content(name) for name in names}


def test_what_is_beside_the_shards_of_slices_is_named_until_it_is_right(tmp_path: Path) -> None:
    """Indexes that a driver was not let write, too; of stats, ``verify`` says how they can be had again."""
    names = ["a", "b", "c", "d"]
    with Server(files={name: ok(name.encode()) for name in names}) as server:
        plan = ShardPlan(tmp_path / "d", server.url, 2, {})
        slices = [plan.add(names[:2]), plan.add(names[2:], ended=True)]
        for name in slices:
            assert plan.attempt(name, tmp_path / "s").how == "done"
        (plan.dest / "sizes.json").write_text("mine")
        assert named(plan.dest) == [["shards.json", "sizes.json"]] * 2
        assert run("status", plan.dest).returncode == 4
        plan.drive()
        assert (named(plan.dest), run("status", plan.dest).returncode) == ([[]] * 2, 0)
        index = plan.dest / "shards.json"
        content = index.read_bytes()
        for other in (content[:-1], None):
            index.write_bytes(other) if other else index.unlink()
            assert named(plan.dest) == [["shards.json"]] * 2
        index.write_bytes(content)
        stats = plan.dest / "00001_stats.json"
        stats.write_bytes(stats.read_bytes()[:-1])
        said = run("verify", plan.dest)
        assert (said.returncode, "to have files beside a shard written" in said.stdout) == (
            1,
            True,
        )
        assert named(plan.dest) == [["00001_stats.json"]] * 2


def named(dest: Path) -> list[list[str]]:
    """Return what ``downloader verify`` names beside items, twice."""
    found = [json.loads(run("verify", dest, "--json").stdout) for _ in range(2)]
    return [sorted(each["published"]) for each in found]


def test_damaged_file_of_a_slice_is_named_until_it_is_fetched_again(tmp_path: Path) -> None:
    """Also when the request has failed; its copy is the item's own still."""
    names = ["a", "b", "c"]
    files = {name: ok(name.encode()) for name in names}
    with Server(files=files) as server:
        plan = ShardPlan(tmp_path / "d", server.url, 3, {"store": "files"})
        first = plan.add(names, ended=True)
        assert plan.attempt(first, tmp_path / "s").how == "done"
        (plan.dest / "b").write_bytes(b"?")
        assert verify(plan.dest) == (1, 3, 2, ["b"])
        server.routes["/get/b"] = status(404)
        second = plan.again(first).name
        assert plan.attempt(second, tmp_path / "s").how == "done"
        assert plan.done(second).report.failed_by_error == {"http-404": 1}
        (plan.dest / "b").rename(tmp_path / "b")
        shutil.copyfile(tmp_path / "b", plan.dest / "b")
        assert verify(plan.dest) == (1, 2, 2, ["b"])
        server.routes["/get/b"] = ok(b"b")
        third = plan.again(second).name
        assert plan.attempt(third, tmp_path / "s").how == "done"
        assert (plan.dest / "b").read_bytes() == b"b"
        assert verify(plan.dest) == (0, 3, 3, [])


def verify(dest: Path) -> tuple[int, int, int, list[str]]:
    """Return exit code and result of ``downloader verify``."""
    ended = run("verify", dest, "--json")
    assert ended.stdout, ended.stderr
    found = json.loads(ended.stdout)
    return ended.returncode, found["checked"], found["agree"], sorted(found["damaged"])


def spoiled(names: list[str], size: int, *indices: int) -> list[str]:
    """Return the names of the items in the shards, of ``size`` items, that have these."""
    return [name for at in indices for name in names[at // size * size : at // size * size + size]]


def remove(store: str, shards: list[Path]) -> None:
    """Remove these shards, with what is beside them."""
    for shard in shards if store == "tar" else ():
        for path in shard.parent.glob(f"{shard.stem}*"):
            path.unlink()


def damage(dest: Path, store: str, truth: Truth, names: list[str]) -> list[Path]:
    """Change a byte of the content of each of these files, wherever it is; return what was changed."""
    found = []
    for path in dest.glob("*.tar" if store == "tar" else "file-*"):
        content = bytearray(path.read_bytes())
        for name in names:
            if (at := content.find(truth.content(name))) >= 0:
                content[at + 300] ^= 1
        if content != path.read_bytes():
            path.write_bytes(content)
            found.append(path)
    return found


def test_an_engine_refuses_the_record_of_the_other(
    dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    """`verify` would write down in one what is damaged, and the next run read the other."""
    source, local = dev_server(files=6), tmp_path / "local"
    plan = ShardPlan(tmp_path / "d", source.url, 6, {"store": "files"})
    assert plan.attempt(plan.add([f"file-{n:010d}" for n in range(6)], ended=True), tmp_path / "s").how
    ray = ("--engine", "ray", "--ray-address", "local")
    assert run(source.url, "-o", local, "--limit", 3).returncode == 0
    for argv, says in (
        (
            (source.url, "-o", plan.dest),
            "has the plan of a job over many machines: go on with --engine ray",
        ),
        (
            (source.url, "-o", local, *ray),
            "has the journal of a job of one machine: go on without --engine",
        ),
    ):
        refused = run(*argv)
        assert (refused.returncode, says in refused.stderr) == (2, True), refused
    assert verify(plan.dest) == (0, 6, 6, [])
    # From here on the journal is what there is.
    assert run(source.url, "-o", plan.dest, "--restart", "--limit", 2).returncode == 0
    assert verify(plan.dest) == (0, 2, 2, [])
    assert run(source.url, "-o", plan.dest).returncode == 0
    assert verify(plan.dest) == (0, 6, 6, [])
