"""Lose nodes at random instants, one after another: LOSSES=50 for more than 10."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from checker import Truth
from harness import serving
from ray_nodes import ray_nodes, slice_processes
from shard_checker import check_dataset
from test_ray_engine import check, done, options

LOSSES = int(os.environ.get("LOSSES", "10"))
FILES, SLICE, SHARD = 600 * LOSSES, 150, 50
DIES_WITHIN = 5.0


@pytest.mark.timeout(60 + 30 * LOSSES)
@pytest.mark.parametrize(
    "store",
    [pytest.param("files", marks=pytest.mark.slow), pytest.param("tar", marks=pytest.mark.alone)],
)
def test_losses_at_random_instants(tmp_path: Path, store: str) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    drawn = random.Random(seed)
    dest = tmp_path / "d"
    with serving(files=FILES, delay="100ms-200ms") as origin, ray_nodes(tmp_path / "scratch") as nodes:
        shards = ["--store", store, "--shard-files", SHARD] if store == "tar" else []
        job = nodes.job(origin.url, "--connections", 8, *shards, *options(dest, SLICE))
        ran = 0
        try:
            job.until(lambda: slice_processes(dest))
            for _ in range(LOSSES):
                time.sleep(drawn.uniform(0, 4))  # the instant is what is drawn
                lost = drawn.choice(nodes.alive)
                scratch = tmp_path / "scratch" / f"node-{lost}"
                ran += bool(slice_processes(scratch / "x"))
                nodes.lose(drawn.choice(["remove", "kill"]), lost)
                give_up = time.monotonic() + DIES_WITHIN
                while slice_processes(scratch / "x"):
                    assert time.monotonic() < give_up, f"an orphan, seed {seed}"
                    time.sleep(0.01)
                nodes.add()
                assert job.process.poll() is None, f"too short, seed {seed}: {job.err}"
            assert job.wait(200) == 0, f"seed {seed}: {job.err}"
            found = json.loads(job.out)
        finally:
            job.close()
        gets = origin.stats()["gets"]
    slices = found["slices"]
    told = f"{ran} of {LOSSES} nodes had a slice, {slices}, {gets} requests for {FILES} files"
    print(f"{store}, seed {seed}: {told}")  # noqa: T201
    assert (found["complete"], found["listed"], found["failed"]) == (True, FILES, 0)
    assert found["stored"] + found["skipped"] == FILES
    assert slices["done"] == slices["planned"] == FILES // SLICE == len(done(dest))
    assert slices["attempts"] - slices["done"] <= LOSSES
    # Each slice requests some files once more, to know the order of the answers.
    assert gets <= FILES * 1.3 + SLICE * LOSSES
    if store == "tar":
        check_dataset(dest, Truth(FILES), "tar", SHARD)
    else:
        check(dest, FILES)
