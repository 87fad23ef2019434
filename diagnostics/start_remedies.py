"""Find how a command is started patched, where something is imported before any line of the user's.

A plug-in of pytest, a server, a console script: a line in the user's own files comes too late there. The
command itself is changed, and measured as it is printed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from diagnostics.command_lines import shown_line
from diagnostics.evidence import Case

__all__ = ["PATCH_WORKERS", "Start", "starts"]

_PATCH = "from gevent import monkey; monkey.patch_all()"
# The threads of pytest-xdist, with which its processes speak to each other, do not work when patched. Nor
# does the process that starts the workers, in which threads wait for them; it runs no tests.
PATCH_WORKERS = (
    "import os, gevent.monkey; "
    "'PYTEST_XDIST_WORKER' in os.environ and gevent.monkey.patch_all(thread=False)"
)
_DISTRIBUTES = re.compile(r"-n\d*|-n(auto|logical)|--numprocesses(=.*)?|--tx(=.*)?|--dist(=.*)?")
_PYTEST = ("pytest", "py.test")
_PLUGIN = "gevent_first"
_WITH_VALUE = "WXQ"  # options of the interpreter that take one
_EXEC = re.compile(rb"'''exec' \"?([^\"\n]+?)\"? \"\$0\"")  # a console script with a long path


class Start(NamedTuple):
    """How to start it: ``line`` and ``where`` as printed, ``place`` as for the agent.

    ``place`` has the new ``argv`` of the command, where that changes.
    """

    line: str
    where: str
    place: dict[str, Any]


class _Program(NamedTuple):
    """A command that starts Python.

    ``python``: the interpreter with its options; ``module`` or ``script``: what it runs; ``rest``.
    """

    python: list[str]
    module: str
    script: str
    rest: list[str]

    @property
    def name(self) -> str:
        """Return what it runs, as a person calls it."""
        return self.module.partition(".")[0] or os.path.basename(self.script)


def starts(case: Case) -> list[Start]:
    """Return the ways to start the command patched, best first; none where the user's line is early
    enough, and none for a packed program: they would take gevent from outside of the pack."""
    if case.packed or not case.question.target.command or not _comes_too_late(case):
        return []
    found = []
    program = _program(case.question.target.command, case.question.target.python)
    if program is not None and program.module != "gevent.monkey":
        # What was probed may be a process that this one starts.
        probed = case.observation.argv
        spread = program.name in _PYTEST and any(map(_DISTRIBUTES.fullmatch, program.rest))
        is_main = list(probed[1:]) == program.rest and not spread
        argv = _with_monkey(program, bool(case.facts.get("runs_modules"))) if is_main else []
        if argv:
            place: dict[str, Any] = {"place": "command", "argv": argv, "chosen": ["", *program.rest]}
            found.append(Start(shown_line(argv), "as the command", place))
        if program.name in _PYTEST:
            found.append(_plugin(program, case, _PATCH if is_main else PATCH_WORKERS, is_main))
    folder = next((each for each in case.facts.get("path", []) if _is_site(each, case.facts)), None)
    if folder:
        place = {"place": "begin", "prefix": case.facts.get("prefix")}
        line = "import gevent.monkey; gevent.monkey.patch_all()"
        found.append(Start(line, f"as the file {os.path.join(case.shown(folder), '00-gevent.pth')}", place))
    return found


def _comes_too_late(case: Case) -> bool:
    """Return whether something that keeps the originals may have been imported before the user's code."""
    events = case.seen["imports"].values()
    return not case.facts.get("roots") or any(not each["user"] for each in events)


def _is_site(folder: str, facts: dict[str, Any]) -> bool:
    prefix = str(facts.get("prefix") or "")
    return bool(prefix) and folder.startswith(prefix + os.sep) and folder.endswith("-packages")


def _with_monkey(program: _Program, runs_modules: bool) -> list[str]:
    """Return the command that patches before all else; [] where this gevent cannot start such a one."""
    start = [*program.python, "-m", "gevent.monkey"]
    if program.script:
        return [*start, program.script, *program.rest]
    if runs_modules:
        return [*start, "--module", program.module, *program.rest]
    # Before gevent 1.5 it starts only scripts.
    beside = os.path.join(os.path.dirname(program.python[0]), program.module)
    return [*start, beside, *program.rest] if os.path.isfile(beside) else []


def _plugin(program: _Program, case: Case, line: str, is_main: bool) -> Start:
    """Return the start with a plug-in, which the processes of pytest-xdist load as well."""
    name, number = _PLUGIN, 1
    folder = case.facts.get("started") or ""
    while os.path.exists(os.path.join(folder, f"{name}.py")):
        number += 1
        name = f"{_PLUGIN}_{number}"
    argv = [*program.python, "-m", "pytest", "-p", name, *program.rest]
    where = f"as the file {name}.py, and as the command: {shown_line(argv)}"
    chosen = ["", "-p", name, *program.rest] if is_main else list(case.observation.argv)
    return Start(line, where, {"place": "module", "name": name, "argv": argv, "chosen": chosen})


def _program(command: Sequence[str], python: str) -> _Program | None:
    """Return the Python program that ``command`` starts; None if it starts something else."""
    first = command[0]
    if os.path.basename(first).startswith("python"):
        return _of_interpreter([python or first, *command[1:]])
    beside = os.path.join(os.path.dirname(shutil.which(python) or ""), first) if python else ""
    script = beside if beside and os.path.isfile(beside) else shutil.which(first) or ""
    interpreter = _interpreter_of(script)
    return _Program(interpreter, "", script, list(command[1:])) if interpreter else None


def _of_interpreter(argv: list[str]) -> _Program | None:
    number = 1
    while number < len(argv) and argv[number].startswith("-") and argv[number] not in ("-", "--"):
        option = argv[number]
        for place, letter in enumerate(option[1:], 2):
            rest = option[place:]
            if letter == "c":
                return None
            if letter == "m":
                plain = [option[: place - 1]] if place > 2 else []
                module, after = (
                    (rest, number + 1) if rest else ("".join(argv[number + 1 : number + 2]), number + 2)
                )
                return _Program([*argv[:number], *plain], module, "", argv[after:]) if module else None
            if letter in _WITH_VALUE:
                number += not rest
                break
        number += 1
    if number >= len(argv) or argv[number] in ("-", "--"):
        return None
    return _Program(argv[:number], "", argv[number], argv[number + 1 :])


def _interpreter_of(script: str) -> list[str]:
    """Return the Python of a script's first line, with its options; [] if it has none."""
    try:
        with open(script, "rb") as source:
            head = source.read(1000)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    words = head[2:].partition(b"\n")[0].decode(errors="replace").split()
    if words and os.path.basename(words[0]) == "sh" and (found := _EXEC.search(head)):
        words = [found[1].decode(errors="replace")]
    if words and os.path.basename(words[0]) == "env":
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    return words if words and os.path.basename(words[0]).startswith("python") else []
