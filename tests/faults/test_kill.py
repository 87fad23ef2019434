"""The kill campaign: signals at random instants, through the real command line and the real server.

After each run the checker decides, and the server's own count shows how much was fetched twice. Every other
server is faulty: it cuts and resets one response in a hundred. A run's seed is in its name; ``CHAOS=500``
makes 500 runs, ``CHAOS_SEED`` changes the seeds (also ``python benchmarks/chaos.py 500``). Of the 40 runs
without it, those beyond one for each victim are slow.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from checker import Truth, agree, check, in_flight, ledgers
from harness import DevServer, Job, serving
from servers import Request, Server, Step, ok

RUNS = int(os.environ.get("CHAOS", "40"))
ASKED_FOR = "CHAOS" in os.environ
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
TRUTH = Truth(800, 100, 5000)
WORKERS = 2
PROMPT = 20.0  # seconds in which the children of a dead supervisor exit, also on a busy machine
# The most files that a connection may have requested and not stored, by depth: see `lanes.pipeline`.
HELD = {"off": 2, "4": 256, "auto": 512}
# The most requests of a worker that check the order of a server's answers (see `core.pipeline_order`).
CHECKS = 256
VICTIMS = (
    *("supervisor", "supervisor", "worker", "feeder", "SIGTERM", "SIGINT", "stopped", "several"),
    "any, stopped and killed",
)
FAULTY = ("--retries", 50, "--backoff", "10ms")


def seeds(runs: int, quick: int) -> list[object]:
    """Return ``runs`` seeds as parameters; those after the first ``quick`` are slow, unless that many were
    requested."""
    slow = () if ASKED_FOR else pytest.mark.slow
    every = range(FIRST, FIRST + runs)
    return [pytest.param(seed, marks=slow if seed - FIRST >= quick else ()) for seed in every]


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=TRUTH.files, size="100-5000", delay="0-20ms", page=170) as server:
        yield server


@pytest.fixture(scope="module")
def faulty() -> Iterator[DevServer]:
    faults: dict[str, object] = {"drop_rate": 0.01, "seed": FIRST, "close_after": 250}
    with serving(files=TRUTH.files, size="100-5000", delay="0-20ms", page=170, **faults) as server:
        yield server


def until(job: Job, server: DevServer, gets: int) -> None:
    """Wait for that many requests, or the end of ``job``."""
    while server.stats()["gets"] < gets:
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(0.003)
            return


def at_random(rng: random.Random, job: Job, server: DevServer, before: int) -> str:
    """Wait for a random instant, a time or a count of requests; return a description of it."""
    if rng.random() < 0.4:
        instant = rng.uniform(0, 1.4)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(instant)
        return f"after {instant:.3f} s"
    count = rng.randrange(TRUTH.files)
    until(job, server, before + count)
    return f"after {count} requests"


def say(text: str) -> None:
    """Print a line that is shown for a failed test, and with -rP."""
    sys.stdout.write(f"{text}\n")


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.mark.parametrize("seed", seeds(RUNS, len(VICTIMS)))
def test_kill_campaign(
    seed: int, server: DevServer, faulty: DevServer, start: Callable[..., Job], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    if seed % 2:
        server = faulty
    dest = tmp_path / "root" / "dest"
    dest.parent.mkdir()
    connections = rng.choice((2, 8, 32))
    victim = VICTIMS[seed % len(VICTIMS)]
    depth = rng.choice(tuple(HELD))
    at_most = connections * HELD[depth]
    argv = (server.url, "-o", dest, "--workers", WORKERS, "--connections", connections, "--json")
    argv += ("--pipeline", depth, *(FAULTY if seed % 2 else ()))
    if rng.random() < 0.1:
        argv += ("--fsync",)
    before = server.stats()["gets"]

    job = start(*argv)
    instant = at_random(rng, job, server, before)
    say(f"seed {seed}: {victim} {instant}, {connections} connections, depth {depth}")
    again = 0  # files that may be fetched again
    children = job.children()
    if victim == "any, stopped and killed":
        pid = rng.choice([job.pid, *children])
        send(pid, signal.SIGSTOP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(rng.uniform(0, 0.5))
        victim = "supervisor" if pid == job.pid else "one child"
        children = [pid]
    if victim in ("supervisor", "stopped"):
        if victim == "stopped" and children:
            send(rng.choice(children), signal.SIGSTOP)
        job.kill()
        took = job.alone(PROMPT)
        say(f"children gone after {took * 1000:.1f} ms")
        again = in_flight(dest)
        known = {seq for seq, _ in ledgers(dest)}
        assert again <= WORKERS * at_most
        assert job.wait() in (-signal.SIGKILL, 0)
        checked = check(dest, TRUTH, interrupted=True, beside=())
        say(f"at the kill: {checked}, {len(known)} batches in ledgers, {again} files in flight")
    elif victim in ("SIGTERM", "SIGINT"):
        job.kill(signal.Signals[victim])
        # Before Python runs, a signal ends it like any program; while it imports `site`, with 1.
        expected = {130, 0, -signal.Signals[victim]}
        assert job.wait() in expected | ({1} if "init_import_site" in job.err else set()), job.err
        job.alone(PROMPT)
        check(dest, TRUTH, interrupted=True, beside=())
        again = in_flight(dest)
    else:
        for number, child in enumerate(children):
            if victim in ("several", "one child") or (victim == "feeder") == (number == 0):
                send(child, signal.SIGKILL)
                again += at_most if number or victim == "one child" else 0
                if victim == "worker":
                    break
        assert job.wait() == 0, job.err
        assert json.loads(job.out)["complete"]
    job.alone(PROMPT)

    last = start(*argv)
    assert last.wait() == 0, last.err
    report = json.loads(last.out)
    assert report["complete"]
    assert report["listed"] == report["stored"] + report["skipped"] + report["failed"] == TRUTH.files
    last.alone(PROMPT)
    check(dest, TRUTH, beside=())
    fetched = server.stats()["gets"] - before
    say(f"fetched again: {fetched - TRUTH.files}, allowed: {again}")
    # What a faulty server cut off was requested again, too, and everything behind it.
    assert fetched >= TRUTH.files
    checks = 0 if depth == "off" else CHECKS * WORKERS * 2
    assert fetched <= TRUTH.files + again + checks or seed % 2

    # Run again: a finished job fetches nothing.
    if seed % 10 == 0:
        idle = start(*argv)
        assert idle.wait() == 0
        assert server.stats()["gets"] - before == fetched


class Changing:
    """Files whose bodies differ for each request; ``sent`` has everything that was sent for each name."""

    def __init__(self, files: int) -> None:
        self.sent: dict[str, set[bytes]] = {f"f{number:03}": set() for number in range(files)}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Sequence[Step]:
        name = request.target.rpartition("/")[2]
        with self._lock:
            body = f"{name}, request {next(self._numbers)}".encode()
            self.sent[name].add(body)
        return ok(body)

    @property
    def gets(self) -> int:
        """Return the number of requests."""
        with self._lock:
            return sum(map(len, self.sent.values()))

    def server(self) -> Server:
        return Server(files=dict.fromkeys(self.sent, self), record=False)


@pytest.mark.parametrize("seed", seeds(max(RUNS, 4) // (1 if RUNS > 100 else 4), 3))
def test_kill_campaign_against_a_server_that_never_sends_the_same(
    seed: int, start: Callable[..., Job], tmp_path: Path
) -> None:
    """Each file is one that was sent for its name, and no name stays taken."""
    rng, dest, changing = random.Random(seed), tmp_path / "dest", Changing(300)
    connections, depth = rng.choice((2, 8)), rng.choice(("off", "4"))
    lane = rng.choice(("auto", "auto", "requests"))
    allowed = connections * (HELD[depth] if lane == "auto" else 1)  # of a worker
    with changing.server() as server:
        argv = (server.url, "-o", dest, "--workers", WORKERS, "--connections", connections, "--json")
        argv += ("--pipeline", depth, "--lane", lane, "--retries", 20, "--backoff", "10ms")
        again = 0
        for _ in range(rng.randrange(1, 4)):
            job = start(*argv)
            count = changing.gets + rng.randrange(250)
            while changing.gets < count and job.process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.process.wait(0.002)
            victims = [job.pid] if rng.random() < 0.5 else job.children()[1:]
            for pid in victims:
                send(pid, signal.SIGKILL)
            status = job.wait()
            say(f"seed {seed}: {len(victims)} killed at {count} requests, {lane} lane; exit {status}")
            assert status in (0, -signal.SIGKILL), job.err
            job.alone(PROMPT)
            # A supervisor's death leaves ledgers that record what was in flight; a worker's are read and
            # removed.
            again += in_flight(dest) if status else allowed * len(victims)
        last = start(*argv)
        assert last.wait() == 0, last.err
        report = json.loads(last.out)
        assert report["listed"] == report["stored"] + report["skipped"] == 300
        assert report["replaced"] == 0
    for name, sent in changing.sent.items():
        assert (dest / name).read_bytes() in sent
    agree(dest, 0, report)
    checks = 0 if depth == "off" or lane == "requests" else CHECKS * WORKERS * 4
    assert changing.gets <= 300 + again + checks


def test_consecutive_kills(server: DevServer, start: Callable[..., Job], tmp_path: Path) -> None:
    """Each run continues where the supervisor before it was killed."""
    rng = random.Random(FIRST)
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", WORKERS, "--connections", 8, "--pipeline", "off", "--json")
    before, again = server.stats()["gets"], 0
    for _ in range(6):
        job = start(*argv)
        count = server.stats()["gets"] + rng.randrange(200)
        until(job, server, count)
        job.kill()
        job.alone(PROMPT)
        check(dest, TRUTH, interrupted=True)
        again += in_flight(dest)
    last = start(*argv)
    assert last.wait() == 0, last.err
    check(dest, TRUTH)
    assert server.stats()["gets"] - before <= TRUTH.files + again


@pytest.mark.parametrize("victim", ["supervisor", "worker"])
def test_kill_during_large_files(
    victim: str, dev_server: Callable[..., DevServer], start: Callable[..., Job], tmp_path: Path
) -> None:
    """A partial file has no name; there is no instant at which it is visible."""
    truth = Truth(8, 20_000_000, 30_000_000)
    server = dev_server(files=truth.files, size="20000000-30000000")
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", 1, "--connections", 4)
    job = start(*argv)
    server.until(lambda counters: counters["bytes"] > 60_000_000)
    if victim == "worker":
        send(job.children()[1], signal.SIGKILL)
        assert job.wait() == 0, job.err
    else:
        job.kill()
        job.alone(PROMPT)
        assert in_flight(dest)
        check(dest, truth, interrupted=True)
        last = start(*argv)
        assert last.wait() == 0, last.err
    check(dest, truth)
    assert server.stats()["gets"] <= truth.files + 4


def test_kill_during_retries_of_failed_files(
    server: DevServer, start: Callable[..., Job], tmp_path: Path
) -> None:
    """What a retry stored before it was killed is not fetched again, either."""
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", 1, "--connections", 8, "--pipeline", "off", "--json")
    # A larger file fails: nearly all do.
    first = start(*argv, "--max-size", 110)
    assert first.wait() == 1
    failed = json.loads(first.out)["failed"]
    assert failed > TRUTH.files * 0.9
    before = server.stats()["gets"]
    retry = start(*argv, "--retry-failed")
    server.until(lambda counters: counters["gets"] - before > 100)
    retry.kill()
    retry.alone(PROMPT)
    again = in_flight(dest)
    interrupted = start(*argv)
    server.until(lambda counters: counters["gets"] - before > 300)
    interrupted.kill(signal.SIGINT)
    assert interrupted.wait() == 130
    last = start(*argv)
    assert last.wait() == 0, last.err
    check(dest, TRUTH)
    assert server.stats()["gets"] - before <= failed + again
