"""Measure the main job: the overhead of its processes, memory, long lists, delays, TLS.

Every run is the real command line in processes of its own: the test server pinned to one core, the client
to the other. The correctness of each run is checked, not assumed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.ballast import REPORTED, Ballast
from benchmarks.openweb.memory import memory as web_memory
from benchmarks.origin import nginx, nginx_installed
from benchmarks.origin import wrong_files as compared
from benchmarks.refusing import refusing
from benchmarks.rounds import scratch
from benchmarks.running import ROOT, cores, environment, pinned, run

__all__ = ["SCENARIOS", "closing", "delays", "https", "memory", "overhead", "volume"]


@contextlib.contextmanager
def server(*options: str) -> Iterator[tuple[str, list[str]]]:
    """Run the test server on the first core; yield its URL and the options that make a client trust its
    certificate."""
    command = pinned(cores("origin"), [sys.executable, "-m", "downloader", "serve", *options])
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[1]
        trust = ["--cacert", process.stdout.readline().split()[1]] if "--tls" in options else []
        yield url, trust
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        process.wait()


def download(url: str, *options: str) -> dict[str, Any]:
    """Run once on the second core and return the report. Raise RuntimeError when it is not complete and
    exact."""
    argv = [sys.executable, "-m", "downloader", url, *options, "--json", "--progress", "none"]
    command = pinned(cores("client"), argv)
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr} {done.stdout}")
    report: dict[str, Any] = json.loads(done.stdout)
    if not report["complete"] or report["listed"] != report["stored"]:
        raise RuntimeError(f"not everything was stored: {report}")
    return report


def wrong_files(directory: Path, files: int, size: int) -> int:
    """Return how many of ``files`` are missing or differ from the test server's recipe."""
    wrong = 0
    for index in range(files):
        name = f"file-{index:010d}"
        expected = hashlib.shake_128(f"{name}:0".encode()).digest(size)
        try:
            wrong += (directory / name).read_bytes() != expected
        except FileNotFoundError:
            wrong += 1
    return wrong


def overhead(quick: bool) -> list[dict[str, str]]:
    """Measure the CPU time of supervisor, feeder and journal."""
    files = 20_000 if quick else 200_000
    rows = []
    for lane in ("requests", "auto"):
        with server("--files", str(files)) as (url, _), scratch() as where:
            report = download(url, "-o", str(where / "out"), "--workers", "1", "--lane", lane)
            wrong = wrong_files(where / "out", files, 100)
        by_role = report["cpu_by_role"]
        total = sum(by_role.values())
        others = total - by_role["workers"]
        rows.append(
            {
                "what": f"--lane {lane}, {files:,} files stored, all recomputed and compared",
                "figure": f"{wrong} wrong, {report['files_per_second']:,.0f} files/s",
                "beside": f"{total / files * 1e6:,.0f} µs of CPU a file; supervisor, feeder and journal "
                f"{others / files * 1e6:.1f} µs",
                "ratio": f"{others / total:.1%}",
            }
        )
    return rows


def memory(quick: bool) -> list[dict[str, str]]:
    """Check that peak memory does not depend on the number of files."""
    rows = []
    for store in ("null", "files"):
        least = 0.0
        for files in (10_000, 50_000) if quick else (100_000, 1_000_000):
            with server("--files", str(files)) as (url, _), scratch() as where:
                options = ["-o", str(where / "out"), "--store", store, "--workers", "1"]
                argv = [sys.executable, "-m", "downloader", url, *options, "--json", "--progress", "none"]
                ended = run(argv, cores("client"), timeout=60 + files / 1000)
            if ended.exit_code != 0:
                raise RuntimeError(f"exit code {ended.exit_code}: {ended.stderr}")
            report = json.loads(ended.stdout)
            peak = report["peak_rss_mb"]
            rows.append(
                {
                    "what": f"{files:,} files, --store {store}: peak memory",
                    "figure": f"{ended.memory_mb:.1f} MB, all processes (PSS)",
                    "beside": f"RSS: supervisor {peak['supervisor']:.1f}, worker {peak['worker']:.1f} MB",
                    "ratio": f"{ended.memory_mb / least:.2f}" if least else "",
                }
            )
            least = least or ended.memory_mb
    return rows


def closing(quick: bool) -> list[dict[str, str]]:
    """Measure the cost of a server that closes each connection after 100 requests, compared with 1,000:
    nginx with either, alternating, each as often first."""
    if not nginx_installed():
        return []
    files, rounds = (5_000, 1) if quick else (100_000, 8)
    rows = []
    for tls in (False, True):
        rates: dict[int, list[float]] = {100: [], 1000: []}
        ballast = Ballast(needed=REPORTED and not quick)
        with contextlib.ExitStack() as stack:
            origins = {}
            for keepalive in rates:
                room = stack.enter_context(scratch())
                origins[keepalive] = stack.enter_context(
                    nginx(files, 100, tls, room, cores("origin"), keepalive)
                )
            stack.enter_context(ballast.keeping())
            for turn in range(rounds):
                for keepalive, origin in list(origins.items())[:: -1 if turn % 2 else 1]:
                    with scratch() as where:
                        ballast.settle()
                        options = ["-o", str(where / "out"), "--workers", "1", "--connections", "32"]
                        options += ["--cacert", origin.cafile] if origin.cafile else []
                        began = time.perf_counter()
                        download(origin.url, *options)
                        rates[keepalive].append(files / (time.perf_counter() - began))
                        if wrong := compared(origin, where / "out", files):
                            raise RuntimeError(f"{wrong} files are wrong")
        often, seldom = (statistics.median(rates[keepalive]) for keepalive in (100, 1000))
        rows.append(
            {
                "what": f"{'HTTPS' if tls else 'HTTP'}, nginx closes after 100 requests, "
                f"{files:,} files, median of {rounds}",
                "figure": f"{often:,.0f} files/s",
                "beside": f"after 1,000 requests: {seldom:,.0f}",
                "ratio": f"{often / seldom:.2f}",
            }
        )
    return rows


def volume(quick: bool) -> list[dict[str, str]]:
    """Check that a list of many lines is read in constant memory."""
    rows = []
    for lines in (20_000, 200_000) if quick else (100_000, 5_000_000):
        with scratch() as where:
            path = where / "list.txt"
            with open(path, "w") as file:
                file.writelines(f"http://127.0.0.1:9/get/file-{i:010d}\n" for i in range(lines))
            argv = [sys.executable, "-m", "downloader", str(path), "--dry-run", "--json"]
            ended = run(argv, cores("client"), timeout=60 + lines / 1000)
        if ended.exit_code != 0:
            raise RuntimeError(f"exit code {ended.exit_code}: {ended.stderr}")
        listed = json.loads(ended.stdout)["listed"]
        rows.append(
            {
                "what": f"a list of {lines:,} URLs read (--dry-run)",
                "figure": f"peak {ended.memory_mb:.1f} MB, all processes",
                "beside": f"{listed / ended.seconds:,.0f} lines/s",
                "ratio": "",
            }
        )
    return rows


def delays(quick: bool) -> list[dict[str, str]]:
    """Measure a thousand slow responses at once: the wall time is what connections and delays allow."""
    files, connections = (2_000, 200) if quick else (10_000, 1_000)
    with server("--files", str(files), "--delay", "0-3s") as (url, _), scratch() as where:
        report = download(
            url, "-o", str(where / "out"), "--workers", "1", "--connections", str(connections)
        )
    ideal = files / connections * 1.5 + 3
    return [
        {
            "what": f"{files:,} files, each after 0–3 s, {connections:,} connections",
            "figure": f"{report['seconds']:.1f} s",
            "beside": f"connections and delays allow {ideal:.1f} s",
            "ratio": f"{report['seconds'] / ideal:.2f}",
        }
    ]


def https(quick: bool) -> list[dict[str, str]]:
    """Check that HTTPS is concurrent: many responses of 0.1 s at once."""
    files, connections = 1_000, 100
    with server("--files", str(files), "--delay", "100ms", "--tls") as (url, trust), scratch() as where:
        report = download(
            url, "-o", str(where / "out"), "--workers", "1", "--connections", str(connections), *trust
        )
    return [
        {
            "what": f"HTTPS, {files:,} files, each after 0.1 s, {connections} connections",
            "figure": f"{report['seconds']:.1f} s",
            "beside": f"one after another: {files * 0.1:.0f} s",
            "ratio": f"{files * 0.1 / report['seconds']:.0f} × concurrent",
        }
    ]


SCENARIOS = {
    "overhead": overhead,
    "memory": memory,
    "closing": closing,
    "volume": volume,
    "delays": delays,
    "https": https,
    "refusing": refusing,
    "web-memory": web_memory,
}
