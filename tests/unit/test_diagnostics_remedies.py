"""The tables of causes, remedies and places agree: no remedy is announced that nobody can carry out."""

from __future__ import annotations

import ast
from pathlib import Path

from diagnostics import remedy, start_remedies
from diagnostics.agent.https_agent import remedies as agent
from diagnostics.causes import LIMITS, TABLE

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
