"""Choose the process of a command to probe, and terminate all of them afterwards.

A process in which gevent is in use may be probed. The agent in it reports whether its set-up is complete.
Which process to query first, and whether to probe one that is about to exit, is decided here, where all of
them are known.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from diagnostics.agent.https_agent.choice import OVERSEES, UNSERVED, UNUSED, WORKERLESS
from diagnostics.agent.https_agent.clocks import clock
from diagnostics.agent.https_agent.life import SIGNAL
from diagnostics.stuck import patching

__all__ = ["Processes", "end_all", "has_agent", "is_alive", "is_interpreter", "send", "started"]

_REACTS = 2.0  # seconds within which a process responds to the signal
_AGAIN = 0.5  # seconds between two rounds of queries
_STARTS = 10.0  # seconds within which a new interpreter sends its "hello" report
_SILENT = 1.0  # seconds after which a process with an agent that has not reported is woken
_BEGINS = 10.0  # seconds after which what only starts others should have started one
_LEAVES = 0.5  # seconds within which a process that started a daemon exits
_LEAVES_BUSY = 3.0  # the same for one that waits for a CPU
_SCANS = 4  # of /proc, one after another, that must all find nothing; see ``_belonging``
_ROUNDS = 200  # attempts to kill what is left
_ROUND = 0.01


@dataclass
class _Process:
    """The state of a process with an agent.

    - ``above``: the others that are its ancestors;
    - ``connected``: it tried HTTPS with gevent in use;
    - ``ends``: it is about to exit, and waits for a decision, ``since`` when;
    - ``unused``: since when it has loaded gevent without using it, or should have started a worker;
    - ``patches``: since when gevent patches it;
    - ``over``: it exits without waiting;
    - ``answered``: the decision was sent;
    - ``deaf``: since when it does not react to the signal;
    - ``told``: its last report of where its main greenlet is.
    """

    pid: int
    ppid: int = 0
    started: int = 0
    forked: bool = False
    above: frozenset[int] = frozenset()
    gevent: bool = False
    connected: bool = False
    ends: bool = False
    since: float = 0.0
    unused: float = 0.0
    over: bool = False
    answered: bool = False
    why: str = ""
    raised: Mapping[str, Any] | None = None
    deaf: float = 0.0
    patches: float = 0.0
    told: Mapping[str, Any] | None = None

    @property
    def is_workerless(self) -> bool:
        """Return whether it is to start workers, and has started none."""
        return self.why.startswith(WORKERLESS)


class Processes:
    """All processes that have reported, and the queries to them.

    ``outbox``: where the agents report; ``mark`` and ``root`` (0 until it is known): see ``end_all``.
    """

    def __init__(self, outbox: Path, mark: str) -> None:
        self._outbox = outbox
        self._mark = mark
        self.root = 0
        self.missed: set[int] = set()  # those in which no agent will ever be
        self._seen: dict[int, float] = {}  # interpreters without a report, since when
        self._all: dict[int, _Process] = {}
        self._queue: list[int] = []
        self._asked = 0  # the process that was queried last
        self._until = 0.0
        self._next_round = 0.0
        self.prober = 0

    def note(self, report: Mapping[str, Any]) -> None:
        """Update the state with a report of an agent."""
        kind, pid = report["kind"], report["pid"]
        if kind == "hello":
            known = _ancestors(report["ppid"]) & set(self._all)
            self._all[pid] = _Process(
                pid,
                report["ppid"],
                started(pid),
                report["forked"],
                frozenset(known),
                bool(report.get("gevent")),
            )
        process = self._all.get(pid)
        if process is None:
            return
        process.deaf = 0.0
        if kind == "gevent":
            process.gevent = True
        elif kind == "connected":
            process.connected = True
        elif kind == "ends":
            process.ends = True
        elif kind == "over":
            process.over, process.why = True, report["why"]
            process.raised = report if report["text"] else None
        elif kind == "later":
            process.why, process.told = patching(report) or report["why"], report
            process.patches = (process.patches or clock()) if report.get("patching") else 0.0
            if process.why == UNUSED:
                process.unused = process.unused or clock()
            elif process.is_workerless:
                process.unused = process.unused or clock() + _BEGINS
            else:
                process.unused = 0.0
        elif kind == "probing":
            self.prober = pid
        if kind in ("later", "probing") and pid == self._asked:
            self._asked = 0

    def ask(self, now: float, due: bool) -> None:
        """Let a process that is about to exit probe when no other can; when ``due``, query the
        likeliest."""
        alive = self._alive()
        for process in alive:
            if process.ends:
                process.since = process.since or now
                continuing = self._continuing(process)
                leaves = _LEAVES if any(map(_is_waiting, continuing)) else _LEAVES_BUSY
                if continuing and now > process.since + leaves:
                    self._answer(process, "end")
        last = self._last(now, alive)
        if last is not None:
            self._answer(last, "probe")
        elif due:
            self._ask_next(now, alive)

    def come_to_end(self, now: float) -> bool:
        """Return whether the next thing is to let one probe that is about to exit."""
        return self._last(now, self._alive()) is not None

    def _last(self, now: float, alive: list[_Process]) -> _Process | None:
        """Return the process to probe at its end, since no other can be; None if there is none."""
        ending = [each for each in alive if each.ends and not each.answered]
        rest = [each for each in alive if not each.ends and not each.over and (each.forked or each.gevent)]
        if not ending or rest or any(map(self._continuing, ending)) or self._any_starting(now):
            return None
        above = {pid for each in ending for pid in each.above}
        return min(ending, key=lambda each: (not each.connected, each.pid in above, each.pid))

    def _continuing(self, process: _Process) -> list[int]:
        """Return the ancestors of a helper that continue to run, none of another process.

        A helper tried no HTTPS. The process that starts a daemon exits before the daemon does.
        """
        above = [] if process.connected else [self._all[pid] for pid in process.above]
        return [each.pid for each in above if not (each.ends or each.over) and is_alive(each.pid)]

    def _ask_next(self, now: float, alive: list[_Process]) -> None:
        if self._asked and now < self._until and is_alive(self._asked):
            return
        if self._asked in self._all:
            process = self._all[self._asked]
            process.why = "it does not react to a signal: it computes, or blocks in C"
            process.patches = 0.0  # what it did when it reacted last is not known to last
            process.deaf = process.deaf or now
        self._asked = 0
        if not self._queue:
            if now < self._next_round:
                return
            self._queue, self._next_round = self._ranked(alive), now + _AGAIN
            self._wake(now)
        if not self._queue:
            return
        process = self._all[self._queue.pop(0)]
        if process.ends:
            self._answer(process, "probe")
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, SIGNAL)
        self._asked, self._until = process.pid, now + _REACTS

    def _ranked(self, alive: list[_Process]) -> list[int]:
        """Return the process ids to query: those that tried HTTPS first, then the youngest generation of
        forks."""
        able = [each for each in alive if each.gevent and not each.over and not each.answered]
        parents = {each.ppid for each in able if each.forked}
        able.sort(key=lambda each: (not each.connected, each.pid in parents, each.ends, each.pid))
        return [each.pid for each in able]

    def _answer(self, process: _Process, text: str) -> None:
        if process.answered:
            return
        process.answered = True
        path = self._outbox / f"answer-{process.pid}"
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").rename(path)

    def _alive(self) -> list[_Process]:
        return [each for each in self._all.values() if has_agent(each.pid)]

    def any_alive(self, now: float) -> bool:
        """Return True if a process (a daemon, a worker) may still be probed, even if it has not reported
        yet."""
        return bool(self._alive()) or self._any_starting(now)

    def _any_starting(self, now: float) -> bool:
        """Return True if a new interpreter or fork may still be about to send its first report."""
        return any(self._scan_starting(now) for _ in range(_SCANS))

    def _scan_starting(self, now: float) -> bool:
        silent = _belonging(self.root, self._mark.encode(), self.known) - set(self._all) - self.missed
        self._seen = {
            pid: self._seen.get(pid, now) for pid in silent if has_agent(pid) or is_interpreter(pid)
        }
        return any(now < since + _STARTS for since in self._seen.values())

    def _wake(self, now: float) -> None:
        """Let those with an agent report that have not: C code (uWSGI's) forks without Python's hooks."""
        self._any_starting(now)
        for pid, since in self._seen.items():
            if now > since + _SILENT and send(pid, SIGNAL):
                self._seen[pid] = now

    # where nothing is probed

    def used(self) -> float:
        """Return the seconds in which the processes of the run had a CPU, or waited for one, up to now."""
        return sum(map(_used, _belonging(self.root, self._mark.encode(), self.known)))

    def deaf(self, since: float) -> int:
        """Return a process of those that could be probed if none of them has reacted since then; else 0."""
        able = self._able()
        return able[0].pid if able and all(0.0 < each.deaf < since for each in able) else 0

    def patching(self, since: float) -> int:
        """Return a process of those that could be probed if gevent patches in all since then; else 0."""
        able = [each for each in self._able() if not each.unused and each.why != OVERSEES]
        return able[0].pid if able and all(0.0 < each.patches < since for each in able) else 0

    def _able(self) -> list[_Process]:
        return [each for each in self._alive() if each.gevent and not each.over and not each.answered]

    def youngest(self) -> int:
        """Return a process that has started no other one, to be asked where it is; 0 without."""
        alive = [each for each in self._alive() if not each.over and not each.answered]
        parents = {each.ppid for each in alive}
        return min(((each.pid in parents, each.pid) for each in alive), default=(False, 0))[1]

    def told(self, pid: int) -> Mapping[str, Any] | None:
        """Return the last report of where the main greenlet of a process is; None if there is none."""
        return self._all[pid].told if pid in self._all else None

    @property
    def known(self) -> dict[int, int]:
        """Return the process ids, each with the time at which the process started."""
        return {each.pid: each.started for each in self._all.values()}

    @property
    def loads_gevent(self) -> bool:
        """Return True if one of them has loaded gevent."""
        return any(each.gevent for each in self._all.values())

    @property
    def fetches(self) -> bool:
        """Return True if one of them has tried an HTTPS connection with gevent in use."""
        return any(each.connected for each in self._all.values())

    def leave_unused(self, since: float) -> bool:
        """Return True if every running process has loaded gevent but not used it, since before ``since``.

        They must be past their imports. A process that only starts others does not count. A new worker is
        given the same time.
        """
        rest = [each for each in self._alive() if each.why != OVERSEES]
        return bool(rest) and all(0.0 < each.unused < since for each in rest)

    @property
    def workerless(self) -> bool:
        """Return True if one that runs is to start workers, and has started none."""
        return any(each.is_workerless for each in self._alive())

    @property
    def unserved(self) -> int:
        """Return how many workers of a server have ended before they came to serve."""
        return sum(each.why == UNSERVED for each in self._all.values())

    @property
    def raised(self) -> Mapping[str, Any] | None:
        """Return the report with the exception that the command ended with; None if there is none."""
        every = [each.raised for each in self._all.values() if each.raised and not each.above]
        return every[-1] if every else None

    @property
    def why(self) -> str:
        """Return the reasons why none of those that have loaded gevent was probed."""
        reasons = dict.fromkeys(each.why for each in self._all.values() if each.gevent and each.why)
        return "; ".join(reasons)


def end_all(root: int, mark: str, known: Mapping[int, int]) -> None:
    """Kill the process ``root``, which leads a session, and everything that it and its children started.

    Daemons leave the session and their parents. They are recognized by ``mark`` in their environment
    ("NAME=value"), which programs that set their title overwrite, or because they are among ``known``.
    """
    nothing = 0
    for _ in range(_ROUNDS):
        found = _belonging(root, mark.encode(), known)
        nothing = 0 if found else nothing + 1
        if nothing == _SCANS:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if found:
            time.sleep(_ROUND)


def _belonging(root: int, mark: bytes, known: Mapping[int, int]) -> set[int]:
    """Return the processes of the run that one scan of /proc finds.

    A scan misses a process that starts after /proc was listed, and its parent too when that exits before it
    is read. Each fork can make one scan find nothing, and a daemon forks twice.
    """
    every = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
    found = {
        pid
        for pid, stat in every.items()
        if pid == root or stat.session == root or known.get(pid) == stat.started or _has_mark(pid, mark)
    }
    before = 0
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, stat in every.items() if stat.parent in found}
    return {pid for pid in found - {os.getpid()} if every[pid].state not in "ZX"}


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return mark in environment.read().split(b"\0")
    except OSError:
        return False


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    started: int  # clock ticks since the machine booted
    ticks: int  # of CPU, with those of its children that have ended


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            fields = source.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Stat(
        fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]), sum(map(int, fields[11:15]))
    )


def started(pid: int) -> int:
    """Return when a process was started, in ticks since the boot, -1 if there is none."""
    stat = _stat(pid)
    return stat.started if stat is not None else -1


def _pids() -> Iterable[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_alive(pid: int) -> bool:
    """Return True for a process that has not ended."""
    stat = _stat(pid)
    return stat is not None and stat.state not in "ZX"


def _is_waiting(pid: int) -> bool:
    """Return True for a process that sleeps, as one that waits for its children does."""
    stat = _stat(pid)
    return stat is not None and stat.state == "S"


def _used(pid: int) -> float:
    """Return the seconds of CPU of a process and its children, and those in which it had none."""
    stat = _stat(pid)
    seconds = stat.ticks / os.sysconf("SC_CLK_TCK") if stat is not None else 0.0
    with contextlib.suppress(OSError, IndexError, ValueError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            seconds += int(Path(thread.path, "schedstat").read_text().split()[1]) / 1e9
    return seconds


def send(pid: int, number: int) -> bool:
    """Send a signal that the process handles; return whether it does. Another one would kill it."""
    if not _handles(pid, number):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    return True


def has_agent(pid: int) -> bool:
    """Return True for a running process that handles the agent's signal.

    A child of gevent's Popen sends its first report before it executes another program, which the signal
    would kill.
    """
    return _handles(pid, SIGNAL)


def _handles(pid: int, number: int) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
            fields = dict(line.split(":", 1) for line in status if ":" in line)
    except OSError:
        return False
    caught = int(fields.get("SigCgt", "0"), 16)
    return fields["State"].strip()[0] not in "ZX" and bool(caught >> (number - 1) & 1)


def is_interpreter(pid: int) -> bool | None:
    """Return whether a process executes a file named like a Python; None where it cannot be read."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("python", "pypy"))
    except PermissionError:
        return None
    except OSError:
        return False


def _ancestors(pid: int) -> set[int]:
    """Return ``pid`` and its ancestors."""
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
        stat = _stat(pid)
        pid = stat.parent if stat is not None else 0
    return found
