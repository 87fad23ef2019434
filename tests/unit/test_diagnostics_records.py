"""Records from JSON of other processes: what does not fit their types is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from diagnostics.records import typed


@dataclass
class Inner:
    name: str
    seconds: float = 0.5


@dataclass
class Outer:
    count: int
    inner: list[Inner]
    pair: tuple[int, float | None] = (0, None)
    spots: tuple[tuple[str, int], ...] = ()
    is_over: bool = False
    missing: list[int] = field(default_factory=list)


GOOD = {"count": 1, "inner": [{"name": "a"}]}


def test_what_fits_becomes_a_record():
    inner = '[{"name": "a", "seconds": 2, "more": 1}]'
    found = typed(
        json.loads(f'{{"count": 3, "inner": {inner}, "pair": [1, null], "spots": [["f", 1]]}}'), Outer
    )
    assert found == Outer(3, [Inner("a", 2.0)], (1, None), (("f", 1),))
    assert type(found.inner[0].seconds) is float
    assert typed({**GOOD, "pair": [1, 2.5]}, Outer).pair == (1, 2.5)


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {},
        {"count": 1},
        {**GOOD, "count": 1.0},
        {**GOOD, "count": True},
        {**GOOD, "count": None},
        {**GOOD, "inner": {}},
        {**GOOD, "inner": [1]},
        {**GOOD, "inner": [{"name": 1}]},
        {**GOOD, "inner": [{"name": "a", "seconds": "2"}]},
        {**GOOD, "inner": [{"name": "a", "seconds": True}]},
        {**GOOD, "inner": [{"name": "a", "seconds": float("nan")}]},
        {**GOOD, "inner": [{"name": "a", "seconds": float("inf")}]},
        {**GOOD, "pair": [1]},
        {**GOOD, "pair": [1, 2.0, 3]},
        {**GOOD, "pair": [1, "2"]},
        {**GOOD, "spots": [["f", "1"]]},
        {**GOOD, "is_over": 0},
    ],
)
def test_what_does_not_fit_is_refused(given):
    with pytest.raises(ValueError, match=r"is n|missing"):
        typed(given, Outer)
