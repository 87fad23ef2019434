"""Files that wait long, a few of each batch: the others are fetched meanwhile, and no kill loses anything.

The server refuses a tenth of the files until it has been asked for all others. A worker has five slots for
batches here, and the list has more batches than that.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

import pytest
from checker import HOME, agree, in_flight, ledgers
from harness import Job, slow_but
from servers import Request, Server, Step, download, ok, status
from shard_checker import samples_in

FILES = 2000
CHECKS = 256  # requests that check the order of answers, at most
SEEDS = int(os.environ.get("CHAOS", "10"))
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
# Some 15 s of retries: long enough for all others, whatever the machine has to do.
PATIENT = ("--workers", "1", "--connections", "1", "--retries", "200", "--backoff", "100ms")
PATIENT += ("--max-retry-after", "100ms")


class Refusing:
    """A server's answers: file n is refused while others were not requested, if n ends with 3.

    Those that end with 37 are missing. ``held``: nothing ends the refusal, unless it is set to False.
    ``waiting`` is set when all others were requested, and each refused file again after that.
    """

    def __init__(self, held: bool | None = None) -> None:
        self.asked: Counter[int] = Counter()
        self.waiting = threading.Event()
        self.held = held
        self._lock = threading.Lock()
        self._others = {n for n in range(FILES) if n % 10 != 3}
        self._seen_since: set[int] = set()

    def __call__(self, request: Request) -> Sequence[Step]:
        n = int(request.target.rpartition("f")[2])
        with self._lock:
            self.asked[n] += 1
            self._others.discard(n)
            refused = n % 10 == 3 and (bool(self._others) if self.held is None else self.held)
            if refused and not self._others:
                self._seen_since.add(n)
                if len(self._seen_since) == FILES // 10:
                    self.waiting.set()
        return status(404) if n % 100 == 37 else status(503) if refused else ok(b"body %d" % n)

    @property
    def total(self) -> int:
        """Return the number of requests."""
        with self._lock:
            return self.asked.total()

    def listed(self, server: Server) -> str:
        return "".join(f"{server.url}/f{n}\n" for n in range(FILES))


def bodies(dest: Path, store: str) -> dict[str, bytes]:
    """Return what is stored, by the name of the file; nothing is stored twice."""
    if store == "files":
        return {path.name: path.read_bytes() for path in dest.iterdir() if path.name != HOME}
    samples = list(samples_in(dest, store))
    assert len(dict(samples)) == len(samples)
    return dict(samples)


MISSING = {n for n in range(FILES) if n % 100 == 37}
WANTED = {f"f{n}": b"body %d" % n for n in range(FILES) if n not in MISSING}


def stored_as(store: str) -> tuple[str, ...]:
    return ("--store", store, *(("--shard-files", "100") if store != "files" else ()))


@pytest.mark.parametrize("store", ["files", "tar", pytest.param("parquet", marks=pytest.mark.slow)])
def test_files_that_wait_do_not_delay_the_others(store: str, tmp_path: Path) -> None:
    answers = Refusing()
    with Server(default=answers, record=False) as server:
        result = download("-", tmp_path / "d", *PATIENT, *stored_as(store), stdin=answers.listed(server))
    assert (result.exit, set(result.codes.values())) == (1, {"http-404"})
    assert bodies(tmp_path / "d", store) == WANTED
    # Once, but for those by which the order of the server's answers was checked: up to 144 of the first
    # windows, then one of each, and on a busy machine windows are of a few files.
    asked = [answers.asked[n] for n in range(FILES) if n % 10 != 3]
    assert set(asked) <= {1, 2}
    assert sum(asked) <= len(asked) + CHECKS + len(asked) // 8


@pytest.mark.parametrize(
    ("store", "victim"),
    slow_but(
        [("files", "supervisor"), ("files", "worker"), ("tar", "worker")],
        ["files", "tar", "parquet"],
        ["supervisor", "worker", "SIGTERM"],
    ),
)
def test_kill_while_files_of_all_batches_wait(
    store: str, victim: str, start: Callable[..., Job], tmp_path: Path
) -> None:
    """What was stored is not requested again, and what waited is fetched, also by another worker."""
    dest, answers = tmp_path / "d", Refusing(held=True)
    with Server(default=answers, record=False) as server:
        (tmp_path / "list.txt").write_text(answers.listed(server))
        argv = (tmp_path / "list.txt", "-o", dest, "--json", *PATIENT, *stored_as(store))
        job = start(*argv)
        assert answers.waiting.wait(60), job.err
        if victim == "worker":
            (worker,) = job.children()[1:]
            os.kill(worker, signal.SIGSTOP)
        elif victim == "supervisor":
            job.kill()
            job.alone()
        else:
            job.kill(signal.SIGTERM)
            assert job.wait() == 130
            agree(dest, 130, json.loads(job.out))
        # All others were answered long before; samples are in the ledger until their shard is published.
        requested = sum(len(states.in_flight - states.intended) for _, states in ledgers(dest))
        before = dict(answers.asked)
        answers.held = False
        if victim == "worker":
            os.kill(worker, signal.SIGKILL)
        else:
            job = start(*argv)
        assert job.wait() == 1, job.err
    report = json.loads(job.out)
    agree(dest, 1, report)
    assert (report["listed"], report["failed"]) == (FILES, len(MISSING))
    assert report["failed_by_error"] == {"http-404": len(MISSING)}
    assert report["stored"] + report["skipped"] == len(WANTED)
    assert report["worker_deaths"] == (victim == "worker")
    assert bodies(dest, store) == WANTED
    again = sum(answers.asked[n] - before[n] for n in range(FILES) if n % 10 != 3 and n not in MISSING)
    assert again <= requested


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.slow if seed - FIRST > 1 and "CHAOS" not in os.environ else ())
        for seed in range(FIRST, FIRST + SEEDS)
    ],
)
def test_kills_at_random_instants_while_files_wait(
    seed: int, start: Callable[..., Job], tmp_path: Path
) -> None:
    rng, dest, answers = random.Random(seed), tmp_path / "d", Refusing()
    store = rng.choice(("files", "tar", "parquet"))
    connections = rng.choice((1, 2, 4))
    # What a connection may have requested and not stored.
    at_most = connections * 512
    with Server(default=answers, record=False) as server:
        (tmp_path / "list.txt").write_text(answers.listed(server))
        argv = (tmp_path / "list.txt", "-o", dest, "--json", *PATIENT, *stored_as(store))
        argv += ("--workers", rng.choice((1, 2)), "--connections", connections)
        job, allowed = start(*argv), CHECKS
        for _ in range(rng.randrange(1, 5)):
            # Or after 3 s: where only refused files are left to be requested, the host is taken for down.
            count, end = answers.total + rng.randrange(1500), monotonic() + 3
            while answers.total < count and monotonic() < end and job.process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.process.wait(0.002)
            workers = job.children()[1:]
            if rng.random() < 0.5 or not workers:
                job.kill()
                job.alone()
                allowed += in_flight(dest)
                job = start(*argv)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
                allowed += at_most
        # What is left are mostly files that it refuses: it would be taken for a host that is down.
        answers.held = False
        assert job.wait() == 1, job.err
        job.alone()
        # Once more, for a run that had ended before the last kill.
        job = start(*argv)
        assert job.wait() == 1, job.err
    report = json.loads(job.out)
    agree(dest, 1, report)
    assert (report["listed"], report["failed"]) == (FILES, len(MISSING))
    assert report["stored"] + report["skipped"] == len(WANTED)
    assert bodies(dest, store) == WANTED
    again = sum(answers.asked[n] - 1 for n in range(FILES) if n % 10 != 3 and n not in MISSING)
    assert 0 <= again <= allowed
