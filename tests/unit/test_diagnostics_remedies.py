"""The tables of causes, remedies and places agree: no remedy is announced that nobody can carry out."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from test_diagnostics_causes import ASK, observation

from diagnostics import remedy, start_remedies
from diagnostics.agent.https_agent import remedies as agent
from diagnostics.causes import LIMITS, TABLE
from diagnostics.errors import ProbeError
from diagnostics.evidence import Case
from diagnostics.model import End, Observation, Target
from diagnostics.verdict import judge

SOURCES = [ast.parse(Path(str(each.__file__)).read_text()) for each in (remedy, start_remedies)]


def test_every_remedy_of_a_cause_is_known_and_every_known_one_belongs_to_a_cause() -> None:
    named = {code for entry in (*LIMITS, *TABLE) for code in entry.remedies}
    assert named == set(remedy.KNOWN)


def test_the_agent_can_carry_out_every_place_that_is_planned() -> None:
    planned = {
        value.value
        for source in SOURCES
        for node in ast.walk(source)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "place" and isinstance(value, ast.Constant)
    }
    assert planned == set(agent._PLACES)


def measured(
    app: Path, without: Observation, *with_it: Observation | ProbeError
) -> list[tuple[str, str, str]]:
    """Return line, verdict and reason of each plan that is tried where the command's first file is ``app``.

    ``with_it``: what is observed with one after the other.
    """
    app.write_text("import requests\n")
    found = replace(without, facts={**without.facts, "roots": [str(app)]})
    question = replace(ASK, target=Target(command=("python3", "app.py")))
    answers = iter(with_it)

    def again(wanted: dict[str, str]) -> Observation:
        seen = next(answers)
        if isinstance(seen, ProbeError):
            raise seen
        return replace(seen, result={**seen.result, "applied": [wanted["code"]]})

    case = Case(question, found, judge(question, found))
    worked, failed = remedy.measure_again(case, ["patch-all-first"], again, lambda text: None)
    assert next(answers, None) is None
    return [(each.line.partition("; monkey.")[2], each.verdict, each.why) for each in failed + worked]


NOTHING = observation({"problem": "nothing came"})
FETCHED = replace(NOTHING, connected=True, end=End(0, ""))
HUNG = replace(NOTHING, end=End(None, "; its last output: LoopExit"))
FAILED = replace(NOTHING, connected=True, end=End(3, "; its last output: LoopExit"))


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (HUNG, "with it, the command ends before it tries an HTTPS connection; its last output: LoopExit"),
        (FAILED, "with it, the command ends with exit code 3; its last output: LoopExit"),
        (ProbeError("app.py ended with exit code 3"), "app.py ended with exit code 3"),
    ],
)
def test_remedy_that_keeps_the_command_from_its_work_is_none(tmp_path, seen, why):
    first, second = measured(tmp_path / "app.py", FETCHED, seen, FETCHED)
    assert first == ("patch_all()", "error", why)
    assert second[0] == "patch_all(thread=False)"


@pytest.mark.parametrize(
    ("without", "seen"),
    [
        (FETCHED, FETCHED),
        (FETCHED, replace(NOTHING, connected=True)),  # probed at a connection
        (replace(FETCHED, end=None), FAILED),  # how it ends without it is not known
        (FAILED, FAILED),
        (NOTHING, HUNG),
    ],
)
def test_remedy_with_which_the_command_gets_as_far_is_judged_by_its_requests(tmp_path, without, seen):
    [only] = measured(tmp_path / "app.py", without, seen)
    assert only[0] == "patch_all()"
    assert "with it" not in only[2]


@pytest.mark.parametrize(("worker", "count"), [(True, 0), (False, 2)])
def test_line_for_workers_that_is_there_already_is_not_offered(tmp_path, worker, count):
    conftest = tmp_path / "conftest.py"
    conftest.write_text(f"{start_remedies.PATCH_WORKERS}\nimport requests\n")
    spot = [str(conftest), 1, "<module>"]
    call = {"function": "patch_all", "arguments": {"thread": "False"}, "caller": spot}
    found = observation({}, roots=[str(conftest)], xdist_worker=worker)
    found = replace(found, seen={**found.seen, "patches": [call]})
    question = replace(ASK, target=Target(command=("pytest", "-n2")))
    case = Case(question, found, judge(question, found))
    assert len(remedy.KNOWN["patch-all-first"].plans(case)) == count
