"""The commit queue stores in portions; between two of them the sockets are read."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import gevent
import pytest
from gevent.event import Event

from downloader.http.pipelined.commit_queue import PORTION, CommitQueue

READ = 1


class Committer:
    """Holds ``held`` responses; calls ``then`` in its commit."""

    def __init__(self, name: str, log: list[str], held: int, then: Callable[[], object] = int) -> None:
        self.name, self.log, self.held, self.then = name, log, held, then

    def commit(self) -> int:
        self.log.append(self.name)
        self.then()
        return self.held


class Fixture:
    """A queue, the errors that it reports, and a log that a socket writes into, too."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.errors: list[Exception] = []
        self.queue = CommitQueue(self.errors.append)
        self.over = Event()
        self.near, self.far = socket.socketpair()
        self.watcher = gevent.get_hub().loop.io(self.far.fileno(), READ)
        self.watcher.start(self.read)

    def send(self) -> None:
        self.near.send(b"x")

    def read(self) -> None:
        self.far.recv(1)
        self.log.append("read")

    def committer(self, name: str, held: int, then: Callable[[], object] = int) -> Committer:
        return Committer(name, self.log, held, then)

    def run(self) -> list[str]:
        """Run until the last of the queue has committed; return the log."""
        self.queue.enqueue(self.committer("last", 0, self.over.set))
        assert self.over.wait(10)
        return self.log[:-1]


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    fixture = Fixture()
    yield fixture
    fixture.watcher.close()
    fixture.near.close()
    fixture.far.close()


def test_sockets_are_read_between_two_portions(fixture: Fixture) -> None:
    for name in "abc":
        fixture.queue.enqueue(fixture.committer(name, PORTION, fixture.send))
    assert fixture.run() == ["a", "read", "b", "read", "c", "read"]


def test_small_windows_share_a_portion(fixture: Fixture) -> None:
    for name in "abc":
        fixture.queue.enqueue(fixture.committer(name, PORTION // 2, fixture.send))
    assert fixture.run() == ["a", "b", "read", "c"]


def test_a_delayed_committer_is_queued_once(fixture: Fixture) -> None:
    delayed = fixture.committer("delayed", 1, fixture.over.set)
    fixture.queue.enqueue_after(delayed, 0.01)
    fixture.queue.enqueue_after(delayed, 3600)
    assert fixture.over.wait(10)
    fixture.over.clear()
    assert fixture.run() == ["delayed"]


def test_a_committer_that_enqueues_itself_again_is_last(fixture: Fixture) -> None:
    first = fixture.committer("first", PORTION)
    first.then = lambda: fixture.queue.enqueue(first) if fixture.log == ["first"] else fixture.over.set()
    fixture.queue.enqueue(first)
    fixture.queue.enqueue(fixture.committer("second", PORTION))
    assert fixture.over.wait(10)
    assert fixture.log == ["first", "second", "first"]


def test_a_removed_committer_never_commits(fixture: Fixture) -> None:
    gone, delayed = fixture.committer("gone", 1), fixture.committer("delayed", 1)
    fixture.queue.enqueue(gone)
    fixture.queue.enqueue_after(delayed, 0.001)
    fixture.queue.remove(gone)
    fixture.queue.remove(delayed)
    fixture.queue.remove(delayed)
    fixture.queue.enqueue_after(fixture.committer("later", 0, fixture.over.set), 0.01)
    assert fixture.over.wait(10)
    fixture.over.clear()
    assert fixture.run() == ["later"]


def test_commit_all_skips_removed_committers(fixture: Fixture) -> None:
    late = fixture.committer("late", PORTION)
    fixture.queue.enqueue(fixture.committer("a", PORTION, lambda: fixture.queue.remove(late)))
    fixture.queue.enqueue(late)
    fixture.queue.enqueue(fixture.committer("b", PORTION))
    fixture.queue.enqueue_after(fixture.committer("delayed", 1), 3600)
    fixture.queue.commit_all()
    assert fixture.log == ["a", "b"]


def test_an_error_is_reported_and_the_next_commits(fixture: Fixture) -> None:
    problem = RuntimeError("broken")

    def fail() -> None:
        raise problem

    fixture.queue.enqueue(fixture.committer("a", 1, fail))
    fixture.queue.enqueue(fixture.committer("b", 1))
    assert fixture.run() == ["a", "b"]
    assert fixture.errors == [problem]
