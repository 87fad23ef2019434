"""--engine ray: failures, slices that cannot be run, interruption, another job, status."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import DevServer, Job, run, serving, stored
from ray_nodes import Nodes, slice_processes
from servers import Request, Server, ok, status
from test_ray_engine import options, report, wait_for_slices

# A cluster loads two cores so much that tests beside it miss their times.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slow_origin() -> Iterator[DevServer]:
    with serving(files=4000, delay="10ms-20ms") as server:
        yield server


def finished(job: Job, expected: int) -> dict[str, object]:
    try:
        return report(job, expected)
    finally:
        job.close()


def test_slice_that_kills_its_process_is_set_aside(
    nodes: Nodes, slow_origin: DevServer, tmp_path: Path
) -> None:
    dest = tmp_path / "kills"
    argv = (slow_origin.url, "--limit", 500, *options(dest, 100))
    job = nodes.job(*argv)
    found = finished(job, 4)
    assert found["slices"] == {"planned": 5, "done": 4, "attempts": 7, "set aside": 1}
    assert (found["stored"], found["listed"], found["complete"]) == (400, 500, False)
    assert "00000001: its process on" in str(found["stopped_by"])
    assert "SIGKILL" in str(found["stopped_by"])
    assert len(stored(dest)) == 400


def test_interrupted_job_drains_all_nodes_and_goes_on(
    nodes: Nodes, slow_origin: DevServer, tmp_path: Path
) -> None:
    dest = tmp_path / "d"
    argv = (slow_origin.url, "--connections", 2, *options(dest, 1000))
    job = nodes.job(*argv)
    job.until(lambda: len(stored(dest)) > 200)
    told = json.loads(run("status", dest, "--json").stdout)
    assert not told["complete"]
    assert told["slices"]["done"] == 0
    job.kill(signal.SIGINT)
    found = finished(job, 130)
    assert not found["complete"]
    assert not slice_processes(dest)
    before = len(stored(dest))
    assert before < 4000

    again = finished(nodes.job(*argv), 0)
    assert (again["listed"], again["failed"], again["resumed"]) == (4000, 0, True)
    assert again["stored"] + again["skipped"] == 4000  # type: ignore[operator]
    assert len(stored(dest)) == 4000
    told = json.loads(run("status", dest, "--json").stdout)
    assert (told["complete"], told["stored"], told["pending"]) == (True, 4000, 0)


def test_failed_files_are_merged_and_tried_again(nodes: Nodes, tmp_path: Path) -> None:
    down = {"bad-7", "bad-230", "bad-231"}

    def answer(request: Request) -> list[bytes]:
        name = request.target.rpartition("/")[2]
        return status(404) if name in down else ok(name.encode())  # type: ignore[return-value]

    dest, journal, failures = tmp_path / "d", tmp_path / "j", tmp_path / "failures.jsonl"
    names = [f"{'bad' if f'bad-{n}' in down else 'good'}-{n}" for n in range(300)]
    with Server(default=answer) as server:  # type: ignore[arg-type]
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/{name}\n" for name in names) + "ftp://no\n")
        argv = (source, "--journal", journal, "--failures", failures, *options(dest, 100))
        found = finished(nodes.job(*argv), 1)
        assert (found["stored"], found["failed"]) == (297, 4)
        assert found["failed_by_error"] == {"http-404": 3, "bad-url": 1}
        lines = [json.loads(line) for line in failures.read_text().splitlines()]
        assert {line["name"] for line in lines if line["code"] == "http-404"} == down
        assert sorted(path.name for path in dest.iterdir()) == sorted(set(names) - down)

        down.discard("bad-230")
        again = finished(nodes.job(*argv, "--retry-failed"), 1)
        assert (again["stored"], again["skipped"], again["failed"]) == (1, 297, 3)
        assert again["complete"]
        down.clear()
        last = finished(nodes.job(*argv), 1)
        assert (last["stored"], last["skipped"], last["failed"]) == (2, 298, 1)
        assert last["failed_by_error"] == {"bad-url": 1}
        assert len(server.requests) == 300 + 3 + 2
    told = json.loads(run("status", dest, "--journal", journal, "--json").stdout)
    assert (told["stored"], told["failed"], told["pending"]) == (300, 1, 0)


def test_plan_of_another_job_is_refused(tmp_path: Path) -> None:
    """The plan is begun before the cluster is looked for; there is none."""
    dest = tmp_path / "d"

    def tell(*argv: object) -> str:
        nowhere = ("--engine", "ray", "--ray-address", "127.0.0.1:1")
        ended = run("http://127.0.0.1:1", *argv, *nowhere)
        assert ended.returncode == 2
        return str(ended.stderr)

    assert "no Ray cluster answers" in tell("--limit", 200, *options(dest, 100))
    assert "no Ray cluster answers" in tell("--limit", 200, "--workers", 2, *options(dest, 100))
    assert "has the plan of another job" in tell("--limit", 300, *options(dest, 100))
    assert "has the plan of another job" in tell("--limit", 200, *options(dest, 50))
    assert "no Ray cluster answers" in tell("--limit", 200, *options(dest, 50), "--restart")


def test_source_that_breaks_off_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    """A driver that is killed while the source is read: slices and files of it stay."""
    with serving(files=3000, page=100) as server:
        dest = tmp_path / "d"
        argv = (server.url, *options(dest, 250))
        job = nodes.job(*argv)
        wait_for_slices(job, dest, 1)
        job.kill()
        job.wait()
        job.close()
        found = finished(nodes.job(*argv), 0)
    assert (found["listed"], found["failed"]) == (3000, 0)
    assert len(stored(dest)) == 3000
