"""Run a command and report what holds a gevent hub in it: the part of ``watch`` outside of that process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

from diagnostics import relay
from diagnostics.agent.https_agent import entrance
from diagnostics.agent.https_agent.entrance import Entrance
from diagnostics.errors import UsageError
from diagnostics.hold_report import News, Seen, headline, table
from diagnostics.launch import _argv, new_outbox, read_report, write_spec
from diagnostics.missed import Missed, MissedProcess
from diagnostics.model import Question, Target
from diagnostics.records import typed
from diagnostics.redaction import redact
from diagnostics.unpacking import agent_in

__all__ = ["watch"]

_MIN_BLOCK = 0.01  # seconds; below, watching would cost more than is documented
_POLL = 0.2
_LINE_INTERVAL = 1.0  # minimum seconds between two lines
_BEGINS = 10.0  # seconds in which the command becomes a Python
_BEGINS_POLL = 0.01
_SELDOM = 1.0  # seconds between two looks at the processes afterwards
_PATIENCE = 5.0  # seconds to wait for a stderr that is not read
_WIDE = 160


def watch(command: Sequence[str], max_block: float, python: str = "", verbose: bool = False) -> int:
    """Run ``command`` to its end; report what holds a hub in it longer than ``max_block`` seconds.

    The report goes to stderr. Return the exit code of the command, or terminate by the signal that
    terminated it. Raises UsageError.
    """
    if not command:
        raise UsageError("watch: which command? See: watch -- COMMAND")
    if max_block < _MIN_BLOCK:
        raise UsageError(f"--max-block must be at least {_MIN_BLOCK * 1000:g} ms")
    with tempfile.TemporaryDirectory(prefix="diagnostics-", ignore_cleanup_errors=True) as name:
        argv = _argv(Question(Target(command=tuple(command), python=python)), Path(name))
        outbox = new_outbox(Path(name))
        spec = write_spec(Path(name), {"mode": "watch", "outbox": str(outbox), "max_block": max_block})
        way = Entrance(str(spec), [str(agent_in(Path(name)))], {})
        argv, env = entrance.entered(argv, dict(os.environ), way, entrance.is_python(argv[0]))
        with relay.started(argv, env) as running:
            reporter = _Reporter(outbox, max_block, verbose, running, way, argv)
            reporter.start()
            status = running.wait()
            reporter.finish()
    return relay.end_like(status)


class _Reporter(threading.Thread):
    """A thread that reads the outbox and prints what is new.

    It is a thread so that a stderr that is not read does not block the command.
    """

    def __init__(
        self,
        outbox: Path,
        max_block: float,
        verbose: bool,
        command: relay.Command,
        way: Entrance,
        argv: Sequence[str],
    ) -> None:
        super().__init__(daemon=True)
        self._outbox = _Outbox(outbox)
        self._command = command
        self._way = way
        self._argv = argv
        self._max_block = max_block
        self._verbose = verbose
        self._over = threading.Event()

    def finish(self) -> None:
        """Print what remains, after the command has ended."""
        self._over.set()
        self.join(_PATIENCE)

    def run(self) -> None:
        """Print a line now and then until the command ends, then the summary."""
        last_line, news = 0.0, News()
        missed = self._entered()
        while not self._over.wait(_POLL):
            missed.scan(time.monotonic())
            self._outbox.read()
            missed.heard(each.pid for each in self._outbox.seen.values())
            if time.monotonic() - last_line >= _LINE_INTERVAL:
                line = news.line(self._outbox.seen, self._verbose)
                if line:
                    last_line = time.monotonic()
                    _say(f"watch: {line}\n")
        self._outbox.read()
        seen = list(self._outbox.seen.values())
        missed.heard(each.pid for each in seen)
        _say(f"watch: {headline(seen, self._outbox.python, self._max_block, _told(missed, seen))}\n")
        rows = table(seen, self._verbose)
        if rows.row_count:
            _say(_drawn(rows))

    def _entered(self) -> Missed:
        """Return the processes that are not watched, once the command has begun.

        Where a shell has become a Python without the watching, it is started again with it, if it has not
        gone so far as to load gevent. Whatever else started one may depend on it.
        """
        pid, began = self._command.pid, time.monotonic()
        missed = Missed(self._way, pid)
        missed.note_command(self._argv)
        while (passed := time.monotonic() - began) < _BEGINS:
            missed.interval = max(_BEGINS_POLL, passed / 50)
            if self._over.wait(missed.interval):
                break
            missed.scan(time.monotonic())
            self._outbox.read()
            found = next((each for each in missed.every if each.pid == pid), None)
            if found is not None and self._start_again(found):
                while self._command.pid == pid and not self._over.wait(_BEGINS_POLL):
                    pass
                return Missed(self._way, self._command.pid, _SELDOM)
            if self._outbox.python or missed.every:
                break
        missed.interval = _SELDOM
        return missed

    def _start_again(self, found: MissedProcess) -> bool:
        if found.start is None or found.start.user or found.gevent or found.ended:
            return False
        start = found.start
        argv, env = entrance.entered(start.argv, start.env, self._way, True)
        self._command.replace(start, argv, env)
        _say(f"watch: {start.shown} is started again by itself, to be watched, since {redact(start.why)}\n")
        return True


def _told(missed: Missed, seen: Sequence[Seen]) -> str:
    """Return which process was not watched, for the summary."""
    return missed.told(advice=False) if missed.with_gevent or not seen else ""


class _Outbox:
    """The reports of the agents: one file for each process, rewritten when there is more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[int, int]] = {}
        self.seen: dict[str, Seen] = {}
        self.python = False  # True once the agent ran in any Python

    def read(self) -> None:
        """Read the files that have changed."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._path):
                if entry.name == "python.json":
                    self.python = True
                elif entry.name.endswith(".json"):
                    with contextlib.suppress(FileNotFoundError):
                        self._take(entry)

    def _take(self, entry: os.DirEntry[str]) -> None:
        state = entry.stat(follow_symlinks=False)
        version = (state.st_ino, state.st_mtime_ns)
        if self._known.get(entry.name) == version:
            return
        self._known[entry.name] = version
        with contextlib.suppress(OSError, RecursionError, ValueError):
            self.seen[entry.name] = typed(json.loads(read_report(entry.path)), Seen)


def _say(text: str) -> None:
    """Write to stderr without Python's buffers: they may be locked when the process exits."""
    if sys.stderr is None:
        return
    left = text.encode(sys.stderr.encoding, "replace")
    with contextlib.suppress(OSError):  # the reader is gone
        while left:
            left = left[os.write(2, left) :]


def _drawn(table: Table) -> str:
    terminal = sys.stderr is not None and sys.stderr.isatty()
    width = shutil.get_terminal_size().columns if terminal else _WIDE
    console = Console(file=StringIO(), force_terminal=terminal, width=width)
    with console.capture() as text:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.get().splitlines() if line.strip())
