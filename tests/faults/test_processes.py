"""Processes that cannot start, defects in a child; and which programs may call download()."""

from __future__ import annotations

import json
import re
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checker import Truth, agree, check
from child_processes import SITE, Serve, Start, fetching, site
from harness import AFTER_IMPORT, Job
from servers import Request, Server, Step, Until, ok


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
    MODULE = "downloader.worker.worker"

    def change(worker):
        worker.Worker.batch_finished = broken

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
def fetch(**options):
    config = downloader.Config(source=source, output=output, workers=2, progress="none", **options)
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
    # With pipelines, some files are requested twice, to check the order of answers.
    program = caller("plain", "print(json.dumps(fetch(pipeline=1)))")
    with fetching(program, server, dest, gets=100) as job:
        job.kill()
        job.alone()
        assert "Traceback" not in job.err
        checked = check(dest, truth, interrupted=True)
        assert checked.stored == server.stats()["gets"] < truth.files
    last = start(server.url, "-o", dest)
    assert last.wait() == 0, last.err
    check(dest, truth)
    assert server.stats()["gets"] <= truth.files + 2 * 256  # those that check the order of answers


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
