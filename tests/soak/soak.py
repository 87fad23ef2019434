"""Run the soak: a job at a constant rate against a server with 1 % faults of each kind; check that nothing
grows.

    python tests/soak/soak.py [--minutes 60] [--rate 600] [--out DIR]

Half of the files come from an origin whose faults the pipelined client tolerates, half from one that is
left to the requests client: both are at work all the time.

Every five seconds the resident memory and the open descriptors of every process of the run are written to
``DIR/soak.csv``, and drawn in ``soak.svg`` where pygal is installed. Exit code 0: all files ended as they
must, and no series grows (``slope``).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from harness import command, environment
from slope import slope

from benchmarks.rounds import scratch

EVERY = 5.0
WARM_UP = 0.25  # of the run: imports, caches and the journal's pages reach their size
TOLERANCE = {"rss_kb": 512.0, "descriptors": 0.5}  # per hour
FAULTS = 100


class Sample(NamedTuple):
    """The state of a process at one instant."""

    seconds: float
    role: str
    pid: int
    rss_kb: int
    descriptors: int


def sample(supervisor: int, began: float, roles: dict[int, str]) -> list[Sample]:
    """Return a sample of the supervisor and each of its children; empty when it has exited."""
    found = []
    try:
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        for pid in (supervisor, *map(int, children)):
            status = Path(f"/proc/{pid}/status").read_text()
            rss = int(status.partition("VmRSS:")[2].split()[0])
            # The order of their forks: the feeder first.
            role = roles.setdefault(
                pid, ("supervisor", "feeder")[len(roles)] if len(roles) < 2 else "worker"
            )
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            found.append(Sample(time.monotonic() - began, role, pid, rss, descriptors))
    except (OSError, IndexError):
        return []
    return found


def watch(job: subprocess.Popen[str], out: Path) -> list[Sample]:
    """Sample until ``job`` ends; return all samples, which are written to ``out``, too."""
    samples: list[Sample] = []
    roles: dict[int, str] = {}
    began = time.monotonic()
    with (out / "soak.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(Sample._fields)
        while True:
            try:
                job.wait(EVERY)
                return samples
            except subprocess.TimeoutExpired:
                new = sample(job.pid, began, roles)
            table.writerows(new)
            file.flush()
            samples += new


def draw(samples: list[Sample], path: Path) -> None:
    """Draw two charts in one: memory in MB and descriptors, a line for each process."""
    try:
        import pygal
    except ImportError:
        sys.stdout.write("pygal is not installed: no chart, only the table\n")
        return
    chart = pygal.XY(title="Soak: resident MB and open descriptors", x_title="minutes", dots_size=1)
    for (role, pid), series in by_process(samples).items():
        chart.add(f"{role} {pid} MB", [(s.seconds / 60, s.rss_kb / 1024) for s in series])
        chart.add(f"{role} {pid} fds", [(s.seconds / 60, s.descriptors) for s in series])
    path.write_bytes(chart.render())


def by_process(samples: list[Sample]) -> dict[tuple[str, int], list[Sample]]:
    found: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for each in samples:
        found[each.role, each.pid].append(each)
    return found


def judge(samples: list[Sample]) -> bool:
    """Return whether nothing grows; print the values of each process and their slope."""
    end = max(each.seconds for each in samples)
    flat = True
    for (role, pid), series in by_process(samples).items():
        late = [each for each in series if each.seconds > WARM_UP * end]
        if len(late) < 24:
            sys.stdout.write(f"{role:10} {pid}: {len(late)} samples, too few to judge\n")
            continue
        for what, tolerance in TOLERANCE.items():
            values = [float(getattr(each, what)) for each in late]
            found = slope([each.seconds for each in late], values)
            level = not found.grows(tolerance)
            flat &= level
            sys.stdout.write(
                f"{role:10} {pid} {what:11} {min(values):9.0f} to {max(values):9.0f}, slope "
                f"{found.per_hour:+9.1f} ± {found.margin:.1f} an hour: {'flat' if level else 'GROWS'}\n"
            )
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("soak"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    files = int(given.rate * 60 * given.minutes)
    origin = subprocess.Popen(
        [sys.executable, str(HERE / "origin.py"), str(FAULTS), str(given.seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert origin.stdout is not None
    port = int(origin.stdout.readline())
    source = given.out / "list.txt"
    with source.open("w") as lines:
        lines.writelines(f"http://127.0.0.{n % 2 + 1}:{port}/soak-{n:09d}\n" for n in range(files))
    with scratch(given.out) as dest:
        options: tuple[object, ...] = (
            "--workers",
            2,
            "--connections",
            24,
            "--rate",
            given.rate // 2,
            "--retries",
            50,
            "--json",
        )
        options += ("--backoff", "100ms", "--read-timeout", "1s", "--deadline", "3s", "--progress", "none")
        job = subprocess.Popen(
            command(source, "-o", dest, *options), env=environment(), stdout=subprocess.PIPE, text=True
        )
        try:
            samples = watch(job, given.out)
        finally:
            job.terminate()
        assert job.stdout is not None
        report = json.loads(job.stdout.read())
        told = json.loads(origin.communicate()[0])
    (given.out / "report.json").write_text(json.dumps({**report, "origin": told}, indent=2))
    draw(samples, given.out / "soak.svg")
    # Only what the server permanently refused has failed.
    right = report["failed"] == told["ended"] and report["stored"] == files - told["ended"]
    right &= report["complete"] and report["worker_deaths"] == 0
    rate = report["requests"] / report["seconds"]
    sys.stdout.write(
        f"{files} files, {report['seconds']:.0f} s, {rate:.0f} requests/s, {report['retries']} retries, "
        f"{report['failed']} failed of {told['ended']} that must: {'right' if right else 'WRONG'}\n"
        f"faults: {told['faults']}\n"
    )
    return 0 if judge(samples) and right else 1


if __name__ == "__main__":
    sys.exit(main())
