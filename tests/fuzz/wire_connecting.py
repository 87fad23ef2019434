"""Connecting to one of several addresses: the first that answers, without waiting for those that do not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from benchmarks.openweb.void import void
from downloader.core.scheduler import Scheduler
from downloader.http import connection_budget, connection_pool
from downloader.http.connecting import alternate, connect
from downloader.http.dns import Resolver
from downloader.process.private_parts import unopened_connection

VOID, REFUSED, OPEN = "127.0.0.9", "127.0.0.10", "127.0.0.11"


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port at which one address accepts connections, one refuses, and one does not answer."""
    with socket.create_server((OPEN, 0)) as listener:
        number = listener.getsockname()[1]
        with void(VOID, number):
            yield number


@pytest.mark.parametrize("addresses", [[OPEN], [VOID, OPEN], [REFUSED, OPEN], [VOID, REFUSED, VOID, OPEN]])
def test_first_address_that_answers_is_taken(addresses: list[str], port: int) -> None:
    with gevent.Timeout(20):
        sock, address = connect(addresses, port, 60.0)
    with sock:
        assert (address, sock.getpeername()) == (OPEN, (OPEN, port))
        assert sock.gettimeout() == pytest.approx(60.0, abs=5)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("addresses", "kind"),
    [
        ([REFUSED], ConnectionRefusedError),
        ([REFUSED, REFUSED], ConnectionRefusedError),
        ([VOID], TimeoutError),
        ([VOID, REFUSED], TimeoutError),
        ([VOID] * 20, TimeoutError),
    ],
)
def test_failure_is_that_of_the_address_that_did_not_answer(
    addresses: list[str], kind: type[OSError], port: int
) -> None:
    with gevent.Timeout(20), pytest.raises(kind):
        connect(addresses, port, 0.5)


def test_name_without_an_address() -> None:
    with pytest.raises(OSError, match="no address"):
        connect([], 80, 1.0)


def test_families_take_turns() -> None:
    assert list(alternate(["::1", "::2", "::3", "1.1.1.1"])) == ["::1", "1.1.1.1", "::2", "::3"]
    assert list(alternate(["1.1.1.1", "1.1.1.2", "::1"])) == ["1.1.1.1", "::1", "1.1.1.2"]


def test_requests_keep_their_slots_while_all_connections_are_slow_to_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the CPU is the limit, others in their place would make all slower."""
    monkeypatch.setattr(connection_budget, "SLOW_TO_OPEN", 0.0)
    schedule: Scheduler[Any] = Scheduler(2, 2, most_parked=2)
    budget = connection_budget.ConnectionBudget(2, Resolver(lambda: NotImplemented, 1.0))
    budget.use_slots(schedule)
    budget.waiting_for[gevent.getcurrent()] = schedule.host("a")
    pool = connection_pool.pool_classes(budget)["http"]("a")
    first, second = unopened_connection(pool), unopened_connection(pool)
    budget.begin_opening(first)
    assert budget.park_slow() == 1
    budget.end_opening(first)
    budget._usual = 60.0
    budget.begin_opening(second)
    assert budget.park_slow() == 0
    budget.end_opening(second)
    assert budget._usual < 60.0
