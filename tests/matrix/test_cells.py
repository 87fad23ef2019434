"""The list of cells: its entries are unique, and name only what exists."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from harness import ROOT

from docker import compose
from docker.cells import CELLS, LEGACY, MAIN_JOB, MODERN
from docker.interpreters import find
from docker.native import INSIDE

SETUPS = {path.stem for path in (INSIDE / "setups").glob("*.py")} - {"__init__"}

# The table of the published account, measured long before this matrix was built.
STORY = {
    "stage-01": ("concurrent", "concurrent"),
    "stage-02": ("serialized", "serialized"),
    "stage-03": ("concurrent", "serialized"),
    "stage-04": ("concurrent", "concurrent"),
}


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(cell.name for cell in CELLS).items() if count > 1] == []


def test_environment_name_determines_its_packages() -> None:
    named = {(cell.environment, cell.pins.packages) for cell in CELLS}
    assert len(named) == len({environment for environment, _ in named})


def test_every_setup_exists_and_every_verdict_is_possible() -> None:
    assert {cell.setup for cell in CELLS} - SETUPS == {MAIN_JOB}
    assert {cell.expected for cell in CELLS} == {"concurrent", "serialized", "error", "exact"}
    assert {cell.setup for cell in CELLS if cell.expected == "exact"} == {MAIN_JOB}


def test_no_unused_setup() -> None:
    assert SETUPS - {cell.setup for cell in CELLS} == set()


def test_expected_results_match_the_published_account() -> None:
    by_name = {cell.name: cell.expected for cell in CELLS}
    found = {stage: tuple(by_name[f"{stage}-py{python}"] for python in LEGACY) for stage in STORY}
    assert found == STORY


def test_every_modern_python_has_the_same_cells() -> None:
    cells = {
        python: Counter(c.setup for c in CELLS if c.pins.name.startswith("newest") and c.python == python)
        for python in MODERN
    }
    assert cells["3.13"][MAIN_JOB] == 1
    for python, each in cells.items():
        # PyPy has no msgspec, which the main job needs.
        assert each == cells["3.13"] - Counter({MAIN_JOB: int(python.startswith("pypy"))})


def test_the_compose_file_is_up_to_date() -> None:
    assert compose.PATH.read_text() == compose.as_yaml(), "run: python -m docker.compose"


def test_the_compose_file_names_no_cell_twice() -> None:
    services = compose.as_yaml().partition("\nservices:\n")[2].splitlines()
    names = [
        line.split(":")[0].strip() for line in services if line.startswith("  ") and line[2] not in " #"
    ]
    assert sorted(names) == sorted([*(cell.name for cell in CELLS), "origin", "report"])


@pytest.mark.parametrize("python", [*LEGACY, "3.13"])
def test_cell_code_compiles_on_old_pythons(python: str, tmp_path: Path) -> None:
    interpreter = find(python)
    if interpreter is None:
        pytest.skip(f"no interpreter {python}")
    shutil.copytree(INSIDE, tmp_path / "inside")
    argv = [interpreter, "-m", "compileall", "-q", str(tmp_path / "inside")]
    subprocess.run(argv, check=True, timeout=60)


@pytest.mark.parametrize("python", [*LEGACY, "3.10", "3.13"])
def test_stopwatch_imports_nothing_before_the_setup_patches(python: str) -> None:
    interpreter = find(python)
    if interpreter is None:
        pytest.skip(f"no interpreter {python}")
    code = (
        "import sys, stopwatch; print(sorted(set(sys.modules) & {'ssl', 'socket', 'select', 'threading'}))"
    )
    argv = [interpreter, "-B", "-c", code]
    done = subprocess.run(argv, cwd=INSIDE, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("walls", "said", "tries"),
    [
        ((5.4,), "serialized", 1),
        ((6.9, 1.6), "serialized", 1),
        ((2.8, 0.9), "concurrent", 1),
        ((3.5, 0.2, 0.9), "concurrent", 2),
        ((3.5, 0.2) * 5, "unclear", 5),
    ],
)
def test_stopwatch_excludes_delays_of_a_busy_machine(
    walls: tuple[float, ...],
    said: str,
    tries: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``walls``: of ten requests that take half a second each; after one that is unclear, without that."""
    monkeypatch.syspath_prepend(str(INSIDE))
    stopwatch = importlib.import_module("stopwatch")
    took = iter([0.1, *walls])
    monkeypatch.setattr(stopwatch, "measure", lambda urls, cacert, size: (next(took), {}))
    monkeypatch.setitem(sys.modules, "setups.none", ModuleType("setups.none"))
    argv = ["stopwatch.py", "none", "--url", "https://h/{}", "--warm-up", "https://h/", "--cacert", "ca"]
    monkeypatch.setattr(sys, "argv", argv)
    stopwatch.main()
    result = json.loads(capsys.readouterr().out)
    assert (result["verdict"], result["tries"]) == (said, tries)
    assert not list(took)


def test_missing_interpreter_is_not_invented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho not set >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find("3.99") is None
    lying = tmp_path / "python3.98"
    lying.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    lying.chmod(0o755)
    assert find("3.98") is None, "it is another version"


def test_shell_scripts_parse() -> None:
    for script in sorted((ROOT / "docker").glob("*.sh")):
        subprocess.run(["bash", "-n", str(script)], check=True, timeout=20)
