"""A publisher that is killed at any instant, and given the same job again, publishes the same."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import environment, slow_but
from pyarrow import parquet
from shard_parts import Shards, examples, failed, publishing

from downloader.errors import DestinationError
from downloader.sinks.shards.jobs import PublishedShard

KILLS = int(os.environ.get("PUBLISHER_KILLS", "5"))
FORMS = {
    "renamed": {},
    "reproducible": {"reproducible": True},
    "cut": {"max_size": 90_000},
    "gz": {"compression": "gz", "max_size": 90_000},
    "parquet": {"store": "parquet", "max_size": 90_000},
}


def publisher_pid() -> int:
    """Return the process ID of the publisher that this process has started."""
    (process,) = (
        each for each in psutil.Process().children() if "publisher.process" in " ".join(each.cmdline())
    )
    return process.pid


def content(root: Path) -> dict[str, str]:
    """Return the digest of each published file."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.iterdir()
        if path.is_file()
    }


def reference(root: Path, number: int, options: dict[str, Any]) -> tuple[PublishedShard, dict[str, str]]:
    """Return what is published without a kill."""
    with publishing(root, **options) as shards:
        published = shards.publisher.publish(job(shards, number))
    return published, content(root)


def job(shards: Shards, number: int) -> Any:
    return shards.job(number, examples(number, 60, 3000), [failed(number, 60)])


@pytest.mark.parametrize("form", slow_but([("parquet",)], FORMS))
def test_killed_at_a_random_instant(form: str, tmp_path: Path) -> None:
    options = FORMS[form]
    expected, files = reference(tmp_path / "expected", 4, options)
    with publishing(tmp_path / "warm", **options) as shards:
        first = job(shards, 3)
        shards.publisher.publish(first)
        second = job(shards, 4)
        began = time.perf_counter()
        shards.publisher.publish(second)
        duration = time.perf_counter() - began
    for attempt in range(KILLS):
        draw = random.Random(f"{form} {attempt}")
        root = tmp_path / str(attempt)
        with publishing(root, **options) as shards:
            shards.publisher.publish(shards.job(0, [], [failed(0, 0)]))  # so that it has started
            for path in root.glob("00000*"):
                path.unlink()
            pid = publisher_pid()
            killer = threading.Timer(draw.random() * duration * 1.2, kill, [pid])
            again = job(shards, 4)
            killer.start()
            answer = shards.publisher.publish(again)
            killer.join()
            assert answer == expected, f"attempt {attempt}"
            assert not os.path.exists(again.part)
        assert content(root) == files, f"attempt {attempt}"


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


DYING = """
import ctypes, os, signal, sys

left = int(os.environ["DIES_AT"])

def dying(call):
    def step(*args, **options):
        global left
        left -= 1
        if left == 0 and not os.path.exists(os.environ["DIED"]):
            open(os.environ["DIED"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)
    return step

if "publisher.process" in " ".join(sys.orig_argv):
    os.rename = dying(os.rename)
    os.unlink = dying(os.unlink)
    CDLL = ctypes.CDLL

    def loaded(*args, **options):
        library = CDLL(*args, **options)
        if args == (None,):
            library.renameat2 = dying(library.renameat2)
        return library

    ctypes.CDLL = loaded
"""


@pytest.mark.parametrize("form", slow_but([("renamed",)], FORMS))
def test_killed_before_each_rename_and_removal(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instants between two of them are short, and random ones miss them."""
    options = FORMS[form]
    expected, files = reference(tmp_path / "expected", 4, options)
    (tmp_path / "sitecustomize.py").write_text(DYING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    died = tmp_path / "died"
    monkeypatch.setenv("DIED", str(died))
    steps = 0
    while steps == 0 or died.exists():
        died.unlink(missing_ok=True)
        steps += 1
        monkeypatch.setenv("DIES_AT", str(steps))
        root = tmp_path / str(steps)
        with publishing(root, **options) as shards:
            again = job(shards, 4)
            assert shards.publisher.publish(again) == expected, (
                f"step {steps}"
            )  # nothing of others replaced
            assert not os.path.exists(again.part)
        assert content(root) == files, f"step {steps}"
    # The last one had no kill: record, rows, stats, each file of samples, and the part if none is it.
    assert steps == 1 + 3 + len(expected.files) + 1


def test_worker_gets_an_error_when_publishers_die_again_and_again(tmp_path: Path) -> None:
    with publishing(tmp_path / "d") as shards:
        stop = threading.Event()

        def killing() -> None:
            while not stop.wait(0.001):
                with contextlib.suppress(ValueError, psutil.Error):
                    kill(publisher_pid())

        thread = threading.Thread(target=killing)
        thread.start()
        try:
            with pytest.raises(
                DestinationError, match=r"shard 00001: its process ended twice, killed by signal 9"
            ):
                shards.publisher.publish(shards.job(1, examples(1, 2)))
        finally:
            stop.set()
            thread.join()
        assert shards.publisher.publish(shards.job(1, examples(1, 2))).files[0].samples == 2


def test_publisher_dies_with_its_worker(tmp_path: Path) -> None:
    program = """
        import sys
        from pathlib import Path
        from shard_parts import Shards, examples
        from test_publisher_kills import publisher_pid
        shards = Shards(Path(sys.argv[1]))
        shards.publisher.publish(shards.job(1, examples(1, 2)))
        print(publisher_pid(), flush=True)
        sys.stdin.read()
    """
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "d")],
        env=environment(PYTHONPATH=paths),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    publisher = psutil.Process(int(worker.stdout.readline()))
    publisher.suspend()
    worker.kill()
    worker.communicate()
    gone, alive = psutil.wait_procs([publisher], timeout=30)
    assert gone
    assert not alive


def test_greenlets_of_a_patched_worker_go_on_while_a_shard_is_published(tmp_path: Path) -> None:
    program = """
        from downloader.process import patching
        patching.apply()
        import fcntl, os, sys
        from pathlib import Path
        import gevent
        from shard_parts import Shards, examples
        shards = Shards(Path(sys.argv[1]), compression="gz")
        lock = os.open(shards.home / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        turns = 0
        def turning():
            global turns
            while True:
                gevent.sleep(0.001)
                turns += 1
        beside = gevent.spawn(turning)
        jobs = [shards.job(number, examples(number, 100, 10_000)) for number in range(4)]
        answers = [gevent.spawn(shards.publisher.publish, job) for job in jobs]
        gevent.joinall(answers, raise_error=True)
        print([answer.value.number for answer in answers], turns > 50)
        # The publisher keeps the lock when the worker has let it go.
        os.close(lock)
        other = os.open(shards.home / "lock", os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("locked")
        shards.publisher.close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A killed greenlet leaves no answer behind for the next job.
        shards = Shards(Path(sys.argv[1]), compression="gz")
        killed = gevent.spawn(shards.publisher.publish, shards.job(8, examples(8, 100, 10_000)))
        gevent.sleep(0.01)
        killed.kill()
        print(shards.publisher.publish(shards.job(9, examples(9, 2))).number)
        # Closing ends a job that is under way.
        late = gevent.spawn(shards.publisher.publish, shards.job(10, examples(10, 100, 10_000)))
        gevent.sleep(0.01)
        shards.publisher.close()
        late.join()
        print(late.exception)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "d")],
        env=environment(PYTHONPATH=str(Path(__file__).parents[1])),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[0, 1, 2, 3] True",
        "locked",
        "9",
        "shard 00010 is not published: the run ends",
    ]
    assert parquet.read_table(tmp_path / "d" / "00009.parquet").num_rows == 2
