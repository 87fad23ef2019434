"""When the files of a job whose journal is apart are said to be elsewhere, and when they are not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from child_processes import site
from harness import Job
from servers import Server, ok

from downloader.files.directory import open_home
from downloader.storage.journal import Journal

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A DEST that is older than every job in it."""
    dest = tmp_path / "d"
    dest.mkdir()
    time.sleep(0.1)  # the clock of a file system has ticks
    return dest


def began(journal: Path) -> int:
    with open_home(journal / ".downloader") as home, contextlib.closing(Journal(home)) as begun:
        job = begun.job()
        assert job is not None
        return job.began_ns


def begin_at(journal: Path, when: int) -> None:
    """Make the journal one whose job began ``when``, by a clock that was set back afterwards."""
    with open_home(journal / ".downloader") as home, contextlib.closing(Journal(home)) as begun:
        job = begun.job()
        assert job is not None
        begun.begin(msgspec.structs.replace(job, began_ns=when))


# For a sitecustomize: a publisher waits as long as it takes to be killed.
WAITING = """
import sys, time

if "publisher.process" in " ".join(sys.orig_argv):
    time.sleep(600)
"""


@pytest.mark.parametrize("is_new", [False, True])
def test_samples_of_shards_that_are_not_published_are_not_elsewhere(
    is_new: bool, run_downloader: Run, start: Callable[..., Job], tmp_path: Path, made: Path
) -> None:
    """Killed twice before the first shard is published, the job goes on, whoever has made DEST."""
    journal = tmp_path / "j"
    env = site(tmp_path, WAITING)
    if is_new:
        made.rmdir()
    with Server(files={f"{n}": ok(b"%d" % n) for n in range(30)}) as server:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/get/{n}\n" for n in [*range(30), *range(10)]))
        shards = ("--store", "tar", "--shard-files", 10, "--reproducible", "--on-duplicate", "skip")
        argv = (source, "-o", made, "--journal", journal, *shards, "--workers", 1, "--json")
        check = ("verify", made, "--journal", journal)
        for seconds in (0.5, 2):
            job = start(*argv, env=env)
            job.until(lambda: list(journal.glob(".downloader/shards/*.sealed")))
            time.sleep(seconds)
            os.killpg(job.process.pid, signal.SIGKILL)
            job.wait()
        assert list(made.iterdir()) == []
        assert (os.stat(made).st_ctime_ns >= began(journal)) == is_new
        done = run_downloader(*check)
        assert done.returncode == 0, done
        if is_new:
            made.rmdir()  # nothing was in it
        done = run_downloader(*argv)
        assert done.returncode == 0, done
        report = json.loads(done.stdout)
        assert report["stored"] + report["skipped"] == 40
        done = run_downloader(*check)
        assert (done.returncode, "30 of 30 files agree" in done.stdout) == (0, True), done
        # Where they are published, they are missed.
        for path in made.iterdir():
            path.unlink()
        time.sleep(0.1)
        begin_at(journal, time.time_ns())
        done = run_downloader(*check)
        assert (done.returncode, "so its files are elsewhere" in done.stderr) == (4, True), done


def test_destination_that_the_run_makes_is_not_older_than_the_job(
    run_downloader: Run, tmp_path: Path
) -> None:
    """Though all of it is stored later, or nothing."""
    dest, journal = tmp_path / "d", tmp_path / "j"
    source = tmp_path / "list.txt"
    source.write_text("http://127.0.0.1:9/a\n")
    argv = (source, "-o", dest, "--journal", journal, "--retries", 0)
    assert run_downloader(*argv).returncode == 1
    assert began(journal) <= os.stat(dest).st_ctime_ns


def test_what_is_thrown_away_is_not_elsewhere(run_downloader: Run, tmp_path: Path, made: Path) -> None:
    """With --store null the job goes on, whether DEST is there or not."""
    with Server(files={"a": ok(b"A")}) as server:
        source = tmp_path / "list.txt"
        source.write_text(f"{server.url}/get/a\n")
        argv = (source, "-o", made, "--journal", tmp_path / "j", "--store", "null", "--json")
        assert json.loads(run_downloader(*argv).stdout)["stored"] == 1
        for _ in range(2):
            done = run_downloader(*argv)
            assert (done.returncode, json.loads(done.stdout)["requests"]) == (0, 0), done
            shutil.rmtree(made)


def test_items_that_share_a_kept_file_are_there(run_downloader: Run, tmp_path: Path, made: Path) -> None:
    """A list that has a row twice has more items than DEST has files."""
    for n in range(10):
        (made / f"{n}").write_bytes(b"%d" % n)
    time.sleep(0.1)
    with Server(files={f"{n}": ok(b"%d" % n) for n in range(10)}) as server:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/get/{n}\n" for n in [*range(10), 3, 4]))
        argv = (source, "-o", made, "--journal", tmp_path / "j", "--existing", "keep", "--json")
        for _ in range(2):
            done = run_downloader(*argv)
            assert (done.returncode, json.loads(done.stdout)["skipped"]) == (0, 12), done
        assert run_downloader("verify", made, "--journal", tmp_path / "j").returncode == 0


@pytest.mark.parametrize("store", ["files", "tar"])
def test_files_that_seem_older_than_the_job_are_not_elsewhere(
    store: str, run_downloader: Run, tmp_path: Path
) -> None:
    """The clock was set back when the job had begun."""
    dest, journal = tmp_path / "d", tmp_path / "j"
    with Server(files={f"{n}": ok(b"%d" % n) for n in range(30)}) as server:
        argv = (server.url, "-o", dest, "--journal", journal, "--store", store, "--json")
        check = ("verify", dest, "--journal", journal)
        assert run_downloader(*argv).returncode == 0
        # The clock has caught up.
        time.sleep(0.1)
        begin_at(journal, time.time_ns())
        assert run_downloader(*check).returncode == 0
        assert json.loads(run_downloader(*argv).stdout)["skipped"] == 30
        # It has not, and a file is missing.
        begin_at(journal, time.time_ns() + 3600 * 10**9)
        (dest / ("7" if store == "files" else "00000.tar")).unlink()
        assert run_downloader(*check).returncode == 1
        assert run_downloader(*argv).returncode == 0
        assert run_downloader(*check).returncode == 0
