"""Run one client to its end; measure its time, and CPU and memory of all its processes.

Time is from before the process is started until it has ended. CPU is what ``os.wait4`` reports: user and
system time of the process and of all descendants that it has waited for. Memory is the proportional set
size (PSS: shared pages are counted once) summed over the process and its descendants, sampled four times a
second; the maximum counts.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import wait as await_readable
from pathlib import Path

import psutil

__all__ = ["ROOT", "Ended", "compile_all", "cores", "environment", "pinned", "run"]

ROOT = Path(__file__).resolve().parents[1]
_FIRST, _INTERVAL = 0.1, 0.25
_FOREIGN = ("_PROXY", "_CA_BUNDLE", "SSL_CERT", "SSLKEYLOG", "PYTHON", "GEVENT", "CURL_", "NETRC")
_CORES = sorted(os.sched_getaffinity(0))  # before this process pins anything


@dataclass(frozen=True)
class Ended:
    """The end of a run. ``exit_code`` is None for a client that was killed because its time was over."""

    seconds: float
    cpu_seconds: float
    memory_mb: float
    exit_code: int | None
    stdout: str
    stderr: str


def cores(role: str, how: str = "apart") -> str:
    """Return the cores of the ``origin`` or of the ``client``, in taskset's format."""
    if how == "shared" or len(_CORES) < 2:
        return ",".join(map(str, _CORES))
    return str(_CORES[0] if role == "origin" else _CORES[1])


def pinned(where: str, argv: list[str]) -> list[str]:
    """Return ``argv`` restricted to these cores."""
    return ["taskset", "-c", where, *argv]


def environment() -> dict[str, str]:
    """Return the environment without proxies, CA files and the like, which clients treat differently."""
    kept = {k: v for k, v in os.environ.items() if not any(f in k.upper() for f in _FOREIGN)}
    return {**kept, "PYTHONPATH": str(ROOT)}


def compile_all() -> None:
    """Compile our modules to bytecode, as pip does for the packages of the others. Without it each start
    takes 0.07 s longer, and so would every start where none may be written (PYTHONDONTWRITEBYTECODE)."""
    for package in ("downloader", "diagnostics", "benchmarks"):
        compileall.compile_dir(ROOT / package, quiet=1)


def run(argv: list[str], where: str, timeout: float) -> Ended:
    """Run ``argv`` on the cores ``where``; after ``timeout`` seconds all its processes are killed."""
    # Files, not pipes: nothing needs to read them during the run.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        process = subprocess.Popen(
            pinned(where, argv),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        if where != cores("client", "shared"):
            _put_first(process.pid)  # the origin on the same cores needs its share
        try:
            ended, memory = _watch(process.pid, began + timeout)
        except BaseException:
            _kill(process.pid)
            process.wait()
            raise
        seconds = time.perf_counter() - began
        if not ended:
            _kill(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return Ended(
        seconds=seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        memory_mb=memory / 1e6,
        exit_code=process.returncode if ended else None,
        stdout=texts[0],
        stderr=texts[1],
    )


def _put_first(pid: int) -> None:
    """Give the session of ``pid`` priority on its core, so that other activity of the machine is not
    measured. Only root may do so, and only where the scheduler groups by sessions."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-19")


def _watch(pid: int, deadline: float) -> tuple[bool, int]:
    """Wait for the end, sampling meanwhile; return whether it ended in time, and the maximum memory in
    bytes."""
    descriptor = os.pidfd_open(pid)
    most, wait = 0, _FIRST
    try:
        while not await_readable([descriptor], wait):
            if time.perf_counter() > deadline:
                return False, most
            most = max(most, _memory(pid))
            wait = _INTERVAL
    finally:
        os.close(descriptor)
    return True, most


def _family(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []


def _memory(pid: int) -> int:
    total = 0
    for process in _family(pid):
        with contextlib.suppress(psutil.Error, OSError):
            total += process.memory_full_info().pss
    return total


def _kill(pid: int) -> None:
    """Kill the session that the process leads, and descendants that left the session."""
    family = _family(pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    for process in family[1:]:
        with contextlib.suppress(psutil.Error):
            process.kill()
