"""Power cuts while shards are written: see ``power_cut``, and ``test_powercut`` for files.

``POWERCUTS=50`` makes 50 of each, ``POWERCUTS_SEED`` changes the seeds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import HOME, Truth
from harness import DevServer, Job, serving
from power_cut import LOGFLUSH, NOLOGFLUSH, Disk, after_reboot, counted, disk
from shard_checker import check_shards, whole_in_shards

__all__ = ["disk"]

CUTS = int(os.environ.get("POWERCUTS", "2"))
QUICK = CUTS if "POWERCUTS" in os.environ else 1
FIRST = int(os.environ.get("POWERCUTS_SEED", "22"))  # which is cut when the run has just ended
TRUTH = Truth(3000, 100, 3000)
SHARD_FILES = 200
SEEDS = [
    pytest.param(seed, marks=pytest.mark.slow if seed - FIRST >= QUICK else ())
    for seed in range(FIRST, FIRST + CUTS)
]
Start = Callable[..., Job]


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=TRUTH.files, size="100-3000", delay="0-2ms", page=100) as server:
        yield server


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def argv(server: DevServer, dest: Path, seed: int) -> list[object]:
    store = ("tar", "parquet")[seed % 2]
    shards = ("--store", store, "--shard-files", SHARD_FILES)
    # Without the requests that check the order of answers, since requests are counted.
    return [server.url, "-o", dest, *shards, "--workers", 2, "--pipeline", "off", "--json"]


def cut_in_mid_run(
    command: list[object], seed: int, server: DevServer, disk: Disk, start: Start
) -> dict[str, Any] | None:
    """Run, and cut at a random instant, or as soon as the run has ended; then return its report."""
    rng = random.Random(seed)
    dest = disk.path / "dest"
    job = start(*command, "--connections", 8)
    before = server.stats()["gets"]
    draw = rng.random()
    count, steps = rng.randrange(500, TRUTH.files), rng.randrange(1, 2 * TRUTH.files // SHARD_FILES)

    def reached() -> bool:
        if draw < 0.2:
            return server.stats()["gets"] - before >= count
        # Sealed and published, or published and recorded.
        return len([*dest.glob(f"{HOME}/shards/*.sealed"), *dest.glob("*_stats.json")]) >= steps

    while job.process.poll() is None and not reached():
        time.sleep(0.001)  # no event tells; a tight loop would slow the run
    if draw > 0.9:
        job.wait()
    elif draw > 0.75:
        # What the file system has written by itself is on the disk then, and the rest is not.
        with contextlib.suppress(Exception):
            job.process.wait(rng.uniform(0, 1.5))
    how = rng.choice((LOGFLUSH, NOLOGFLUSH))
    disk.cut(how)
    code = job.wait(60)
    assert code in (0, 4), job.out + job.err
    assert "Traceback" not in job.err
    job.alone()
    disk.comes_back()
    say(f"seed {seed}: cut, flag {how}, draw {draw:.2f}; the run ended with {code}")
    return json.loads(job.out) if code == 0 else None


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_counted_as_stored_survive_with_fsync(
    seed: int, server: DevServer, disk: Disk, start: Start, tmp_path: Path
) -> None:
    dest = disk.path / "dest"
    command = [*argv(server, dest, seed), "--fsync"]
    report = cut_in_mid_run(command, seed, server, disk, start)
    stored = counted(dest)
    lost = stored - whole_in_shards(dest, TRUTH, str(command[4]))
    say(f"seed {seed}: {len(lost)} lost of {len(stored)} counted stored")
    assert not lost
    if report is not None:
        check_shards(dest, TRUTH, str(command[4]), SHARD_FILES, report)
    before = server.stats()["gets"]
    done = after_reboot(tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.stats()["gets"] - before <= TRUTH.files - len(stored)
    check_shards(dest, TRUTH, str(command[4]), SHARD_FILES, json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + CUTS))
def test_without_fsync_every_damaged_sample_is_found_and_stored_again(
    seed: int, server: DevServer, disk: Disk, start: Start, tmp_path: Path
) -> None:
    dest = disk.path / "dest"
    command = argv(server, dest, seed)
    cut_in_mid_run(command, seed, server, disk, start)
    done = after_reboot(tmp_path, *command)
    # Where neither the record nor the stats of a shard were written, it says so.
    unknown = "publishes its shard anew" in done.stderr
    assert done.returncode == (4 if unknown else 0), done.stdout + done.stderr
    every = {TRUTH.name(index) for index in range(TRUTH.files)}
    left = every - whole_in_shards(dest, TRUTH, str(command[4]))
    say(f"seed {seed}: {len(left)} damaged after the next run")
    verified = after_reboot(tmp_path, "verify", dest)
    # A shard may be damaged outside its samples, too; and of a damaged one all samples are named.
    assert verified.returncode in ({1} if left else {0, 1}), verified.stdout
    done = after_reboot(tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert whole_in_shards(dest, TRUTH, str(command[4])) == every
    assert after_reboot(tmp_path, "verify", dest).returncode == 0
