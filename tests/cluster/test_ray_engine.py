"""--engine ray: a job over a head and two nodes, with nodes and drivers that die."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import Truth
from harness import DevServer, Job, serving, stored
from ray_nodes import Nodes, slice_processes

# A cluster loads two cores so much that tests beside it miss their times.

Run = Callable[..., "subprocess.CompletedProcess[str]"]
FILES = 60_000


@pytest.fixture(scope="module")
def origin() -> Iterator[DevServer]:
    with serving(files=FILES, page=5000) as server:
        yield server


def report(job: Job, expected: int = 0) -> dict[str, Any]:
    code = job.wait()
    assert code == expected, job.err
    found: dict[str, Any] = json.loads(job.out)
    return found


def check(dest: Path, files: int) -> None:
    """Compare all files with what the server serves; nothing else may be there."""
    truth = Truth(files)
    found = stored(dest)
    assert len(found) == files
    for name, content in found.items():
        assert content == truth.content(name), name


def done(dest: Path) -> set[str]:
    return {path.stem for path in (dest / ".downloader/cluster/done").glob("[!.]*.json")}


def wait_for_slices(job: Job, dest: Path, more: int) -> None:
    """Wait until ``more`` slices are done than now."""
    enough = len(done(dest)) + more
    job.until(lambda: len(done(dest)) >= enough)


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "d"


def options(dest: Path, slice_files: int) -> list[object]:
    return ["-o", dest, "--slice-files", slice_files, "--json", "--progress", "none"]


@pytest.mark.alone
def test_job_over_two_nodes(nodes: Nodes, origin: DevServer, dest: Path) -> None:
    job = nodes.job(origin.url, *options(dest, 10_000))
    try:
        found = report(job)
    finally:
        job.close()
    assert (found["listed"], found["stored"], found["failed"]) == (FILES, FILES, 0)
    assert found["nodes"] == 2
    assert found["slices"] == {"planned": 6, "done": 6, "attempts": 6, "set aside": 0}
    check(dest, FILES)
    assert not slice_processes(dest)


@pytest.mark.slow
def test_lost_nodes_lose_nothing(nodes: Nodes, origin: DevServer, dest: Path) -> None:
    """One node after another is lost, each replaced; the job goes on."""
    gets = origin.stats()["gets"]
    job = nodes.job(origin.url, "--limit", 10_000, *options(dest, 1000))
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
    assert found["stored"] + found["skipped"] == 10_000
    assert found["slices"]["done"] == 10
    # A node of one CPU has one slice: no more than one runs again for each loss.
    assert found["slices"]["attempts"] <= 12
    assert origin.stats()["gets"] - gets <= 12_000
    check(dest, 10_000)
    give_up = time.monotonic() + 10
    while slice_processes(dest):
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.slow
def test_driver_that_is_killed_goes_on(nodes: Nodes, origin: DevServer, dest: Path) -> None:
    argv = (origin.url, "--limit", 8000, *options(dest, 1000))
    first = nodes.job(*argv)
    try:
        first.until(lambda: len(done(dest)) >= 2)
        first.kill(signal.SIGKILL)
        first.wait()
    finally:
        first.close()
    before = len(done(dest))
    second = nodes.job(*argv)
    try:
        found = report(second)
    finally:
        second.close()
    assert before >= 2
    assert found["resumed"]
    assert found["skipped"] >= before * 1000
    assert found["slices"]["done"] <= 8 - before
    assert found["stored"] + found["skipped"] == found["listed"] == 8000
    check(dest, 8000)
