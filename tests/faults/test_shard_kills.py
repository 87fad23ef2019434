"""The kill campaign over shards: any process of a run is killed at a random instant, again and again.

After each kill that ended the run, the same command goes on. At its end every file is in its shard,
exactly once, and the server's count shows that nothing was requested again but what the killed workers had
requested and not written. A run's seed is in its name; ``CHAOS_SHARDS=200`` makes 200 runs, ``CHAOS_SEED``
changes the seeds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checker import HOME, Truth
from harness import AFTER_IMPORT, DevServer, Job, run, serving, slow_but
from shard_checker import Lost, check_shards, lost

RUNS = int(os.environ.get("CHAOS_SHARDS", "20"))
QUICK = range(RUNS) if "CHAOS_SHARDS" in os.environ else range(9)  # more than 20 kills
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
SMALL = Truth(1000, 100, 5000)
LARGE = Truth(90, 100, 1_500_000)  # streamed, some of them through temporary files
WORKERS = 2
PROMPT = 20.0
# The most files that a connection may have requested and not stored, by depth, as in `test_kill`.
HELD = {"off": 2, "4": 256, "auto": 512}
# The most requests of a worker that check the order of a server's answers, as in `test_kill`.
CHECKS = 256
VICTIMS = ("supervisor", "publisher", "worker", "feeder", "any", "several", "supervisor", "publisher")
FAULTY = ("--retries", 50, "--backoff", "10ms")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, DevServer]]:
    with contextlib.ExitStack() as stack:

        def serve(truth: Truth, **options: object) -> DevServer:
            size = f"{truth.least}-{truth.most}"
            return stack.enter_context(serving(files=truth.files, size=size, page=170, **options))

        yield {
            "small": serve(SMALL, delay="0-20ms"),
            "large": serve(LARGE),
            "faulty": serve(SMALL, delay="0-20ms", drop_rate=0.01, seed=FIRST, close_after=250),
        }


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def ledger_of(pid: int) -> str:
    """Return the name of the ledger that process ``pid`` has mapped, "" if it is not a worker at work."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            name = line.rpartition("/")[2]
            if name.startswith("ledger-"):
                return name
    return ""


def processes(job: Job) -> dict[str, list[int]]:
    """Return the running processes of ``job`` by what they are; a worker that starts counts as a feeder."""
    found: dict[str, list[int]] = {"supervisor": [job.pid], "feeder": [], "worker": [], "publisher": []}
    for pid in job.children():
        found["worker" if ledger_of(pid) else "feeder"].append(pid)
        found["publisher"] += children(pid)
    found["any"] = [pid for pids in found.values() for pid in pids]
    return found


class Campaign:
    """The runs of one job, and what they lost."""

    def __init__(self, seed: int, servers: dict[str, DevServer], start: Callable[..., Job], dest: Path):
        self.rng = rng = random.Random(seed)
        kind = "faulty" if seed % 4 == 3 else "large" if seed % 10 == 5 else "small"
        self.server, self.dest, self._start = servers[kind], dest, start
        self.truth = LARGE if kind == "large" else SMALL
        self.store = ("tar", "parquet")[seed // 2 % 2]
        self.digests = "crc32" if self.store == "tar" and seed % 8 in (1, 4) else "sha256"
        self.files = self.truth.files // rng.choice((3, 6, 9))
        self.connections, self.depth = rng.choice((2, 8, 32)), rng.choice(tuple(HELD))
        # What is requested behind a large file on its connection is requested again elsewhere, kill or not.
        self.exact = kind == "small" or (kind == "large" and self.depth == "off")
        argv = [self.server.url, "-o", dest, "--store", self.store, "--shard-files", self.files]
        argv += [
            "--digests",
            self.digests,
            "--workers",
            WORKERS,
            "--connections",
            self.connections,
            "--pipeline",
            self.depth,
        ]
        self.argv = (*argv, "--json", *(FAULTY if kind == "faulty" else ()))
        self.before = self.server.stats()["gets"]
        self.lost: list[Lost] = []
        self.publishers_killed = 0

    @property
    def gets(self) -> int:
        return self.server.stats()["gets"] - self.before

    def start(self) -> Job:
        self.publishers_killed = 0
        return self._start(*self.argv)

    def published(self) -> int:
        """Return how many steps of publishing were made."""
        return len([*self.dest.glob(f"{HOME}/shards/*.sealed"), *self.dest.glob("0*")])

    def until(self, job: Job, victim: str) -> str:
        """Wait for a random instant, or the end of ``job``; return a description."""
        rng = self.rng
        draw = rng.random()
        reached: Callable[[], bool]
        if victim == "publisher":
            text, reached = "with a publisher", lambda: bool(processes(job)["publisher"])
        elif draw < 0.3:
            instant = time.monotonic() + (seconds := rng.uniform(0, 1.6))
            text, reached = f"after {seconds:.3f} s", lambda: time.monotonic() > instant
        elif draw < 0.6:
            count = rng.randrange(max(1, self.truth.files - self.gets) + 1) + self.gets
            text, reached = f"after {count} requests", lambda: self.gets >= count
        else:
            steps = self.published() + rng.randrange(1, 5)
            text, reached = f"after {steps} steps of publishing", lambda: self.published() >= steps
        while job.process.poll() is None and not reached():
            time.sleep(0.001)  # no event tells; a tight loop would slow the run
        if victim == "publisher" or draw > 0.8:
            with contextlib.suppress(Exception):
                job.process.wait(rng.uniform(0, 0.4))
        return text

    def kill(self, job: Job, victim: str) -> list[str]:
        """Kill one process, or several, and add up what is lost; return what they were."""
        found = processes(job)
        pids = found["any" if victim == "several" else victim]
        chosen = self.rng.sample(pids, min(len(pids), 3 if victim == "several" else 1))
        killed = []
        for pid in chosen:
            what = next((name for name, each in found.items() if name != "any" and pid in each), "")
            if what == "publisher":
                # After two deaths of a publisher with the same shard, the run ends.
                self.publishers_killed += 1
            if what == "worker":
                stop(pid)
                self.lost.append(self.lost_now(ledger_of(pid) or "none"))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.append(what)
        return killed

    def lost_now(self, worker: str = "ledger-*") -> Lost:
        return lost(self.dest, self.truth, self.store, self.files, worker)


def stop(pid: int) -> None:
    """Stop a process where it is, and wait until it has stopped."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
            time.sleep(0.0005)


def seeds() -> list[object]:
    every = range(FIRST, FIRST + RUNS)
    return [
        pytest.param(seed, marks=pytest.mark.slow if seed - FIRST not in QUICK else ()) for seed in every
    ]


@pytest.mark.parametrize("seed", seeds())
def test_kill_campaign_over_shards(
    seed: int, servers: dict[str, DevServer], start: Callable[..., Job], tmp_path: Path
) -> None:
    campaign = Campaign(seed, servers, start, tmp_path / "dest")
    rng, dest = campaign.rng, campaign.dest
    victim = VICTIMS[seed % len(VICTIMS)]
    say(f"seed {seed}: {campaign.store}, {campaign.connections} connections, depth {campaign.depth}")
    job = campaign.start()
    kills = 0
    for _ in range(rng.randrange(1, 4)):
        instant = campaign.until(job, victim)
        killed = campaign.kill(job, victim) if job.process.poll() is None else []
        kills += len(killed)
        say(f"{killed} {instant}, {campaign.gets} requests so far")
        if job.process.poll() is not None or "supervisor" in killed:
            supervisor_died = job.wait() == -signal.SIGKILL
            job.alone(PROMPT)
            if supervisor_died:
                campaign.lost.append(campaign.lost_now())
            else:
                # A shard is given to two publishers, not to a third one.
                assert job.wait() == 0 or (job.wait() == 4 and campaign.publishers_killed > 1), job.err
            job = campaign.start()
    code = job.wait()
    assert code == 0 or (code == 4 and campaign.publishers_killed > 1), job.err
    job.alone(PROMPT)

    last = campaign.start()
    assert last.wait() == 0, last.err
    last.alone(PROMPT)
    report = json.loads(last.out)
    check_shards(dest, campaign.truth, campaign.store, campaign.files, report, digests=campaign.digests)
    again, allowed = campaign.gets - campaign.truth.files, sum(each.files for each in campaign.lost)
    say(f"{kills} kills; {again} requested again, {allowed} were in flight: {campaign.lost}")
    assert again >= 0
    for each in campaign.lost:
        assert each.files <= WORKERS * campaign.connections * HELD[campaign.depth]
    # What a faulty server cut off was requested again, too, and everything behind it.
    checks = 0 if campaign.depth == "off" else CHECKS * WORKERS * 4
    assert again <= allowed + checks or not campaign.exact
    if seed % 5 == 0:
        fetched = campaign.gets
        done = run("verify", dest)
        assert done.returncode == 0, done.stdout
        idle = campaign.start()
        assert idle.wait() == 0
        assert campaign.gets == fetched


# The supervisor is killed when it is about to record the first outcome.
KILLED_BEFORE_THE_JOURNAL = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.storage.journal"
    def change(journal):
        import signal
        journal.Journal.record_done = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
"""
)


@pytest.mark.parametrize(
    ("taken", "digests"),
    slow_but(
        [("names only", "sha256"), ("zeros", "crc32"), ("nothing", "crc32")],
        ["nothing", "names only", "zeros", "stats"],
        ["sha256", "crc32"],
    ),
)
def test_published_shard_without_an_outcome_counts_only_if_it_is_whole(
    taken: str,
    digests: str,
    dev_server: Callable[..., DevServer],
    start: Callable[..., Job],
    tmp_path: Path,
) -> None:
    """A kill leaves all of it, a power cut perhaps a name."""
    truth = Truth(100, 100, 100)
    server = dev_server(files=truth.files)
    dest = tmp_path / "dest"
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(KILLED_BEFORE_THE_JOURNAL))
    argv = (server.url, "-o", dest, "--store", "tar", "--shard-files", 50, "--workers", 1)
    argv = (*argv, "--digests", digests, "--json")
    job = start(*argv, env={"PYTHONPATH": str(tmp_path)})
    assert job.wait() == -signal.SIGKILL, job.err
    job.alone(PROMPT)
    (sealed, *_) = sorted(dest.glob(f"{HOME}/shards/*.sealed"))
    shard, stats = dest / f"{sealed.stem}.tar", dest / f"{sealed.stem}_stats.json"
    if taken == "names only":
        shard.write_bytes(b"")
        stats.write_bytes(b"")
    elif taken == "zeros":
        shard.write_bytes(bytes(shard.stat().st_size))
    elif taken == "stats":
        stats.write_bytes(b"")
    last = start(*argv)
    assert last.wait() == 0, last.err
    check_shards(dest, truth, "tar", 50, json.loads(last.out), digests=digests)
    assert server.stats()["gets"] - truth.files == (0 if taken == "nothing" else 50)
