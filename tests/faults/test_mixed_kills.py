"""The mixed campaign: lists and servers, files and shards, manifests, retries; kills, stops and full disks.

Each seed is one job on a small file system. Its runs meet a few accidents, each at a random instant: any
process is killed, or stopped for a moment, or several are, or the disk becomes full until the run has
ended. The same command goes on each time. In the end each file is there once with its own bytes, and so
are the rows of the manifest, and ``verify`` agrees. ``CHAOS_MIXED=200`` makes 200 campaigns,
``CHAOS_SEED`` changes the seeds.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checker import Truth, agree
from harness import DevServer, Job, run, serving
from pyarrow import parquet
from shard_checker import check_shards

RUNS = int(os.environ.get("CHAOS_MIXED", "20"))
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
TRUTH = Truth(600, 100, 4000)
PROMPT = 20.0
SHARD = 150
ACCIDENTS = ("kill", "kill", "kill several", "stop", "disk full")


@pytest.fixture(scope="module")
def servers() -> Iterator[list[DevServer]]:
    size = f"{TRUTH.least}-{TRUTH.most}"
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(serving(files=TRUTH.files, size=size, page=100, delay="0-10ms", **faults))
            for faults in ({}, {"drop_rate": 0.01, "seed": FIRST, "close_after": 90})
        ]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system with room for a job and not much more."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    tried = subprocess.run(mount, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"{' '.join(mount)}: {tried.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Campaign:
    """One job: its command, and the accidents of its runs."""

    def __init__(
        self, seed: int, servers: list[DevServer], start: Callable[..., Job], disk: Path, around: Path
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.disk, self.dest, self._start = disk, disk / "dest", start
        server = servers[seed % 2]
        self.store = ("files", "tar", "parquet")[seed % 3]
        source: object = server.url
        argv: list[object] = []
        if rng.random() < 0.6:
            source = self._list(server, around / f"list.{rng.choice(('csv', 'jsonl', 'txt'))}")
        self.manifest = rng.choice((None, around / "m.csv", around / "m.jsonl", around / "m.parquet"))
        if self.manifest is not None:
            argv += ["--manifest", self.manifest]
        if self.store != "files":
            argv += ["--store", self.store, "--shard-files", SHARD, "--sample-key", "name"]
        argv += ["--workers", 2, "--connections", rng.choice((2, 8)), "--retries", 50, "--backoff", "10ms"]
        argv += ["--pipeline", rng.choice(("off", "4", "auto"))]
        self.argv = (source, "-o", self.dest, *argv, "--json")
        self.server, self.before = server, server.stats()["gets"]

    def _list(self, server: DevServer, path: Path) -> Path:
        urls = [f"{server.url}/get/{TRUTH.name(index)}" for index in range(TRUTH.files)]
        if path.suffix == ".jsonl":
            lines = [json.dumps({"url": url, "caption": 'a "b",\n c'}) for url in urls]
        else:
            lines = [f'{url},"a ""b"","' for url in urls] if path.suffix == ".csv" else urls
            lines = ["url,caption", *lines] if path.suffix == ".csv" else lines
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(self) -> Job:
        return self._start(*self.argv)

    def await_instant(self, job: Job) -> str:
        """Wait for a random instant, or the end of ``job``; return a description."""
        if self.rng.random() < 0.3:
            seconds = self.rng.uniform(0, 1.2)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(seconds)
            return f"after {seconds:.3f} s"
        done = self.server.stats()["gets"] - self.before
        count = done + self.rng.randrange(max(1, TRUTH.files - done) + 1)
        while job.process.poll() is None and self.server.stats()["gets"] - self.before < count:
            time.sleep(0.002)  # no event tells
        return f"after {count} requests"

    def meet(self, job: Job, accident: str) -> None:
        """Let ``accident`` happen to ``job``; return when its run has ended or goes on."""
        if accident == "disk full":
            with filled(self.disk):
                assert job.wait() in (0, 4), job.err
                job.alone(PROMPT)
            return
        pids = [pid for pid in family(job.pid) if job.process.poll() is None]
        chosen = self.rng.sample(pids, min(len(pids), 3 if accident == "kill several" else 1))
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if accident == "stop" else signal.SIGKILL)
        if accident == "stop":
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(self.rng.uniform(0, 0.8))
            for pid in chosen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Leave no room on ``disk`` meanwhile."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    try:
        yield
    finally:
        ballast.unlink()


def family(pid: int) -> list[int]:
    """Return ``pid`` and all its descendants."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
    return found


def names_in(manifest: Path) -> list[str]:
    if manifest.suffix == ".csv":
        with open(manifest, newline="") as file:
            return [row["name"] for row in csv.DictReader(file)]
    if manifest.suffix == ".parquet":
        return list(parquet.read_table(manifest)["name"].to_pylist())
    return [json.loads(line)["name"] for line in manifest.read_text().splitlines()]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_mixed_campaign(
    seed: int, servers: list[DevServer], start: Callable[..., Job], disk: Path, tmp_path: Path
) -> None:
    campaign = Campaign(seed, servers, start, disk, tmp_path)
    rng, dest = campaign.rng, campaign.dest
    say(f"seed {seed}: {' '.join(map(str, campaign.argv))}")
    job, ended = campaign.start(), False
    for _ in range(rng.randrange(1, 5)):
        instant, accident = campaign.await_instant(job), rng.choice(ACCIDENTS)
        if job.process.poll() is None:
            campaign.meet(job, accident)
        say(f"{accident} {instant}")
        ended = job.process.poll() is not None or rng.random() < 0.3
        if ended:
            # A shard is given to two publishers, not to a third one.
            assert job.wait() in (0, 4, -signal.SIGKILL), job.err
            job.alone(PROMPT)
            assert "Traceback" not in job.err
            job = campaign.start()
    assert job.wait() in (0, 4, -signal.SIGKILL), job.err
    job.alone(PROMPT)

    last = campaign.start()
    assert last.wait() == 0, last.err
    last.alone(PROMPT)
    report = json.loads(last.out)
    assert report["complete"]
    if campaign.store == "files":
        agree(dest, 0, report)
        found = {path.name: path.read_bytes() for path in dest.iterdir() if path.is_file()}
        assert found == {name: TRUTH.content(name) for name in map(TRUTH.name, range(TRUTH.files))}
    else:
        check_shards(dest, TRUTH, campaign.store, SHARD, report)
    if campaign.manifest is not None:
        assert sorted(names_in(campaign.manifest)) == [TRUTH.name(index) for index in range(TRUTH.files)]
    done = run("verify", dest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in disk.iterdir()] == ["dest"]
    assert not list(tmp_path.glob(".downloader-*")), "a manifest that was being written is left"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
