"""Measure what --engine ray adds to ordinary runs, and what a second node gains.

    python -m benchmarks.cluster overhead [SLICES [null|files|tar]]
    python -m benchmarks.cluster nodes [FILES [one|two]]

``overhead`` compares the CPU time that each further slice of 100,000 files takes on a node of one CPU, by
jobs of SLICES and three times SLICES slices, with that of a local run of as many files. ``nodes`` compares
the time of two nodes of one CPU with that of one local worker, or shows one of the two.

Nothing else should run on the machine. All CPU time of the machine counts, except that of the origin; so
that of Ray is in it. ``nodes`` has an origin that answers each request after a delay, which is then what
limits: it shows that nodes add up, where cores cannot.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.running import compile_all

_SLICE = 100_000
_ROUNDS = 3
_ROOT = Path(__file__).parents[1]
_TICK = os.sysconf("SC_CLK_TCK")
# Nodes of one CPU, and a head without; the address to standard output, the end with standard input.
_NODES = """
import sys
from ray.cluster_utils import Cluster
size = 80 << 20
head = {"num_cpus": 0, "object_store_memory": size, "include_dashboard": False}
cluster = Cluster(initialize_head=True, connect=False, head_node_args=head)
for _ in range(int(sys.argv[1])):
    cluster.add_node(num_cpus=1, object_store_memory=size)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
_ENV = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


class _Measured(NamedTuple):
    seconds: float
    cpu: float  # of the machine, without the origin
    report: dict[str, Any]


class _Origin:
    def __init__(self, files: int, *options: str) -> None:
        argv = [
            sys.executable,
            "-m",
            "downloader",
            "serve",
            "--files",
            str(files),
            "--size",
            "100",
            *options,
        ]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[-1]

    def cpu(self) -> float:
        """Return the CPU seconds of the server and its processes so far."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return sum(map(_cpu_of, [str(self._process.pid), *children]))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def _cpu_of(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def _machine() -> float:
    user, nice, system, _, _, irq, softirq, *_ = Path("/proc/stat").read_text().split()[1:]
    return sum(map(int, (user, nice, system, irq, softirq))) / _TICK


def _run(origin: _Origin, dest: Path, *options: object) -> _Measured:
    argv = [sys.executable, "-m", "downloader", origin.url, "-o", str(dest), *map(str, options)]
    began, machine, served = time.monotonic(), _machine(), origin.cpu()
    done = subprocess.run(
        [*argv, "--json", "--progress", "none"],
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env={**os.environ, **_ENV},
        check=True,
    )
    seconds = time.monotonic() - began
    cpu = _machine() - machine - (origin.cpu() - served)
    shutil.rmtree(dest, ignore_errors=True)
    return _Measured(seconds, cpu, json.loads(done.stdout))


class _Cluster:
    def __init__(self, directory: Path, nodes: int) -> None:
        env = {**os.environ, **_ENV, "RAY_TMPDIR": str(directory)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _NODES, str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        self.options = (
            "--engine",
            "ray",
            "--ray-address",
            address,
            "--scratch",
            str(directory / "scratch"),
        )

    def close(self) -> None:
        self._process.communicate()


def _say(what: str, measured: _Measured, files: int) -> None:
    roles = measured.report["cpu_by_role"]
    sys.stdout.write(
        f"{what}: {measured.seconds:.1f} s, {files / measured.seconds:.0f} files/s; CPU of the machine "
        f"{measured.cpu:.2f} s, of the report {measured.report['cpu_seconds']:.2f} s {roles}\n"
    )
    sys.stdout.flush()


def _overhead(directory: Path, slices: int, store: str) -> None:
    given = ("--workers", 1, "--store", store)
    counts = (slices, 3 * slices)
    parts: list[float] = []
    jobs: dict[int, list[float]] = {count: [] for count in counts}
    part, origins = _Origin(_SLICE), {count: _Origin(count * _SLICE) for count in counts}
    cluster = _Cluster(directory, 1)
    try:
        for number in range(_ROUNDS):
            local = _run(part, directory / f"part-{number}", *given)
            _say("a local run of a slice's files", local, _SLICE)
            parts.append(local.cpu)
            for count in counts:
                journal = ("--journal", directory / f"journal-{number}-{count}")
                options = (*given, *cluster.options, *journal, "--slice-files", _SLICE)
                job = _run(origins[count], directory / f"ray-{number}-{count}", *options)
                _say(f"{count} slices on a node", job, count * _SLICE)
                jobs[count].append(job.cpu)
    finally:
        cluster.close()
        for origin in (part, *origins.values()):
            origin.close()
    # The least of the rounds: what else runs on the machine only adds.
    few, many, apart = min(jobs[slices]), min(jobs[3 * slices]), min(parts)
    further = (many - few) / (2 * slices)
    sys.stdout.write(
        f"CPU of the machine: {few:.2f} s for {slices} slices, {many:.2f} s for {3 * slices}; so "
        f"{further:.2f} s for each further one, {few - slices * further:.2f} s for the job; "
        f"{apart:.2f} s for a local run ({further / apart - 1:+.1%})\n"
    )


def _nodes(directory: Path, files: int, which: str) -> None:
    # As many requests in flight for each worker, here and there: 8 connections of depth 1.
    limits = ("--workers", 1, "--connections", 8, "--pipeline", "off")
    seconds: list[float] = []
    origin = _Origin(files, "--delay", "20ms-20ms")
    try:
        if which != "two":
            local = _run(origin, directory / "local", *limits)
            _say("one local worker", local, files)
            seconds.append(local.seconds)
        if which != "one":
            cluster = _Cluster(directory, 2)
            try:
                slices = ("--slice-files", files // 4)
                ray = _run(origin, directory / "ray", *limits, *cluster.options, *slices)
                _say("two nodes of one worker", ray, files)
                seconds.append(ray.seconds)
            finally:
                cluster.close()
    finally:
        origin.close()
    if not which:
        sys.stdout.write(f"{seconds[0] / seconds[1]:.2f} times as fast, the start of both included\n")


def main() -> None:
    """Run what argv names."""
    directory = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # short: Ray's sockets are below it
    compile_all()
    try:
        if sys.argv[1] == "overhead":
            slices, store = [*sys.argv[2:], *("2", "null")[len(sys.argv) - 2 :]][:2]
            _overhead(directory, int(slices), store)
        else:
            files, which = [*sys.argv[2:], *("24000", "")[len(sys.argv) - 2 :]][:2]
            _nodes(directory, int(files), which)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
