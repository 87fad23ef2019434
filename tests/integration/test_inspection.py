"""``status`` and ``verify``: after a stop, after a kill, by another user, where nothing can be written."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import ROOT, DevServer, Job, environment, run_behind_mount, serving
from servers import Server, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOBODY = 65534


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=3000, page=100, delay="0-10ms") as server:
        yield server


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_status_counts_stored_files_of_a_stopped_run(
    number: int, server: DevServer, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "d"
    before = server.stats()["gets"]
    job = start(server.url, "-o", dest, "--workers", 2, "--pipeline", "off")
    server.until(lambda counters: counters["gets"] - before > 700)
    job.kill(number)
    job.wait()
    job.alone()
    there = len(list(dest.glob("file-*")))
    done = run_downloader("status", dest, "--json")
    assert done.returncode == 4
    said = json.loads(done.stdout)
    # A file whose worker was killed between its name and its state is counted once it has been examined.
    in_flight = 64 if number == signal.SIGKILL else 0
    assert there - in_flight <= said["stored"] <= there
    assert said["pending"] == said["listed"] - said["stored"]
    assert said["bytes"] == said["stored"] * 100
    checked = run_downloader("verify", dest)
    assert checked.returncode == 0
    assert there - in_flight <= json.loads(run_downloader("verify", dest, "--json").stdout)["checked"]


@pytest.fixture
def stored(run_downloader: Run, tmp_path: Path) -> Path:
    dest = tmp_path / "d"
    with Server(files={"a": ok(b"a"), "b": ok(b"b")}) as server:
        assert run_downloader(server.url, "-o", dest, "--workers", 1).returncode == 0
    return dest


def as_read_only(dest: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """Run the command line with ``dest`` on a file system that is read-only."""
    there = shlex.quote(str(dest))
    bind = f"mount --bind {there} {there} && mount -o remount,bind,ro {there}"
    return run_behind_mount(bind, *args, cwd=ROOT)


@pytest.mark.parametrize("log", [False, True])
def test_status_and_verify_on_a_read_only_file_system(stored: Path, log: bool, run_downloader: Run) -> None:
    if log:
        # The state that a killed run leaves: with a write-ahead log beside the journal.
        (stored / "a").unlink()
        _leave_log(stored)
    done = as_read_only(stored, "status", stored)
    assert done.returncode == 0, done.stderr
    assert "complete" in done.stdout
    done = as_read_only(stored, "verify", stored)
    if not log:
        assert (done.returncode, done.stdout) == (0, "2 of 2 files agree with the journal\n")
        return
    assert done.returncode == 1, done.stderr
    assert "damaged: a\n1 of 2 files agree" in done.stdout
    assert "read-only" in done.stdout
    # Nothing was recorded here; where recording is possible, it is done.
    assert run_downloader("status", stored).returncode == 0
    assert run_downloader("verify", stored).returncode == 1
    assert run_downloader("status", stored).returncode == 1


def _leave_log(dest: Path) -> None:
    script = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('CREATE TABLE later (x)'); os._exit(0)"
    )
    journal = dest / ".downloader" / "journal.sqlite"
    subprocess.run([sys.executable, "-c", script, journal], check=True, timeout=60)
    assert journal.with_name("journal.sqlite-wal").stat().st_size


@pytest.mark.parametrize("what", ["status", "verify"])
def test_status_and_verify_as_another_user(what: str, stored: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can be another user")
    for path in (stored, *stored.parents):
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    # Import everything before: another user may not be permitted to read this interpreter's files.
    script = (
        "import os, sys, traceback, downloader.cli.main, downloader.core.naming;"
        "import downloader.reporting.report, downloader.storage.verify;"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY});"
        "sys.exit(downloader.cli.main.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, what, stored, "-vv"],
        cwd="/",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert "Permission denied; only the user who downloaded" in done.stderr
    assert "defect" not in done.stderr
