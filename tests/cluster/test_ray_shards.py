"""--engine ray with shards: 60,000 files as tar, lost nodes, drivers that are killed, what failed."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import Truth
from harness import DevServer, run, serving
from ray_nodes import Nodes, slice_processes
from servers import Request, Server, ok, status
from shard_checker import check_dataset
from test_ray_engine import FILES, done, options, report, wait_for_slices
from test_slice_shards import keys


@pytest.fixture(scope="module")
def origin() -> Iterator[DevServer]:
    with serving(files=FILES, page=5000) as server:
        yield server


def finished(nodes: Nodes, expected: int, *argv: object) -> dict[str, Any]:
    job = nodes.job(*argv)
    try:
        return report(job, expected)
    finally:
        job.close()


def tar(dest: Path, slice_files: int, shard_files: int) -> list[object]:
    return ["--store", "tar", "--shard-files", shard_files, *options(dest, slice_files)]


@pytest.mark.parametrize(
    "store",
    [pytest.param("tar", marks=pytest.mark.alone), pytest.param("parquet", marks=pytest.mark.slow)],
)
def test_job_over_two_nodes(nodes: Nodes, origin: DevServer, tmp_path: Path, store: str) -> None:
    dest = tmp_path / "d"
    argv = (origin.url, "--store", store, "--shard-files", 2000, *options(dest, 10_500))
    found = finished(nodes, 0, *argv)
    assert (found["listed"], found["stored"], found["failed"], found["nodes"]) == (FILES, FILES, 0, 2)
    # Slices are of whole shards.
    assert found["slices"] == {"planned": 6, "done": 6, "attempts": 6, "set aside": 0}
    check_dataset(dest, Truth(FILES), store, 2000)
    assert not slice_processes(dest)
    gets = origin.stats()["gets"]
    again = finished(nodes, 0, *argv)
    assert (again["skipped"], again["requests"], origin.stats()["gets"]) == (FILES, 0, gets)
    check_dataset(dest, Truth(FILES), store, 2000)


@pytest.mark.slow
def test_lost_nodes_lose_no_shard(nodes: Nodes, origin: DevServer, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    job = nodes.job(origin.url, "--limit", 10_000, *tar(dest, 1000, 250))
    drawn = random.Random(24)
    try:
        for how in ("remove", "kill"):
            wait_for_slices(job, dest, drawn.randint(1, 3))
            nodes.lose(how, drawn.choice(nodes.alive))
            nodes.add()
        found = report(job)
    finally:
        job.close()
    assert (found["listed"], found["failed"], found["complete"]) == (10_000, 0, True)
    assert found["slices"]["done"] == 10
    assert found["slices"]["attempts"] <= 12
    check_dataset(dest, Truth(10_000), "tar", 250)
    give_up = time.monotonic() + 10
    while slice_processes(dest):
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.slow
def test_driver_that_is_killed_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    """Three times, at any instant after some shards were published."""
    dest = tmp_path / "d"
    with serving(files=8000, page=1000, delay="5ms-10ms") as origin:
        argv = (origin.url, "--connections", 16, *tar(dest, 1000, 200))
        for _ in range(3):
            job = nodes.job(*argv)
            try:
                wait_for_slices(job, dest, 1)
                job.kill(signal.SIGKILL)
                job.wait()
            finally:
                job.close()
        before = len(done(dest))
        found = finished(nodes, 0, *argv)
        gets = origin.stats()["gets"]
    assert found["resumed"]
    assert found["skipped"] >= before * 1000
    assert found["stored"] + found["skipped"] == found["listed"] == 8000
    check_dataset(dest, Truth(8000), "tar", 200)
    # A driver that is killed has two slices running.
    assert gets <= 8000 + 3 * 2 * 1000


@pytest.mark.slow
def test_failed_files_are_tried_again(nodes: Nodes, tmp_path: Path) -> None:
    down = {"bad-7", "bad-130", "bad-230"}

    def answer(request: Request) -> list[bytes]:
        name = request.target.rpartition("/")[2]
        return status(404) if name in down else ok(name.encode())  # type: ignore[return-value]

    dest, source = tmp_path / "d", tmp_path / "list.txt"
    names = [f"{'bad' if f'bad-{n}' in down else 'good'}-{n}" for n in range(300)]
    with Server(default=answer) as server:  # type: ignore[arg-type]
        source.write_text("".join(f"{server.url}/{name}\n" for name in names))
        manifest = tmp_path / "manifest.jsonl"
        argv = (source, "--journal", tmp_path / "j", "--manifest", manifest, *tar(dest, 100, 50))
        found = finished(nodes, 1, *argv)
        assert (found["stored"], found["failed"]) == (297, 3)
        assert len(keys(dest)) == 6
        down.discard("bad-130")
        found = finished(nodes, 1, *argv, "--retry-failed")
        assert (found["stored"], found["skipped"], found["failed"], found["complete"]) == (1, 297, 2, True)
        down.clear()
        found = finished(nodes, 0, *argv)
        assert (found["stored"], found["skipped"], found["failed"]) == (2, 298, 0)
        assert len(server.requests) == 300 + 3 + 2
        # All of a damaged shard is fetched again, into others; it is named until it is removed.
        content = bytearray((dest / "00002.tar").read_bytes())
        content[content.index(b"good-120\0\0")] ^= 1
        (dest / "00002.tar").write_bytes(content)
        seen = run("verify", dest, "--journal", tmp_path / "j")
        assert (seen.returncode, "damaged: good-120" in seen.stdout.splitlines()) == (1, True)
        found = finished(nodes, 0, *argv)
        assert (found["stored"], found["skipped"], found["failed"]) == (49, 251, 0)
        seen = run("verify", dest, "--journal", tmp_path / "j")
        assert (seen.returncode, "damaged: 00002.tar: changed" in seen.stdout) == (1, True)
        for path in dest.glob("00002*"):
            path.unlink()
        finished(nodes, 0, *argv)  # which writes the indexes again
        assert run("verify", dest, "--journal", tmp_path / "j").returncode == 0
    shards = keys(dest)
    sizes = json.loads((dest / "sizes.json").read_bytes())
    assert sizes == {shard: len(found) for shard, found in shards.items()}
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert [row["name"] for row in rows] == names
    assert sorted((f"{row['shard']}.tar", row["key"]) for row in rows) == sorted(
        (shard, key) for shard, found in shards.items() for key in found
    )
    # Shards 6, 7, 8 were for 7, 130 and 230; what failed again came behind them.
    assert set(shards.pop("00006.tar")) == {f"00002{n:04d}" for n in range(50)} - {"000020030"}
    assert shards.pop("00007.tar") == ["000020030"]
    assert (shards.pop("00008.tar"), shards.pop("00009.tar")) == (["000000007"], ["000040030"])
    assert list(shards) == [f"{number:05d}.tar" for number in (0, 1, 3, 4, 5)]
    every = {key for shard in shards.values() for key in shard}
    others = {f"{n // 50:05d}{n % 50:04d}" for n in range(300) if n // 50 != 2}
    assert every == others - {"000000007", "000040030"}


@pytest.mark.slow
def test_shards_of_somebody_else_are_left_alone(nodes: Nodes, origin: DevServer, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    dest.mkdir()
    (dest / "00003.tar").write_bytes(b"mine")
    job = nodes.job(origin.url, "--limit", 100, *tar(dest, 100, 50))
    try:
        assert job.wait() == 2
        assert "has 00003.tar, which would be replaced" in job.err
    finally:
        job.close()
    assert (dest / "00003.tar").read_bytes() == b"mine"
