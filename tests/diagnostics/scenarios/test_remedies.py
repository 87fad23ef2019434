"""Each remedy that ``--fix`` prints for a scenario is carried out in a copy of it, and measured."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from carried_out import carry_out

from diagnostics import causes, environments, remedy
from diagnostics.examine import examine
from diagnostics.model import Question, Target
from diagnostics.scenario import chosen

HANG = {"lock_put_back", "real_lock_of_grequests", "stuck_lookups"}
# One for each kind of place.
QUICK = {"grequests_injected", "imported_at_startup", "pool_of_one", "sockets_put_back", "truststore_first"}
SCENARIOS = [
    each
    for each in chosen()
    if each.expected.cause
    and not each.server
    and each.name not in HANG
    and not each.pythons
    and environments.satisfies(sys.executable, each.packages)
]


def test_every_remedy_of_a_cause_is_in_the_table():
    wanted = {code for entry in causes.TABLE for code in entry.remedies}
    assert wanted == set(remedy.KNOWN)


def examined(scenario, fix):
    return examine(Question(Target(app=scenario.app)), fix=fix)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, marks=() if each.name in QUICK else pytest.mark.slow) for each in SCENARIOS],
    ids=[each.name for each in SCENARIOS],
)
def test_each_remedy_is_carried_out_as_printed(tmp_path, monkeypatch, scenario):
    def begin(name):
        folder = tmp_path / name
        shutil.copytree(scenario.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.chdir(folder)
        if scenario.path:
            monkeypatch.setenv("PYTHONPATH", os.fspath(folder / scenario.path))
        return folder

    begin("as it is")
    found = examined(scenario, fix=True)
    assert (found.verdict, found.causes[0].code) == (scenario.expected.verdict, scenario.expected.cause)
    for number, each in enumerate(found.remedies):
        folder = begin(str(number))
        carry_out(folder, each.line, each.where)
        after = examined(scenario, fix=False)
        assert after.verdict == "concurrent", (each, after.causes, after.error)
    for each in found.tried:
        assert each.why, each
    assert Path.cwd().parent == tmp_path
