"""A state machine whose transitions are a table, as in h11: what is not in the table is a defect."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

__all__ = ["Transitions", "transition"]

S = TypeVar("S", bound=Hashable)
E = TypeVar("E", bound=Hashable)

Transitions = Mapping[S, Mapping[E, S]]
"""The next state, for each state and each event that may occur in it."""


def transition(table: Transitions[S, E], state: S, event: E) -> S:
    """Return the state after ``event`` in ``state``. Raises RuntimeError where that must not occur."""
    try:
        return table[state][event]
    except KeyError:
        raise RuntimeError(f"{event} in {state}") from None
