"""Cells that are measured, on the interpreter that runs the tests, with its own packages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from docker import report
from docker.cells import CELLS, REQUESTS_23, Cell, Pins
from docker.interpreters import find
from docker.native import measure

PYTHON = "{}.{}".format(*sys.version_info)
OWN = {cell.setup: cell for cell in CELLS if cell.python == PYTHON and cell.pins.name == "newest"}


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    if not OWN:
        pytest.skip(f"no cell for Python {PYTHON}")


def measured(cells: Sequence[Cell]) -> list[report.Row]:
    """Measure with this interpreter's packages: the tests' requirements include those of these cells."""
    return measure(cells, turns=2, diagnose=False, provider=lambda *_: sys.executable)


def test_cells_of_this_interpreter_are_as_expected() -> None:
    names = ("grequests_only", "grequests_injected", "patch_all_injected", "requests_first", "main_job")
    table = measured([OWN[name] for name in names])
    assert [(row.setup, row.measured) for row in table if not row.agrees] == []


def test_injection_turns_the_report_red() -> None:
    broken = replace(OWN["grequests_only"], setup="grequests_injected")
    (row,) = table = measured([broken])
    assert (row.expected, row.measured, row.agrees) == ("concurrent", "serialized", False)
    assert not report.agree(table)


def test_setup_that_cannot_be_imported_is_red() -> None:
    (row,) = measured([replace(OWN["grequests_only"], setup="of_nobody")])
    assert (row.measured, row.agrees) == ("broken", False)
    assert "of_nobody" in row.note


def test_packages_that_cannot_be_installed_are_red() -> None:
    cell = replace(OWN["grequests_only"], pins=Pins("nowhere", "./nowhere-1.0-py3-none-any.whl"))
    (row,) = measure([cell], turns=1, diagnose=False)
    assert (row.measured, row.agrees) == ("broken", False)
    assert "could not be installed" in row.note


def test_a_cell_without_an_interpreter_is_not_run() -> None:
    absent = replace(OWN["grequests_only"], python="3.99")
    (row,) = table = measured([absent])
    assert (row.measured, row.agrees) == ("not run", None)
    assert not report.agree(table)


@pytest.mark.slow
def test_a_pin_that_brings_the_injection_back_turns_the_report_red() -> None:
    if find("3.10") is None:
        pytest.skip("no interpreter 3.10")
    cell = next(cell for cell in CELLS if cell.name == "requests-2.24-py3.10")
    (right,) = measure([cell], turns=1, diagnose=False)
    (wrong,) = measure([replace(cell, pins=REQUESTS_23)], turns=1, diagnose=False)
    assert (right.measured, wrong.measured) == ("concurrent", "serialized")
    assert (right.agrees, wrong.agrees) == (True, False)
