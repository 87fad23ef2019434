"""Whether greenlets queue for each other while connections are opened, from the record of that pass."""

from __future__ import annotations

from typing import Any

import pytest
from test_diagnostics_causes import observation
from test_diagnostics_verdict import ASK, once, seen, served

from diagnostics.agent.https_agent import openings
from diagnostics.causes import explain
from diagnostics.evidence import Case
from diagnostics.limits import queued_at_opening
from diagnostics.opened import Queue, queue_of
from diagnostics.verdict import judge
from diagnostics.waits import in_look_up, in_turn

GEVENT = "/venv/lib/python3.11/site-packages/gevent"
URLLIB3 = "/venv/lib/python3.11/site-packages/urllib3"
LOCK = [(f"{GEVENT}/thread.py", 320, "acquire"), ("/proj/app.py", 8, "connect")]
SOCKET = [(f"{GEVENT}/_socketcommon.py", 657, "recv"), ("/proj/app.py", 9, "connect")]
SLEEP = [(f"{GEVENT}/hub.py", 166, "sleep"), ("/proj/app.py", 9, "connect")]
EVENT = [("/proj/app.py", 8, "connect")]  # compiled, without frames of its own
POOL = [
    (f"{GEVENT}/queue.py", 300, "get"),
    (f"{URLLIB3}/connectionpool.py", 256, "_get_conn"),
    ("/proj/app.py", 4, "fetch"),
]
NINE = [number * 0.2 for number in range(1, 10)]


def opens(waits: Any, has: Any, at: list[float], ready: bool = True) -> dict[str, Any]:
    """Return the record of greenlets at ``waits``, of which each goes on ``at`` a time and ``has``."""
    changes = []
    for time in sorted({0.0, *at}):
        left = [number for number, each in enumerate(at) if each > time]
        having = [number for number, each in enumerate(at) if each == time] if time and has else []
        first = [[len(at), 1]] if has and not time else []
        changes.append([time, [*([number, 0] for number in left), *([each, 1] for each in having), *first]])
    changes.append([max(at) + 0.2, []])
    return {"stacks": [waits, has or SOCKET], "seen": changes, "ready": ready}


def measured(opening: dict[str, Any], wall: float = 2.0, quick: float = 0.21, **more: Any) -> Any:
    """Return the judgement of a program whose connections were opened in ``wall``."""
    rounds = (once(1, 0, 0.2), once(10, 0.0, wall, opening=opening, **more), once(10, 0.2, quick))
    return judge(ASK, seen(*rounds, served=served(10, *[0.0] * 9, 0.2)))


@pytest.mark.parametrize("waits", [LOCK, EVENT])
@pytest.mark.parametrize("has", [SOCKET, SLEEP])
def test_who_goes_on_one_by_one_while_one_has_the_turn_queues(waits, has):
    found = measured(opens(waits, has, NINE))
    assert (found.verdict, found.wall, found.delay, found.concurrency) == ("serialized", 2.0, 0.0, 1.0)
    assert (found.queue, found.served) == (Queue(waits, True), None)


@pytest.mark.parametrize(
    "at",
    [
        [1.8] * 9,  # a login that is made once
        [1.8 + number / 1000 for number in range(9)],
        [0.9] * 4 + [1.8] * 5,  # two of them
        [0.6] * 3 + [1.2] * 3 + [1.8] * 3,  # three at once
        [number / 1000 for number in range(1, 10)],  # a lock that is held for a moment
    ],
)
def test_who_goes_on_together_does_not_queue(at):
    found = measured(opens(LOCK, SOCKET, at))
    assert (found.verdict, found.queue) == ("concurrent", None)


@pytest.mark.parametrize("waits", [SOCKET, POOL])
def test_slow_handshakes_and_pools_are_no_queue(waits):
    assert measured(opens(waits, SLEEP, NINE)).queue is None


@pytest.mark.parametrize(
    "opening",
    [
        opens(EVENT, None, NINE),  # each for something of its own
        opens(SLEEP, SOCKET, NINE),
        opens(LOCK, SOCKET, NINE, ready=False),  # the machine may be busy
        opens(LOCK, SOCKET, [0.45, 0.9, 1.35, 1.8]),  # less than half of them
    ],
)
def test_what_may_be_a_queue_is_no_verdict(opening):
    found = measured(opening)
    assert (found.verdict, found.wall, found.queue.sure) == ("concurrent", 0.21, False)


def test_several_that_have_a_turn_are_no_queue_for_sure():
    told = opens(LOCK, SOCKET, NINE)
    for change in told["seen"][:-1]:
        change[1] += [[20, 1], [21, 1]]
    assert queue_of(told, 10) == Queue(LOCK, False)


def test_what_a_queue_takes_has_to_be_long_and_of_that_pass_alone():
    told = opens(LOCK, SOCKET, NINE)
    assert measured(told, wall=0.7).verdict == "concurrent"
    busy = measured(told, ready=0.7)  # nor had a local service a CPU
    assert (busy.verdict, busy.queue) == ("concurrent", Queue(LOCK, False))
    assert measured(told, cpu=1.5).verdict == "concurrent"
    assert measured(told, quick=1.5).queue is None  # a rate


def case(waits: Any, has: Any) -> Case:
    """Return what is known where greenlets wait at ``waits``, and after that longer elsewhere."""
    opening = opens(waits, has, NINE)
    rounds = (once(1, 0, 0.2), once(10, 0.0, 2.0, opening=opening), once(10, 0.2, 0.21))
    other = [LOCK[0], ("/proj/b.py", 5, "log")]
    parked = [{"stack": each, "seconds": 9.0, "during": 1.8, "most": 8} for each in (other, waits)]
    facts = {"own_files": ["/proj/app.py"], "started": "/proj"}
    found = observation({"rounds": list(rounds), "parked": parked}, **facts)
    found.served.update(served(10, *[0.0] * 9, 0.2))
    return Case(ASK, found, judge(ASK, found))


def test_the_cause_is_the_lock_that_they_queue_for():
    queued = case(LOCK, SOCKET)
    [(cause, _)] = explain(queued)
    assert (cause.code, cause.where) == ("own-lock", "app.py:8")
    assert "while they open connections" in cause.explanation
    assert not any("server saw" in line for line in cause.evidence)
    assert queued_at_opening(queued) == ""


def test_a_note_has_the_line_where_they_may_queue():
    queued = case(EVENT, None)
    assert explain(queued) == []
    assert "took 2.00 s: greenlets went on one after the other at app.py:8;" in queued_at_opening(queued)


def test_a_lock_of_a_look_up_of_its_own_is_no_look_up():
    own = ("/proj/app.py", 3, "getaddrinfo")
    assert in_turn([LOCK[0], own])
    assert in_turn([LOCK[0], ("/proj/app.py", 9, "ask"), own])
    assert in_look_up([(f"{GEVENT}/resolver/thread.py", 63, "getaddrinfo"), own])
    assert in_look_up([(f"{GEVENT}/threadpool.py", 400, "apply"), own])
    assert in_look_up([("/usr/lib/python3.11/socket.py", 962, "getaddrinfo"), own])


def test_record_has_each_change_at_the_idle_time(monkeypatch):
    times = iter([10.0, 10.1, 10.15, 10.2, 11.0])
    spent = iter([(0.04, 0.03), (0.0, 0.0), (0.05, 0.0), (0.0, 0.0)])

    class Spent:
        known = True
        since = staticmethod(lambda: next(spent))
        close = staticmethod(lambda: None)

    monkeypatch.setattr(openings, "clock", lambda: next(times))
    monkeypatch.setattr(openings.sampler, "Spent", Spent)
    record = openings.Opening(0.04)
    for waiting in ({700: "a", 800: "a"}, {700: "a", 800: "a"}, {800: "a", 900: "b"}, {}):
        record.look(waiting)
    told = record.told()
    assert (told["stacks"], told["ready"]) == ([["a"], ["b"]], True)
    assert told["seen"] == [
        [pytest.approx(0.03), [[0, 0], [1, 0]]],
        [pytest.approx(0.07), [[1, 0], [2, 1]]],
        [pytest.approx(0.11), []],  # the hub was held meanwhile
    ]
