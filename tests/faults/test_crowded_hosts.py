"""Hosts that take fewer connections than the workers of a run open: each process of theirs has one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest
from servers import Result, Server, download, ok

IMPATIENT = ("--workers", "2", "--connect-timeout", "1s", "--read-timeout", "3s", "--backoff", "50ms")


ASKS = "503 Busy\r\nRetry-After: 1\r\nX-Reason:"
"""A status with a Retry-After, as in a head."""


class Pool:
    """A server of ``processes``, each of which serves one connection until the client closes it.

    A further one waits for a process, and more are not answered at all; or, where it ``closes`` them, all
    further ones are closed at once, after a response with ``status`` if there is one. A response begins
    with ``head``, has ``pieces`` of one byte, and takes ``seconds`` in all.
    """

    def __init__(
        self, processes: int, seconds: float, pieces: int, closes: bool, status: str, head: str
    ) -> None:
        self._seconds, self._pieces, self._status, self._head = seconds, pieces, status, head
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128 if closes else 0)
        self.port = self._listener.getsockname()[1]
        self._free = threading.Semaphore(processes)
        for _ in range(1 if closes else processes):
            threading.Thread(target=self._sort if closes else self._process, daemon=True).start()

    def _sort(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                if self._free.acquire(blocking=False):
                    threading.Thread(target=self._occupy, args=(connection,), daemon=True).start()
                else:
                    threading.Thread(target=self._turn_away, args=(connection,), daemon=True).start()

    def _turn_away(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self._status:
                connection.recv(65536)
                head = f"HTTP/1.1 {self._status} Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode())

    def _occupy(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._serve(connection)
        self._free.release()

    def _process(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with connection, contextlib.suppress(OSError):
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        received = b""
        while True:
            while b"\r\n\r\n" not in received:
                if not (data := connection.recv(65536)):
                    return
                received += data
            received = received.partition(b"\r\n\r\n")[2]
            head = f"HTTP/1.1 {self._head}\r\nContent-Length: {self._pieces}\r\n\r\n"
            connection.sendall(head.encode())
            for _ in range(self._pieces):
                sleep(self._seconds / self._pieces)
                connection.sendall(b"x")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def pool(
    processes: int,
    seconds: float,
    pieces: int = 1,
    *,
    closes: bool = False,
    status: str = "",
    head: str = "200 OK",
) -> Iterator[Pool]:
    server = Pool(processes, seconds, pieces, closes, status, head)
    try:
        yield server
    finally:
        server.close()


def fetch(server: Pool, files: int, dest: Path, *options: str) -> Result:
    listed = "\n".join(f"http://127.0.0.1:{server.port}/f{n}" for n in range(files))
    return download("-", dest, *IMPATIENT, *options, stdin=listed)


@pytest.mark.parametrize("lane", ["auto", pytest.param("requests", marks=pytest.mark.slow)])
def test_host_whose_connections_another_worker_has_is_not_down(lane: str, tmp_path: Path) -> None:
    """One worker has the only connection, for longer than another one tries to get one."""
    with pool(processes=1, seconds=0.01) as server:
        result = fetch(server, 200, tmp_path / "d", "--lane", lane)
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 200)


@pytest.mark.slow
def test_host_that_takes_long_for_its_first_answer_is_not_down(tmp_path: Path) -> None:
    """The connections that are open show that it can be reached, before anything is answered."""
    with pool(processes=2, seconds=1.5) as server:
        result = fetch(server, 8, tmp_path / "d")
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 8)


@pytest.mark.slow
def test_host_whose_connections_receive_large_files_is_not_down(tmp_path: Path) -> None:
    with pool(processes=1, seconds=4, pieces=40) as server:
        result = fetch(server, 2, tmp_path / "d", "--read-timeout", "1s")
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 2)


@pytest.mark.parametrize("status", ["", "503", ASKS])
@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_files_wait_whose_connections_are_closed_since_others_of_the_worker_are_all(
    lane: str, status: str, tmp_path: Path
) -> None:
    """Long files: all attempts would be over before one of those that are served ends."""
    with pool(processes=2, seconds=1.5, pieces=30, closes=True, status=status) as server:
        result = fetch(server, 10, tmp_path / "d", "--lane", lane, "--workers", "1", "--retries", "3")
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 10)


@pytest.mark.parametrize("status", ["", "503", "504", pytest.param("429", marks=pytest.mark.slow), ASKS])
@pytest.mark.parametrize("lane", ["auto", pytest.param("requests", marks=pytest.mark.slow)])
def test_files_wait_whose_connections_are_closed_since_another_worker_has_them_all(
    lane: str, status: str, tmp_path: Path
) -> None:
    """Such a limit shows in connections that are closed before anything but a refusal has come."""
    with pool(processes=1, seconds=0.03, closes=True, status=status) as server:
        result = fetch(server, 150, tmp_path / "d", "--lane", lane, "--retries", "4", "--backoff", "100ms")
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 150)


@pytest.mark.parametrize("status", ["", "503"])
@pytest.mark.parametrize(
    "head",
    ["302 Found\r\nLocation: {url}/x", "200 OK\r\nSet-Cookie: a=1", "200 OK\r\nContent-Encoding: gzip"],
)
def test_files_wait_whose_connections_are_closed_since_the_other_client_has_them(
    head: str, status: str, tmp_path: Path
) -> None:
    """What the pipelined client cannot take, the requests client requests on connections of its own."""
    with Server(default=lambda request: ok(b"x")) as target:
        head = head.format(url=target.url)
        with pool(processes=3, seconds=0.002, closes=True, status=status, head=head) as server:
            result = fetch(server, 60, tmp_path / "d", "--workers", "1")
    assert (result.exit, result.failures, len(result.files)) == (0, {}, 60)


@pytest.mark.slow
def test_files_of_a_host_that_closes_all_connections_fail_with_what_they_got(tmp_path: Path) -> None:
    with pool(processes=0, seconds=0.02, closes=True) as server:
        result = fetch(server, 50, tmp_path / "d", "--retries", "1")
    failed = [(each["code"], each["attempts"]) for each in result.failures.values()]
    assert (result.exit, failed) == (1, [("reset", 2)] * 50)
