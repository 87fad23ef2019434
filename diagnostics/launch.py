"""Start the process under check, wait for the report of its agent, and terminate it.

The process runs in a session of its own; nothing that it started is left running.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from diagnostics.agent.https_agent import entrance
from diagnostics.agent.https_agent.clocks import clock
from diagnostics.agent.https_agent.entrance import VARIABLE, Entrance
from diagnostics.command_lines import note_secrets
from diagnostics.errors import ProbeError, UsageError
from diagnostics.killed_check import ended_if_killed
from diagnostics.missed import Missed
from diagnostics.model import End, Observation, Question, Start
from diagnostics.origin import Origin
from diagnostics.output_errors import error_in
from diagnostics.processes import Processes, end_all, is_alive
from diagnostics.redaction import note_environment, quoted, redact
from diagnostics.set_up import SetUp
from diagnostics.source_places import absolute, ending, here, is_own, line_of, where
from diagnostics.standard_input import AT_A_TERMINAL
from diagnostics.unpacking import agent_in, is_packed
from downloader.config.system_authorities import read_system_authorities
from downloader.errors import ConfigError
from downloader.files.interpreter import interpreter
from downloader.process import isolation
from downloader.process.watching import end

__all__ = ["new_outbox", "observe", "read_report", "write_spec"]

_OPENSSL = "SSL_CERT_FILE"
# What OpenSSL, requests and curl read the certificates of authorities from.
_CA_FILES = (_OPENSSL, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_LARGEST_BUNDLE = 16 << 20
_POLL = 0.01
_GRACE = 2.0
_ENDS = 10.0  # seconds in which a process ends that was probed at its end
_SET_UP = 60.0  # seconds allowed for imports, on a busy machine
_AFTER_CLAIMING = 20.0  # seconds added to the limit of a probe
_UNHEARD = 5.0  # seconds after --after in which an interpreter of a command must have started
_UNLOADED = 15.0  # seconds after --after in which one of a command must have loaded gevent
_UNUSED = 5.0  # seconds after --after in which one that has loaded gevent must use it
_REBOOTS = 3  # workers that end before they serve, after which the next ones will do so, too
_OUTPUT = 65536  # bytes at the end of the output that are searched for an error
_MAKES_THREADS = r"^[^#]*\b(\w*Executor|ThreadPool|Thread|Timer)\("
_PATCHES = 5.0  # seconds after which gevent is not waited for where it patches and nothing moves
_DEAF = 12.0  # seconds after which a process that reacts to no signal is not waited for
_AGAIN = 2  # times that something is started again
_SETTLES = 0.5  # seconds after which a process without the agent is the program, if nothing else starts
_COMES = 0.5  # seconds after the end of the first fetch in which its request has come to the server
_NO_GEVENT = "no process of it loads gevent, so there is no hub that HTTPS could hold"


class _StartAgain(Exception):
    """The process that matters has no agent; ``start`` is what has to be started instead."""

    def __init__(self, start: Start) -> None:
        super().__init__(start.why)
        self.start = start


def observe(
    question: Question,
    origin: Origin | None,
    remedies: Sequence[dict[str, Any]] = (),
    chosen: Sequence[str] | None = None,
    start: Start | None = None,
) -> Observation:
    """Set up the process with ``remedies`` applied, probe it, and terminate it.

    ``chosen``: the argv of the process of a command that was probed before and is to be probed again;
    ``start``: what was then started in place of the command. A process of a command that the agent has not
    entered is started again by itself.

    Raises UsageError when the target is not valid, ProbeError when the probe gave no result.
    """
    for _ in range(_AGAIN):
        try:
            return _observed(question, origin, remedies, chosen, start, True)
        except _StartAgain as found:
            start = found.start
    return _observed(question, origin, remedies, chosen, start, False)


def _observed(
    question: Question,
    origin: Origin | None,
    remedies: Sequence[dict[str, Any]],
    chosen: Sequence[str] | None,
    start: Start | None,
    may_start: bool,
) -> Observation:
    with tempfile.TemporaryDirectory(prefix="diagnostics-") as name:
        folder = Path(name)
        outbox = new_outbox(folder)
        run = os.urandom(4).hex()
        env = _environment(question, start)
        early = question.target.command and any(each["place"] == "pth" for each in remedies)
        way = _way(question, folder, origin, env, bool(early))
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
            "environment": way.more,
        }
        write_spec(folder, spec)
        processes = Processes(outbox, _mark(folder))
        with (
            _input(question, start) as stdin,
            _running(question, folder, env, way, processes, start, stdin) as process,
        ):
            given = os.stat(os.devnull) if stdin == subprocess.DEVNULL else os.fstat(stdin)
            missed = Missed(way, process.pid, stdin=given) if question.target.command else None
            if missed is not None and start is None:
                missed.note_command(question.target.command)

            def served() -> dict[str, dict[str, Any]] | None:
                if origin is None:
                    return None
                return {key: each for key, each in origin.counts().items() if key.startswith(run)}

            watch = _Watch(question, process, outbox, folder / "output", processes, served)
            report = watch.wait(missed, start, may_start)
            notes, end = watch.end(report)
    facts = {**report["facts"], "started": here()}
    return Observation(
        report["result"],
        report["seen"],
        facts,
        served(),
        refused=origin.refused() if origin is not None else [],
        argv=report["argv"],
        passed=report["passed"],
        start=start,
        notes=notes,
        connected=bool(report.get("connected")) or processes.fetches,
        end=end,
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
        if target.python or is_packed():
            return {"style": target.style, "root": "", "path": []}
        return {"style": target.style, "root": isolation.ROOT, "path": isolation.handed_on()}
    return {"app": target.app} if target.app else {"command": True}


def _verify(question: Question, origin: Origin | None) -> str | bool | None:
    if question.insecure:
        return False
    return origin.ca if origin is not None else question.cacert or None


def _environment(question: Question, start: Start | None) -> dict[str, str]:
    if start is not None:
        return dict(start.env)
    # An application and a command are the user's: the current directory stays on their path.
    return isolation.environment() if question.target.style else dict(os.environ)


def _way(
    question: Question, folder: Path, origin: Origin | None, env: Mapping[str, str], early: bool
) -> Entrance:
    """Return what the environment ``env`` has to get; ``early``: a remedy precedes the ``.pth`` files."""
    more = {"PYTHONDONTWRITEBYTECODE": "1"}
    ca = origin.ca if origin is not None else question.cacert
    if ca:
        # For the application's own fetch, which is given no certificate. What is not set stays so: requests
        # takes its variables before what a session verifies with, and the agent lets it trust the server.
        named = [name for name in _CA_FILES if name == _OPENSSL or env.get(name)]
        more.update((name, _trusted(env.get(name, ""), ca, folder / name)) for name in named)
    if origin is not None:
        for variable in ("no_proxy", "NO_PROXY"):
            more[variable] = ",".join(filter(None, [env.get(variable), "localhost,::1"]))
    agent = agent_in(folder)
    return Entrance(
        str(folder / "spec.json"), [str(agent / "early"), str(agent)] if early else [str(agent)], more
    )


def _trusted(theirs: str, ca: str, both: Path) -> str:
    """Return a file with ``ca``, and with what the file or directory ``theirs`` has.

    It has what is trusted by default where that is "". Connections to other servers need that.
    """
    files = sorted(Path(theirs).iterdir()) if os.path.isdir(theirs) else [Path(theirs)]
    found = b"".join(map(_content, files)) if theirs else _trusted_by_default()
    both.write_bytes(found + _content(Path(ca)))
    return str(both)


@functools.cache
def _trusted_by_default() -> bytes:
    try:
        return read_system_authorities({})
    except ConfigError:
        pass
    try:
        import certifi  # which the zip file does not bring
    except ImportError:
        return b""
    return certifi.contents().encode()


def _content(file: Path) -> bytes:
    """Return what a file of certificates has, b"" if it is none that can be read."""
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST_BUNDLE:
            return b""
        content = file.read_bytes()
    except OSError:
        return b""
    return content.rstrip(b"\n") + b"\n" if b"-----BEGIN " in content else b""


def _argv(question: Question, folder: Path) -> list[str]:
    target = question.target
    if not target.command:
        python = _interpreter(target.python or interpreter())
        return [python, "-S", str(agent_in(folder) / "boot.py")]
    argv = list(target.command)
    if target.python and Path(argv[0]).name.startswith("python"):
        argv[0] = _interpreter(target.python)
    elif target.python:
        # Prefer the console script of that name beside the interpreter.
        beside = Path(_interpreter(target.python)).parent / argv[0]
        argv[0] = str(beside) if beside.exists() else argv[0]
    if shutil.which(argv[0]) is None:
        raise UsageError(f"{redact(argv[0])}: there is no such command")
    return argv


def _interpreter(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"{name}: there is no such interpreter, or it cannot be executed")
    return found


@contextlib.contextmanager
def _running(
    question: Question,
    folder: Path,
    env: dict[str, str],
    way: Entrance,
    processes: Processes,
    start: Start | None,
    stdin: int,
) -> Iterator[subprocess.Popen[bytes]]:
    argv = start.argv if start is not None else _argv(question, folder)
    env = {**env, **way.more, VARIABLE: way.spec}
    if question.target.command:
        argv, env = entrance.entered(argv, env, way, start is not None or entrance.is_python(argv[0]))
    with open(folder / "output", "wb") as output:
        try:
            process = subprocess.Popen(
                argv,
                executable=start.file if start is not None else None,
                cwd=start.folder if start is not None else None,
                **_as_user(start),
                env=env,
                stdin=stdin,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{redact(argv[0])} cannot be executed: {error.strerror}") from None
    with ended_if_killed(process.pid, _mark(folder), folder):
        try:
            yield process
        finally:
            if question.target.command:
                _terminate(process)
            end_all(process.pid, _mark(folder), processes.known)
            end(process)


@contextlib.contextmanager
def _input(question: Question, start: Start | None) -> Iterator[int]:
    """Yield what the process is to have as its standard input."""
    with contextlib.ExitStack() as stack:
        if start is not None and start.input:
            yield stack.enter_context(_opened(question, start, start.input)).fileno()
        elif question.stdin is None or (start is not None and start.input == ""):
            yield subprocess.DEVNULL
        else:
            yield stack.enter_context(question.stdin.given())


def _opened(question: Question, start: Start, path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise ProbeError(
            f"{question.target.shown}: {start.shown} cannot be started again by itself: its standard input"
            f" cannot be opened: {error.strerror}"
        ) from None


def _as_user(start: Start | None) -> dict[str, Any]:
    """Return the options of Popen for the user that the process had; only root can start one of another."""
    if start is None or start.user is None or os.geteuid() != 0:
        return {}
    return {"user": start.user[0], "group": start.user[1], "extra_groups": []}


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
        served: Callable[[], dict[str, dict[str, Any]] | None],
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
        self._served = served
        self._warm: dict[str, Any] | None = None
        self._began = clock()
        self._ends = self._began + self._question.limit * 2 + self._question.patience + _SET_UP
        self._due = self._began + question.patience
        self._missed: Missed | None = None
        self._may_start = False
        self._shown = question.target.shown

    def wait(self, missed: Missed | None, start: Start | None, may_start: bool) -> dict[str, Any]:
        """Return the report with the measurement; raise ProbeError or UsageError if there is none.

        ``missed``: the processes of a command that have no agent; ``start``: what was started in place of
        the command. Raises _StartAgain, if it ``may_start`` something else, where that would help.
        """
        processes, target = self._processes, self._question.target
        self._missed, self._may_start = missed, may_start
        if start is not None:
            self._shown = f"{target.shown} (of which {start.shown} was started again, since {start.why})"
        while True:
            ended = self._process.poll() is not None
            over = bool(processes.prober) and not is_alive(processes.prober)
            for report in self._new_reports():
                if report["kind"] == "measured":
                    return {**report, "passed": self._passed(report)}
                self._note(report)
            now = clock()
            if self._warm is not None and now > self._warm["heard"] + _COMES:
                warm, self._warm = self._warm, None
                if self._served() == {}:
                    # The other rounds would not show more, and take as long as its fetch does.
                    return {**warm, "passed": self._passed(warm)}
            self._scan(now)
            if over:
                raise ProbeError(
                    f"{self._shown}: the process ended while it was probed{self._last_output()}"
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

    def end(self, measured: Mapping[str, Any]) -> tuple[list[str], End | None]:
        """Return what to know of a command, and how it ended, if it was measured as it did so.

        Raises ProbeError where it ended with an error, and had fetched nothing.
        """
        left, notes = measured.get("left"), []
        if self._missed is not None and self._missed.with_gevent:
            notes.append(f"{self._missed.told(advice=False)}: what it fetches was not measured")
        if left is None or not self._question.target.command:
            return notes, None
        if left["broken"]:
            return notes, End(None, self._last_output())
        self._let_end()
        known = self._process.poll()
        code = known or 0  # below 0: killed, perhaps since it was probed
        if code > 0 and not left["connected"]:
            raise ProbeError(
                f"{self._shown} ended with exit code {code}, before it made an HTTPS connection"
                f"{self._last_output()}"
            )
        if code > 0:
            # That one was opened is not known: nothing may have listened there.
            notes.append(
                f"the command ended with exit code {code}, after it had tried HTTPS connections"
                f"{self._last_output()}"
            )
        if not left["connected"] and self._at_a_terminal():
            notes.append(f"the command has fetched nothing: {AT_A_TERMINAL}")
        return notes, End(known if code >= 0 else None, self._last_output())

    def _let_end(self) -> None:
        """Let the command end, whose process does so that was probed; what started that may go on."""
        until = clock() + _ENDS
        while self._process.poll() is None and clock() < until:
            if not is_alive(self._processes.prober):
                until = min(until, clock() + _GRACE)
            time.sleep(_POLL)

    def _at_a_terminal(self) -> bool:
        return self._question.stdin is not None and self._question.stdin.is_terminal

    def _note(self, report: dict[str, Any]) -> None:
        """Update the state with a report; raise the error that it tells of."""
        if report["kind"] == "failed":
            raise self._failure(report)
        if report["kind"] == "measuring":
            self._measuring = report
        if report["kind"] == "warm":
            self._warm = report
        self._set_up.note(report)
        if report["kind"] in ("probing", "starved", "again"):
            limits = 2 if report["kind"] == "starved" else 1
            self._ends = clock() + limits * self._question.limit + _AFTER_CLAIMING
        self._processes.note(report)

    def _scan(self, now: float) -> None:
        """Look for processes of a command that the agent has not entered."""
        if self._missed is not None:
            self._missed.scan(now)
            self._processes.missed = self._missed.alive

    def _check_command(self, now: float) -> None:
        """Query the processes of a command; raise ProbeError when there is nothing to wait for."""
        missed = self._missed
        if missed is not None and missed.with_gevent and not self._processes.fetches:
            self._check_missed(missed, now)
        if not self._processes.known:
            waits = _UNLOADED if missed is not None and missed.every else _UNHEARD
            if now > self._due + waits:
                raise self._not_probed()
            return
        if self._processes.unserved >= _REBOOTS:
            raise ProbeError(
                f"{self._shown}: its workers end before they come to serve, one after the other"
                f"{self._last_output()}"
            )
        if self._set_up.given_up(now):
            return
        why, pid = "", 0
        if now > self._due + _UNLOADED and not self._processes.loads_gevent:
            why = _NO_GEVENT
        elif now > self._due + _UNUSED and self._processes.leave_unused(now - _UNUSED):
            # Before its workers it may import for long; so one that goes on is waited for.
            late = not self._processes.workerless or self._set_up.idles(now)
            why = self._processes.why if late else ""
        elif pid := self._processes.deaf(now - _DEAF) or self._processes.patching(now - _PATCHES):
            why = self._processes.why if self._set_up.idles(now) else ""
        if why:
            self._start_again()
            self._set_up.give_up(f"{why}{self._and_missed()}", pid)
            return
        self._processes.ask(now, now > self._due)

    def _check_missed(self, missed: Missed, now: float) -> None:
        """Start what has loaded gevent without the agent, where nothing with it has fetched.

        What has the agent may still load gevent, or fetch, until --after. One that only starts others may
        have loaded it, too, and is not the program.
        """
        idle = self._processes.loads_gevent
        alone = now > missed.with_gevent[0].gevent + _SETTLES and not self._processes.any_alive(now)
        ends = idle and self._processes.come_to_end(now)
        due = now > self._due
        if alone or ends or due:
            self._start_again()
        late = now > self._due + (0.0 if alone else _UNLOADED)
        if ends or (due if idle else late):
            raise self._unentered()

    def _start_again(self, any_of_them: bool = False) -> None:
        """Have the process started again that has no agent, where there is one and that is possible."""
        found = self._missed.to_start(any_of_them) if self._missed is not None and self._may_start else None
        if found is not None and found.start is not None:
            raise _StartAgain(found.start)

    def _unentered(self) -> ProbeError:
        """Return the error for a command whose processes with gevent have no agent."""
        told = self._missed.told() if self._missed is not None else ""
        others = "; what they are in has tried no HTTPS connection" if self._processes.loads_gevent else ""
        return ProbeError(f"{self._shown}: {told}{others}{self._last_output()}")

    def _and_missed(self) -> str:
        """Return what is to be added where it is said that nothing could be probed."""
        told = self._missed.told() if self._missed is not None else ""
        return f"; {told}" if told else ""

    def _timed_out(self, now: float) -> ProbeError:
        shown, took = self._shown, f"{now - self._began:.0f} s"
        if self._processes.prober:
            return ProbeError(f"{shown}: the probe gave no result; {took} after the start it was given up")
        if not self._processes.known:
            return ProbeError(f"{shown}: not set up within {took}{self._set_up.place}{self._last_output()}")
        return ProbeError(f"{shown}: no process could be probed within {took}: {self._processes.why}")

    def _new_reports(self) -> Iterator[dict[str, Any]]:
        for entry in sorted(os.scandir(self._outbox), key=lambda entry: entry.name):
            if entry.name.endswith(".json") and entry.name not in self._read:
                self._read.add(entry.name)
                report = json.loads(read_report(entry.path))
                note_environment(report["environment"])
                note_secrets(report.get("argv", ()))
                yield {
                    **report,
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
        if report["stage"] == "threads":
            at = where(report["spot"], report["facts"])
            return ProbeError(
                f"{target.shown}: its requests ({at}) run in threads of the operating system, and none in a"
                " greenlet: no verdict. Name a fetch that greenlets call: --app MODULE:CALLABLE"
            )
        if report["stage"] == "off-sockets":
            at = where(report["spot"], report["facts"])
            return ProbeError(
                f"{target.shown}: its TLS connections ({at}) are those of an event loop (asyncio), which"
                " is none of gevent's, and there are no others: no verdict. Name a fetch that greenlets"
                " call: --app MODULE:CALLABLE"
            )
        if report["stage"] == "ended":
            at = ending("at", where(report["spot"], report["facts"]))
            advice = "" if self._question.url else ". Name a URL whose answer it takes: --url URL"
            return ProbeError(
                f"{target.shown}: the process ended while it was probed, by os._exit(){at}"
                f"{self._last_output()}{advice}"
            )
        if report["stage"] == "target":
            return UsageError(f"--app {target.app}: {text}")
        return ProbeError(text)

    def _not_probed(self) -> Exception:
        """Return the error for a target that ended, or whose agent never reported."""
        shown, code, last = self._shown, self._process.poll(), self._last_output()
        missed = self._missed
        if missed is not None and not self._processes.prober:
            self._start_again(any_of_them=not code and not self._processes.known)
            if missed.with_gevent and not self._processes.fetches:
                return self._unentered()
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
            if missed is not None and missed.every:
                return self._unentered()
            return ProbeError(f"{shown}: no Python was seen among its processes{last}")
        if not self._processes.loads_gevent:
            empty = f"; {AT_A_TERMINAL}" if self._at_a_terminal() else ""
            return ProbeError(f"{shown}: {_NO_GEVENT}{self._and_missed()}{empty}{last}")
        why = self._processes.why or "what used gevent ended before it could be probed"
        return ProbeError(f"{shown} ended, and was not probed: {why}{last}")

    def _last_output(self) -> str:
        """Return the error in what the process wrote, or the last of it, for an error message."""
        with open(self._output, "rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT))
            said = error_in(redact(output.read().decode(errors="replace")))
        return f"; its last output: {quoted(said)}" if said else ""


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
        at, facts = where(patches[-1], report["facts"]), report["facts"]
        made = line_of(facts.get("own_files", []), _MAKES_THREADS, facts)
        early = made and absolute(str(patches[-1][0]), facts) == made[0]
        if made and early and made[1] < patches[-1][1]:
            return f" (threads of {where(made, facts)} were started before the patching at {at})"
        return f" (after the patching at {at})"
    others = [spot for spot in spots if not str(spot[0]).startswith("<")]
    return next((f" ({where(spot, report['facts'])})" for spot in own or others), "")


def host_of(url: str) -> str:
    """Return the host and port of ``url``, for a message."""
    return urlsplit(url).netloc.rpartition("@")[2]
