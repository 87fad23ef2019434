"""One client run to its end: how long it took, and what CPU and memory all its processes used.

Time is from before the process is started until it has ended. CPU is what ``os.wait4`` says: user and
system time of the process and of all descendants that it has waited for. Memory is the proportional
set size (PSS: what processes share is counted once) summed over the process and its descendants,
sampled four times a second, and of that the most.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["ROOT", "Ended", "compile_all", "cores", "environment", "pinned", "run"]

ROOT = Path(__file__).resolve().parents[1]
_FIRST, _INTERVAL = 0.1, 0.25
_FOREIGN = ("_PROXY", "_CA_BUNDLE", "SSL_CERT", "SSLKEYLOG", "PYTHON", "GEVENT", "CURL_", "NETRC")
_CORES = sorted(os.sched_getaffinity(0))  # before anything here is pinned


@dataclass(frozen=True)
class Ended:
    """``exit_code`` is None for a client that was killed because its time was over."""

    seconds: float
    cpu_seconds: float
    memory_mb: float
    exit_code: int | None
    stdout: str
    stderr: str


def cores(role: str, how: str = "apart") -> str:
    """The cores of the ``origin`` or of the ``client``, as taskset takes them."""
    if how == "shared" or len(_CORES) < 2:
        return ",".join(map(str, _CORES))
    return str(_CORES[0] if role == "origin" else _CORES[1])


def pinned(where: str, argv: list[str]) -> list[str]:
    """``argv`` on these cores only."""
    return ["taskset", "-c", where, *argv]


def environment() -> dict[str, str]:
    """The environment without proxies, CA files and the like, which clients treat differently."""
    kept = {k: v for k, v in os.environ.items() if not any(f in k.upper() for f in _FOREIGN)}
    return {**kept, "PYTHONPATH": str(ROOT)}


def compile_all() -> None:
    """Bytecode for what is ours, as pip makes it for the packages of the others: without it each start
    takes 0.07 s longer, and where none may be written (PYTHONDONTWRITEBYTECODE) every start would."""
    for package in ("downloader", "diagnostics", "benchmarks"):
        compileall.compile_dir(ROOT / package, quiet=1)


def run(argv: list[str], where: str, timeout: float) -> Ended:
    """Run ``argv`` on the cores ``where``; after ``timeout`` seconds all its processes are killed."""
    # Files, not pipes: nobody needs to read while it runs.
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
            _put_first(process.pid)  # not before an origin on the same cores: it would wait for that
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
    """Have the session of ``pid`` go before others on its core: what else the machine does is not to be
    measured. Only root may, and only where the scheduler groups by sessions."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-19")


def _watch(pid: int, deadline: float) -> tuple[bool, int]:
    """Wait for the end, sampling meanwhile; whether it came in time, and the most memory in bytes."""
    descriptor = os.pidfd_open(pid)
    most, wait = 0, _FIRST
    try:
        while not select.select([descriptor], [], [], wait)[0]:
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
    """The session that it leads, and descendants that left the session."""
    family = _family(pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    for process in family[1:]:
        with contextlib.suppress(psutil.Error):
            process.kill()
