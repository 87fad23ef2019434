"""Every known trap, each in a fresh process: verdict, cause and place are what its file says.

Those that need other versions of packages, and those that hang until the probe is given up, are slow.
"""

from __future__ import annotations

import sys

import pytest

from diagnostics.environments import satisfies
from diagnostics.scenario import Scenario, chosen
from diagnostics.scenarios_run import run

HANG = {"lock_put_back", "real_lock_of_grequests", "stuck_lookups"}
OFFLINE = [
    each
    for each in chosen()
    if not each.pythons and satisfies(sys.executable, each.packages) and each.name not in HANG
]
SLOW = [each for each in chosen() if each not in OFFLINE]
DELAY = 0.2


def told(text: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("scenario", OFFLINE, ids=lambda each: each.name)
def test_trap(scenario: Scenario) -> None:
    row = run(scenario, sys.executable, True, told, DELAY)
    assert row.outcome == "as expected", row


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scenario", SLOW, ids=lambda each: each.name)
def test_slow_trap(scenario: Scenario) -> None:
    row = run(scenario, sys.executable, False, told)
    if row.outcome == "skipped":
        pytest.skip(row.reason)
    assert row.outcome == "as expected", row
