"""The transition tables of a connection and of a run, walked through: every state with every event."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import pytest

from downloader.core.state_machine import transition
from downloader.engine import run_phase
from downloader.engine.run_phase import Phase, RunEvent
from downloader.http.pipelined import connection_state
from downloader.http.pipelined.connection_state import ConnectionEvent, ConnectionState

CONNECTION = (connection_state.TRANSITIONS, ConnectionState, ConnectionEvent)
RUN = (run_phase.TRANSITIONS, Phase, RunEvent)
# What must not occur. Everything else is in the tables.
REFUSED = {
    ConnectionState.IDLE: {"PIPELINE", "RECHECK", "REST", "AWAIT_CLOSE", "COMMIT", "FINISH"},
    ConnectionState.SERVING: {"START", "RECHECK", "REST"},
    ConnectionState.PIPELINING: {"START", "REST", "AWAIT_CLOSE", "FINISH"},
    ConnectionState.RECHECKING: {"START", "PIPELINE", "RECHECK", "AWAIT_CLOSE", "FINISH"},
    ConnectionState.RESTING: {"START", "PIPELINE", "RECHECK", "REST", "AWAIT_CLOSE", "FINISH"},
    ConnectionState.AWAITING_CLOSE: {"START", "PIPELINE", "RECHECK", "REST", "AWAIT_CLOSE", "FINISH"},
    ConnectionState.CLOSED: {"START", "PIPELINE", "RECHECK", "REST", "AWAIT_CLOSE", "COMMIT", "FINISH"},
    Phase.FETCHING: set(),
    Phase.SETTLING: {"CONTESTED"},
    Phase.FINISHING: {"CONTESTED", "OVER"},
    Phase.DRAINING: {"CONTESTED", "OVER"},
    Phase.KILLING: {"CONTESTED", "OVER"},
}


@pytest.mark.parametrize("machine", [CONNECTION, RUN], ids=["connection", "run"])
def test_every_state_with_every_event(machine: tuple[Any, type[Enum], type[Enum]]) -> None:
    table, states, events = machine
    for state in states:
        for event in events:
            if event.name in REFUSED[state]:  # type: ignore[index]
                with pytest.raises(RuntimeError, match=re.escape(f"{event} in {state}")):
                    transition(table, state, event)
            else:
                assert isinstance(transition(table, state, event), states)


@pytest.mark.parametrize(
    ("machine", "first", "last"),
    [(CONNECTION, ConnectionState.IDLE, ConnectionState.CLOSED), (RUN, Phase.FETCHING, Phase.KILLING)],
    ids=["connection", "run"],
)
def test_every_state_is_reached_and_every_one_leads_to_the_end(
    machine: tuple[Any, type[Enum], type[Enum]], first: Enum, last: Enum
) -> None:
    table, states, _ = machine

    def reached(state: Enum) -> set[Enum]:
        found, new = {state}, [state]
        while new:
            for following in table[new.pop()].values():
                if following not in found:
                    found.add(following)
                    new.append(following)
        return found

    assert reached(first) == set(states)
    assert all(last in reached(state) for state in states)
    assert reached(last) == {last}, "nothing leads back from the end"


def test_responses_are_held_where_more_than_one_request_was_in_flight() -> None:
    table = connection_state.TRANSITIONS
    pipelining = transition(table, ConnectionState.SERVING, ConnectionEvent.PIPELINE)
    rechecking = transition(table, pipelining, ConnectionEvent.RECHECK)
    resting = transition(table, rechecking, ConnectionEvent.REST)
    assert {pipelining, rechecking, resting} == connection_state.DEEP
    assert transition(table, resting, ConnectionEvent.COMMIT) not in connection_state.DEEP


def test_a_process_that_ends_is_replaced_only_while_there_is_something_to_do() -> None:
    assert set(Phase) - run_phase.ENDING == {Phase.FETCHING, Phase.SETTLING}
