"""Terminals that go away while a run writes to them: its files and its exit code are as without."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from threading import Event

from harness import command, environment, run_behind_mount
from servers import Request, Server, Step, Until, ok, status

FILES = 40
# Take the terminal named by a descriptor for the session's own, and become the command.
STARTER = """
import fcntl, os, signal, sys, termios
hangup, ours, *argv = sys.argv[1:]
fcntl.ioctl(int(ours), termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, getattr(signal, hangup))
os.execv(argv[0], argv)
"""
BAR = b"\x1b[?25l"  # it hides the cursor

# Which of 1 and 2 are the terminal, what SIGHUP does, what is sent once it is gone, options.
CASES = [
    ("2", "SIG_DFL", 0, "--progress bar"),
    ("2", "SIG_IGN", 0, "--progress bar -v"),
    ("2", "SIG_IGN", signal.SIGTERM, "--progress none -vv"),
    ("1", "SIG_DFL", 0, "--progress plain"),
    ("1", "SIG_IGN", 0, "--progress none --json"),
    ("12", "SIG_DFL", 0, "--progress plain -v"),
    ("12", "SIG_IGN", signal.SIGINT, "--progress bar -v"),
    ("12", "SIG_IGN", 0, "--progress plain --log-json -v"),
]


class Run:
    """A run with a terminal, of which the server answers half of the files until the terminal is gone."""

    def __init__(self, number: int, server: Server, home: Path) -> None:
        terminal, self.hangup, self.then, options = CASES[number]
        self.home, self.prefix = home, f"/{number}/"
        home.mkdir()
        (home / "u.txt").write_text("".join(f"{server.url}{self.prefix}{n}\n" for n in range(FILES)))
        argv = command(
            "u.txt", "-o", "out", "--workers", 1, "--connections", 2, "--retries", 0, *options.split()
        )
        argv += ["--pipeline", "off", "--report", "r.json", "--failures", "f.jsonl"]
        self.bar = "bar" in options
        self.ends = self.hangup == "SIG_DFL" or bool(self.then)
        self.terminal, theirs = pty.openpty()
        streams = [theirs if each in terminal else subprocess.DEVNULL for each in "12"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER, self.hangup, terminal[-1], *argv],
            *(-1, None, subprocess.DEVNULL, *streams),
            cwd=home,
            env=environment(TERM="xterm"),
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = b""

    def until_shown(self) -> None:
        """Wait until the bar is on the terminal, if it is to be there."""
        while self.bar and BAR not in self.shown:
            assert wait([self.terminal], 30), self.shown
            self.shown += os.read(self.terminal, 65536)

    def lose(self) -> None:
        """Take the terminal away; the kernel tells the session before this returns."""
        os.close(self.terminal)
        self.terminal = -1
        if self.then:
            self.process.send_signal(self.then)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.terminal >= 0:
            os.close(self.terminal)


@contextlib.contextmanager
def runs(server: Server, home: Path) -> Iterator[list[Run]]:
    with contextlib.ExitStack() as made:
        every = []
        for number in range(len(CASES)):
            every.append(Run(number, server, home / str(number)))
            made.callback(every[-1].close)
        yield every


def test_a_terminal_that_goes_away_does_not_end_a_run(tmp_path: Path) -> None:
    gone = {f"/{number}/": Event() for number in range(len(CASES))}
    begun = {prefix: Event() for prefix in gone}

    def answer(request: Request) -> list[Step]:
        prefix, _, name = request.target.rpartition("/")
        prefix += "/"
        if int(name) >= FILES // 2:
            begun[prefix].set()
            return [Until(gone[prefix]), *(status(404) if int(name) % 2 else ok(b"abc"))]
        return list(status(404) if int(name) % 2 else ok(b"abc"))

    with Server(default=answer) as server, runs(server, tmp_path) as every:
        for run in every:
            assert begun[run.prefix].wait(30), run.prefix
            run.until_shown()
            run.lose()
            if not run.ends:
                gone[run.prefix].set()
        for run in every:
            ends = run.ends
            case = CASES[every.index(run)]
            assert run.process.wait(30) == (130 if ends else 1), case
            gone[run.prefix].set()
            report = json.loads((run.home / "r.json").read_text())
            assert report["exit_code"] == (130 if ends else 1), case
            failures = (run.home / "f.jsonl").read_text().splitlines()
            stored = [path for path in (run.home / "out").iterdir() if path.name != ".downloader"]
            assert len(failures) == report["failed"], case
            assert len(stored) == report["stored"], case
            if ends:
                assert report["stored"] + report["failed"] < FILES, case
            else:
                assert report["stored"] == report["failed"] == FILES // 2, case


def test_root_directory_without_dev_null(tmp_path: Path) -> None:
    """As in a chroot or a container that was made by hand: one line says what is missing."""
    done = run_behind_mount("mount -t tmpfs none /dev", "-", "-o", tmp_path / "d", input="")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("downloader: error: /dev/null cannot be opened"), done.stderr
    assert done.stderr.count("\n") == 1
