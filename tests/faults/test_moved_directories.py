"""A directory below DEST is moved away while files are stored there: they end up in DEST all the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from servers import Request, Server, Step, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COUNT = 8


@pytest.mark.parametrize("layout", ["flat", "hashed", "mirror"])
def test_a_directory_that_is_moved_away_takes_no_file_with_it(
    run_downloader: Run, tmp_path: Path, layout: str
) -> None:
    """The worker holds it open; without asking for its name it would go on storing there, and say 0."""
    root, away, urls = tmp_path / "d", tmp_path / "away", tmp_path / "urls.csv"
    away.mkdir()

    def move(request: Request) -> Sequence[Step]:
        if not any(away.iterdir()):  # it is requested again
            for path in (path for path in root.iterdir() if path.name[0] != "."):
                path.rename(away / path.name)
        return ok(b"4")

    with Server() as server:
        server.routes |= {f"/a/b/{number}": ok(b"%d" % number) for number in range(COUNT)}
        server.routes["/a/b/4"] = move
        lines = [f"{server.url}/a/b/{number},a/b/{number}" for number in range(COUNT)]
        named = "url,name\n" if layout != "mirror" else "url,label\n"
        urls.write_text(named + "\n".join(lines) + "\n")
        argv = (urls, "-o", root, "--layout", layout, "--workers", 1, "--connections", 1)
        done = run_downloader(*argv, "--pipeline", "off", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["stored"], report["failed"]) == (0, COUNT, 0), done
    assert report["bytes"] == COUNT
    assert "was moved or removed during the run" in done.stderr
    inside = [path for path in root.rglob("*") if path.is_file() and ".downloader" not in path.parts]
    assert sorted(path.read_text() for path in inside) == [str(number) for number in range(COUNT)]
    seen = run_downloader("verify", root)
    assert (seen.returncode, f"{COUNT} of {COUNT} files" in seen.stdout) == (0, True), seen


def test_a_link_to_where_a_directory_was_moved_is_not_followed(run_downloader: Run, tmp_path: Path) -> None:
    """What is behind a link is not in DEST, also where the link leads to the directory that was used."""
    root, away = tmp_path / "d", tmp_path / "away"

    def link(request: Request) -> Sequence[Step]:
        if not away.exists():
            (host,) = (path for path in root.iterdir() if path.name[0] != ".")
            host.rename(away)
            host.symlink_to(away)
        return ok(b"2")

    with Server(files={"a/1": ok(b"1"), "a/2": link}) as server:
        argv = (server.url, "-o", root, "--layout", "mirror", "--workers", 1, "--connections", 1)
        done = run_downloader(*argv, "--pipeline", "off", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["stored"], report["failed"]) == (1, 0, 2), done.stdout + done.stderr
