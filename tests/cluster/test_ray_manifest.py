"""--manifest and --hash with --engine ray: the rows of all slices, once each, in the source's order."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from checker import Truth
from harness import run, serving, stored
from ray_nodes import Nodes, slice_processes
from servers import Request, Server, ok, status
from test_ray_engine import options, report
from test_ray_faults import finished

# A cluster loads two cores so much that tests beside it miss their times.
pytestmark = pytest.mark.slow

NOWHERE = ("--engine", "ray", "--ray-address", "127.0.0.1:1")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_of_all_slices_in_each_format(nodes: Nodes, tmp_path: Path) -> None:
    dest, files = tmp_path / "d", 1200
    with serving(files=files, page=100) as origin:
        argv = (origin.url, "--hash", "sha256", *options(dest, 300))
        jsonl = tmp_path / "m.jsonl"
        finished(nodes.job(*argv, "--manifest", jsonl), 0)
        gets = origin.stats()["gets"]
        # Made again from the same records: no request, and no cluster.
        for name in ("m.csv", "m.parquet", "SHA256SUMS"):
            ended = run(*argv, *NOWHERE, "--manifest", tmp_path / name)
            assert (ended.returncode, ended.stderr) == (0, "")
        assert origin.stats()["gets"] == gets
    found, truth = rows(jsonl), Truth(files)
    assert [row["name"] for row in found] == [f"file-{number:010d}" for number in range(files)]
    for row in found:
        content = truth.content(row["name"])
        assert row["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert (row["size"], row["status"], row["columns"]) == (len(content), 200, {})
        assert row["url"] == f"{origin.url}/get/{row['name']}"
    record = json.loads((dest / ".downloader/cluster/done/00000002.json").read_text())
    assert {row["node"] for row in found[600:900]} == {record["node"]}
    with open(tmp_path / "m.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["name"], row["node"], row["hash"]) for row in table] == [
        (row["name"], row["node"], row["hash"]) for row in found
    ]
    parquet = pyarrow.parquet.read_table(tmp_path / "m.parquet")
    assert parquet.column("node").to_pylist() == [row["node"] for row in found]
    assert parquet.column("size").to_pylist() == [row["size"] for row in found]
    done = subprocess.run(
        ["sha256sum", "--strict", "-c", tmp_path / "SHA256SUMS"],
        cwd=dest,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == files


def test_lost_nodes_lose_no_row(nodes: Nodes, tmp_path: Path) -> None:
    """Files that an attempt stored which was lost are there already for the next; they have rows."""
    dest, manifest, files = tmp_path / "d", tmp_path / "m.jsonl", 3000
    with serving(files=files, page=500, delay="20ms-40ms") as origin:
        argv = (origin.url, "--manifest", manifest, "--connections", 2, *options(dest, 300))
        lost = nodes.add()
        job = nodes.job(*argv)
        try:
            job.until(lambda: slice_processes(nodes.scratch / f"node-{lost}" / "x"))
            before = len(list(dest.glob("file-*")))
            job.until(lambda: len(list(dest.glob("file-*"))) >= before + 50)
            nodes.lose("kill", lost)
            found = report(job)
        finally:
            job.close()
    assert found["slices"]["attempts"] > found["slices"]["done"] == 10
    made = rows(manifest)
    assert [row["name"] for row in made] == [f"file-{number:010d}" for number in range(files)]
    assert {row["status"] for row in made} == {200}
    assert {row["name"]: row["size"] for row in made} == {
        name: len(content) for name, content in stored(dest).items()
    }


def test_rows_of_what_was_tried_again(nodes: Nodes, tmp_path: Path) -> None:
    """Twice, over slices of slices; a file that the list names twice has two rows, as in a local run."""
    down = {f"/b{number}" for number in (3, 120, 121, 122, 290)}

    def answer(request: Request) -> list[Any]:
        return list(status(404)) if request.target in down else list(ok(request.target.encode()))

    dest, manifest, source = tmp_path / "d", tmp_path / "m.jsonl", tmp_path / "list.jsonl"
    with Server(default=answer) as server:
        listed = [f"/{'b' if f'/b{number}' in down else 'a'}{number}" for number in range(300)]
        listed.insert(250, "/a7")
        lines = [{"url": server.url + path, "n": number} for number, path in enumerate(listed)]
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        argv = (source, "--keep-columns", "n", "--manifest", manifest, *options(dest, 50))

        def names() -> list[str]:
            return [f"/{row['name']}" for row in rows(manifest)]

        finished(nodes.job(*argv), 1)
        assert names() == [path for path in listed if path not in down]
        down -= {"/b120", "/b290"}
        finished(nodes.job(*argv), 1)
        down.clear()
        found = finished(nodes.job(*argv), 0)
        assert (found["listed"], found["failed"]) == (301, 0)
        assert names() == listed
        made = rows(manifest)
        assert [row["columns"]["n"] for row in made] == list(range(301))
        sums = {row["name"]: row["size"] for row in made}
        assert sums == {name: len(content) for name, content in stored(dest).items()}


def test_slices_that_were_done_without_a_manifest(nodes: Nodes, tmp_path: Path) -> None:
    dest, manifest = tmp_path / "d", tmp_path / "m.jsonl"
    with serving(files=200) as origin:
        argv = (origin.url, *options(dest, 50))
        finished(nodes.job(*argv), 0)
        ended = run(*argv, *NOWHERE, "--manifest", manifest)
    assert ended.returncode == 0
    assert "of 200 files only name, size and what the source says are known" in ended.stderr
    made = rows(manifest)
    assert {row["name"]: row["size"] for row in made} == {
        name: len(content) for name, content in stored(dest).items()
    }
    assert len(made) == 200
    assert {row["status"] for row in made} == {None}
    assert made[0]["url"] == f"{origin.url}/get/{made[0]['name']}"
