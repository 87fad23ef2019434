"""Attempts at one slice that overlap, as on a node that is lost and not dead yet; without a cluster."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import textwrap
import time
from collections.abc import Callable
from multiprocessing.pool import AsyncResult
from pathlib import Path

import msgspec
import pytest
from harness import AFTER_IMPORT, serving, stored
from ray_nodes import slice_processes

from downloader.cluster.node.task import AttemptResult, PlanAt, SliceTask, run_slice
from downloader.cluster.plan import configs
from downloader.cluster.plan.plan import Plan, PlanDirectory, Slice
from downloader.config.config import Config
from downloader.core.slices import plan_digest
from downloader.messages import Item
from downloader.reporting.manifest_rows import RowsMade, read_rows
from downloader.sources.slice_file import write_items

# A cluster loads two cores so much that tests beside it miss their times.
pytestmark = pytest.mark.slow

FILES = 400
DIGEST = plan_digest({"plan": 1})

# A slice whose journal another run has says so in $EVENTS/refused, and ends when there is $EVENTS/go.
_REFUSED = """
MODULE = "downloader.engine.job"

def change(job):
    import pathlib, time
    from downloader.errors import InUse
    run, events = job.run_job, pathlib.Path(os.environ["EVENTS"])

    def run_job(config, **given):
        try:
            return run(config, **given)
        except InUse:
            (events / "refused").touch()
            while not (events / "go").exists():
                time.sleep(0.01)
            raise

    job.run_job = run_job
"""


def plan(dest: Path, source: str) -> tuple[PlanDirectory, bytes]:
    """Make a plan of one slice of ``FILES`` items that exist and one that does not."""
    dest.mkdir()
    directory = PlanDirectory(str(dest))
    directory.open(Plan(DIGEST, source, str(dest), 1000, 0), restart=False)
    writer = directory.items_writer("00000000")
    names = [*(f"file-{number:010d}" for number in range(FILES)), "missing"]
    write_items(writer.file, msgspec.msgpack.encode([Item(name) for name in names]))
    writer.publish()
    directory.add(Slice("00000000", FILES + 1, ended=True))
    job = Config(
        source=source, output=str(dest), connections=4, pipeline=1, manifest=str(dest.parent / "m.jsonl")
    )
    config = configs.for_slices(job, 1, 0, 0)
    return directory, config.encode()


def attempt(dest: str, scratch: str, config: bytes, node: str) -> AttemptResult:
    task = SliceTask("00000000", DIGEST, PlanAt(dest), scratch, 0.0, "slices/00000000.items")
    return run_slice(task, config, None, node)


def until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@pytest.mark.parametrize("disks", [("a", "b"), ("a", "a")], ids=["two nodes", "one node"])
def test_attempts_that_overlap(
    tmp_path: Path, disks: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is stopped until the second stores files, too; then both go on."""
    (tmp_path / "sitecustomize.py").write_text(_REFUSED + textwrap.dedent(AFTER_IMPORT))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("EVENTS", str(tmp_path))
    dest = tmp_path / "d"

    def files() -> int:
        return sum(1 for _ in dest.glob("file-*"))

    with serving(files=FILES, delay="10ms-20ms") as server:
        directory, config = plan(dest, server.url)
        with multiprocessing.get_context("spawn").Pool(2) as pool:

            def start(number: int) -> AsyncResult[AttemptResult]:
                scratch = str(tmp_path / disks[number])
                return pool.apply_async(attempt, (str(dest), scratch, config, f"node {number}"))

            first = start(0)
            until(lambda: files() > 0)
            stopped = slice_processes(dest)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            before = files()
            second = start(1)
            until(lambda: files() > before or (tmp_path / "refused").exists() or second.ready())
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            # What the second was refused is gone when it ends.
            first.wait(60)
            (tmp_path / "go").touch()
            outcomes = [first.get(60), second.get(60)]
        gets = server.stats()["gets"]
    assert [outcome.how for outcome in outcomes] == ["done", "done"]
    assert len({outcome.attempt for outcome in outcomes}) == 2
    assert len(stored(dest)) == FILES
    # They did overlap: some were requested twice.
    assert FILES + 1 < gets <= 2 * (FILES + 1)
    record = directory.done("00000000")
    assert record is not None
    assert record.report.stored + record.report.skipped == FILES
    assert record.attempt in [outcome.attempt for outcome in outcomes]
    lines = [json.loads(line) for line in directory.failed_lines(record)]
    assert [(line["item"], line["name"], line["code"]) for line in lines] == [
        (FILES, "missing", "http-404")
    ]
    # Also those that the other attempt had stored have rows.
    with directory.files.open(f"manifest/{record.manifest}") as file:
        rows = [fields for some in read_rows(file, record.manifest) for _, fields in some]
    assert [fields[0] for fields in rows] == [f"file-{number:010d}" for number in range(FILES)]
    assert {fields[3] for fields in rows} == {200}
    assert record.rows == RowsMade(FILES)
    # What the other attempt left is gone: its failures, its journal, temporary names.
    assert [path.name for path in Path(directory.root, "manifest").iterdir()] == [record.manifest]
    assert [path.name for path in Path(directory.root, "failures").iterdir()] == [record.failures]
    assert [path.name for path in Path(directory.root, "done").iterdir()] == ["00000000.json"]
    assert not [path for disk in set(disks) for path in (tmp_path / disk).rglob("journal.sqlite")]
    assert not [path for path in dest.iterdir() if path.name.startswith(".downloader-")]


def test_first_record_wins(tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with serving(files=FILES) as server:
        directory, config = plan(dest, server.url)
        first = attempt(str(dest), str(tmp_path / "s"), config, "one")
        before = directory.done("00000000")
        second = attempt(str(dest), str(tmp_path / "s"), config, "two")
        requests = server.stats()["gets"]
    assert before is not None
    assert (first.how, second.how) == ("done", "done")
    assert directory.done("00000000") == before
    assert not directory.publish(msgspec.structs.replace(before, attempt="late", node="two"))
    assert directory.done("00000000") == before
    assert requests == FILES + 1
