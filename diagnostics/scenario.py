"""Read the scenarios as records, without running them.

A file of ``diagnostics/scenarios`` is an application that sets itself up in a known bad way; its function
``fetch``, if there is one, is its fetch. The file describes itself in literals:

- ``PACKAGES``: the requirements, pinned where a version matters;
- ``EXPECT``: ``verdict``, ``cause`` (absent: none), ``where`` (a pattern; absent: the line with the mark
  ``# <- where``, if there is one); where there is no verdict, ``none``, and a pattern of what is said,
  ``error``;
- ``EXPECT_2``: what to expect on Python 2 instead, where it differs there;
- ``PYTHONS``: the Pythons that it can run on, best first: ``3`` for any version of it, or ``3.11``; absent:
  any;
- ``COMMAND``: the command to check instead, started in this folder: ``python`` is the interpreter;
- ``INPUT``: what the command reads from its standard input;
- ``PATH``: a folder here that is on the process's ``PYTHONPATH``;
- ``SERVER``: true where the file, run as a program with a folder, is the server to fetch from: it prints
  its port, and has the certificate ``server.pem`` there (or makes one, and puts its ``ca.pem`` there);
- ``RUNS``: for each of several runs the same fields once more, with a ``name``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagnostics.errors import UsageError

__all__ = ["FOLDER", "Expected", "Scenario", "chosen", "read"]

FOLDER = Path(__file__).parent / "scenarios"  # not in a zip file, see `unpacking`
_MARK = "# <- where"
_NAMES = ("PACKAGES", "EXPECT", "EXPECT_2", "PATH", "COMMAND", "PYTHONS", "SERVER", "RUNS", "INPUT")


@dataclass(frozen=True)
class Expected:
    """The expected result.

    ``where``: a pattern of ``fnmatch``; "" where any place is accepted; ``error``: one of the error where
    ``verdict`` is ``none``.
    """

    verdict: str
    cause: str = ""
    where: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One run of a scenario.

    ``app``: as for ``--app``, relative to ``folder``; ``command``: what is checked instead; ``expected_2``:
    what is expected on Python 2, None where it is ``expected``; ``pythons``: versions, best first, empty
    for any; ``path``: what is on its PYTHONPATH; ``server``: it brings a server; ``input``: what is read by
    its command.
    """

    folder: str
    name: str
    summary: str
    app: str
    packages: tuple[str, ...]
    expected: Expected
    expected_2: Expected | None = None
    pythons: tuple[str, ...] = ()
    path: str = ""
    server: bool = False
    command: tuple[str, ...] = ()
    input: str = ""

    def expected_on(self, python: str) -> Expected:
        """Return what is expected with the version ``python``."""
        return (self.expected_2 if python.startswith("2.") else None) or self.expected

    def runs_on(self, python: str) -> bool:
        """Return whether the scenario can run with the version ``python``."""
        return not self.pythons or any(f"{python}.".startswith(f"{each}.") for each in self.pythons)


def read(path: Path) -> list[Scenario]:
    """Return the scenarios in the file ``path``.

    Raises ValueError for a file without a docstring or an EXPECT.
    """
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    fields: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in _NAMES:
                fields[name] = ast.literal_eval(node.value)
    summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    runs = fields.pop("RUNS", [{}])
    if not summary or not all("EXPECT" in {**fields, **run} for run in runs):
        raise ValueError("a docstring and EXPECT are needed")
    fetches = any(isinstance(node, ast.FunctionDef) and node.name == "fetch" for node in tree.body)
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith(_MARK)]
    return [
        _scenario(path, summary, {**fields, **run}, marked, f"{path.stem}:fetch" if fetches else path.stem)
        for run in runs
    ]


def _scenario(path: Path, summary: str, fields: dict[str, Any], marked: list[int], app: str) -> Scenario:
    mark = f"{path.name}:{marked[0]}" if marked else ""
    return Scenario(
        folder=str(path.parent),
        name=f"{path.stem}/{fields['name']}" if "name" in fields else path.stem,
        summary=summary,
        app=app,
        packages=tuple(fields.get("PACKAGES", ())),
        expected=_expected(fields["EXPECT"], mark),
        expected_2=_expected(fields["EXPECT_2"], mark) if "EXPECT_2" in fields else None,
        pythons=tuple(fields.get("PYTHONS", ())),
        path=fields.get("PATH", ""),
        server=bool(fields.get("SERVER")),
        command=tuple(fields.get("COMMAND", ())),
        input=fields.get("INPUT", ""),
    )


def _expected(given: dict[str, str], mark: str) -> Expected:
    """Return what a scenario expects; ``mark``: the place where it has not said one."""
    expected = Expected(**given)
    return replace(expected, where=expected.where or mark) if expected.cause else expected


def chosen(folder: Path = FOLDER, only: tuple[str, ...] = ()) -> list[Scenario]:
    """Return all scenarios of ``folder``, or those that ``only`` names: a run, or a file with all its runs.

    Raises UsageError when a name is unknown, or a file lacks a required field.
    """
    paths = sorted(path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    every: list[Scenario] = []
    for path in paths:
        try:
            every += read(path)
        except (OSError, SyntaxError, TypeError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from None
    if not every:
        raise UsageError(f"{folder}: there are no scenarios")
    for name in only:
        if not any(name in (each.name, each.name.partition("/")[0]) for each in every):
            raise UsageError(f"--only: there is no scenario {name}; --list names them")
    wanted = set(only)
    return [each for each in every if not only or wanted & {each.name, each.name.partition("/")[0]}]
