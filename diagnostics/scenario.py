"""The scenarios as records: what each file says of itself, read without running it.

A file of ``diagnostics/scenarios`` is an application that sets itself up in a trap's way; a function
``fetch`` in it is its fetch. Beside that it says, as literals:

- ``PACKAGES``: the requirements that it needs, pinned where a version matters;
- ``EXPECT``: ``verdict``, ``cause`` (absent: none), ``where`` (a pattern; absent: the line with the mark
  ``# <- where``, if there is one);
- ``PYTHONS``: the Pythons that it can run on, absent: any;
- ``PATH``: a folder here that is on the process's ``PYTHONPATH``;
- ``SERVER``: true where the file, run as a program, is the server to fetch from;
- ``RUNS``: the same fields once more for each of several runs, each with a ``name``.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec

from diagnostics.errors import UsageError

__all__ = ["FOLDER", "Expected", "Scenario", "chosen", "read"]

FOLDER = Path(__file__).parent / "scenarios"
_MARK = "# <- where"
_NAMES = ("PACKAGES", "EXPECT", "PATH", "PYTHONS", "SERVER", "RUNS")


class Expected(msgspec.Struct, frozen=True):
    """``where``: as ``fnmatch`` has it; "" when nothing is said of the place."""

    verdict: str
    cause: str = ""
    where: str = ""


class Scenario(msgspec.Struct, frozen=True):
    """One run. ``app``: as ``--app`` takes it, from ``folder``. ``pythons``: minor versions, best first;
    none: any. ``path``: what is on its PYTHONPATH; ``server``: it brings one."""

    folder: str
    name: str
    summary: str
    app: str
    packages: tuple[str, ...]
    expected: Expected
    pythons: tuple[str, ...] = ()
    path: str = ""
    server: bool = False


def read(path: Path) -> list[Scenario]:
    """The scenarios in the file ``path``. Raises ValueError for a file that does not say what it must."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    told: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in _NAMES:
                told[name] = ast.literal_eval(node.value)
    summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    runs = told.pop("RUNS", [{}])
    if not summary or not all("EXPECT" in {**told, **run} for run in runs):
        raise ValueError("a docstring and EXPECT are needed")
    fetches = any(isinstance(node, ast.FunctionDef) and node.name == "fetch" for node in tree.body)
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith(_MARK)]
    return [
        _scenario(path, summary, {**told, **run}, marked, f"{path.stem}:fetch" if fetches else path.stem)
        for run in runs
    ]


def _scenario(path: Path, summary: str, told: dict[str, Any], marked: list[int], app: str) -> Scenario:
    expected = Expected(**told["EXPECT"])
    if marked and not expected.where and expected.cause:
        expected = msgspec.structs.replace(expected, where=f"{path.name}:{marked[0]}")
    return Scenario(
        folder=str(path.parent),
        name=f"{path.stem}/{told['name']}" if "name" in told else path.stem,
        summary=summary,
        app=app,
        packages=tuple(told.get("PACKAGES", ())),
        expected=expected,
        pythons=tuple(told.get("PYTHONS", ())),
        path=told.get("PATH", ""),
        server=bool(told.get("SERVER")),
    )


def chosen(folder: Path = FOLDER, only: tuple[str, ...] = ()) -> list[Scenario]:
    """All scenarios of ``folder``, or the ones named: a run, or a file with its runs.

    Raises UsageError when there is none of a name, or a file does not say what it must.
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
