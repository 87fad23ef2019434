"""The test server's faults: connections that end at their limit, and responses that are dropped."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from checker import Truth, check
from harness import DevServer, slow_but
from testserver_process import MIB, Answers, Server, expected, get, request, serving

TCP_CLOSE = 7  # the state of a socket, from linux/tcp_states.h


def secure(server: Server) -> socket.socket:
    """Open a connection to ``server``, over TLS where it has a CA."""
    connection = server.connect()
    if not server.ca:
        return connection
    context = ssl.create_default_context(cafile=server.ca)
    return context.wrap_socket(connection, server_hostname="127.0.0.1", suppress_ragged_eofs=False)


@pytest.mark.parametrize("tls", [False, True])
def test_connection_limit_is_announced_and_kept(tls: bool) -> None:
    with serving(files=1000, close_after=7, tls=tls) as server:
        served, connections, index = 0, 0, 0
        while index < 40:
            with secure(server) as connection:
                connections += 1
                # A pipeline longer than the limit: requests behind it get no response.
                connection.sendall(b"".join(get(i) for i in range(index, index + 20)))
                answers = Answers(connection)
                for number in range(1, 8):
                    assert answers.next() == (200, expected(index, 100, 100)[1])
                    assert answers.fields.get("connection") == ("close" if number == 7 else None)
                    index, served = index + 1, served + 1
                assert answers.at_end()
        with secure(server) as connection:
            connection.sendall(request("/stats"))
            stats = json.loads(Answers(connection).next()[1])
        assert stats["closes"] == connections == 6
        assert (stats["gets"], stats["drops"]) == (served, 0)


@pytest.mark.parametrize("tls", [False, True])
def test_no_response_is_lost_to_a_reset_at_the_limit(tls: bool) -> None:
    """The client sends all its requests, more than the server reads at once, before it reads anything."""
    size = 50_000
    with serving(files=1000, size=(size, size), close_after=20, tls=tls) as server, ExitStack() as made:
        connections = [made.enter_context(secure(server)) for _ in range(4)]
        for connection in connections:
            connection.sendall(b"".join(get(i) for i in range(1000)))
        with secure(server) as other:  # its response reaches the limit, or the clients are waited for
            other.sendall(request("/stats"))
            Answers(other).next()
        for connection in connections:
            answers = Answers(connection)
            for index in range(20):
                assert answers.next() == (200, expected(index, size, size)[1])
            assert answers.fields["connection"] == "close"
            assert answers.at_end()


@pytest.mark.parametrize("tls", [False, True])
def test_client_sending_past_the_limit(tls: bool) -> None:
    """The server reads from it for a limited time."""
    with serving(files=10, close_after=1, tls=tls) as server, secure(server) as connection:
        connection.sendall(get(1))
        assert wait([connection], 20)
        for _ in range(200):
            connection.sendall(get(2))
        answers = Answers(connection)
        assert answers.next() == (200, expected(1, 100, 100)[1])
        assert answers.at_end()
        connection.settimeout(20)
        data = get(2) * 100
        begin = time.monotonic()
        with suppress(ConnectionError, ssl.SSLError):
            while time.monotonic() - begin < 20:
                connection.sendall(data)
        assert time.monotonic() - begin < 15


def test_limit_counts_every_response_and_client_close_is_no_limit() -> None:
    with serving(files=10, close_after=3) as server:
        with server.connect() as connection:
            connection.sendall(request("/list") + request("/x") + request("/stats") + get(1))
            answers = Answers(connection)
            assert [answers.next()[0] for _ in range(3)] == [200, 404, 200]
            assert answers.at_end()
        with server.connect() as connection:  # a client that sends the header at the limit: no limit
            connection.sendall(get(1) + get(2) + get(3, "Connection: close") + get(4))
            answers = Answers(connection)
            assert [answers.next()[0] for _ in range(3)] == [200, 200, 200]
            assert answers.fields["connection"] == "close"
            assert answers.at_end()
        assert server.json("/stats")["closes"] == 1


def test_limit_with_delays_waits_for_pending_responses() -> None:
    with serving(files=100, close_after=10, delay=(0.0, 0.2)) as server, server.connect() as connection:
        connection.sendall(b"".join(get(i) for i in range(10)))
        answers = Answers(connection)
        for index in range(10):
            connection.sendall(get(50))  # arrives while those at the limit are pending
            assert answers.next() == (200, expected(index, 100, 100)[1])
        assert answers.at_end()


class Ends:
    """How the pipelines of a client ended: complete responses, and what was left of the next one."""

    def __init__(self) -> None:
        self.whole = 0
        self.kinds: set[str] = set()

    def pipeline(self, connection: socket.socket, wanted: list[int], size: int) -> int:
        """Request ``wanted`` at once; return how many complete responses came. What came must be right,
        byte by byte."""
        data = b""
        connection.sendall(b"".join(get(i) for i in wanted))
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
        right = b"".join(head % size + expected(i, size, size)[1] for i in wanted)
        one = len(right) // len(wanted)
        try:
            while len(data) < len(right):
                part = connection.recv(1 << 16)
                if not part:
                    break
                data += part
        except (ssl.SSLEOFError, ConnectionResetError):
            pass  # the ssl module does not distinguish them
        # The socket does: after a reset it is closed.
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        end = "reset" if state == TCP_CLOSE else "end"
        assert right.startswith(data)
        whole, rest = divmod(len(data), one)
        self.whole += whole
        if whole < len(wanted):
            where = "nothing" if not rest else "head" if rest < one - size else "body"
            self.kinds.add(f"{end} after {where}")
        return whole


@pytest.mark.parametrize(
    ("tls", "size"),
    slow_but([(True, 300)], (False, True), (1, 300, 2 * MIB)),
)
def test_drops_occur_at_every_position_and_sent_bytes_are_right(tls: bool, size: int) -> None:
    files = 40 if size > MIB else 200
    with serving(files=files, size=(size, size), drop_rate=0.3, seed=1, tls=tls) as server:
        ends, done, dropped = Ends(), 0, 0
        while done < files:
            with secure(server) as connection:
                wanted = list(range(done, min(done + 8, files)))
                whole = ends.pipeline(connection, wanted, size)
                done += whole
                dropped += whole < len(wanted)
        with secure(server) as connection:
            connection.sendall(request("/stats") * 50 + request("/list") * 50)
            answers = Answers(connection)
            stats = json.loads(answers.next()[1])
            assert [answers.next()[0] for _ in range(99)] == [200] * 99
        assert stats["drops"] == dropped
        assert 0.15 < dropped / (dropped + files) < 0.5
        # In a body of one byte the only place is before it.
        assert {"end after nothing", "end after head", "end after body"} - ends.kinds <= (
            set() if size > 1 else {"end after body"}
        )
        assert any(kind.startswith("reset") for kind in ends.kinds)


def test_all_responses_dropped_and_none_dropped() -> None:
    with serving(files=50, drop_rate=1.0) as server:
        for index in range(50):
            with server.connect() as connection:
                assert Ends().pipeline(connection, [index], 100) == 0
        stats = server.json("/stats")
        assert (stats["drops"], stats["gets"], stats["requests"]) == (50, 50, 50)
        assert stats["bytes"] < 5000
    with serving(files=50, drop_rate=0.0, seed=5) as server:
        assert [server.get(f"/get/file-{i:010d}")[0] for i in range(50)] == [200] * 50


@pytest.mark.slow
def test_same_seed_draws_the_same_drops() -> None:
    def run(seed: int) -> list[int]:
        with serving(files=100, drop_rate=0.2, seed=seed) as server:
            counts = []
            for _ in range(30):
                with server.connect() as connection:
                    counts.append(Ends().pipeline(connection, list(range(10)), 100))
            return counts

    assert run(7) == run(7) != run(8)


def test_drops_with_delays_and_a_head_alone() -> None:
    """Responses pending behind a dropped one are dropped with it; of a HEAD response only the header can be
    cut."""
    with serving(files=50, drop_rate=1.0, delay=(0.0, 0.05), seed=3) as server:
        for index in range(20):
            with server.connect() as connection:
                connection.sendall(get(index) * 5)
                data = b""
                with suppress(ConnectionResetError):
                    while part := connection.recv(1 << 14):
                        data += part
                assert data.count(b"HTTP/1.1") <= 1
                assert len(data) < 200
            with server.connect() as connection:
                connection.sendall(request(f"/get/file-{index:010d}", method="HEAD"))
                with suppress(ConnectionResetError):
                    assert b"\r\n\r\n" not in connection.recv(1 << 14)
        while server.json("/stats")["connections_open"] != 1:
            pass


@pytest.mark.slow
def test_a_limit_and_drops_together_with_workers() -> None:
    with serving(files=400, drop_rate=0.05, close_after=50, workers=2, seed=1) as server:
        ends, done, connections = Ends(), 0, 0
        while done < 400:
            with server.connect() as connection:
                connections += 1
                # The response at the limit has one more header line: request it alone, below the limit.
                done += ends.pipeline(connection, list(range(done, min(done + 49, 400))), 100)
        stats = server.json("/stats")
        assert stats["drops"] >= 5
        assert stats["closes"] == 0


@pytest.mark.parametrize("tls", [False, True])
def test_download_despite_limits_and_drops(
    tls: bool,
    dev_server: Callable[..., DevServer],
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """The options as the command line has them."""
    server = dev_server(files=2000, size="100-1000", drop_rate=0.01, seed=1, close_after=10, tls=tls)
    options = ["--cacert", server.ca] if tls else []
    done = run_downloader(
        server.url, "-o", tmp_path / "d", "--backoff", "10ms", "--retries", 20, "--json", *options
    )
    assert done.returncode == 0, done.stderr
    assert check(tmp_path / "d", Truth(2000, 100, 1000)).stored == 2000
    stats = server.stats()
    assert stats["drops"] > 5
    assert stats["closes"] > 50


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--drop-rate", "1.5"], "drop_rate: 1.5 is not a probability"),
        (["--drop-rate", "often"], "--drop-rate"),
        (["--drop-rate", "nan"], "drop_rate: nan is not a probability"),
        (["--close-after", "0"], "--close-after"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_invalid_command_lines(
    options: list[str], says: str, run_downloader: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = run_downloader("serve", *options, timeout=20)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) == 1
