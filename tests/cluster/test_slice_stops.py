"""A slice whose process stops, and slices whose scratch disk is full; without a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from harness import serving
from ray_nodes import slice_processes
from test_slice_attempts import until

from downloader.cluster.node.task import AttemptResult, PlanAt, SliceTask, run_slice
from downloader.cluster.plan import configs
from downloader.cluster.plan.plan import Plan, PlanDirectory, Slice
from downloader.config.config import Config
from downloader.core.slices import plan_digest
from downloader.messages import Item
from downloader.sources.slice_file import write_items

DIGEST = plan_digest({"plan": 1})


def plan(dest: Path, source: str, files: int, **options: object) -> bytes:
    """Make a plan of one slice; return the Config of its slices."""
    dest.mkdir()
    job = Config(source=source, output=str(dest), connections=4, **options)  # type: ignore[arg-type]
    directory = PlanDirectory(str(dest))
    directory.open(
        Plan(DIGEST, source, str(dest), 1000, 0, store=job.store, identity=job.sink_kind.identity(job)),
        restart=False,
    )
    writer = directory.items_writer("00000000")
    names = [f"file-{number:010d}" for number in range(files)]
    write_items(writer.file, msgspec.msgpack.encode([Item(name) for name in names]))
    writer.publish()
    directory.add(Slice("00000000", files, ended=True))
    return configs.for_slices(job, 1, 0, 0).encode()


def attempt(dest: Path, scratch: Path, config: bytes) -> AttemptResult:
    task = SliceTask("00000000", DIGEST, PlanAt(str(dest)), str(scratch), 0.0, "slices/00000000.items")
    return run_slice(task, config, None, "here")


def test_slice_that_stops_is_killed_and_goes_on(tmp_path: Path) -> None:
    dest, scratch, found = tmp_path / "d", tmp_path / "s", []
    with serving(files=300, delay="20ms-40ms") as server:
        config = plan(dest, server.url, 300, stall_timeout=1.5)
        runs = threading.Thread(target=lambda: found.append(attempt(dest, scratch, config)), daemon=True)
        runs.start()
        until(lambda: len(list(dest.glob("file-*"))) > 10)
        for pid in slice_processes(scratch / "x"):
            os.kill(pid, signal.SIGSTOP)
        runs.join(30)
        assert [(each.how, each.reason) for each in found] == [
            ("failed", "its process on here died: gave no sign of life for 3 s; killed")
        ]
        until(lambda: not slice_processes(scratch / "x"))
        assert attempt(dest, scratch, config).how == "done"
    assert len(list(dest.glob("file-*"))) == 300


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


# So small that nothing is begun, that the journal is not, that shards are not.
@pytest.mark.parametrize("size", ["8k", "40k", "100k", "200k", "500k"])
def test_full_scratch_disk_is_named(tmp_path: Path, size: str) -> None:
    dest, scratch = tmp_path / "d", tmp_path / "s"
    with serving(files=300, size="4k") as server, small_disk(scratch, size):
        options = {"store": "tar", "store_options": {"shard_files": 100}}
        config = plan(dest, server.url, 300, **options)
        try:
            reason = attempt(dest, scratch, config).reason
        except OSError as error:  # the driver shows it so
            reason = str(error)
    assert "no space left" in reason.lower(), reason
