"""Hosts that refuse some files while others take long to count as stored: such a host is not down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Job
from servers import Request, Server, Step, Until, download, redirect, status

_CONNECTIONS, _ROUNDS = 64, 5
_ONE_WORKER = ("--workers", "1", "--connections", str(_CONNECTIONS), "--pipeline", "off")
_GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
_BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


def number(target: str) -> int:
    return int(target.rpartition("f")[2])


def requested(connection: socket.socket) -> int:
    """Return the number of the file that is requested next on ``connection``."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        data = connection.recv(4096)
        assert data, "the connection was closed"
        received += data
    return number(received.split(b" ", 2)[1].decode())


def answer_at_once(job: Job, listener: socket.socket, is_bad: Callable[[int], bool]) -> None:
    """Answer as many requests at a time as there are connections, while the worker is stopped."""
    with contextlib.ExitStack() as made:
        connections = [made.enter_context(listener.accept()[0]) for _ in range(_CONNECTIONS)]
        for connection in connections:
            connection.settimeout(15)
        worker = job.children()[1]
        for _ in range(_ROUNDS):
            wanted = [(connection, requested(connection)) for connection in connections]
            os.kill(worker, signal.SIGSTOP)
            for connection, file in wanted:
                connection.sendall(_BAD if is_bad(file) else _GOOD)
            os.kill(worker, signal.SIGCONT)
        assert job.wait(30) == 1, job.err


def test_refusals_that_arrive_together_with_as_many_files(
    start: Callable[..., Job], tmp_path: Path
) -> None:
    """They are counted in the order in which they came, not before all files that came with them."""
    files = _CONNECTIONS * _ROUNDS

    def is_bad(file: int) -> bool:
        return file >= _CONNECTIONS and file % 5 < 2

    listed = tmp_path / "urls.txt"
    with socket.create_server(("127.0.0.1", 0), backlog=_CONNECTIONS) as listener:
        listener.settimeout(30)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        listed.write_text("".join(f"{url}/f{file}\n" for file in range(files)))
        job = start(listed, "-o", tmp_path / "d", *_ONE_WORKER, "--retries", "0", "--json")
        answer_at_once(job, listener, is_bad)
    report = json.loads(job.out)
    bad = sum(map(is_bad, range(files)))
    assert (report["stored"], report["failed"]) == (files - bad, bad)
    assert (report["requests"], report["retries"]) == (files, 0)


@pytest.fixture(params=["pipelined", "requests", "redirected"])
def large(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[Request], tuple[str, ...]]]:
    """Return the URL of a host, its requests, and options.

    It refuses three files in ten, 24 in all, and ends none before it has refused all these.
    """
    enough, refused, lock = threading.Event(), set(), threading.Lock()

    def answer(request: Request) -> list[Step]:
        file = number(request.target)
        if file % 10 >= 3:
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n"
            return [head, bytes(100_000), Until(enough), bytes(100_000)]
        with lock:
            refused.add(file)
            if len(refused) >= 24:
                enough.set()
        return status(503)

    with contextlib.ExitStack() as made:
        host = made.enter_context(Server(default=answer))
        url, options = host.url, ("--lane", "requests" if request.param == "requests" else "auto")
        if request.param == "redirected":
            url = made.enter_context(Server(default=lambda asked: redirect(host.url + asked.target))).url
        yield url, host.requests, options


def test_large_files_that_are_under_way_while_others_are_refused(
    large: tuple[str, list[Request], tuple[str, ...]], tmp_path: Path
) -> None:
    url, requests, options = large
    listed = "\n".join(f"{url}/f{file}" for file in range(80))  # 56 of them have a body
    again = ("--retries", "1", "--backoff", "50ms")
    result = download("-", tmp_path / "d", *_ONE_WORKER, *again, *options, stdin=listed)
    assert (len(result.files), len(result.failures)) == (56, 24)
    assert {(f["code"], f["attempts"]) for f in result.failures.values()} == {("http-503", 2)}
    asked = Counter(number(request.target) for request in requests)
    assert asked == {file: 2 if file % 10 < 3 else 1 for file in range(80)}
    assert result.report["retries"] == 24
