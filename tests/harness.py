"""Shared by integration and fault tests: the test server and the command line, as real processes.

Events are awaited; where there is none, the state is polled.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import hub_watch
import pytest
from _pytest.mark.structures import ParameterSet

# Ignored signals are inherited: under nohup SIGHUP, in the background of a script the other two.
for number, handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

ROOT = Path(__file__).resolve().parents[1]
FOREIGN = ("_PROXY", "_CA_BUNDLE", "SSL_CERT", "SSLKEYLOG", "PYTHON", "GEVENT")


# For a sitecustomize, to be dedented: when MODULE has been imported, `change(module)` is called.
AFTER_IMPORT = """
    import importlib.util, os, sys

    class Finder:
        def find_spec(self, name, path, target=None):
            if name != MODULE:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), change(module))
            return spec

    sys.meta_path.insert(0, Finder())
"""


def slow_but(kept: Sequence[tuple[object, ...]], *axes: Sequence[object]) -> list[ParameterSet]:
    """Return every combination of ``axes`` as parameters of a test; those that are not ``kept`` are slow.

    Raise KeyError for a kept one that is no combination.
    """
    every = list(itertools.product(*axes))
    if missing := [each for each in kept if each not in every]:
        raise KeyError(missing)
    return [pytest.param(*each, marks=() if each in kept else pytest.mark.slow) for each in every]


def environment(**extra: str) -> dict[str, str]:
    """Return the environment without what would change a run; our own tree comes first on the path.

    With what ``hub_watch`` needs.
    """
    kept = {k: v for k, v in os.environ.items() if not any(f in k.upper() for f in FOREIGN)}
    watch = hub_watch.environment()
    paths = [watch.pop("PYTHONPATH", ""), extra.pop("PYTHONPATH", ""), str(ROOT)]
    return {**kept, **watch, **extra, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def command(*args: object) -> list[str]:
    """Return the argv of ``python -m downloader …``."""
    return [sys.executable, "-m", "downloader", *map(str, args)]


def run_behind_mount(mount: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line in a mount namespace of its own, after the shell command ``mount``.

    The test is skipped where that cannot be done.
    """
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("only root can mount")
    script = f"{mount} && exec {shlex.join(command(*args))}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **options,
    )
    if "mount:" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


@dataclass
class DevServer:
    """A test server that listens."""

    url: str
    ca: str
    process: subprocess.Popen[str]

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        assert parts.hostname
        if self.ca:
            context = ssl.create_default_context(cafile=self.ca)
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(parts.hostname, parts.port)

    def stats(self) -> dict[str, int]:
        """Return the server's counters: requests, gets, lists, connections_open, … (see its docstring)."""
        self._connection.request("GET", "/stats")
        answer: dict[str, int] = json.loads(self._connection.getresponse().read())
        return answer

    def until(self, holds: Callable[[dict[str, int]], bool], within: float = 30.0) -> dict[str, int]:
        """Poll the counters until ``holds(counters)``."""
        give_up = time.monotonic() + within
        while not holds(counters := self.stats()):
            assert time.monotonic() < give_up, f"the server never came to it: {counters}"
            time.sleep(0.005)  # the counters can only be polled, and the server has work to do
        return counters

    def close(self) -> None:
        self._connection.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.process.wait(10) == 0


@contextlib.contextmanager
def serving(**options: object) -> Iterator[DevServer]:
    """Run ``python -m downloader serve`` with ``options`` (``files=100, delay="0-20ms", tls=True``)."""
    argv = []
    for name, value in options.items():
        if value is not False:
            argv += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            command("serve", *argv),
            cwd=ROOT,
            env=environment(TMPDIR=directory),
            stdout=subprocess.PIPE,
            text=True,
        )
        server = None
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("listening "), first
            ca = process.stdout.readline().removeprefix("ca ").strip() if options.get("tls") else ""
            server = DevServer(first.split()[1], ca, process)
            yield server
        finally:
            if server is not None:
                server.close()
            else:
                process.kill()
                process.wait()


@pytest.fixture
def dev_server() -> Iterator[Callable[..., DevServer]]:
    """Return a function: ``dev_server(files=…, …)`` starts a server that stops when the test ends."""
    with contextlib.ExitStack() as made:
        yield lambda **options: made.enter_context(serving(**options))


def run(
    *args: object, timeout: float = 100, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end; ``env`` adds to the environment."""
    return subprocess.run(
        command(*args),
        cwd=options.pop("cwd", ROOT),
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )


@pytest.fixture
def run_downloader() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function: ``run_downloader(SOURCE, "-o", DEST, …)`` gives the completed process, its output
    as text."""
    return run


def stored(root: Path) -> dict[str, bytes]:
    """Return what is published under ``root``."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".downloader" not in path.parts
    }


def report_with(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    """Return the report that ``done`` printed, which must have ended with ``code``."""
    assert done.returncode == code, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the report that ``done`` printed, whose sums must agree if it is complete."""
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    if report["complete"]:
        assert report["listed"] == report["stored"] + report["skipped"] + report["failed"]
    return report


# Print the peak memory of the largest process of a command, in KiB: its own feeder.
_MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def counted_with_peak(source: Path) -> tuple[int, int]:
    """Count the files of ``source`` by --dry-run; return that, and the peak memory in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *command(source, "--dry-run", "--json")],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    record, peak = done.stdout.splitlines()
    return int(json.loads(record)["listed"]), int(peak)


# Opens files, with the lowest descriptors that are free, and becomes the program.
_INHERITS = """
import os, resource, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for _ in range(int(sys.argv[1])):
    os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
os.execv(sys.argv[2], sys.argv[2:])
"""


def beside_files(count: int, *argv: object) -> list[str]:
    """Return the command line that runs ``argv`` in a process that holds ``count`` more files."""
    return [sys.executable, "-c", _INHERITS, str(count), *map(str, argv)]


# Blocks all signals that a program can get, ignores SIGCHLD, and becomes the program.
_DEAF = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.SIGRTMIN))
os.execv(sys.argv[1], sys.argv[1:])
"""


def with_signals_off(*argv: object) -> list[str]:
    """Return the command line that runs ``argv`` with SIGCHLD ignored and other signals blocked."""
    return [sys.executable, "-c", _DEAF, *map(str, argv)]


def bytes_in(paths: Iterable[Path]) -> int:
    """Return the sum of the sizes of ``paths``; a run may remove each at any time."""
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def members(session: int) -> set[int]:
    """Return the running processes of a session (no zombies)."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.add(int(entry))
    return found


def _written(stream: IO[str]) -> str:
    """Return what was written to ``stream`` so far, without moving its offset: the child writes there."""
    number = stream.fileno()
    return os.pread(number, os.fstat(number).st_size, 0).decode("utf-8", "replace")


class Job:
    """The command line in a session of its own, so that all its descendants can be found."""

    def __init__(self, *argv: object, env: dict[str, str] | None = None, **options: Any) -> None:
        options.setdefault("cwd", ROOT)
        # Files, not pipes: a pipe that an orphan holds open would block until its end.
        self._stdout = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            list(map(str, argv)),
            env=environment(**(env or {})),
            stdout=self._stdout,
            stderr=self._stderr,
            start_new_session=True,
            **options,
        )
        self.pid = self.process.pid

    def children(self) -> list[int]:
        """Return the children of the supervisor in the order in which they were forked."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except OSError:
            return []
        return list(map(int, text.split()))

    def alone(self, within: float = 10.0) -> float:
        """Wait until every process of the session but the first has exited; return the seconds it took."""
        began = time.monotonic()
        while left := members(self.pid) - ({self.pid} if self.process.poll() is None else set()):
            rest = began + within - time.monotonic()
            assert rest > 0, f"still running after {within} s: {left}"
            _wait_for(next(iter(left)), rest)
        return time.monotonic() - began

    def until(self, holds: Callable[[], object], within: float = 60.0) -> None:
        """Poll until ``holds()``; the supervisor must not end before."""
        give_up = time.monotonic() + within
        while not holds():
            assert self.process.poll() is None, self.err
            assert time.monotonic() < give_up, f"it never came to it: {self.err}"
            time.sleep(0.002)  # no event tells; a tight loop would slow the run

    def wait(self, timeout: float = 100) -> int:
        """Return the exit code; negative for a signal."""
        return self.process.wait(timeout)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send the supervisor a signal."""
        self.process.send_signal(number)

    @property
    def out(self) -> str:
        """Return its standard output so far."""
        return _written(self._stdout)

    @property
    def err(self) -> str:
        """Return its standard error so far."""
        return _written(self._stderr)

    def close(self) -> None:
        """Kill every process that is left."""
        for pid in members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._stdout.close()
        self._stderr.close()


def _wait_for(pid: int, seconds: float) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        wait([descriptor], seconds)
    finally:
        os.close(descriptor)


@pytest.fixture
def start() -> Iterator[Callable[..., Job]]:
    """Return a function: ``start(SOURCE, "-o", DEST, …)`` runs the command line as a ``Job``, which ends
    with the test."""
    with contextlib.ExitStack() as made:

        def begin(*args: object, **options: Any) -> Job:
            job = Job(*command(*args), **options)
            made.callback(job.close)
            return job

        yield begin
