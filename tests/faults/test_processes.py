"""Process faults: signals, workers that stop, die or cannot start; and which programs may call
download().
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checker import Truth, agree, check, in_flight
from harness import AFTER_IMPORT, DevServer, Job, command, environment
from servers import Request, Server, Step, Until, ok

Serve = Callable[..., DevServer]
Start = Callable[..., Job]
SITE = "sitecustomize.py"


def site(tmp_path: Path, text: str) -> dict[str, str]:
    """Return an environment in which ``text`` runs as ``sitecustomize`` in every new interpreter."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / SITE).write_text(textwrap.dedent(text))
    return {"PYTHONPATH": str(folder)}


# Signals


@pytest.mark.parametrize(
    ("number", "connections"), [(signal.SIGINT, 400), (signal.SIGTERM, 16), (signal.SIGHUP, 16)]
)
def test_first_signal_drains(
    number: signal.Signals, connections: int, dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    truth = Truth(800 if connections > 100 else 400)
    slow = connections > 100
    server = dev_server(files=truth.files, delay="0-1.5s" if slow else "0-0.2s")
    dest = tmp_path / "root" / "dest"
    dest.parent.mkdir()
    argv = (server.url, "-o", dest, "--workers", 1, "--connections", connections)
    job = start(*argv)
    server.until(lambda counters: counters["gets"] >= connections)
    job.kill(number)
    # The longest that a file in flight takes is 1.5 s.
    assert job.wait(20) == 130, job.err
    job.alone()
    assert f"resume with: downloader {server.url} -o {dest}" in job.out
    assert number.name in job.err
    assert "Traceback" not in job.err
    checked = check(dest, truth, interrupted=True, beside=())
    # Whatever was in flight could finish: nothing is fetched twice.
    fetched = server.stats()["gets"]
    assert checked.stored == fetched
    assert not in_flight(dest)
    last = start(*argv, "--json")
    assert last.wait() == 0, last.err
    assert json.loads(last.out)["stored"] == truth.files - fetched
    check(dest, truth, beside=())
    assert server.stats()["gets"] == truth.files


def test_second_signal_kills_at_once(dev_server: Serve, start: Start, tmp_path: Path) -> None:
    truth = Truth(400)
    server = dev_server(files=truth.files, delay="0-2s")
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", 2, "--connections", 100)
    job = start(*argv)
    server.until(lambda counters: counters["gets"] > 220)
    job.kill(signal.SIGINT)
    job.until(lambda: "SIGINT" in job.err)
    job.kill(signal.SIGINT)
    assert job.wait() == 130
    job.alone()
    checked = check(dest, truth, interrupted=True)
    before = server.stats()["gets"]
    assert checked.stored < before, "it waited for what was in flight"
    last = start(*argv, "--json")
    assert last.wait() == 0, last.err
    check(dest, truth)
    # The ledgers were read: only what was in flight at the kill is fetched again.
    assert server.stats()["gets"] - before <= truth.files - (before - 200)


def test_nohup_ignores_hangup(dev_server: Serve, tmp_path: Path) -> None:
    truth = Truth(400)
    server = dev_server(files=truth.files, delay="0-50ms")
    argv = (server.url, "-o", tmp_path / "dest", "--connections", 8)
    job = Job("nohup", *command(*argv))
    try:
        server.until(lambda counters: counters["gets"] > 50)
        job.kill(signal.SIGHUP)
        assert job.wait() == 0, job.err
        check(tmp_path / "dest", truth)
    finally:
        job.close()


def test_signal_before_anything_is_listed(dev_server: Serve, start: Start, tmp_path: Path) -> None:
    server = dev_server(files=100)
    job = start(server.url, "-o", tmp_path / "dest")
    job.until((tmp_path / "dest/.downloader/journal.sqlite").exists)
    job.kill(signal.SIGTERM)
    assert job.wait() in (130, -signal.SIGTERM), job.err
    job.alone()


SLOW_DISK = """
    import time
    from downloader.process import patching
    patching.apply()
    import gevent
    from downloader.core.item_states import ItemStates
    from downloader.messages import Item, Lease
    from downloader.worker.active_batch import ActiveBatch, reconcile
    from downloader.sinks.null import NullSink

    class Slow(NullSink):
        def verify(self, written):
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                pass
            return True

    class Slot:
        marks = ItemStates(50)

    done = ItemStates(50)
    for index in range(50):
        done.publish(index, 1, 1)
    longest, last = 0.0, time.monotonic()

    def beat():
        global longest, last
        while True:
            gevent.sleep(0.05)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    gevent.spawn(beat)
    sink = Slow()
    batch = ActiveBatch(Lease(0, 50, b"", done=done.packed()), Slot(), sink)
    found = reconcile(batch, [Item("n")] * 50, sink)
    print(len(found), max(longest, time.monotonic() - last) < 0.7)
"""


def test_worker_sends_heartbeats_while_comparing_stored_files() -> None:
    """A batch of large files on a slow disk takes longer than a worker may be silent."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SLOW_DISK)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["50", "True"], done.stderr


# Workers that stop, die, or cannot start

# Long enough for a healthy child on a busy machine: it sends nothing while it imports.
STALL = """
    import json, sys
    import downloader
    source, output = sys.argv[1:]
    config = downloader.Config(source=source, output=output, workers=2, connections=4, stall_timeout=8.0)
    report = downloader.download(config)
    print(json.dumps([report.exit_code, report.stored, report.skipped, report.worker_deaths]))
"""


def descendants(pid: int) -> list[int]:
    """Return the children of the supervisor that ``download()`` started in process ``pid``."""
    import psutil

    for child in psutil.Process(pid).children():
        return [grandchild.pid for grandchild in child.children()]
    return []


def until_running(job: Job, count: int) -> list[int]:
    """Return the pids of feeder and workers, as soon as all are forked."""
    job.until(lambda: len(descendants(job.pid)) >= count)
    return descendants(job.pid)


@pytest.mark.parametrize("victim", ["worker", "feeder"])
def test_stopped_child_is_replaced(victim: str, dev_server: Serve, tmp_path: Path) -> None:
    truth = Truth(2000)
    server = dev_server(files=truth.files, delay="0-20ms", page=100)
    dest = tmp_path / "dest"
    job = Job(sys.executable, "-c", textwrap.dedent(STALL), server.url, dest)
    try:
        feeder, worker, *_ = until_running(job, 3)
        server.until(lambda counters: counters["gets"] > 300)
        os.kill(worker if victim == "worker" else feeder, signal.SIGSTOP)
        assert job.wait() == 0, job.err
        code, stored, skipped, deaths = json.loads(job.out)
        assert (code, stored + skipped, deaths) == (0, truth.files, int(victim == "worker"))
        # A file that the worker had published, and was stopped before it could report, exists already.
        assert skipped <= deaths
        assert "gave no sign of life for 8 s; killed" in job.err
        job.alone()
        check(dest, truth)
    finally:
        job.close()


def test_stopped_supervisor_does_not_kill_its_children(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    truth = Truth(1500)
    server = dev_server(files=truth.files, delay="0-20ms")
    dest = tmp_path / "dest"
    job = Job(sys.executable, "-c", textwrap.dedent(STALL), server.url, dest)
    try:
        until_running(job, 3)
        server.until(lambda counters: counters["gets"] > 200)
        import psutil

        supervisor = psutil.Process(job.pid).children()[0].pid
        os.kill(supervisor, signal.SIGSTOP)
        # Longer than stall_timeout; there is no event for "nothing happened".
        with pytest.raises(subprocess.TimeoutExpired):
            job.process.wait(9)
        os.kill(supervisor, signal.SIGCONT)
        assert job.wait() == 0, job.err
        assert json.loads(job.out) == [0, truth.files, 0, 0], job.err
        check(dest, truth)
    finally:
        job.close()


POISON = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.sinks.directory"

    def change(files):
        # The pipelined client stores a small file with `put`; all others are stored with `open`.
        for way in ("put", "open"):
            setattr(files.FilesSink, way, deadly(getattr(files.FilesSink, way)))

    def deadly(before):
        def store(self, what, *args, **options):
            if getattr(what, "name", what) in os.environ["POISON"].split():
                os.kill(os.getpid(), 9)
            return before(self, what, *args, **options)

        return store
"""
)


def test_file_that_kills_its_workers_is_poison(dev_server: Serve, start: Start, tmp_path: Path) -> None:
    truth = Truth(600, 100, 2000)
    names = [truth.name(150), truth.name(151)]
    server = dev_server(files=truth.files, size="100-2000", delay="0-10ms")
    dest = tmp_path / "dest"
    env = site(tmp_path, POISON) | {"POISON": " ".join(names)}
    argv = (server.url, "-o", dest, "--workers", 2, "--connections", 8, "--json")
    job = start(*argv, env=env)
    assert job.wait() == 1, job.err
    job.alone()
    report = json.loads(job.out)
    assert report["failed_by_error"] == {"poison": 2}
    assert (report["stored"], report["failed"]) == (truth.files - 2, 2)
    # Two deaths show which items were in flight at both; each further death has one file as its cause.
    assert 3 <= report["worker_deaths"] <= 6
    check(dest, truth, failed=dict.fromkeys(names, "poison"))
    # Without the cause of the deaths, the same command stores them, too.
    last = start(*argv)
    assert last.wait() == 0, last.err
    check(dest, truth)


def test_files_in_flight_with_a_poison_file_are_stored(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    """A suspect is alone until it is stored: the next is not begun before that."""
    truth = Truth(600, 100, 100)
    names = [truth.name(index) for index in range(50, 600, 100)]
    server = dev_server(files=truth.files, size="100", delay="0-20ms")
    dest = tmp_path / "dest"
    env = site(tmp_path, POISON) | {"POISON": " ".join(names)}
    argv = (server.url, "-o", dest, "--workers", 1, "--connections", 16, "--pipeline", "off", "--json")
    job = start(*argv, env=env)
    assert job.wait() == 1, job.err
    assert json.loads(job.out)["failed_by_error"] == {"poison": len(names)}
    check(dest, truth, failed=dict.fromkeys(names, "poison"))


@pytest.mark.parametrize(
    ("hook", "says"),
    [
        ("import ssl", rf"ssl is imported .*{SITE}:1"),
        ("import gevent.hub", rf"gevent is imported .*{SITE}:1"),
        (
            """
            import sys
            class Finder:
                def find_spec(self, name, path, target=None):
                    if name == "requests":
                        raise ImportError("no such thing here")
            sys.meta_path.insert(0, Finder())
            """,
            "no such thing here",
        ),
        (
            """
            import os, sys
            class Finder:
                def find_spec(self, name, path, target=None):
                    if name == "requests":
                        os.kill(os.getpid(), 9)
            sys.meta_path.insert(0, Finder())
            """,
            "a child process ends while it starts .*SIGKILL",
        ),
        (
            """
            import threading, time
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
            """,
            "has 2 threads",
        ),
    ],
    ids=["ssl", "gevent", "no-requests", "killed-at-import", "thread"],
)
def test_unsafe_process_exits_with_3(
    hook: str, says: str, dev_server: Serve, run_downloader: Callable[..., Any], tmp_path: Path
) -> None:
    server = dev_server(files=100)
    done = run_downloader(server.url, "-o", tmp_path / "dest", env=site(tmp_path, hook), timeout=30)
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(says, done.stdout + done.stderr), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


DEFECTS = {
    "worker": """
    MODULE = "downloader.worker.main"

    def change(worker):
        worker._Worker.batch_finished = broken

    def broken(self, batch):
        raise RuntimeError("odd")
    """,
    "feeder": """
    MODULE = "downloader.feeder.main"

    def change(feeder):
        batch = feeder._batch
        feeder._batch = lambda seq, page, **options: broken() if seq > 1 else batch(seq, page, **options)

    def broken():
        raise RuntimeError("odd")
    """,
}


@pytest.mark.parametrize("role", DEFECTS)
def test_defect_in_a_child_ends_the_run_as_stopped_early(
    role: str, dev_server: Serve, run_downloader: Callable[..., Any], tmp_path: Path
) -> None:
    server = dev_server(files=1000, page=100)
    argv = (server.url, "-o", tmp_path / "dest", "--workers", 2)
    done = run_downloader(*argv, env=site(tmp_path, AFTER_IMPORT + DEFECTS[role]))
    assert done.returncode == 4, done.stderr
    assert "RuntimeError: odd" in done.stderr
    assert "Traceback" not in done.stderr
    assert run_downloader(*argv).returncode == 0


def test_workers_dying_without_a_suspect_end_the_run(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    hook = (
        AFTER_IMPORT
        + """
    MODULE = "downloader.worker.main"

    def change(worker):
        worker._Worker.take_lease = lambda self, lease: os.kill(os.getpid(), 9)
    """
    )
    server = dev_server(files=100)
    job = start(server.url, "-o", tmp_path / "dest", "--workers", 2, env=site(tmp_path, hook))
    assert job.wait(60) == 3, job.err
    assert "in a row with no file in flight" in job.out + job.err
    job.alone()


def test_the_supervisor_never_imports_ssl_or_gevent(
    dev_server: Serve, run_downloader: Callable[..., Any], tmp_path: Path
) -> None:
    hook = """
        import atexit, os, sys
        main = os.getpid()
        def tell():
            if os.getpid() == main:
                never = {"ssl", "gevent", "urllib3", "requests", "asyncio", "http.client"}
                print("imported:", sorted(never & set(sys.modules)), file=sys.stderr)
        atexit.register(tell)
    """
    server = dev_server(files=300, tls=True)
    done = run_downloader(
        server.url, "-o", tmp_path / "dest", "--cacert", server.ca, env=site(tmp_path, hook)
    )
    assert done.returncode == 0, done.stderr
    assert "imported: []" in done.stderr
    check(tmp_path / "dest", Truth(300))


def test_feeder_death_with_the_list_on_standard_input(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    server = dev_server(files=50)
    reader, writer = os.pipe()
    job = start("-", "-o", tmp_path / "dest", "--workers", 1, stdin=reader)
    os.close(reader)
    with open(writer, "wb", buffering=0) as urls:
        for index in range(40):
            urls.write(f"{server.url}/get/{Truth(50).name(index)}\n".encode())
        # The feeder waits for more input: its first batches contain what it has, or will when the pipe
        # closes.
        job.until(lambda: len(job.children()) == 2)
        job.until((tmp_path / "dest/.downloader/ledger-0").exists)
        os.kill(job.children()[0], signal.SIGKILL)
        assert job.wait(30) == 4, job.err
    assert "standard input cannot be read again" in job.out + job.err
    job.alone()


def test_second_run_on_a_destination_is_refused(
    start: Start, run_downloader: Callable[..., Any], tmp_path: Path
) -> None:
    asked, opened, dest = threading.Event(), threading.Event(), tmp_path / "dest"

    def gate(request: Request) -> list[Step]:
        asked.set()
        return [Until(opened), *ok(b"b")]

    with Server(files={"a": ok(b"a"), "b": gate}) as server:
        argv = (server.url, "-o", dest, "--read-timeout", "100s")
        first = start(*argv)
        assert asked.wait(60)
        # The first run cannot end before the others have.
        second = run_downloader(*argv)
        assert second.returncode == 2
        assert str(first.pid) in second.stderr
        verify = run_downloader("verify", dest)
        assert verify.returncode == 2
        status = run_downloader("status", dest, "--json")
        assert status.returncode == 4
        assert json.loads(status.stdout)["complete"] is False
        opened.set()
        assert first.wait() == 0
    assert {path.name: path.read_bytes() for path in dest.glob("[ab]")} == {"a": b"a", "b": b"b"}
    agree(dest, 0)


# downloader.download() from any program

PROLOGUE = """{early}
import json, sys
import downloader
source, output = sys.argv[1:]
def fetch():
    config = downloader.Config(source=source, output=output, workers=2, progress="none")
    report = downloader.download(config)
    return [report.exit_code, report.complete, report.stored]
"""
EARLY = {
    "plain": "",
    "threads": "",
    "requests": "import requests, ssl",
    "gevent": "from gevent import monkey; monkey.patch_all()",
}
CALLERS = {
    "plain": "print(json.dumps(fetch()))",
    "requests": "print(json.dumps(fetch()))",
    "threads": """
        import threading
        stop = threading.Event()
        others = [threading.Thread(target=stop.wait) for _ in range(3)]
        for thread in others:
            thread.start()
        found = []
        job = threading.Thread(target=lambda: found.append(fetch()))
        job.start()
        job.join()
        stop.set()
        print(json.dumps(found[0]))
    """,
    "gevent": """
        import gevent
        import requests
        ticks = 0
        def tick():
            global ticks
            while True:
                gevent.sleep(0.01)
                ticks += 1
        gevent.spawn(tick)
        found = gevent.spawn(fetch).get()
        assert ticks > 10, ticks
        print(json.dumps(found))
    """,
}


def caller(kind: str, text: str = "") -> list[str]:
    """Return the argv of a program of that kind that calls ``download()``."""
    body = textwrap.dedent(text or CALLERS[kind])
    return [sys.executable, "-W", "error", "-c", PROLOGUE.format(early=EARLY[kind]) + body]


@pytest.mark.parametrize("kind", CALLERS)
def test_download_from_any_program(kind: str, dev_server: Serve, tmp_path: Path) -> None:
    truth = Truth(200)
    server = dev_server(files=truth.files, delay="0-20ms")
    job = Job(*caller(kind), server.url, tmp_path / "dest")
    try:
        assert job.wait() == 0, job.err
        assert json.loads(job.out) == [0, True, truth.files]
        assert not job.err
        job.alone()
        check(tmp_path / "dest", truth)
    finally:
        job.close()


def test_the_run_drains_when_the_program_that_called_it_is_killed(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    truth = Truth(2000)
    server = dev_server(files=truth.files, delay="0-0.1s")
    dest = tmp_path / "dest"
    job = Job(*caller("plain"), server.url, dest)
    try:
        until_running(job, 3)
        server.until(lambda counters: counters["gets"] > 100)
        job.kill()
        job.alone()
        assert "Traceback" not in job.err
        checked = check(dest, truth, interrupted=True)
        assert checked.stored == server.stats()["gets"] < truth.files
    finally:
        job.close()
    last = start(server.url, "-o", dest)
    assert last.wait() == 0, last.err
    check(dest, truth)
    assert server.stats()["gets"] == truth.files


def test_abandoned_download_drains(dev_server: Serve, tmp_path: Path) -> None:
    """A greenlet that is killed, a timeout, Ctrl-C: the run ends before ``download()`` raises."""
    program = """
        import gevent
        job = gevent.spawn(fetch)
        gevent.sleep(1.5)
        job.kill()
        print("killed")
    """
    truth = Truth(5000)
    server = dev_server(files=truth.files, delay="50ms")
    job = Job(*caller("gevent", program), server.url, tmp_path / "dest")
    try:
        assert job.wait() == 0, job.err
        job.alone()
        check(tmp_path / "dest", truth, interrupted=True)
    finally:
        job.close()


def test_download_raises_start_errors(dev_server: Serve, tmp_path: Path) -> None:
    (tmp_path / "dest").write_text("a file")
    program = """
        for output in (output, output + "/below"):
            try:
                downloader.download(downloader.Config(source=source, output=output))
            except downloader.ConfigError as error:
                print(type(error).__name__, error)
    """
    job = Job(*caller("plain", program), "http://127.0.0.1:9", tmp_path / "dest")
    try:
        assert job.wait() == 0, job.err
        assert job.out.count("is a file, not a directory") == 2
    finally:
        job.close()
