"""Runs a command and reports whatever holds a gevent hub in it: the side of ``watch`` that is ours."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from diagnostics import relay
from diagnostics.agent.https_agent.life import VARIABLE
from diagnostics.errors import UsageError
from diagnostics.held import News, Seen, headline, table
from diagnostics.launch import AGENT, _argv, new_outbox, read_report, write_spec
from diagnostics.model import Question, Target

__all__ = ["watch"]

_LEAST = 0.01  # seconds; below, watching would cost more than it says it does
_POLL = 0.2
_SAY = 1.0  # seconds between two lines at least
_PATIENCE = 5.0  # seconds that nobody may read our stderr
_WIDE = 160


def watch(command: Sequence[str], max_block: float, python: str = "", verbose: bool = False) -> int:
    """Run ``command`` to its end; what holds a hub of it longer than ``max_block`` seconds goes to stderr.

    Returns its exit code, or dies by the signal that it died by. Raises UsageError.
    """
    if not command:
        raise UsageError("watch: which command? See: watch -- COMMAND")
    if max_block < _LEAST:
        raise UsageError(f"--max-block must be at least {_LEAST * 1000:g} ms")
    argv = _argv(Question(Target(command=tuple(command), python=python)))
    with tempfile.TemporaryDirectory(prefix="diagnostics-", ignore_cleanup_errors=True) as name:
        outbox = new_outbox(Path(name))
        spec = write_spec(Path(name), {"mode": "watch", "outbox": str(outbox), "max_block": max_block})
        env = {**os.environ, VARIABLE: str(spec)}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(AGENT), env.get("PYTHONPATH")]))
        with relay.started(argv, env) as running:
            reporter = _Reporter(outbox, max_block, verbose)
            reporter.start()
            status = running.wait()
            reporter.finish()
    return relay.end_like(status)


class _Reporter(threading.Thread):
    """Reads the outbox and says what is new. A thread, so that a stderr that nobody reads stops nothing."""

    def __init__(self, outbox: Path, max_block: float, verbose: bool) -> None:
        super().__init__(daemon=True)
        self._outbox = _Outbox(outbox)
        self._max_block = max_block
        self._verbose = verbose
        self._over = threading.Event()

    def finish(self) -> None:
        """The command has ended: say what remains to be said."""
        self._over.set()
        self.join(_PATIENCE)

    def run(self) -> None:
        """Until the end a line now and then, then the summary."""
        said, news = 0.0, News()
        while not self._over.wait(_POLL):
            self._outbox.read()
            if time.monotonic() - said >= _SAY:
                line = news.line(self._outbox.seen, self._verbose)
                if line:
                    said = time.monotonic()
                    _say(f"watch: {line}\n")
        self._outbox.read()
        seen = list(self._outbox.seen.values())
        _say(f"watch: {headline(seen, self._outbox.python, self._max_block)}\n")
        rows = table(seen, self._verbose)
        if rows.row_count:
            _say(_drawn(rows))


class _Outbox:
    """The reports of the agents: one file of each process, rewritten when there is more."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, tuple[int, int]] = {}
        self.seen: dict[str, Seen] = {}
        self.python = False  # whether any Python had our agent in it

    def read(self) -> None:
        """Take in what has changed."""
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
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self.seen[entry.name] = msgspec.json.decode(read_report(entry.path), type=Seen)


def _say(text: str) -> None:
    """Write to stderr, past Python's buffers: they may be locked when the process ends."""
    if sys.stderr is None:
        return
    left = text.encode(sys.stderr.encoding, "replace")
    with contextlib.suppress(OSError):  # whoever read it has gone
        while left:
            left = left[os.write(2, left) :]


def _drawn(table: Table) -> str:
    terminal = sys.stderr is not None and sys.stderr.isatty()
    width = shutil.get_terminal_size().columns if terminal else _WIDE
    console = Console(file=StringIO(), force_terminal=terminal, width=width)
    with console.capture() as text:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.get().splitlines() if line.strip())
