"""--on-duplicate with --engine ray: what is a duplicate is decided for all slices, also after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import serving, stored
from ray_nodes import Nodes
from test_ray_engine import options, wait_for_slices
from test_ray_faults import finished

# A cluster loads two cores so much that tests beside it miss their times.
pytestmark = pytest.mark.slow


def test_duplicates_in_other_slices_are_numbered(nodes: Nodes, tmp_path: Path) -> None:
    dest, source, manifest = tmp_path / "d", tmp_path / "list.txt", tmp_path / "m.jsonl"
    with serving(files=300, delay="5ms-10ms") as origin:
        names = [f"file-{number:010d}" for number in range(300)]
        source.write_text("".join(f"{origin.url}/get/{name}\n" for name in [*names, *names[:40]]))
        argv = (source, "--on-duplicate", "number", "--manifest", manifest, *options(dest, 50))
        job = nodes.job(*argv, "--connections", 2)
        try:
            wait_for_slices(job, dest, 1)
            job.kill()
            job.wait()
        finally:
            job.close()
        found = finished(nodes.job(*argv), 0)
    assert (found["listed"], found["failed"]) == (340, 0)
    assert found["stored"] + found["skipped"] == 340  # type: ignore[operator]
    here = stored(dest)
    assert len(here) == 340
    assert here[names[0]] == here[f"{names[0]}-2"]
    rows = [json.loads(line)["name"] for line in manifest.read_text().splitlines()]
    assert sorted(rows) == sorted(here)
    assert rows[:300] == names
