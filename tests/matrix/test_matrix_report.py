"""The report of results: red for every difference, and for no results at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, environment

from docker import report
from docker.cells import CELLS

BY_NAME = {cell.name: cell for cell in CELLS}
TWO = [BY_NAME["a-grequests-py3.13"], BY_NAME["b-injected-py3.13"]]
RIGHT: dict[str, dict[str, Any]] = {
    "a-grequests-py3.13": {"verdict": "concurrent", "wall_s": 0.55, "errors": {}},
    "b-injected-py3.13": {"verdict": "serialized", "wall_s": 5.06, "errors": {}},
}


def test_all_cells_as_expected() -> None:
    table = report.rows(TWO, RIGHT)
    assert report.agree(table)
    assert report.summary(table) == "2 cells measured, all as expected"


@pytest.mark.parametrize("verdict", ["serialized", "error", "unclear", "broken"])
def test_another_verdict_is_red(verdict: str) -> None:
    table = report.rows(TWO, {**RIGHT, TWO[0].name: {"verdict": verdict, "wall_s": 5.06}})
    assert not report.agree(table)
    assert [row.agrees for row in table] == [False, True]


def test_a_cell_without_a_result_is_red() -> None:
    table = report.rows(TWO, {TWO[0].name: RIGHT[TWO[0].name]})
    assert (table[1].measured, table[1].agrees) == ("no result", False)
    assert not report.agree(table)


def test_a_cell_without_an_interpreter_is_neither_passed_nor_failed() -> None:
    table = report.rows(TWO, {TWO[0].name: RIGHT[TWO[0].name]}, {TWO[1].name: "no interpreter 3.13"})
    assert (table[1].measured, table[1].agrees) == ("not run", None)
    assert report.agree(table)
    assert report.summary(table) == "1 cells measured, all as expected; 1 not run"
    page = report.as_markdown(table, "here")
    assert "| b-injected-py3.13 | 3.13 | newest | serialized | not run |  | - |" in page


def test_empty_results_are_red() -> None:
    table = report.rows(TWO, {}, {cell.name: "no interpreter 3.13" for cell in TWO})
    assert not report.agree(table)
    assert report.summary(table) == "0 cells measured, nothing was run; 2 not run"


def test_contradicting_diagnosis_is_red() -> None:
    said = {name: {**result, "diagnosis": {"verdict": "concurrent"}} for name, result in RIGHT.items()}
    table = report.rows(TWO, said)
    assert [row.agrees for row in table] == [True, False]


def test_the_main_job_is_diagnosed_as_concurrent() -> None:
    cell = BY_NAME["main-job-py3.13"]
    for verdict, agrees in (("concurrent", True), ("serialized", False)):
        result = {"verdict": "exact", "wall_s": 1.0, "diagnosis": {"verdict": verdict}}
        assert report.agree(report.rows([cell], {cell.name: result})) is agrees


def reported(directory: Path, results: dict[str, dict[str, Any]]) -> tuple[int, dict[str, Any], str]:
    """Return the report's exit code, its JSON and its Markdown, run as in a container."""
    for name, result in results.items():
        (directory / f"{name}.json").write_text(json.dumps(result))
    names = ",".join(cell.name for cell in TWO)
    argv = [
        sys.executable,
        "-m",
        "docker.report",
        str(directory),
        "--out",
        str(directory / "out"),
        "--cells",
        names,
    ]
    done = subprocess.run(
        argv, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert not done.stderr
    assert all(cell.name in done.stdout for cell in TWO)
    record = json.loads((directory / "out" / "matrix.json").read_text())
    return done.returncode, record, (directory / "out" / "matrix.md").read_text()


def test_the_report_of_compose_is_green(tmp_path: Path) -> None:
    code, record, page = reported(tmp_path, RIGHT)
    assert (code, record["agrees"], "**" in page) == (0, True, False)


def test_the_report_of_compose_fails_on_a_difference(tmp_path: Path) -> None:
    code, record, page = reported(
        tmp_path, {**RIGHT, TWO[0].name: {"verdict": "serialized", "wall_s": 5.1}}
    )
    assert (code, record["agrees"]) == (1, False)
    assert "**serialized**" in page


def test_the_report_of_compose_fails_where_a_result_is_missing(tmp_path: Path) -> None:
    code, record, _ = reported(tmp_path, {TWO[0].name: RIGHT[TWO[0].name]})
    assert (code, record["agrees"]) == (1, False)
