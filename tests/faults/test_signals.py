"""Signals to a run, and children that are silent, stopped or killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from checker import Truth, check, in_flight
from child_processes import Serve, Start, descendants, fetching, site
from harness import AFTER_IMPORT, Job, command, environment, run, with_signals_off

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
    argv = (server.url, "-o", dest, "--workers", 1, "--connections", connections, "--pipeline", "off")
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


@pytest.mark.parametrize("store", ["files", "tar"])
def test_program_that_ignores_and_blocks_signals_starts_a_run(
    store: str, dev_server: Serve, tmp_path: Path
) -> None:
    """``trap '' CHLD`` and a mask go through an exec; the children could not be waited for."""
    server = dev_server(files=300)
    argv = command(server.url, "-o", tmp_path / "dest", "--store", store, "--json")
    job = Job(*with_signals_off(*argv))
    with contextlib.closing(job):
        assert job.wait() == 0, job.err
        assert json.loads(job.out)["stored"] == 300
        job.alone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_that_was_blocked_drains(number: signal.Signals, dev_server: Serve, tmp_path: Path) -> None:
    server = dev_server(files=400, delay="0-0.2s")
    argv = command(server.url, "-o", tmp_path / "dest", "--workers", 1, "--connections", 4)
    job = Job(*with_signals_off(*argv))
    with contextlib.closing(job):
        server.until(lambda counters: counters["gets"] >= 4)
        job.kill(number)
        assert job.wait(20) == 130, job.err
        assert number.name in job.err
        job.alone()


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


@pytest.mark.parametrize("store", ["files", "tar"])
def test_report_of_a_run_that_was_ended_counts_what_is_stored(
    store: str, dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    """Thousands were stored, and 96 reported: those of the batches that workers had reported."""
    server = dev_server(files=3000, delay="0-40ms")
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", 2, "--connections", 32, "--store", store, "--json")

    def ended(job: Job, earlier: int) -> int:
        job.kill(signal.SIGINT)
        job.until(lambda: "SIGINT" in job.err)
        job.kill(signal.SIGINT)
        assert job.wait() == 130, job.err
        report = json.loads(job.out)
        status = json.loads(run("status", dest, "--json").stdout)
        assert status["stored"] == report["stored"] + report["skipped"]
        assert report["stored"] > 100
        # A file may have had its name, and not been recorded yet, when its worker was killed.
        assert earlier <= report["skipped"] <= earlier + 2
        assert report["bytes"] == 100 * report["stored"]
        assert report["failed"] == status["failed"] == 0
        assert not report["complete"]
        return int(status["stored"])

    first = start(*argv)
    server.until(lambda counters: counters["gets"] > 600)
    stored = ended(first, 0)
    second = start(*argv)
    server.until(lambda counters: counters["gets"] > 1200)
    # One dies before, so its files are with another that does not finish them either.
    os.kill(second.children()[-1], signal.SIGKILL)
    second.until(lambda: "died" in second.err)
    server.until(lambda counters: counters["gets"] > 1500)
    ended(second, stored)


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


# Children that are silent or stopped

SLOW_DISK = """
    import time
    from downloader.process import patching
    patching.apply()
    import gevent
    from downloader.core.item_states import ItemStates
    from downloader.messages import Item, Lease
    from downloader.worker.active_batch import ActiveBatch
    from downloader.worker.reconciling import reconcile
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


# Long enough for a healthy child on a busy machine: it sends nothing while it imports.
CALLER = """
    import json, sys
    import downloader
    source, output = sys.argv[1:]
    config = downloader.Config(source=source, output=output, workers=2, connections=4, stall_timeout=8.0)
    report = downloader.download(config)
    print(json.dumps([report.exit_code, report.stored, report.skipped, report.worker_deaths]))
"""
CALLER_ARGV = (sys.executable, "-c", textwrap.dedent(CALLER))


@pytest.mark.parametrize("victim", ["worker", "feeder"])
def test_stopped_child_is_replaced(victim: str, dev_server: Serve, tmp_path: Path) -> None:
    truth = Truth(2000)
    server = dev_server(files=truth.files, delay="0-20ms", page=100)
    dest = tmp_path / "dest"
    with fetching(CALLER_ARGV, server, dest, gets=300) as job:
        feeder, worker, *_ = descendants(job.pid)
        os.kill(worker if victim == "worker" else feeder, signal.SIGSTOP)
        assert job.wait() == 0, job.err
        code, stored, skipped, deaths = json.loads(job.out)
        assert (code, stored + skipped, deaths) == (0, truth.files, int(victim == "worker"))
        # A file that the worker had published, and was stopped before it could report, exists already.
        assert skipped <= deaths
        assert "gave no sign of life for 8 s; killed" in job.err
        job.alone()
        check(dest, truth)


def test_stopped_supervisor_does_not_kill_its_children(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    truth = Truth(1500)
    server = dev_server(files=truth.files, delay="0-20ms")
    dest = tmp_path / "dest"
    with fetching(CALLER_ARGV, server, dest, gets=200) as job:
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


# Children that are killed

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


def test_workers_dying_without_a_suspect_end_the_run(
    dev_server: Serve, start: Start, tmp_path: Path
) -> None:
    hook = (
        AFTER_IMPORT
        + """
    MODULE = "downloader.worker.worker"

    def change(worker):
        worker.Worker.take_lease = lambda self, lease: os.kill(os.getpid(), 9)
    """
    )
    server = dev_server(files=100)
    job = start(server.url, "-o", tmp_path / "dest", "--workers", 2, env=site(tmp_path, hook))
    assert job.wait(60) == 3, job.err
    assert "in a row with no file in flight" in job.out + job.err
    job.alone()


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
