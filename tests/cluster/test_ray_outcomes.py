"""--engine ray: exit code, report, --failures, --manifest: files that fail, Ctrl-C, files of the user.

Small, so that they run each time: the other tests of whole jobs that fail are slow.
"""

from __future__ import annotations

import json
from pathlib import Path
from signal import SIGINT
from threading import Event, Thread
from typing import Any

import pytest
from harness import run, stored
from ray_nodes import Nodes
from servers import Request, Server, Until, ok, status
from test_ray_engine import done, options
from test_ray_faults import finished
from test_slice_shards import until

# A cluster loads two cores so much that tests beside it miss their times.
pytestmark = pytest.mark.alone

MINE = b"the only copy of something"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_job_with_failed_files_ends_with_its_report(nodes: Nodes, tmp_path: Path) -> None:
    """Interrupted while a slice runs, then run to its end, then once more when the files can be had."""
    dest, names = tmp_path / "d", [f"n{number}" for number in range(40)]
    failures, manifest, report = (tmp_path / name for name in ("f.jsonl", "m.jsonl", "r.json"))
    down, reached, gate = {"n3", "n25"}, Event(), Event()

    def answer(request: Request) -> list[Any]:
        name = request.target.rpartition("/")[2]
        if name == "n30":
            reached.set()
            return [Until(gate), *ok(b"n30")]
        return list(status(404) if name in down else ok(name.encode()))

    dest.mkdir()
    (dest / "n21").write_bytes(MINE)
    with Server(default=answer) as server:
        source = tmp_path / "list.csv"
        source.write_text("url,name\n" + "".join(f"{server.url}/{name},{name}\n" for name in names))
        argv = (source, *options(dest, 20), "--connections", 1, "--pipeline", "off")
        argv += ("--failures", failures, "--manifest", manifest, "--report", report)

        def check(job: Any, code: int, failed: set[str], rows: int) -> dict[str, Any]:
            found = finished(job, code)
            assert json.loads(report.read_text()) == found
            assert found["failed_by_error"] == ({"http-404": len(failed)} if failed else {})
            assert {line["name"] for line in lines(failures)} == failed
            assert all(line["url"] == f"{server.url}/{line['name']}" for line in lines(failures))
            assert len({row["name"] for row in lines(manifest)} - down) == rows
            return found

        job = nodes.job(*argv)
        job.until(lambda: reached.is_set() and done(dest) == {"00000000"})
        job.kill(SIGINT)
        found = check(job, 130, {"n3"}, 19)
        assert (found["stored"], found["failed"], found["replaced"]) == (19, 1, 1)
        gate.set()
        found = check(nodes.job(*argv), 1, down, 38)
        assert (found["complete"], found["stored"] + found["skipped"], found["failed"]) == (True, 38, 2)
        assert found["replaced"] == 0
        down.clear()
        found = check(nodes.job(*argv), 0, set(), 40)
        assert (found["stored"], found["skipped"]) == (2, 38)
    assert stored(dest) == {name: name.encode() for name in names}
    assert run("verify", dest).returncode == 0


@pytest.mark.parametrize("existing", ["replace", "keep"])
def test_files_of_the_user_under_the_names_of_shards(nodes: Nodes, tmp_path: Path, existing: str) -> None:
    """They appear in the middle of a job; each that is replaced is counted, `verify` replaces none."""
    dest = tmp_path / "d"
    taken = ["00001.tar", "00001.parquet", "00001_stats.json", "shards.json", "sizes.json"]
    taken = taken if existing == "replace" else taken[:1]

    appeared = Event()

    def appear() -> None:
        # When the first slice has ended: a driver that stops would kill it.
        until((dest / "00000.tar").exists)
        for name in taken:
            (dest / name).write_bytes(MINE)
        appeared.set()

    def answer(request: Request) -> list[Any]:
        waits = [Until(appeared)] if request.target == "/f15" else []
        return [*waits, *ok(request.target.encode())]

    Thread(target=appear, daemon=True).start()
    with Server(default=answer) as server:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/f{number}\n" for number in range(20)))
        argv = (source, *options(dest, 10), "--store", "tar", "--shard-files", 10, "--existing", existing)
        if existing == "keep":
            found = finished(nodes.job(*argv), 4)
            assert found["stopped_by"].startswith(f"{dest} has 00001.tar, which is not of this job")
            assert (dest / "00001.tar").read_bytes() == MINE
            refused = run("verify", dest)
            assert (refused.returncode, "has 00001.tar, which is not of" in refused.stderr) == (4, True)
            assert (dest / "00001.tar").read_bytes() == MINE
            (dest / "00001.tar").unlink()
        found = finished(nodes.job(*argv), 0)
        assert (found["replaced"], found["stored"]) == ((5, 20) if existing == "replace" else (0, 0))
        assert len(server.requests) == 20
    assert run("verify", dest).returncode == 0
