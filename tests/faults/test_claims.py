"""A file is replaced only if it is the very file that the decision was about.

What was known of the file that had a name earlier is not known of another one that has it now: that may be
the file of another item of the job.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from harness import command, environment
from servers import Nth, Request, Server, Step, Until, ok, status

ONE = ("--workers", 1, "--pipeline", "off", "--retries", 0, "--json")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Rows:
    """A list of names and URLs, and its server. What is ``held`` the second time waits for the last row.

    That is requested when all others are stored but those that wait, with one connection more than these.
    """

    def __init__(self, server: Server, path: Path) -> None:
        self.path = path
        self.server = server
        self._last = Event()
        server.routes["/last"] = self._ask_last
        path.write_text("name,url\n")

    def _ask_last(self, request: Request) -> Sequence[Step]:
        self._last.set()
        return status(404)

    def add(self, name: str, target: str, answer: Any = None) -> None:
        self.server.routes[target] = answer or ok(target.encode())
        with self.path.open("a") as file:
            file.write(f"{name},{self.server.url}{target}\n")

    def held(self, target: str) -> Sequence[Step]:
        return [Until(self._last), *ok(target.encode())]

    def end(self) -> None:
        with self.path.open("a") as file:
            file.write(f"last,{self.server.url}/last\n")


def failed(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["stored"] + report["skipped"] + report["failed"] == report["listed"], report
    found: dict[str, int] = report["failed_by_error"]
    return found


def bytes_of(dest: Path, *names: str) -> list[str]:
    return [(dest / name).read_text() for name in names]


def test_damaged_file_whose_name_another_item_has_by_now(run_downloader: Run, tmp_path: Path) -> None:
    """Before ``verify`` or after it, listed before or not: the first that is stored keeps the name."""
    dest = tmp_path / "d"
    with Server() as server:
        rows = Rows(server, tmp_path / "list.csv")
        for name in "abc":
            target = f"/one/{name}"
            rows.add(name, target, Nth(ok(target.encode()), rows.held(target)))
        for name in "acb":
            rows.add(name, f"/two/{name}")
        rows.end()
        argv = (rows.path, "-o", dest, *ONE, "--connections", 4)
        assert run_downloader(*argv, "--limit", 3).returncode == 0
        (dest / "c").unlink()
        assert failed(run_downloader(*argv, "--limit", 5)) == {"name-taken": 1}  # a
        for name in "ab":
            (dest / name).unlink()
        seen = json.loads(run_downloader("verify", dest, "--json").stdout)
        assert (seen["damaged"], seen["agree"]) == (["a", "b", "c"], 1)
        for _ in range(2):
            done = run_downloader(*argv)
            assert failed(done) == {"name-taken": 3, "http-404": 1}
            assert json.loads(done.stdout)["replaced"] == 0
            assert bytes_of(dest, *"abc") == ["/two/a", "/two/b", "/two/c"]
            assert run_downloader("verify", dest).returncode == 0


def test_missing_file_whose_name_another_item_has_when_the_source_is_read_again(
    run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "d"
    with Server() as server:
        rows = Rows(server, tmp_path / "list.csv")
        rows.add("a", "/one", Nth(ok(b"/one"), rows.held("/one")))
        rows.add("a", "/two")
        rows.end()
        argv = (rows.path, "-o", dest, *ONE, "--connections", 2)
        assert run_downloader(*argv, "--limit", 1).returncode == 0
        (dest / "a").unlink()
        assert failed(run_downloader(*argv, "--relist")) == {"name-taken": 1, "http-404": 1}
        assert bytes_of(dest, "a") == ["/two"]
        assert run_downloader("verify", dest).returncode == 0


def test_claim_on_a_file_of_the_user_that_is_gone(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server() as server:
        rows = Rows(server, tmp_path / "list.csv")
        rows.add("w", "/w")
        # The name is found to be nobody's, and then the server fails.
        rows.add("a", "/one", Nth(ok(b"/one"), status(503), rows.held("/one")))
        rows.add("a", "/two")
        rows.end()
        argv = (rows.path, "-o", dest, *ONE, "--connections", 2)
        assert run_downloader(*argv, "--limit", 1).returncode == 0
        (dest / "a").write_text("mine")
        assert failed(run_downloader(*argv, "--limit", 2)) == {"http-503": 1}
        (dest / "a").unlink()
        for _ in range(2):
            assert failed(run_downloader(*argv)) == {"name-taken": 1, "http-404": 1}
            assert bytes_of(dest, "a") == ["/two"]
            assert run_downloader("verify", dest).returncode == 0


def test_worker_killed_while_it_replaces_a_file(tmp_path: Path) -> None:
    """strace stops it after the files were exchanged; another worker has the file of the user once more."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    dest = tmp_path / "d"
    dest.mkdir()
    (dest / "a").write_text("mine")
    trace = ("-e", "trace=renameat2", "-e", "inject=renameat2:delay_exit=3000000:when=1")
    with Server(files={"a": ok(b"theirs")}) as server:
        run = command(server.url, "-o", dest, "--workers", 1, "--json")
        process = subprocess.Popen(
            ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), *trace, *run],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while (dest / "a").read_text() != "theirs":
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)  # there is no event for this
        os.kill(stopped_worker(process, dest), signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    report = json.loads(out)
    assert (report["stored"], report["replaced"]) == (1, 1)
    assert bytes_of(dest, "a") == ["theirs"]
    assert sorted(os.listdir(dest)) == [".downloader", "a"]


def stopped_worker(process: subprocess.Popen[str], dest: Path) -> int:
    """Wait for the process that strace has stopped, and that has the ledger of a worker mapped."""
    while True:
        assert process.poll() is None, process.communicate()
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                is_stopped = "(tracing stop)" in path.read_text()
                if is_stopped and f"{dest}/.downloader/ledger-" in path.with_name("maps").read_text():
                    return int(path.parent.name)
            except OSError:
                continue
        time.sleep(0.002)  # there is no event for this
