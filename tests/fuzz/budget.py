"""Set how long to fuzz: a bounded number of examples as part of the tests, or ``FUZZ_SECONDS`` in all
(``make fuzz``), which the targets share, in rounds of new examples."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

from hypothesis import HealthCheck, settings

__all__ = ["SECONDS", "bounded", "rounds"]

TARGETS = 9
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0")) / TARGETS
"""Seconds for each target; 0 where it is part of the tests."""
_EXAMPLES = 1000  # in a round


def bounded(examples: int) -> settings:
    """Return settings for a target that gets ``examples`` as part of the tests."""
    return settings(
        max_examples=_EXAMPLES if SECONDS else examples,
        stateful_step_count=60,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def rounds(target: Callable[[], None]) -> None:
    """Run ``target`` once, then again while there is time left."""
    until = monotonic() + SECONDS
    target()
    while monotonic() < until:
        target()
