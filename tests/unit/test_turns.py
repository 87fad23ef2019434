"""Turns: what has come in is stored by portions, and between two of them sockets are read."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent.event import Event

from downloader.http.pipelined.commit_queue import PORTION, Turns

READ = 1


class Taker:
    """Holds ``held`` answers; ``then`` happens in its turn."""

    def __init__(self, name: str, log: list[str], held: int, then: Callable[[], object] = int) -> None:
        self.name, self.log, self.held, self.then = name, log, held, then

    def turn(self) -> int:
        self.log.append(self.name)
        self.then()
        return self.held


class Line:
    """Turns of a loop of its own, what they lost, and a log that a socket writes into, too."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.lost: list[Exception] = []
        self.turns = Turns(self.lost.append)
        self.over = Event()
        self.near, self.far = socket.socketpair()
        self.watcher = gevent.get_hub().loop.io(self.far.fileno(), READ)
        self.watcher.start(self.read)

    def send(self) -> None:
        self.near.send(b"x")

    def read(self) -> None:
        self.far.recv(1)
        self.log.append("read")

    def taker(self, name: str, held: int, then: Callable[[], object] = int) -> Taker:
        return Taker(name, self.log, held, then)

    def run(self) -> list[str]:
        """The log, once the last in line had its turn."""
        self.turns.stand(self.taker("last", 0, self.over.set))
        assert self.over.wait(10)
        return self.log[:-1]


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.watcher.close()
    line.near.close()
    line.far.close()


def test_sockets_are_read_between_two_portions(line: Line) -> None:
    for name in "abc":
        line.turns.stand(line.taker(name, PORTION, line.send))
    assert line.run() == ["a", "read", "b", "read", "c", "read"]


def test_small_windows_share_a_portion(line: Line) -> None:
    for name in "abc":
        line.turns.stand(line.taker(name, PORTION // 2, line.send))
    assert line.run() == ["a", "b", "read", "c"]


def test_who_rests_stands_in_line_afterwards_once(line: Line) -> None:
    rested = line.taker("rested", 1, line.over.set)
    line.turns.rest(rested, 0.01)
    line.turns.rest(rested, 3600)
    assert line.over.wait(10)
    line.over.clear()
    assert line.run() == ["rested"]


def test_who_stands_again_is_behind_the_others(line: Line) -> None:
    first = line.taker("first", PORTION)
    first.then = lambda: line.turns.stand(first) if line.log == ["first"] else line.over.set()
    line.turns.stand(first)
    line.turns.stand(line.taker("second", PORTION))
    assert line.over.wait(10)
    assert line.log == ["first", "second", "first"]


def test_who_has_left_has_no_turn(line: Line) -> None:
    gone, rests = line.taker("gone", 1), line.taker("rests", 1)
    line.turns.stand(gone)
    line.turns.rest(rests, 0.001)
    line.turns.leave(gone)
    line.turns.leave(rests)
    line.turns.leave(rests)
    line.turns.rest(line.taker("later", 0, line.over.set), 0.01)
    assert line.over.wait(10)
    line.over.clear()
    assert line.run() == ["later"]


def test_all_at_once(line: Line) -> None:
    late = line.taker("late", PORTION)
    line.turns.stand(line.taker("a", PORTION, lambda: line.turns.leave(late)))
    line.turns.stand(late)
    line.turns.stand(line.taker("b", PORTION))
    line.turns.rest(line.taker("rests", 1), 3600)
    line.turns.take_all()
    assert line.log == ["a", "b"]


def test_what_a_turn_raises_is_reported_and_the_next_has_its_turn(line: Line) -> None:
    problem = RuntimeError("broken")

    def fail() -> None:
        raise problem

    line.turns.stand(line.taker("a", 1, fail))
    line.turns.stand(line.taker("b", 1))
    assert line.run() == ["a", "b"]
    assert line.lost == [problem]
