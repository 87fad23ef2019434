"""A command under ``watch`` has the signals, the exit status and the streams that it would have alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from harness import Job, beside_files, environment, with_signals_off
from watching import PATCHED, WATCH, Starter, Writer, program, until, watch

__all__ = ["program", "watch"]

# Prints each signal that it gets, on a line of its own, until it is told to end.
LISTENER = """
import os, signal, sys
names = "INT TERM HUP USR1 USR2 WINCH QUIT".split()
queue = [getattr(signal, "SIG" + name) for name in names]
signal.pthread_sigmask(signal.SIG_BLOCK, queue)
os.write(1, b"ready\\n")
while True:
    name = signal.Signals(signal.sigwaitinfo(queue).si_signo).name
    os.write(1, (name + "\\n").encode())
    if name == "SIGQUIT":
        sys.exit(5)
"""


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_code_is_passed_on(watch: Starter, program: Writer, code: int) -> None:
    job = watch(*program(f"raise SystemExit({code})"))
    assert job.wait() == code
    assert job.err == "watch: no gevent process was seen: Python ran, but no hub of gevent in it\n"


def test_command_inherits_that_signals_are_ignored_or_blocked(tmp_path: Path, program: Writer) -> None:
    """Where SIGCHLD is ignored, the end of the command was not noticed."""
    told = program(
        "import signal as s\n"
        "print(s.getsignal(s.SIGCHLD) == s.SIG_IGN, s.SIGTERM in s.pthread_sigmask(s.SIG_BLOCK, ()))\n"
        "raise SystemExit(3)"
    )
    job = Job(*with_signals_off(*WATCH, *told), cwd=tmp_path)
    with contextlib.closing(job):
        assert job.wait(20) == 3
        assert job.out == "True True\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGKILL", "SIGHUP", "SIGABRT", "SIGUSR1"])
def test_death_by_signal_is_passed_on(watch: Starter, program: Writer, name: str) -> None:
    job = watch(
        *program(
            f"import os, signal; signal.signal({int(getattr(signal, name))}, signal.SIG_DFL)\n"
            f"os.kill(os.getpid(), signal.{name})"
            if name != "SIGKILL"
            else "import os; os.kill(os.getpid(), 9)"
        )
    )
    assert job.wait() == -getattr(signal, name)
    job.alone(10)


@pytest.mark.parametrize("group", [False, True], ids=["to-us", "to-the-group"])
def test_a_signal_arrives_once(watch: Starter, program: Writer, group: bool) -> None:
    """The signal arrives once, whether it is sent to the one known process or to the whole group."""
    arrives_once(watch(*program(LISTENER)), group)


def test_a_signal_arrives_once_beside_many_files(tmp_path: Path, program: Writer) -> None:
    """The descriptors of ``watch`` are above those that select() takes."""
    job = Job(*beside_files(1_100, *WATCH, *program(LISTENER)), cwd=tmp_path)
    with contextlib.closing(job):
        arrives_once(job, group=False)


def arrives_once(job: Job, group: bool) -> None:
    until(lambda: job.out == "ready\n", job)
    said = "ready\n"
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGINT", "SIGQUIT"):
        number = getattr(signal, name)
        os.killpg(job.pid, number) if group else os.kill(job.pid, number)
        said += f"{name}\n"
        until(lambda: job.out.count("\n") >= said.count("\n"), job)  # noqa: B023
    assert job.wait() == 5
    assert job.out == said
    job.alone(10)


class Terminal:
    """A terminal of its own in which ``command`` leads a session."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self.pid, self._ours = pty.fork()
        if not self.pid:
            os.chdir(cwd)
            os.execvpe(command[0], command, environment())
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def resize(self) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))

    def wait_for(self, text: bytes) -> None:
        while text not in self.seen:
            self.seen += os.read(self._ours, 1000)

    def end(self) -> int:
        with contextlib.suppress(OSError):  # how a terminal reports that no process has it open
            while more := os.read(self._ours, 1000):
                self.seen += more
        os.close(self._ours)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_terminal_belongs_to_the_command(tmp_path: Path, program: Writer) -> None:
    """Ctrl-C, a new window size, Ctrl-backslash and what is typed."""
    words = [str(word) for word in (*WATCH, *program("print(input())\n" + LISTENER))]
    terminal = Terminal(words, tmp_path)
    terminal.type(b"typed\n")
    terminal.wait_for(b"ready")
    terminal.type(b"\x03")
    terminal.wait_for(b"SIGINT")
    terminal.resize()
    terminal.wait_for(b"SIGWINCH")
    terminal.type(b"\x1c")
    assert terminal.end() == 5
    assert terminal.seen.count(b"typed") == 2  # the terminal's echo and the response
    assert re.findall(rb"SIG[A-Z]+", terminal.seen) == [b"SIGINT", b"SIGWINCH", b"SIGQUIT"]


def test_shell_can_stop_and_continue_it(tmp_path: Path, program: Writer) -> None:
    source = LISTENER.replace("WINCH QUIT", "WINCH QUIT CONT")
    words = shlex.join(str(word) for word in (*WATCH, *program(source)))
    terminal = Terminal(["sh", "-mc", f"{words}; echo stopped $?; fg; echo ended $?"], tmp_path)
    terminal.wait_for(b"ready")
    terminal.type(b"\x1a")
    terminal.wait_for(b"stopped 148")
    terminal.wait_for(b"SIGCONT")
    terminal.type(b"\x1c")
    terminal.wait_for(b"ended 5")
    assert terminal.end() == 0
    assert terminal.seen.count(b"stopped") == terminal.seen.count(b"SIGQUIT") == 1


def test_killed_watcher_leaves_no_process(watch: Starter, program: Writer) -> None:
    job = watch(*program(LISTENER))
    until(lambda: job.out == "ready\n", job)
    job.kill()
    assert job.wait() == -signal.SIGKILL
    job.alone(10)


def test_streams_and_descriptors_belong_to_the_command(tmp_path: Path, program: Writer) -> None:
    source = """
import os, sys
sys.stdout.write(sys.stdin.read().upper())
os.write(int(sys.argv[1]), b"through")
"""
    read, write = os.pipe()
    done = subprocess.run(
        [str(word) for word in (*WATCH, *program(source), write)],
        input="typed",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=60,
        pass_fds=[write],
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stdout, os.read(read, 100)) == (0, "TYPED", b"through"), done.stderr
    os.close(read)


def test_unread_stderr_does_not_block(tmp_path: Path, program: Writer) -> None:
    read, write = os.pipe()
    os.close(read)
    source = PATCHED + "\ngevent.spawn(block, 1.5).join()\nsys.exit(3)\n"
    command = [str(word) for word in (*WATCH, *program(source))]
    done = subprocess.run(command, stderr=write, cwd=tmp_path, env=environment(), timeout=60, check=False)
    assert done.returncode == 3
    os.close(write)


def test_watching_imports_nothing_further(watch: Starter, program: Writer) -> None:
    source = """
import sys
print([name for name in ("ssl", "socket", "threading", "gevent", "select") if name in sys.modules])
"""
    job = watch(*program(source))
    assert job.wait() == 0
    assert job.out == "[]\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([sys.executable, "-S", "app.py"], "was watched: the diagnostics are not in process"),
        (["sh", "-c", "exit 4"], "was seen: no Python was seen among its processes"),
    ],
    ids=["-S", "sh"],
)
def test_command_that_cannot_be_watched_runs_unchanged(
    watch: Starter, program: Writer, command: list[object], said: str
) -> None:
    program("import sys; sys.exit(4)")
    job = watch("--", *command)
    assert job.wait() == 4
    assert job.err.startswith(f"watch: no gevent process {said}")


# It computes before it loads gevent, so that this is seen before, on a busy machine too.
BEGINS = """
import sys, time
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
"""


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-I", "app.py"],
        ["sh", "-c", f"PYTHONPATH=src exec {sys.executable} app.py"],
        [
            sys.executable,
            "-c",
            "import os, sys; os.environ.clear(); os.execv(sys.executable, [sys.executable, 'app.py'])",
        ],
    ],
    ids=["isolated", "shell", "scrubs"],
)
def test_python_that_would_not_have_the_agent_is_watched(
    watch: Starter, program: Writer, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "typed").write_text("typed")
    program(f"{BEGINS}{PATCHED}\ngevent.sleep(0.1)\nblock()\nprint(sys.stdin.read())\nsys.exit(7)\n")
    with open(tmp_path / "typed") as typed:
        job = watch("--", *command, stdin=typed)
        assert job.wait() == 7
    assert job.out == "typed\n"
    assert "watch: a hub was held once longer than 100 ms" in job.err, job.err
    assert ("is started again by itself" in job.err) == (command[0] == "sh")


def test_process_below_a_shell_that_is_not_watched_is_named(watch: Starter, program: Writer) -> None:
    program(f"{PATCHED}\ngevent.sleep(0.3)\n")
    job = watch("--", "sh", "-c", f"{sys.executable} -I app.py; exit 3")
    assert job.wait() == 3
    assert f"({sys.executable} -I app.py), which has loaded gevent: -I ignores PYTHONPATH" in job.err, (
        job.err
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--", "nonesuch"], "nonesuch: there is no such command"),
        (["--max-block", "1ms", "--", "true"], "--max-block must be at least 10 ms"),
        (["--", "./app.py"], "./app.py cannot be executed: Exec format error"),
        ([], "missing argument"),
    ],
)
def test_bad_usage(watch: Starter, tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "app.py").write_text("no interpreter is named here")
    (tmp_path / "app.py").chmod(0o755)
    job = watch(*args)
    assert job.wait() == 2
    assert said in job.err
    assert job.err.count("\n") == 1
    job.alone(10)
