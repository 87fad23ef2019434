"""Start the process under check, wait for the report of its agent, and terminate it.

The process runs in a session of its own; nothing that it started is left running.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from diagnostics.agent.https_agent.clocks import clock
from diagnostics.agent.https_agent.life import VARIABLE
from diagnostics.errors import ProbeError, UsageError
from diagnostics.model import Observation, Question
from diagnostics.origin import Origin
from diagnostics.output_errors import error_in
from diagnostics.processes import Processes, end_all, is_alive
from diagnostics.set_up import SetUp
from diagnostics.source_places import here, is_own, where
from diagnostics.unpacking import agent_in, is_packed
from downloader.core.redact import redact
from downloader.process import isolation
from downloader.process.watching import end

__all__ = ["new_outbox", "observe", "read_report", "write_spec"]

_POLL = 0.01
_GRACE = 2.0
_SET_UP = 60.0  # seconds allowed for imports, on a busy machine
_AFTER_CLAIMING = 20.0  # seconds added to the limit of a probe
_UNHEARD = 5.0  # seconds after --after in which an interpreter of a command must have started
_UNLOADED = 15.0  # seconds after --after in which one of a command must have loaded gevent
_UNUSED = 5.0  # seconds after --after in which one that has loaded gevent must use it
_OUTPUT = 65536  # bytes at the end of the output that are searched for an error
_DEAF = 12.0  # seconds after which a process that reacts to no signal is not waited for
_NO_GEVENT = "no process of it loads gevent, so there is no hub that HTTPS could hold"


def observe(
    question: Question,
    origin: Origin | None,
    remedies: Sequence[dict[str, Any]] = (),
    chosen: Sequence[str] | None = None,
) -> Observation:
    """Set up the process with ``remedies`` applied, probe it, and terminate it.

    ``chosen``: the argv of the process of a command that was probed before and is to be probed again.

    Raises UsageError when the target is not valid, ProbeError when the probe gave no result.
    """
    with tempfile.TemporaryDirectory(prefix="diagnostics-") as name:
        folder = Path(name)
        outbox = new_outbox(folder)
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
            "chosen": None if chosen is None else list(chosen),
        }
        write_spec(folder, spec)
        processes = Processes(outbox, _mark(folder))
        env = _environment(question, folder, origin)
        if question.target.command and any(each["place"] == "pth" for each in remedies):
            env["PYTHONPATH"] = os.pathsep.join([str(agent_in(folder) / "early"), env["PYTHONPATH"]])
        with _running(question, folder, env, processes) as process:
            report = _Watch(question, process, outbox, folder / "output", processes).wait()
        served = None
        if origin is not None:
            served = {key: each for key, each in origin.counts().items() if key.startswith(run)}
    facts = {**report["facts"], "started": here()}
    return Observation(
        report["result"], report["seen"], facts, served, argv=report["argv"], passed=report["passed"]
    )


def new_outbox(folder: Path) -> Path:
    """Create and return the folder for reports in ``folder``, which has mode 0700.

    As root, open both to a worker that drops its privileges; other users do not know the name.
    """
    outbox = folder / secrets.token_hex(16)
    outbox.mkdir()
    if os.geteuid() == 0:
        folder.chmod(0o711)
        outbox.chmod(0o1733)
    return outbox


def write_spec(folder: Path, spec: Mapping[str, Any]) -> Path:
    """Write the agent's instructions, readable for a worker that drops its privileges; return the file."""
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    if os.geteuid() == 0:
        path.chmod(0o644)
    return path


def read_report(path: str) -> bytes:
    """Return the content of a file of the outbox.

    Another user may have written the file, so it may be anything: symbolic links are not followed, and a
    FIFO does not block.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as source:
        return source.read()


def _target(question: Question) -> dict[str, Any]:
    target = question.target
    if target.style:
        # With --python, and from a zip file, the downloader that is installed in that environment is used.
        return {"style": target.style, "root": "" if target.python or is_packed() else isolation.ROOT}
    return {"app": target.app} if target.app else {"command": True}


def _verify(question: Question, origin: Origin | None) -> str | bool | None:
    if question.insecure:
        return False
    return origin.ca if origin is not None else question.cacert or None


def _environment(question: Question, folder: Path, origin: Origin | None) -> dict[str, str]:
    # An application and a command are the user's: the current directory stays on their path.
    env = isolation.environment() if question.target.style else dict(os.environ)
    env[VARIABLE] = str(folder / "spec.json")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    ca = origin.ca if origin is not None else question.cacert
    if ca:
        # For the application's own fetch, which is given no certificate.
        env.update(dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), ca))
    if origin is not None:
        for variable in ("no_proxy", "NO_PROXY"):
            env[variable] = ",".join(filter(None, [env.get(variable), "localhost"]))
    if question.target.command:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(agent_in(folder)), env.get("PYTHONPATH")]))
    return env


def _argv(question: Question, folder: Path) -> list[str]:
    target = question.target
    if not target.command:
        python = _interpreter(target.python or sys.executable)
        return [python, "-S", str(agent_in(folder) / "boot.py")]
    argv = list(target.command)
    if target.python and Path(argv[0]).name.startswith("python"):
        argv[0] = _interpreter(target.python)
    elif target.python:
        # Prefer the console script of that name beside the interpreter.
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
def _running(
    question: Question, folder: Path, env: dict[str, str], processes: Processes
) -> Iterator[subprocess.Popen[bytes]]:
    argv = _argv(question, folder)
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
        if question.target.command:
            _terminate(process)
        end_all(process.pid, _mark(folder), processes.known)
        end(process)


def _mark(folder: Path) -> str:
    """Return the environment entry that every process of the run has."""
    return f"{VARIABLE}={folder / 'spec.json'}"


def _terminate(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)


class _Watch:
    """Reads the outbox until there is a measurement, or there can be none."""

    def __init__(
        self,
        question: Question,
        process: subprocess.Popen[bytes],
        outbox: Path,
        output: Path,
        processes: Processes,
    ) -> None:
        self._question = question
        self._process = process
        self._outbox = outbox
        self._output = output
        self._processes = processes
        processes.root = process.pid
        self._read: set[str] = set()
        self._set_up = SetUp(question, process.pid, processes, outbox, read_report)
        self._measuring: dict[str, Any] | None = None
        self._began = clock()
        self._ends = self._began + self._question.limit * 2 + self._question.patience + _SET_UP
        self._due = self._began + question.patience

    def wait(self) -> dict[str, Any]:
        """Return the report with the measurement; raise ProbeError or UsageError if there is none."""
        processes, target = self._processes, self._question.target
        while True:
            ended = self._process.poll() is not None
            over = bool(processes.prober) and not is_alive(processes.prober)
            for report in self._new_reports():
                if report["kind"] == "measured":
                    return {**report, "passed": self._passed(report)}
                if report["kind"] == "failed":
                    raise self._failure(report)
                if report["kind"] == "measuring":
                    self._measuring = report
                self._set_up.note(report)
                if report["kind"] in ("probing", "starved"):
                    limits = 1 if report["kind"] == "probing" else 2
                    self._ends = clock() + limits * self._question.limit + _AFTER_CLAIMING
                processes.note(report)
            now = clock()
            if over:
                raise ProbeError(
                    f"{target.shown}: the process ended while it was probed{self._last_output()}"
                )
            if ended and not processes.any_alive(now):
                raise self._not_probed()
            if target.command and not processes.prober:
                self._check_command(now)
            elif not target.command:
                self._set_up.check(now)
            if now > self._ends:
                raise self._timed_out(now)
            time.sleep(_POLL)

    def _check_command(self, now: float) -> None:
        """Query the processes of a command; raise ProbeError when there is nothing to wait for."""
        if not self._processes.known:
            if now > self._due + _UNHEARD:
                raise self._not_probed()
            return
        if self._set_up.given_up(now):
            return
        why, pid = "", 0
        if now > self._due + _UNLOADED and not self._processes.loads_gevent:
            why = _NO_GEVENT
        elif now > self._due + _UNUSED and self._processes.leave_unused(now - _UNUSED):
            why = self._processes.why
        elif pid := self._processes.deaf(now - _DEAF):
            why = self._processes.why if self._set_up.idles(now) else ""
        if why:
            self._set_up.give_up(why, pid)
            return
        self._processes.ask(now, now > self._due)

    def _timed_out(self, now: float) -> ProbeError:
        shown, took = self._question.target.shown, f"{now - self._began:.0f} s"
        if self._processes.prober:
            return ProbeError(f"{shown}: the probe gave no result; {took} after the start it was given up")
        if not self._processes.known:
            return ProbeError(f"{shown}: not set up within {took}{self._set_up.place}{self._last_output()}")
        return ProbeError(f"{shown}: no process could be probed within {took}: {self._processes.why}")

    def _new_reports(self) -> Iterator[dict[str, Any]]:
        for entry in sorted(os.scandir(self._outbox), key=lambda entry: entry.name):
            if entry.name.endswith(".json") and entry.name not in self._read:
                self._read.add(entry.name)
                yield {
                    **json.loads(read_report(entry.path)),
                    "written": entry.stat().st_mtime,
                    "heard": clock(),
                }

    def _passed(self, measured: Mapping[str, Any]) -> tuple[float, float] | None:
        """Return the seconds of the probe, by the clock of its process and by the kernel's time stamps."""
        began = self._measuring
        if began is None or began["pid"] != measured["pid"]:
            return None
        return measured["clock"] - began["clock"], measured["written"] - began["written"]

    def _failure(self, report: dict[str, Any]) -> Exception:
        target, text = self._question.target, redact(" ".join(report["text"].split()))
        if report["stage"] == "import":
            module = target.app.partition(":")[0]
            if report.get("missing"):
                return UsageError(f"{text}: looked for {module} from {os.getcwd()}")
            return ProbeError(f"importing {target.app or target.shown} failed: {text}{_place(report)}")
        if report["stage"] == "target":
            return UsageError(f"--app {target.app}: {text}")
        return ProbeError(text)

    def _not_probed(self) -> Exception:
        """Return the error for a target that ended, or whose agent never reported."""
        shown, code, last = self._question.target.shown, self._process.poll(), self._last_output()
        if raised := self._processes.raised:
            text = redact(" ".join(raised["text"].split())) + _place(raised)
            return ProbeError(f"{shown} ended with {text}, before it made an HTTPS connection")
        if code and code > 0:
            return ProbeError(f"{shown} ended with exit code {code}{last}")
        if code and (self._processes.known or not self._question.target.command):
            return ProbeError(f"{shown}: killed by signal {-code} before it could be probed{last}")
        if not self._question.target.command:
            return ProbeError(f"{shown} ended before it could be probed{last}")
        if not self._processes.known:
            why = "no Python that heeds PYTHONPATH was started (python -I, -E and -S do not)"
            return ProbeError(f"{shown}: {why}{last}")
        if not self._processes.loads_gevent:
            return ProbeError(f"{shown}: {_NO_GEVENT}{last}")
        why = self._processes.why or "what used gevent ended before it could be probed"
        return ProbeError(f"{shown} ended, and was not probed: {why}{last}")

    def _last_output(self) -> str:
        """Return the error in what the process wrote, or the last of it, for an error message."""
        with open(self._output, "rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT))
            said = error_in(redact(output.read().decode(errors="replace")))
        return f"; its last output: {said}" if said else ""


def _place(report: Mapping[str, Any]) -> str:
    """Return the user's line that raised what is in ``report``, in brackets; "" if there is none."""
    spots = report["stack"]
    own = [spot for spot in spots if is_own(spot, report["facts"])]
    patched = [each for each in report["seen"]["injections"] if each["module"] == "eventlet.patcher"]
    if patched and spots and str(spots[0][0]).startswith("<frozen importlib"):
        # eventlet replaces the locks of imports in progress.
        at = where(patched[-1]["caller"], report["facts"])
        return f" (eventlet.monkey_patch() at {at})"
    patches = [each["caller"] for each in report["seen"].get("patches", ()) if each["caller"]]
    if patches and not own:
        # So do the threads that were started before gevent patched.
        return f" (after the patching at {where(patches[-1], report['facts'])})"
    others = [spot for spot in spots if not str(spot[0]).startswith("<")]
    return next((f" ({where(spot, report['facts'])})" for spot in own or others), "")


def host_of(url: str) -> str:
    """Return the host and port of ``url``, for a message."""
    return urlsplit(url).netloc.rpartition("@")[2]
