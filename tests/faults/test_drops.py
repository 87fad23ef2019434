"""A server that drops connections at random and limits requests per connection: the result is exact."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from checker import Truth, check
from harness import DevServer, Job, serving, slow_but

FILES = int(os.environ.get("DROPS", "8000"))


@pytest.mark.parametrize(
    ("lane", "tls"),
    slow_but([("auto", True), ("requests", True)], ("auto", "requests"), (False, True)),
)
def test_all_files_are_stored_despite_drops(
    lane: str, tls: bool, start: Callable[..., Job], tmp_path: Path
) -> None:
    """``DROPS=1000000`` makes it a million. The requests client without TLS adds nothing and is slow."""
    files = FILES if lane == "auto" else FILES // 5
    truth = Truth(files, 100, 1000)
    server: DevServer
    with serving(files=files, size="100-1000", drop_rate=0.003, close_after=400, seed=7, tls=tls) as server:
        trust = ("--cacert", server.ca) if tls else ()
        options = ("--lane", lane, "--retries", "20", "--backoff", "10ms", "--json", *trust)
        job = start(server.url, "-o", tmp_path / "dest", *options)
        assert job.wait(100 + FILES // 5000) == 0, job.err
        report = json.loads(job.out)
        assert report["stored"] == files
        drops = server.stats()["drops"]
    assert drops > 0
    # Each drop has cost at most one attempt: requests behind the dropped one are not charged.
    assert report["retries"] <= drops
    check(tmp_path / "dest", truth)
