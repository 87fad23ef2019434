"""Starts the process under check, waits for what its agent reports, and ends it.

A command runs in a session of its own, with everything it starts; nothing of it is left running.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from diagnostics.agent.https_agent.life import SIGNAL, VARIABLE
from diagnostics.errors import ProbeError, UsageError
from diagnostics.model import Observation, Question
from diagnostics.origin import Origin
from downloader import isolation
from downloader.core.redact import redact

__all__ = ["observe"]

AGENT = Path(__file__).parent / "agent"
_POLL = 0.01
_GRACE = 2.0
_SET_UP = 60.0  # seconds that imports may take on a busy machine
_AFTER_CONNECTING = 20.0  # seconds more than a probe may take


def observe(question: Question, origin: Origin | None, remedies: Sequence[str] = ()) -> Observation:
    """Set the process up with ``remedies`` applied, probe it, end it.

    Raises UsageError when the target cannot be one, ProbeError when no probe came of it.
    """
    with tempfile.TemporaryDirectory(prefix="diagnostics-") as name:
        folder = Path(name)
        outbox = folder / "outbox"
        outbox.mkdir()
        run = os.urandom(4).hex()
        spec = {
            "mode": "check",
            "outbox": str(outbox),
            "target": _target(question),
            "run": run,
            "url": origin.url if origin is not None else question.url,
            "fixed": origin is None,
            "verify": _verify(question, origin),
            "requests": question.requests,
            "delay": question.delay,
            "limit": question.limit,
            "remedies": list(remedies),
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        with _running(question, folder, _environment(question, folder, origin)) as process:
            report = _Watch(question, process, outbox, folder / "output").wait()
        served = None
        if origin is not None:
            served = {key: each for key, each in origin.counts().items() if key.startswith(run)}
    return Observation(report["result"], report["seen"], report["facts"], served)


def _target(question: Question) -> dict[str, Any]:
    target = question.target
    if target.style:
        # In an interpreter of somebody else it is the downloader that is installed there.
        return {"style": target.style, "root": "" if target.python else isolation.ROOT}
    return {"app": target.app} if target.app else {"command": True}


def _verify(question: Question, origin: Origin | None) -> str | bool | None:
    if question.insecure:
        return False
    return origin.ca if origin is not None else question.cacert or None


def _environment(question: Question, folder: Path, origin: Origin | None) -> dict[str, str]:
    # The current directory is on the path of an application and of a command, which are the user's.
    env = isolation.environment() if question.target.style else dict(os.environ)
    env[VARIABLE] = str(folder / "spec.json")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    ca = origin.ca if origin is not None else question.cacert
    if ca:
        # For the application's own fetch, which takes no certificate from us.
        env.update(dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), ca))
    if origin is not None:
        for variable in ("no_proxy", "NO_PROXY"):
            env[variable] = ",".join(filter(None, [env.get(variable), "localhost"]))
    if question.target.command:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(AGENT), env.get("PYTHONPATH")]))
    return env


def _argv(question: Question) -> list[str]:
    target = question.target
    if not target.command:
        python = _interpreter(target.python or sys.executable)
        return [python, "-S", str(AGENT / "boot.py")]
    argv = list(target.command)
    if target.python and Path(argv[0]).name.startswith("python"):
        argv[0] = _interpreter(target.python)
    elif target.python:
        # A console script beside that interpreter, if there is one of the name.
        beside = Path(_interpreter(target.python)).parent / argv[0]
        argv[0] = str(beside) if beside.exists() else argv[0]
    if shutil.which(argv[0]) is None:
        raise UsageError(f"{argv[0]}: there is no such command")
    return argv


def _interpreter(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"{name}: there is no such interpreter, or it cannot be executed")
    return found


@contextlib.contextmanager
def _running(question: Question, folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    argv = _argv(question)
    with open(folder / "output", "wb") as output:
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{argv[0]} cannot be executed: {error.strerror}") from None
    try:
        yield process
    finally:
        _end(process, polite=bool(question.target.command))


def _end(process: subprocess.Popen[bytes], polite: bool) -> None:
    """End the whole session that ``process`` leads."""
    if polite and process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Watch:
    """Reads the outbox until there is a measurement, or there will be none."""

    def __init__(
        self, question: Question, process: subprocess.Popen[bytes], outbox: Path, output: Path
    ) -> None:
        self._question = question
        self._process = process
        self._outbox = outbox
        self._output = output
        self._processes: dict[int, dict[str, Any]] = {}
        self._read: set[str] = set()
        self._probing = False
        self._ends = time.monotonic() + self._patience()
        self._signal_at = time.monotonic() + question.after if question.target.command else float("inf")

    def wait(self) -> dict[str, Any]:
        """The report with the measurement; ProbeError, UsageError without one."""
        while True:
            ended = self._process.poll() is not None
            for report in self._news():
                if report["kind"] == "measured":
                    return report
                if report["kind"] == "failed":
                    raise self._failure(report)
                self._note(report)
            now = time.monotonic()
            if ended and not self._others():
                raise self._silent()
            if now > self._signal_at and not self._probing:
                self._ask(now)
            if now > self._ends:
                raise ProbeError(f"{self._question.target.shown}: no probe within {self._patience():g} s")
            time.sleep(_POLL)

    def _patience(self) -> float:
        return self._question.limit * 2 + self._question.after + _SET_UP

    def _news(self) -> Iterator[dict[str, Any]]:
        for entry in sorted(os.scandir(self._outbox), key=lambda entry: entry.name):
            if entry.name.endswith(".json") and entry.name not in self._read:
                self._read.add(entry.name)
                yield json.loads(Path(entry.path).read_bytes())

    def _note(self, report: dict[str, Any]) -> None:
        kind, pid = report["kind"], report["pid"]
        if kind == "hello":
            self._processes[pid] = report
        elif kind == "gevent" and pid in self._processes:
            self._processes[pid]["gevent"] = True
        elif kind == "connects":
            self._probing = True
            self._ends = time.monotonic() + self._question.limit + _AFTER_CONNECTING

    def _others(self) -> bool:
        """Whether a process that the command started is still there (a daemon, a worker)."""
        return any(_alive(pid) for pid in self._processes if pid != self._process.pid)

    def _ask(self, now: float) -> None:
        """Tell the process that works, not the one that only watches over it, to probe."""
        alive = {pid: each for pid, each in self._processes.items() if _alive(pid)}
        parents = {each["ppid"] for each in alive.values() if each.get("forked")}
        ranked = sorted(
            alive.items(),
            key=lambda pair: (not pair[1].get("gevent"), pair[0] in parents, pair[0]),
        )
        if not ranked:
            if not self._processes:
                raise self._silent(running=True)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(ranked[0][0], SIGNAL)
            self._probing = True
            self._ends = now + self._question.limit + _AFTER_CONNECTING

    def _failure(self, report: dict[str, Any]) -> Exception:
        target, text = self._question.target, redact(" ".join(report["text"].split()))
        if report["stage"] == "import":
            module = target.app.partition(":")[0]
            if report.get("missing"):
                return UsageError(f"{text}: looked for {module} from {os.getcwd()}")
            at = next((f" ({file}:{line})" for file, line, _ in report["stack"]), "")
            return ProbeError(f"importing {target.app or target.shown} failed: {text}{at}")
        if report["stage"] == "target":
            return UsageError(f"--app {target.app}: {text}")
        if report["stage"] == "command":
            return ProbeError(f"{target.shown} ended with {text}, before it made an HTTPS connection")
        return ProbeError(text)

    def _silent(self, running: bool = False) -> Exception:
        """Nothing was heard of an agent, or no more."""
        shown = self._question.target.shown
        said = self._output.read_bytes().decode(errors="replace").strip().splitlines()[-1:]
        last = f"; it said: {redact(said[0])[:200]}" if said else ""
        if self._processes:
            return ProbeError(f"{shown}: killed before it could be probed{last}")
        if running or not self._process.returncode:
            why = "no Python that heeds PYTHONPATH was started (python -I, -E and -S do not)"
            return ProbeError(f"{shown}: {why}{last}")
        return ProbeError(f"{shown} ended with exit code {self._process.returncode}{last}")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def host_of(url: str) -> str:
    """Host and port of ``url``, for a message."""
    return urlsplit(url).netloc.rpartition("@")[2]
