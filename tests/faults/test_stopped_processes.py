"""Processes that stop, or make no progress, while another one waits for them.

Each is killed after the stall limit, which these tests make short, and handled like one that has died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import DevServer, Job, serving, stored
from servers import Request, Server, ok
from shard_parts import examples, failed, publishing
from test_publisher_kills import publisher_pid

from downloader.cluster.driver.slicer_process import SlicerProcess
from downloader.cluster.plan.plan import Plan, PlanDirectory, Slice
from downloader.config.config import Config
from downloader.core.bucket_access import BucketAccess
from downloader.core.slices import plan_digest
from downloader.errors import DestinationError
from downloader.sinks.shards.staging_bucket import StagingBucket

LIMIT = 1.0

# The first $STOPS processes whose argv has $WHO stop when they call $WHERE; with BUSY they compute instead.
STOPS = """
import os, signal, sys, time

def stopping(call):
    def step(*args, **options):
        mark = os.path.join(os.environ["MARKS"], str(os.getpid()))
        if len(os.listdir(os.environ["MARKS"])) < int(os.environ["STOPS"]) and not os.path.exists(mark):
            open(mark, "w").close()
            if "BUSY" in os.environ:
                by = time.monotonic() + float(os.environ["BUSY"])
                while time.monotonic() < by:
                    pass
            else:
                os.kill(os.getpid(), signal.SIGSTOP)
        return call(*args, **options)
    return step

if os.environ["WHO"] in " ".join(sys.orig_argv):
    setattr(os, os.environ["WHERE"], stopping(getattr(os, os.environ["WHERE"])))
"""


@pytest.fixture
def stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    def prepare(who: str, where: str, count: int, **more: str) -> Path:
        (tmp_path / "site").mkdir()
        (tmp_path / "site/sitecustomize.py").write_text(STOPS)
        marks = tmp_path / "marks"
        marks.mkdir()
        found = {"PYTHONPATH": str(tmp_path / "site"), "MARKS": str(marks), "STOPS": str(count)}
        for name, value in {**found, "WHO": who, "WHERE": where, **more}.items():
            monkeypatch.setenv(name, value)
        return marks

    return prepare


def test_publisher_that_stops_is_replaced(tmp_path: Path, stops: Callable[..., Path]) -> None:
    marks = stops("publisher.process", "rename", 1)
    with publishing(tmp_path / "d", stall_timeout=LIMIT) as shards:
        job = shards.job(4, examples(4, 20, 3000), [failed(4, 20)])
        assert len(shards.publisher.publish(job).files) == 1
        (stopped,) = map(int, os.listdir(marks))
        assert publisher_pid() != stopped
        assert not psutil.pid_exists(stopped)
        assert shards.stats(4)["successes"] == 20


def test_publisher_that_stops_again_ends_the_run(tmp_path: Path, stops: Callable[..., Path]) -> None:
    marks = stops("publisher.process", "rename", 9)
    with publishing(tmp_path / "d", stall_timeout=LIMIT) as shards:
        job = shards.job(4, examples(4, 20, 3000))
        with pytest.raises(DestinationError, match=r"ended twice, it gave no sign of life for 1 s; killed"):
            shards.publisher.publish(job)
        assert os.path.exists(job.part)
        assert len(os.listdir(marks)) == 2


def test_publisher_that_works_for_long_is_left_alone(tmp_path: Path, stops: Callable[..., Path]) -> None:
    marks = stops("publisher.process", "rename", 1, BUSY="2.5")
    with publishing(tmp_path / "d", stall_timeout=LIMIT) as shards:
        shards.publisher.publish(shards.job(4, examples(4, 20, 3000)))
        assert os.listdir(marks) == [str(publisher_pid())]


@contextlib.contextmanager
def disk(path: Path) -> Iterator[Callable[[str], None]]:
    """Mount a file system at ``path``; yield a function that freezes (-f) or thaws (-u) it."""
    image = path.with_name("image")
    with image.open("wb") as file:
        file.truncate(40 << 20)
    path.mkdir()

    def run(*argv: object) -> None:
        subprocess.run(list(map(str, argv)), check=True, capture_output=True)

    try:
        run("mkfs.ext4", "-q", image)
        run("mount", "-o", "loop", image, path)
        try:
            run("fsfreeze", "-f", path)
            run("fsfreeze", "-u", path)
        except BaseException:
            run("umount", path)
            raise
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted and frozen here: {error}")
    try:
        yield lambda how: run("fsfreeze", how, path)
    finally:
        subprocess.run(["fsfreeze", "-u", str(path)], check=False, capture_output=True)
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.slow
def test_publisher_whose_disk_hangs(tmp_path: Path) -> None:
    """It cannot be killed; the run ends all the same, and it dies when the disk answers."""
    with disk(tmp_path / "disk") as turn, publishing(tmp_path / "disk/d", stall_timeout=LIMIT) as shards:
        shards.publisher.publish(shards.job(3, examples(3, 5)))
        job = shards.job(4, examples(4, 20, 3000))
        os.sync()
        turn("-f")
        below = psutil.Process().children()
        with pytest.raises(DestinationError, match="ended twice, it gave no sign of life for 1 s; killed"):
            shards.publisher.publish(job)
        below += psutil.Process().children()
        turn("-u")
        assert not psutil.wait_procs(below, 10)[1]
        assert len(shards.publisher.publish(job).files) == 1


HANGS = """
import sys
import downloader
source, output, journal = sys.argv[1:]
report = downloader.download(downloader.Config(
    source=source, output=output, journal=journal, workers=1, connections=4, stall_timeout=2.0))
print(report.exit_code, report.failed, report.stopped_by)
"""


@pytest.mark.slow
@pytest.mark.may_hold(reason="the disk hangs")
def test_destination_whose_disk_hangs(dev_server: Callable[..., DevServer], tmp_path: Path) -> None:
    server = dev_server(files=2000, delay="20ms")
    with disk(tmp_path / "disk") as turn:
        dest = tmp_path / "disk/d"
        job = Job(sys.executable, "-c", HANGS, server.url, dest, tmp_path / "journal")
        try:
            job.until(lambda: len(list(dest.glob("file-*"))) > 50)
            turn("-f")
            assert job.wait() == 0, job.err
            assert job.out.startswith("4 0 worker "), job.out
            assert "cannot be killed: it waits for a disk that does not answer" in job.out
        finally:
            turn("-u")
            job.close()


def test_process_for_a_bucket_that_stops(tmp_path: Path, stops: Callable[..., Path]) -> None:
    stops("serve_staging", "dup2", 9)
    home = tmp_path / "d/.downloader"
    home.mkdir(parents=True)
    before = psutil.Process().children()  # servers that other tests share
    bucket = StagingBucket("s3://there/x", str(home), BucketAccess("http://127.0.0.1:1", "here"), LIMIT)
    with pytest.raises(
        DestinationError, match="its process gave no sign of life for 1 s; killed; run the same"
    ):
        bucket.names()
    assert not set(psutil.Process().children()) - set(before)


COUNTS = """
import sys
from downloader.config.config import Config
from downloader.engine.dry_run import dry_run
from downloader.errors import DownloaderError
try:
    dry_run(Config(source=sys.argv[1], output="", dry_run=True, stall_timeout=1.5), as_json=True, say=print)
except DownloaderError as error:
    print(error.exit_code, error)
"""


def test_feeder_that_stops_in_a_dry_run(dev_server: Callable[..., DevServer], tmp_path: Path) -> None:
    server = dev_server(files=10**6, page=100)
    job = Job(sys.executable, "-c", COUNTS, server.url)
    try:
        job.until(lambda: server.stats()["lists"] > 3)
        (feeder,) = job.children()
        os.kill(feeder, signal.SIGSTOP)
        assert job.wait() == 0, job.err
        assert job.out.startswith("3 the feeder gave no sign of life for 2 s; killed")
        assert not psutil.pid_exists(feeder)
    finally:
        job.close()


CHECKS = """
import os, signal, sys
from downloader.config.config import Config
from downloader.engine.job import run_job
from downloader.errors import DownloaderError
process = os.getpid()

def stop(event, given):
    if event == "open" and given[0] == sys.argv[1] and os.getpid() != process:
        os.kill(os.getpid(), signal.SIGSTOP)

sys.addaudithook(stop)
try:
    run_job(Config(source=sys.argv[1], output=sys.argv[2], stall_timeout=1.5))
except DownloaderError as error:
    print(error.exit_code, error)
"""


def test_check_of_a_list_that_stops(tmp_path: Path) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text("http://127.0.0.1:9/a\n")
    job = Job(sys.executable, "-c", CHECKS, urls, tmp_path / "d")
    try:
        assert job.wait() == 0, job.err
        assert job.out.startswith("3 the feeder gave no sign of life for 2 s; killed")
        assert not (tmp_path / "d").exists()
    finally:
        job.close()


def slicers() -> list[psutil.Process]:
    """Return the slicers that this process has started."""
    return [
        each for each in psutil.Process().children() if "cluster.driver.slicer" in " ".join(each.cmdline())
    ]


def test_slicer_and_its_feeder_that_stop(tmp_path: Path) -> None:
    """Another one goes on behind the last slice; that of a feeder which stops ends, and another follows."""
    with serving(files=30_000, page=20) as server:
        directory = PlanDirectory(str(tmp_path))
        directory.open(Plan(plan_digest({}), server.url, str(tmp_path), 1000, 0), restart=False)
        config = Config(source=server.url, output=str(tmp_path), slice_files=1000, stall_timeout=1.5)
        made: list[str] = []
        logs: list[str] = []

        def until(slicer: SlicerProcess, slices: int) -> bool:
            """Take in events until there are so many ``slices``; return whether more may come."""
            while True:
                events, is_open = slicer.events()
                made.extend(event["name"] for event in events if event["event"] == "slice")
                logs.extend(event["log"][1] for event in events if event["event"] == "log")
                if not is_open or len(made) >= slices:
                    return is_open
                if slicer.stalled:
                    logs.append("stalled")
                    slicer.kill()
                    return False
                time.sleep(0.05)

        def last() -> tuple[int, Slice]:
            slice_ = directory.slice(made[-1])
            assert slice_ is not None
            return len(made), slice_

        first = SlicerProcess(config, b"k" * 16, 0, Slice("", 0))
        assert until(first, 2)
        (process,) = slicers()
        process.suspend()
        assert not until(first, 99)
        assert logs == ["stalled"]
        second = first.again(*last())
        assert until(second, len(made) + 1)
        (process,) = slicers()
        (feeder,) = process.children()
        feeder.suspend()
        assert not until(second, 99)
        second.kill()
        assert logs[1:] == ["the feeder gave no sign of life for 2 s; killed; run the same command again"]
        third = second.again(*last())
        assert not until(third, 99)
        third.kill()
    assert made == [f"{number:08d}" for number in range(31)]  # the last is empty


CALLER = """
    import json, sys
    import downloader
    source, output = sys.argv[1:]
    config = downloader.Config(source=source, output=output, workers=1, connections=4, stall_timeout=1.5)
    try:
        downloader.download(config)
    except downloader.DownloaderError as error:
        print(error.exit_code, error)
"""


def test_run_of_a_program_that_stops(dev_server: Callable[..., DevServer], tmp_path: Path) -> None:
    server = dev_server(files=4000, delay="10ms-20ms")
    job = Job(sys.executable, "-c", textwrap.dedent(CALLER), server.url, tmp_path / "d")
    try:
        server.until(lambda stats: stats["gets"] > 50)
        supervisor = psutil.Process(job.pid).children()[0]
        below = supervisor.children()
        supervisor.suspend()
        assert job.wait() == 0, job.err
        assert (
            job.out
            == "4 the run's own process gave no sign of life for 4 s; killed; the same call goes on\n"
        )
        assert not psutil.wait_procs(below, 10)[1]
    finally:
        job.close()


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_time_in_which_a_run_was_stopped_is_no_silence_of_a_server(
    start: Callable[..., Job], tmp_path: Path, lane: str
) -> None:
    """Ctrl-Z and `fg`, or a container that is paused: no attempt of the files in flight is charged."""
    go = threading.Event()

    def answer(request: Request) -> list[Any]:
        go.wait(60)
        return ok(b"whole")

    with Server(default=answer) as server:
        path = tmp_path / "l.txt"
        path.write_text("".join(f"{server.url}/{n}\n" for n in range(8)))
        quick = ("--retries", 0, "--read-timeout", "6s", "--workers", 1, "--connections", 8, "--lane", lane)
        job = start(path, "-o", tmp_path / "d", *quick)
        job.until(lambda: len(server.requests) >= 8)
        os.killpg(job.pid, signal.SIGSTOP)
        time.sleep(7)  # what is tried: no event can tell that the time is over
        os.killpg(job.pid, signal.SIGCONT)
        job.until(lambda: len(server.requests) >= 16)
        go.set()
        assert job.wait() == 0, job.err
    assert stored(tmp_path / "d") == {str(n): b"whole" for n in range(8)}
