"""Run the rounds of a cell: every client once, then every client again, and record each result.

A run that hangs is killed, counted and repeated. After every run, each file that a client stored is
compared with the origin's; where it stores nothing, the number that it prints is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

from benchmarks.ballast import Ballast
from benchmarks.cells import Cell
from benchmarks.clients import CLIENTS, Client, Job, missing
from benchmarks.jpegs import encode, jpeg_server
from benchmarks.markdown import figure
from benchmarks.openweb.images import IMG2DATASET
from benchmarks.openweb.namespace import unavailable
from benchmarks.openweb.origin import open_web
from benchmarks.origin import Origin, Outcome, dev_server, nginx, nginx_installed, relayed
from benchmarks.results import Results, Run, now
from benchmarks.running import Ended, cores, run

__all__ = ["pending", "run_cell", "scratch"]

Say = Callable[[str], None]

_DISK: Final = Path("/var/tmp")
_TRIES: Final = 3  # seconds, of a run that hangs
_FEWEST: Final = 400
_SHARED_OUT: Final = ("speed", "billion")  # groups where a slow client fetches a part of the files
_REFUSED: Final = 2  # our exit code for an unknown option


@contextlib.contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """Return a private directory in ``parent``, or in memory where there is such a place."""
    if parent is None and os.access("/dev/shm", os.W_OK):
        parent = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="benchmarks-", dir=parent))
    try:
        yield path
    finally:
        # Of a million files it removes twice as many per second as shutil.
        subprocess.run(["rm", "-rf", "--", str(path)], check=False)


def files_of(cell: Cell, client: Client, quick: bool) -> int:
    """Return how many files ``client`` fetches in ``cell``."""
    files = cell.quick if quick else cell.files
    if cell.group not in _SHARED_OUT:
        return files
    return max(files // client.share, min(files, _FEWEST))


def pending(
    cell: Cell,
    results: Results,
    quick: bool,
    clients: Mapping[str, Client] = CLIENTS,
    most: int | None = None,
) -> list[tuple[int, Client]]:
    """Return the runs of ``cell`` that are still to be made, round by round, ``most`` rounds at most.

    Each round begins with another client: the first one finds an idle disk.
    """
    if quick and not cell.quick:
        return []
    able = [clients[name] for name in cell.clients if name in clients and not missing(clients[name])]
    if not able:
        return []
    rounds = range(min(1 if quick else cell.rounds, most or cell.rounds))
    return [
        (turn, client)
        for turn in rounds
        for client in able[turn % len(able) :] + able[: turn % len(able)]
        if not results.has(cell.name, client.name, turn, files_of(cell, client, quick))
    ]


def run_cell(
    cell: Cell,
    results: Results,
    say: Say,
    quick: bool = False,
    which: str = "auto",
    clients: Mapping[str, Client] = CLIENTS,
    ballast: Ballast | None = None,
    rounds: int | None = None,
) -> None:
    """Make the runs of ``cell`` that ``results`` does not have yet."""
    ballast = ballast or Ballast(needed=False)
    runs = pending(cell, results, quick, clients, rounds)
    for name in cell.clients:
        if runs and name in clients and missing(clients[name]):
            say(f"{cell.name}: {name} is not installed; left out")
    if not runs:
        return
    if (cell.hosts or cell.jpegs) and (why := _why_not(cell)):
        say(f"{cell.name}: {why}; left out")
        return
    most = max(files_of(cell, client, quick) for _, client in runs)
    room_needed = 2.5 * most * max(cell.size, 4096)
    if psutil.virtual_memory().available + ballast.size < room_needed:
        say(f"{cell.name}: needs {room_needed / 1e9:.1f} GB of memory; left out")
        return
    say(f"{cell.name}: {cell.title} ({most:,} files)")
    refused: set[str] = set()
    with scratch() as room, serving(cell, most, room, which) as origin:
        for turn, client in runs:
            if client.name in refused:
                continue
            say(f"  round {turn + 1}, {client.name} …")
            done = run_client(cell, client, turn, files_of(cell, client, quick), origin, say, ballast)
            if isinstance(done, Run):
                results.add(done)
                say(f"    {described(done)}")
            else:
                refused.add(client.name)
                say(f"    skipped: it refuses its options ({done})")


@contextlib.contextmanager
def serving(cell: Cell, files: int, room: Path, which: str) -> Iterator[Origin]:
    """Run the origin of ``cell``; ``which`` is auto, nginx or dev."""
    served = room / "origin"
    served.mkdir()
    where = cores("origin", cell.cores)
    chosen: contextlib.AbstractContextManager[Origin]
    if cell.hosts:
        hosts = max(1, round(cell.hosts * files / cell.files))
        chosen = open_web(
            files, hosts, cell.tls, served, where, cell.dead, jpegs=encode if cell.jpegs else None
        )
    elif cell.jpegs:
        chosen = jpeg_server(served, where)
    elif cell.origin == "nginx" and which != "dev" and (which == "nginx" or nginx_installed()):
        chosen = nginx(files, cell.size, cell.tls, served, where)
    else:
        chosen = dev_server(files, cell.size, cell.tls, cell.delay, where)
    with contextlib.ExitStack() as running:
        origin = running.enter_context(chosen)
        yield origin if cell.rtt == "0" else running.enter_context(relayed(origin, cell.rtt, where))


def run_client(
    cell: Cell, client: Client, turn: int, files: int, origin: Origin, say: Say, ballast: Ballast
) -> Run | str:
    """Run a client, repeating while it hangs; return the run, or why the client refuses."""
    timeout = cell.patience + files / cell.slowest
    hung = 0
    while True:
        with scratch(_DISK if cell.where == "disk" else None) as where, scratch() as own:
            job = _job(cell, files, origin, where, own)
            argv = client.argv(job)
            with origin.surrounding(own) as surroundings:
                if cell.where == "disk":
                    os.sync()  # writeback of others' data must not count against this run
                ballast.settle()
                ended = run(surroundings.inside(argv), cores("client", cell.cores), timeout)
            if ended.exit_code is None:
                hung += 1
                say(f"    {client.name} hung: killed after {timeout:.0f} s")
                if hung < _TRIES:
                    continue
            if ended.exit_code == _REFUSED and "downloader" in argv:
                return (ended.stderr.strip().splitlines() or ["exit code 2"])[0]
            said = {**_figures(ended.stdout), **surroundings.said}
            left = _left(client, files, origin, job, ended, said)
        return Run(
            cell=cell.name,
            client=client.name,
            round=turn,
            files=files,
            seconds=None if ended.exit_code is None else ended.seconds,
            cpu_seconds=ended.cpu_seconds,
            memory_mb=ended.memory_mb,
            wrong=left.wrong,
            hung=hung,
            failure=_failure(cell, ended),
            at=now(),
            said={**said, **left.said},
        )


def _job(cell: Cell, files: int, origin: Origin, where: Path, own: Path) -> Job:
    destination = None if cell.where == "null" else where / "files"
    if destination is not None:
        destination.mkdir()
    urls = own / "urls.txt"
    with open(urls, "w") as file:
        file.writelines(f"{url}\n" for url in origin.urls(files))
    return Job(origin.url, urls, files, destination, cell.connections, origin.cafile, own, cell.rate)


def _left(
    client: Client, files: int, origin: Origin, job: Job, ended: Ended, said: dict[str, float]
) -> Outcome:
    if job.destination is not None:
        return origin.outcome(files, job.destination, client.stored(job) if client.stored else None)
    # Discarded: ours and the scripts print how many files they had; curl reports only its exit code.
    had = said.get("stored", said.get("files", files if ended.exit_code == 0 else 0))
    return Outcome(files - int(had))


def _figures(stdout: str) -> dict[str, float]:
    """Return the numbers of a JSON object on standard output; those of nested objects as
    ``outer_inner``.
    """
    try:
        found = json.loads(stdout)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    flat: dict[str, float] = {}
    for name, value in found.items():
        for key, one in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(one, (int, float)) and not isinstance(one, bool):
                flat[f"{name}_{key}" if key else name] = one
    return flat


def _why_not(cell: Cell) -> str:
    if not nginx_installed():
        return "needs nginx"
    if cell.jpegs and not os.access(IMG2DATASET, os.X_OK):
        return f"needs img2dataset in {IMG2DATASET.parents[1].name}, which also encodes the JPEGs"
    return unavailable() if cell.hosts else ""


def _failure(cell: Cell, ended: Ended) -> str:
    """Return why the run counts as failed, empty where it does not. Where some URLs cannot be had, clients
    end with codes of their own; whether they did their work is seen from the files."""
    if ended.exit_code in (0, None) or (cell.dead and (ended.exit_code or 0) > 0):
        return ""
    return _why(ended)


def _why(ended: Ended) -> str:
    last = (ended.stderr.strip().splitlines() or [""])[-1]
    return f"exit code {ended.exit_code}: {last[:200]}"


def described(done: Run) -> str:
    """Return a run described in one line."""
    if done.seconds is None:
        return f"never finished ({done.hung} times)"
    if done.failure:
        return f"FAILED: {done.failure}"
    text = (
        f"{figure(done.rate or 0.0)} files/s, {done.cpu_seconds / done.files * 1e6:,.0f} µs of CPU a file"
    )
    text += f", {done.memory_mb:.0f} MB"
    if missing := done.said.get("missing"):
        text += f", {missing:,.0f} missing"
    return text + (f", {done.wrong:,} WRONG" if done.wrong else "")
