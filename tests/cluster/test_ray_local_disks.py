"""--store local: files on the own disks of nodes, which the manifest names, and nodes that are lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import Truth
from harness import run, serving, stored
from ray_nodes import Nodes, ray_nodes
from test_ray_engine import options
from test_ray_faults import finished

# A cluster loads two cores so much that tests beside it miss their times.
pytestmark = pytest.mark.slow

FILES = 1200


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Nodes, Path]]:
    """Return a cluster of two nodes, and the directory with the disks of its nodes."""
    with ray_nodes(tmp_path / "scratch") as made:
        yield made, tmp_path / "scratch"


def rows(path: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["name"] for row in found}) == len(found)
    return {row["name"]: row for row in found}


def test_disks_of_nodes(disks: tuple[Nodes, Path], tmp_path: Path) -> None:
    nodes, scratch = disks
    journal, manifest = tmp_path / "journal", tmp_path / "m.jsonl"
    with serving(files=FILES, page=100, delay="5ms-10ms") as origin:
        argv = (origin.url, "--store", "local", "--journal", journal, "--manifest", manifest)
        argv = (*argv, "--connections", 4, *options(Path("$SCRATCH/files"), 100))
        found = finished(nodes.job(*argv), 0)
        assert (found["stored"], found["nodes"]) == (FILES, 2)
        here = [stored(scratch / f"node-{number}" / "files") for number in range(2)]
        assert all(here)
        assert not here[0].keys() & here[1].keys()
        truth = Truth(FILES)
        assert {**here[0], **here[1]} == {name: truth.content(name) for name in sorted(here[0] | here[1])}
        assert len(here[0] | here[1]) == FILES
        made = rows(manifest)
        places = [{made[name]["node"] for name in each} for each in here]
        assert [len(each) for each in places] == [1, 1]
        assert places[0] != places[1]

        # Nothing is left to do while the disks are there.
        gets = origin.stats()["gets"]
        assert finished(nodes.job(*argv), 0)["skipped"] == FILES
        assert origin.stats()["gets"] == gets

        # A node that is gone takes its files with it; that is said, and what is lost can be had again.
        nodes.lose("remove", 0)
        nodes.add()
        found = finished(nodes.job(*argv), 4)
        assert not found["complete"]
        assert f"with {len(here[0])} files are on disks of nodes that are not" in str(found["stopped_by"])
        assert places[0].pop() in str(found["stopped_by"])
        assert origin.stats()["gets"] == gets
        found = finished(nodes.job(*argv, "--retry-failed"), 0)
        assert (found["complete"], found["failed"]) == (True, 0)
        assert found["stored"] + found["skipped"] == FILES
        assert origin.stats()["gets"] == gets + len(here[0])
    there = {**stored(scratch / "node-1" / "files")}
    there |= stored(scratch / "node-2" / "files") if (scratch / "node-2" / "files").exists() else {}
    assert there == {name: truth.content(name) for name in here[0] | here[1]}
    again = rows(manifest)
    assert list(again) == list(made)
    assert again[next(iter(here[1]))]["node"] == places[1].pop()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((), "with --engine ray"),
        (("--engine", "ray"), "give --journal a directory that all nodes share"),
    ],
)
def test_disks_need_nodes_and_a_plan_elsewhere(given: tuple[str, ...], text: str, tmp_path: Path) -> None:
    done = run("http://127.0.0.1:9/", "-o", tmp_path / "d", "--store", "local", *given)
    assert done.returncode == 2
    assert text in done.stderr
    assert not list(tmp_path.iterdir())
