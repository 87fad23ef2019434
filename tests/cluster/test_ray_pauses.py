"""--engine ray: a host that asks one node to wait is left alone by all."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest
from harness import stored
from ray_nodes import Nodes
from servers import Pause, Request, Server, Until, ok, status
from test_ray_engine import options, report

# A cluster loads two cores so much that tests beside it miss their times.
pytestmark = pytest.mark.slow

PAUSE = 10.0
TOLD_WITHIN = 3.0  # seconds; it takes half a second on a quiet machine


def run(nodes: Nodes, dest: Path, urls: list[str], slice_files: int) -> dict[str, Any]:
    """Run a job that stores all ``urls`` on two nodes at a time, with two connections on each."""
    source = dest.with_name("list.txt")
    source.write_text("".join(f"{url}\n" for url in urls))
    given = ("--connections", 2, "--pipeline", "off", *options(dest, slice_files))
    job = nodes.job(source, *given)
    try:
        found = report(job)
    finally:
        job.close()
    assert (found["stored"], found["failed"]) == (len(urls), 0)
    assert len(stored(dest)) == len(urls)
    return found


def test_slice_that_runs_is_told(nodes: Nodes, tmp_path: Path) -> None:
    """One request of one slice is answered with a 429; the other slice has requested the same host."""
    asked: list[float] = []

    def answer(request: Request) -> list[Any]:
        began = {each.target[1] for each in list(server.requests)}
        if not asked and began == {"a", "b"}:
            asked.append(monotonic())
            return status(429, f"Retry-After: {PAUSE:.0f}")
        return [Pause(0.2), *ok()]

    with Server(default=answer) as server:
        urls = [f"{server.url}/{slice_}-{number}" for slice_ in "ab" for number in range(80)]
        found = run(nodes, tmp_path / "d", urls, 80)
        after = [request.at - asked[0] for request in server.requests]
    assert found["attempts_by_error"] == {"http-429": 1}
    assert not [at for at in after if TOLD_WITHIN < at < PAUSE]
    assert [at for at in after if at >= PAUSE]


def test_slice_that_starts_is_told(nodes: Nodes, tmp_path: Path) -> None:
    """A slice that starts while a host pauses sends it no request."""
    asked: list[float] = []
    go_on = Event()

    def asks_to_wait(request: Request) -> list[Any]:
        if not go_on.is_set():
            go_on.set()
            asked.append(monotonic())
            return status(503, f"Retry-After: {PAUSE:.0f}")
        return [*ok()]

    def other(request: Request) -> list[Any]:
        # The other node is busy until the pause is known to the cluster.
        return [Until(go_on), Pause(0.5), *ok()]

    with Server(default=asks_to_wait) as server, Server(default=other) as second:
        urls = [f"{server.url}/a-{number}" for number in range(20)]
        urls += [f"{second.url}/b-{number}" for number in range(20)]
        urls += [f"{server.url}/c-{number}" for number in range(20)]
        run(nodes, tmp_path / "d", urls, 20)
        starting = [request.at - asked[0] for request in server.requests if "/c-" in request.target]
    assert len(starting) == 20
    assert min(starting) >= PAUSE
