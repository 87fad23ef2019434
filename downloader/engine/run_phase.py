"""The phases of a run, and what leads from one to the next."""

from __future__ import annotations

from enum import Enum
from typing import Final

from downloader.core.state_machine import Transitions

__all__ = ["ENDING", "TRANSITIONS", "Phase", "RunEvent"]


class Phase(Enum):
    """FETCHING: the source is read, its files are fetched. SETTLING: items whose name no other
    item owns are fetched again. FINISHING: nothing is left; the processes end by themselves. DRAINING:
    nothing new is begun, what is in flight may finish. KILLING: the processes that are left are killed."""

    FETCHING = "fetching"
    SETTLING = "settling"
    FINISHING = "finishing"
    DRAINING = "draining"
    KILLING = "killing"


class RunEvent(Enum):
    """CONTESTED: items were found whose name no other owns. OVER: nothing is left to fetch. DRAIN: the run
    is to end early. KILL: it is to end at once."""

    CONTESTED = "contested"
    OVER = "over"
    DRAIN = "drain"
    KILL = "kill"


TRANSITIONS: Final[Transitions[Phase, RunEvent]] = {
    Phase.FETCHING: {
        RunEvent.CONTESTED: Phase.SETTLING,
        RunEvent.OVER: Phase.FINISHING,
        RunEvent.DRAIN: Phase.DRAINING,
        RunEvent.KILL: Phase.KILLING,
    },
    Phase.SETTLING: {
        RunEvent.OVER: Phase.FINISHING,
        RunEvent.DRAIN: Phase.DRAINING,
        RunEvent.KILL: Phase.KILLING,
    },
    Phase.FINISHING: {RunEvent.DRAIN: Phase.DRAINING, RunEvent.KILL: Phase.KILLING},
    Phase.DRAINING: {RunEvent.DRAIN: Phase.DRAINING, RunEvent.KILL: Phase.KILLING},
    Phase.KILLING: {RunEvent.DRAIN: Phase.KILLING, RunEvent.KILL: Phase.KILLING},
}

ENDING: Final = frozenset({Phase.FINISHING, Phase.DRAINING, Phase.KILLING})
"""The phases in which a process that ends is not replaced."""
