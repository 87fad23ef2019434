"""Find the processes of a run that the agent has not entered, say why, and start them again with it.

The agent keeps itself in what a Python executes (``agent/https_agent/children.py``). A shell, ``env -i`` or
a supervisor that is no Python starts interpreters with an environment or options that leave it out. Such a
process is seen in /proc. It can be started again directly, with its own arguments, environment and current
directory, and with the agent.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from diagnostics.agent.https_agent import entrance
from diagnostics.agent.https_agent.entrance import Entrance
from diagnostics.command_lines import note_secrets, shown_command
from diagnostics.model import Start
from diagnostics.processes import has_agent, is_interpreter
from diagnostics.redaction import note_environment, redact

__all__ = ["Missed", "MissedProcess"]

_INTERVAL = 0.08  # seconds between two scans of a check
_SETTLES = 5.0  # seconds in which a program that is no Python by its name may load one
_SELDOM = 1.0  # seconds between two looks at it afterwards
_LEAVE_OUT_S = "leave -S out, or check its module with --app MODULE"
_PROGRAM_WAS_READ = (
    "it has read its program from a pipe or a here-document, which cannot be read again: put that into a"
    " file, and start it with the name of the file"
)
_GEVENT = "/gevent/"  # in the paths of the compiled modules
_EMBEDDED = ("/libpython", "/libpypy", "/_MEI", _GEVENT)


@dataclass
class MissedProcess:
    """An interpreter without the agent, as it was when it was first seen.

    ``why``: what kept the agent out; ``advice``: what can be done; ``start``: how to start it with the
    agent, None where that is not possible; ``gevent``: when it was seen to have gevent loaded, 0.0 while it
    was not; ``ended``: it does not run any more.
    """

    pid: int
    parent: int
    argv: list[str]
    why: str
    advice: str
    start: Start | None
    gevent: float = 0.0
    ended: bool = False

    @property
    def shown(self) -> str:
        """Return it for a message."""
        return f"process {self.pid} ({shown_command(self.argv)})"


class _Seen(NamedTuple):
    """What identifies a program that a process executes: an exec changes the places of its stack."""

    pid: int
    started: int
    place: tuple[int, int]


class Missed:
    """The processes of a run; ``scan`` is called again and again.

    ``way``: what leads to the agent; ``root``: the first process; ``interval``: seconds between two scans;
    ``stdin``: what the command was given as its standard input, None where a process that is started again
    keeps its own.
    """

    def __init__(
        self, way: Entrance, root: int, interval: float = _INTERVAL, stdin: os.stat_result | None = None
    ) -> None:
        self.interval = interval
        self._way = way
        self._root = root
        self._input = stdin
        self._ours: set[int] = {root}
        self._others: set[int] = {os.getpid()}
        self._all: dict[_Seen, MissedProcess | None] = {}
        self._first: dict[_Seen, float] = {}
        self._looked: dict[_Seen, float] = {}
        self._stated: MissedProcess | None = None
        self._next = 0.0

    def scan(self, now: float) -> None:
        """Look at the processes of the run, unless that was done just now."""
        if now < self._next:
            return
        self._next = now + self.interval
        there = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._others &= there
        ended = self._ours - there
        self._ours &= there
        for pid in sorted(there - self._others):
            self._look(pid, now)
        for seen, missed in self._all.items():
            if missed is not None and (seen.pid in ended or seen.pid not in self._ours):
                missed.ended = True

    def heard(self, pids: Iterable[int]) -> None:
        """Note that the agent of the processes ``pids`` has reported."""
        known = set(pids)
        self._all.update((seen, None) for seen, missed in self._all.items() if missed and seen.pid in known)

    def _look(self, pid: int, now: float) -> None:
        found = _stat(pid)
        if found is None:
            return
        seen, parent, session = found
        if pid not in self._ours:
            if parent not in self._ours and session != self._root and not self._has_mark(pid):
                self._others.add(pid)
                return
            self._ours.add(pid)
        for other, known in self._all.items():
            if known is not None and other.pid == pid and other != seen:
                known.ended = True  # it has executed something else
        if seen not in self._all:
            self._note(seen, parent, now)
        missed = self._all.get(seen)
        if missed is not None and missed.start is None and has_agent(pid):
            self._all[seen] = missed = None  # it had mapped its interpreter, and not started it yet
        if missed is not None and not missed.gevent and _maps(pid, (_GEVENT,)):
            missed.gevent = now

    def _note(self, seen: _Seen, parent: int, now: float) -> None:
        """Note a program that was not seen before, once it is known whether it has the agent."""
        pid = seen.pid
        if has_agent(pid):
            self._all[seen] = None
            return
        argv = _words(pid, "cmdline")
        if not argv:
            return
        first = self._first.setdefault(seen, now)
        interpreter = is_interpreter(pid)
        if interpreter is None:
            # Another user's. Its arguments can be read, its environment cannot.
            if entrance.is_python(argv[0]):
                why = "it belongs to another user, or has other rights, and cannot be looked at"
                self._all[seen] = MissedProcess(
                    pid, parent, argv, why, "run the diagnostics as that user", None
                )
            else:
                self._all[seen] = None
            return
        if not interpreter:
            if now - first > _SETTLES and now - self._looked.get(seen, 0.0) < _SELDOM:
                return
            self._looked[seen] = now
            if _maps(pid, _EMBEDDED):
                why = "it has an interpreter of its own, which ignores PYTHONPATH, as packed programs do"
                advice = "check its module with --app MODULE and the Python that it was made with"
                self._all[seen] = MissedProcess(pid, parent, argv, why, advice, None)
            return
        env = _environment(pid)
        note_secrets(argv)
        folder = _link(pid, "cwd")
        if _stat(pid) is None or _words(pid, "cmdline") != argv:
            return  # it has changed meanwhile: look again
        why = entrance.refusal(argv, env, self._way, _customized(env, folder))
        if not why:
            self._all[seen] = None
            return
        advice, start = "", None
        if why.startswith("-S"):
            advice = _LEAVE_OUT_S
        else:
            file = _file(pid, argv, env, folder)
            env = _plain(env, self._way)
            start = Start(argv, env, folder, file, why, _user(pid), self._input_of(pid))
            advice = "check its module with --app MODULE"
            if start.input == "" and entrance.reads_program(argv):
                start, advice = None, _PROGRAM_WAS_READ
        self._all[seen] = MissedProcess(pid, parent, argv, why, advice, start)

    def _input_of(self, pid: int) -> str | None:
        """Return the standard input of a process, as ``Start.input``."""
        found = _input(pid)
        if found is None or self._input is None or os.path.samestat(found, self._input):
            return None
        # Some shells write a here-document into a file without a name.
        is_file = stat.S_ISREG(found.st_mode) and found.st_nlink
        is_empty = os.path.samestat(found, os.stat(os.devnull))
        return _link(pid, "fd/0") if is_file or is_empty else ""

    def _has_mark(self, pid: int) -> bool:
        return f"{entrance.VARIABLE}={self._way.spec}" in _words(pid, "environ")

    def note_command(self, argv: Sequence[str]) -> None:
        """Note what the command itself says: its process may end before it is seen."""
        letters = [letter for _, letter in entrance.options(argv)]
        if entrance.is_python(argv[0]) and "S" in letters:
            why = entrance.refusal(argv, {}, self._way)
            self._stated = MissedProcess(self._root, 0, list(argv), why, _LEAVE_OUT_S, None)

    # what was found

    @property
    def every(self) -> list[MissedProcess]:
        """Return all of them, in the order in which they were seen."""
        found = [each for each in self._all.values() if each is not None]
        stated = self._stated
        return found if stated is None or found else [stated]

    @property
    def alive(self) -> set[int]:
        """Return the process ids of those that run."""
        return {each.pid for each in self.every if not each.ended}

    @property
    def with_gevent(self) -> list[MissedProcess]:
        """Return those that have loaded gevent."""
        return [each for each in self.every if each.gevent]

    def to_start(self, any_of_them: bool = False) -> MissedProcess | None:
        """Return the one to start again; None if there is none.

        It is one that has loaded gevent, rather one that still runs, or an interpreter above it: what a
        Python starts has the agent. With ``any_of_them`` one without gevent is better than none.
        """
        loaded = sorted(self.with_gevent, key=lambda each: each.ended)
        for candidates in (loaded, self.every[::-1] if any_of_them else []):
            for each in candidates:
                chain = [other for other in self._above(each) if other.start is not None]
                if chain:
                    return chain[-1]
        return None

    def _above(self, process: MissedProcess) -> Iterator[MissedProcess]:
        """Yield ``process`` and those without the agent that started it, innermost first."""
        pids: set[int] = set()
        found: MissedProcess | None = process
        while found is not None and found.pid not in pids:
            pids.add(found.pid)
            yield found
            parent = found.parent
            found = next((each for each in self.every if each.pid == parent), None)

    def told(self, advice: bool = True) -> str:
        """Return what kept the agent out of those that matter, and what can be done; "" if there are
        none."""
        found = self.with_gevent or self.every
        if not found:
            return ""
        first = found[0]
        loaded = ", which has loaded gevent" if first.gevent else ""
        more = f", nor in {len(found) - 1} more" if len(found) > 1 else ""
        todo = f"; {first.advice}" if advice and first.advice else ""
        return f"the diagnostics are not in {first.shown}{loaded}{more}: {redact(first.why)}{todo}"


def _stat(pid: int) -> tuple[_Seen, int, int] | None:
    """Return what identifies the program, its parent and its session; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as source:
            fields = source.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in b"ZX":
        return None
    return _Seen(pid, int(fields[19]), (int(fields[25]), int(fields[45]))), int(fields[1]), int(fields[3])


def _user(pid: int) -> tuple[int, int] | None:
    """Return the user and the group of a process; None if they are those of this one."""
    with contextlib.suppress(OSError):
        found = os.stat(f"/proc/{pid}")
        if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
            return found.st_uid, found.st_gid
    return None


def _input(pid: int) -> os.stat_result | None:
    """Return what the standard input of a process is; None where that cannot be looked at."""
    try:
        return os.stat(f"/proc/{pid}/fd/0")
    except OSError:
        return None


def _words(pid: int, name: str) -> list[str]:
    try:
        content = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(each) for each in content.removesuffix(b"\0").split(b"\0")] if content else []


def _environment(pid: int) -> dict[str, str]:
    """Return the environment of a process, whose secrets are then cut from all text."""
    env = dict(word.split("=", 1) for word in _words(pid, "environ") if "=" in word)
    note_environment(env)
    return env


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def _maps(pid: int, parts: Sequence[str]) -> bool:
    """Return whether a file is mapped whose path has one of ``parts``."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False
    return any(part in text for part in parts)


def _customized(env: Mapping[str, str], folder: str) -> list[str]:
    """Return the folders that ``PYTHONPATH`` names and that have a ``sitecustomize``."""
    found = []
    for entry in env.get("PYTHONPATH", "").split(os.pathsep):
        path = Path(folder, entry) / "sitecustomize"
        with contextlib.suppress(OSError):
            if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
                found.append(entry)
    return found


def _plain(env: Mapping[str, str], way: Entrance) -> dict[str, str]:
    """Return ``env`` without what the diagnostics put into it: another run has other files."""
    found = {
        name: value for name, value in env.items() if name not in (entrance.VARIABLE, entrance.IGNORED)
    }
    if "PYTHONPATH" in found:
        rest = [each for each in found["PYTHONPATH"].split(os.pathsep) if each not in way.path]
        found["PYTHONPATH"] = os.pathsep.join(rest)
        if not rest:
            del found["PYTHONPATH"]
    for name in [name for name, value in found.items() if way.more.get(name) == value]:
        del found[name]
        if name in os.environ:
            found[name] = os.environ[name]
    return found


def _file(pid: int, argv: Sequence[str], env: Mapping[str, str], folder: str) -> str:
    """Return the file to execute: what the name finds, since a Python looks there for its environment.

    It must be the same file that the process has executed.
    """
    executed = _link(pid, "exe")
    path = env.get("PATH", os.defpath)
    name = os.path.join(folder, argv[0]) if os.sep in argv[0] else argv[0]
    found = shutil.which(name, path=path)
    return found if found and os.path.realpath(found) == os.path.realpath(executed) else executed
