"""What is said of the handlers of a client of botocore."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from diagnostics import handlers
from diagnostics.agent.https_agent.handlers import _function_of
from diagnostics.evidence import Case
from diagnostics.model import Observation, Question, Target
from diagnostics.verdict import Judgement, judge

ASK = Question(Target(command=("python", "app.py")), requests=10, delay=0.2)
SPOT = ("/proj/app.py", 7, "block")


def case(found: dict[str, Any] | None, **changed: Any) -> Case:
    """Return the case of requests that overlap, of a client with the handlers ``found``."""
    result = {"rounds": [], "held": [], "parked": [], "problem": None, "sharing": {"handlers": found}}
    seen = Observation(result, {}, {"patched": {}, "cwd": "/proj", "started": "/proj"})
    return Case(ASK, seen, dataclasses.replace(_concurrent(), **changed))


def _concurrent() -> Judgement:
    rounds = [
        {"requests": 10, "delay": delay, "wall": wall, "cpu": 0.0, "ready": 0.0, "done": 10, "errors": 0}
        | {"kinds": {}, "first": [], "run": "r"}
        for delay, wall in ((0.0, 0.1), (0.2, 0.31))
    ]
    result = {"rounds": rounds, "held": [], "parked": [], "looked": 0.4, "scheduler": True, "problem": None}
    return judge(ASK, Observation(result, {}, {"patched": {}}))


def test_no_verdict_where_a_handler_was_left_out_and_the_rest_is_concurrent():
    found = {"called": [], "left_out": [("after-call", SPOT), ("before-send", SPOT)]}
    assert "handler of after-call at app.py:7, too" in handlers.not_called(case(found))
    assert handlers.not_called(case(found, verdict="serialized")) == ""


@pytest.mark.parametrize(
    ("found", "more"),
    [
        ({"called": [], "left_out": []}, "client: what"),
        ({"called": [("before-send", SPOT)] * 2, "left_out": []}, "the program's handlers of before-send:"),
    ],
)
def test_note_says_what_was_measured(found: dict[str, Any], more: str):
    assert more in handlers.shown(case(found).observation, "concurrent")
    assert handlers.not_called(case(found)) == ""


def test_other_clients_have_no_note():
    assert handlers.shown(case(None).observation, "concurrent") == ""


def test_function_of_a_handler():
    class Signer:
        def sign(self) -> None: ...

        def __call__(self) -> None: ...

    assert _function_of(functools.partial(Signer().sign, 1)) is Signer.sign
    assert _function_of(Signer()) is Signer.__call__
