"""Jobs that an earlier version began, whose supervisor was killed, are finished by this one."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from servers import Request, Server, Step, listing, ok

KEPT = Path(__file__).with_name("begun_before")


def answer(request: Request) -> Sequence[Step]:
    """As a proxy, which gets whole URLs."""
    path = request.target.split("files.example", 1)[-1]
    return (
        listing([f"n{number}" for number in range(1200)]) if path.startswith("/list") else ok(body_of(path))
    )


# Python up to 3.11.3 has it in some distributions only.
FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def body_of(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest() * 2


@pytest.mark.parametrize(
    ("kind", "source", "place", "name"),
    [("list", "urls.txt", "/f/{}", "{}"), ("server", "http://files.example", "/get/n{}", "n{}")],
)
def test_a_job_of_the_version_before_is_resumed(
    kind: str,
    source: str,
    place: str,
    name: str,
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    with tarfile.open(KEPT / f"{kind}.tar.gz") as kept:
        kept.extractall(tmp_path, **FILTER)
    with Server(default=answer) as proxy:
        argv = (source, "-o", "dest", "--proxy", proxy.url, "--json")
        done = run_downloader(*argv, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        requested = {request.target for request in proxy.requests}
        assert len(requested) == 501, "what was stored is not requested again"
    report = json.loads(done.stdout)
    counts = {key: report[key] for key in ("listed", "stored", "skipped", "failed", "resumed")}
    assert counts == {"listed": 1200, "stored": 501, "skipped": 699, "failed": 0, "resumed": True}
    found = {path.name: path.read_bytes() for path in (tmp_path / "dest").glob("[n0-9]*")}
    assert found == {name.format(number): body_of(place.format(number)) for number in range(1200)}
