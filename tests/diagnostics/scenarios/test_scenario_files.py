"""The headers of the scenario files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from diagnostics.causes import LIMITS, TABLE
from diagnostics.errors import UsageError
from diagnostics.scenario import FOLDER, Expected, chosen, read

CODES = {entry.code for entry in TABLE}
OWN_LIMITS = {entry.code for entry in LIMITS}


def test_each_expects_a_known_cause_unless_it_is_concurrent() -> None:
    for each in chosen():
        assert each.expected.verdict in ("concurrent", "serialized", "error", "none"), each.name
        if each.expected.verdict == "none":
            assert each.expected.error
        elif each.expected.verdict == "concurrent":
            assert each.expected.cause in OWN_LIMITS | {""}, each.name
        else:
            assert each.expected.cause in CODES, each.name


def test_no_file_shadows_a_module() -> None:
    """The folder is the current directory of an application: a file named ``ssl`` would be imported."""
    stems = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    packages = {"gevent", "requests", "urllib3", "grequests", "truststore", "pycurl", "OpenSSL", "google"}
    assert not stems & (set(sys.stdlib_module_names) | packages)


def scenario(folder: Path, *lines: str) -> Path:
    path = folder / "trap.py"
    path.write_text("\n".join(['"""A trap."""', *lines]) + "\n")
    return path


def test_file_header_states_requirements_and_expectation(tmp_path: Path) -> None:
    path = scenario(
        tmp_path,
        'PACKAGES = ["gevent==1.4.0"]',
        'PYTHONS = ["3.7"]',
        'EXPECT = {"verdict": "serialized", "cause": "own-lock"}',
        "def fetch(url):",
        "    pass  # <- where",
    )
    (found,) = read(path)
    assert (found.name, found.app, found.summary) == ("trap", "trap:fetch", "A trap.")
    assert (found.packages, found.pythons) == (("gevent==1.4.0",), ("3.7",))
    assert found.expected.where == "trap.py:6"


def test_expectation_differs_by_python(tmp_path: Path) -> None:
    path = scenario(
        tmp_path,
        'EXPECT = {"verdict": "error", "cause": "patched-too-late"}',
        'EXPECT_2 = {"verdict": "concurrent"}',
        "import ssl  # <- where",
    )
    (found,) = read(path)
    assert found.expected_on("3.11").where == "trap.py:4"
    assert found.expected_on("2.7") == Expected("concurrent")


@pytest.mark.parametrize(
    ("pythons", "python", "suits"),
    [("[]", "2.7", True), ('["3"]', "2.7", False), ('["3"]', "3.14", True), ('["3.1"]', "3.14", False)],
)
def test_scenario_runs_on_the_versions_that_it_names(
    pythons: str, python: str, suits: bool, tmp_path: Path
) -> None:
    path = scenario(tmp_path, f"PYTHONS = {pythons}", 'EXPECT = {"verdict": "concurrent"}')
    assert read(path)[0].runs_on(python) is suits


def test_run_variants_override_the_header(tmp_path: Path) -> None:
    path = scenario(
        tmp_path,
        'PACKAGES = ["gevent"]',
        'EXPECT = {"verdict": "concurrent"}',
        'RUNS = [{"name": "old", "PACKAGES": ["gevent==1.4.0"]}, {"name": "new"}]',
    )
    old, new = read(path)
    assert (old.name, old.packages, old.app) == ("trap/old", ("gevent==1.4.0",), "trap")
    assert (new.name, new.packages, new.expected.verdict) == ("trap/new", ("gevent",), "concurrent")


@pytest.mark.parametrize("line", ["", "EXPECT = {'verdict': 'error', 'code': 'x'}", "EXPECT = f()", "def"])
def test_file_without_header_is_a_usage_error(tmp_path: Path, line: str) -> None:
    scenario(tmp_path, line)
    with pytest.raises(UsageError, match=r"trap\.py: "):
        chosen(tmp_path)


def test_scenarios_are_chosen_by_name() -> None:
    assert [each.name for each in chosen(only=("curl",))] == ["curl"]
    assert [each.name for each in chosen(only=("stage_01",))] == ["stage_01/2.7", "stage_01/3.7"]
    assert [each.name for each in chosen(only=("stage_01/3.7",))] == ["stage_01/3.7"]
    with pytest.raises(UsageError, match="no scenario nonsense"):
        chosen(only=("nonsense",))
