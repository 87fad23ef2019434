"""Each remedy that ``--fix`` prints for a scenario is carried out in a copy of it, and measured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from carried_out import carry_out
from harness import environment

from diagnostics import causes, remedy
from diagnostics.scenario import chosen
from diagnostics.scenarios_run import Skipped, interpreter, server

# One scenario for each kind of place.
QUICK = {"grequests_injected", "imported_at_startup", "pool_of_one", "sockets_put_back"}
WITH_REMEDIES = {entry.code for entry in causes.TABLE if entry.remedies}
SCENARIOS = [each for each in chosen() if each.expected.cause in WITH_REMEDIES]


def test_every_remedy_of_a_cause_is_in_the_table():
    wanted = {code for entry in causes.TABLE for code in entry.remedies}
    assert wanted == set(remedy.KNOWN)


def test_the_quick_ones_are_scenarios():
    assert {each.name for each in SCENARIOS} >= QUICK


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, marks=() if each.name in QUICK else pytest.mark.slow) for each in SCENARIOS],
    ids=[each.name for each in SCENARIOS],
)
def test_each_remedy_is_carried_out_as_printed(tmp_path, scenario):
    try:
        python = interpreter(scenario, sys.executable, scenario.name in QUICK, lambda text: None)
    except Skipped as skipped:
        pytest.skip(str(skipped))

    def copied(name):
        folder = tmp_path / name
        shutil.copytree(scenario.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        return folder

    def examined(folder, *options, start=(), command=()):
        with server(scenario) as (url, cacert):
            at = ["--url", url, "--cacert", cacert] if url else []
            argv = [sys.executable, "-m", "diagnostics", "--json", "--python", python]
            target = ["--app", scenario.app]
            if scenario.command:
                target = ["--", *(command or scenario.command)]
            path = os.fspath(folder / scenario.path) if scenario.path else ""
            done = subprocess.run(
                [*start, *argv, *at, *options, *target],
                cwd=folder,
                env=environment(PYTHONPATH=path, TMPDIR=os.fspath(tmp_path)),
                capture_output=True,
                text=True,
                input=scenario.input,
                timeout=300,
                check=False,
            )
        if done.returncode == 4 and "with its context and sockets they are concurrent" in done.stderr:
            # What a program without a client does between its connections is not known, but they are.
            return {"verdict": "concurrent", "causes": [], "error": done.stderr}
        assert done.returncode in (0, 1, 3), done.stderr
        return json.loads(done.stdout)

    found = examined(copied("as it is"), "--fix")
    told = found["verdict"], found["causes"][0]["code"]
    assert told == (scenario.expected.verdict, scenario.expected.cause)
    for number, each in enumerate([*found["remedies"], *found["tried"]]):
        folder = copied(str(number))
        written = any(
            f" of {each_in}" in each["where"] for each_in in ("python -c", "In [", "standard input")
        )
        if written:
            continue  # it is in no file: see test_programs_without_files.py
        start = carry_out(folder, each["line"], each["where"])
        command = start[1:] if start[:1] == ["command"] else []
        after = examined(folder, start=[] if command else start, command=command)
        assert after["verdict"] == each["verdict"], (each, after["causes"], after["error"])
    assert all(each["verdict"] == "concurrent" for each in found["remedies"])
    for each in found["tried"]:
        assert each["verdict"] != "concurrent", each
        assert each["why"], each
