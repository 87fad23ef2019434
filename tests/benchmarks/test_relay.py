"""The relay that adds a round trip, in a process of its own, before servers of the test."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread
from time import monotonic

import pytest
from harness import ROOT, environment

from benchmarks import tables
from benchmarks.cells import CELLS
from benchmarks.results import Results
from benchmarks.rounds import run_cell

RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.settimeout(30)
        yield listener


@contextlib.contextmanager
def relay(to: socket.socket, rtt: str) -> Iterator[tuple[str, int]]:
    host, port = to.getsockname()
    argv = [sys.executable, "-m", "benchmarks.relay", "--to", f"{host}:{port}", "--rtt", rtt]
    with subprocess.Popen(argv, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        listening = process.stdout.readline().split()[1]
        try:
            yield listening.split(":")[0], int(listening.split(":")[1])
        finally:
            process.send_signal(signal.SIGTERM)


def connect(address: tuple[str, int], server: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(address, 30)
    served = server.accept()[0]
    served.settimeout(30)
    return client, served


@pytest.mark.parametrize("rtt", ["0", "30ms"])
def test_data_and_ends_pass_unchanged_both_ways(rtt: str, server: socket.socket) -> None:
    sent = os.urandom(20 << 20)  # more than may be on its way at a time
    with relay(server, rtt) as address:
        client, served = connect(address, server)
        with client, served:
            for one, other in ((client, served), (served, client)):
                sending = Thread(target=one.sendall, args=(sent,))
                sending.start()
                with other.makefile("rb") as received:
                    assert received.read(len(sent)) == sent
                    sending.join()
                    one.shutdown(socket.SHUT_WR)
                    assert received.read() == b""


def test_nothing_arrives_before_its_time(server: socket.socket) -> None:
    """A round trip for the handshake, half of one in each direction."""
    with relay(server, "0.2s") as address:
        began = monotonic()
        client, served = connect(address, server)
        with client, served:
            client.sendall(b"ping")
            assert served.recv(4) == b"ping"
            assert monotonic() - began >= 0.298
            served.sendall(b"pong")
            assert client.recv(4) == b"pong"
            assert monotonic() - began >= 0.397


def test_reset_is_passed_on(server: socket.socket) -> None:
    with relay(server, "10ms") as address:
        client, served = connect(address, server)
        with client:
            served.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            served.close()
            with pytest.raises(ConnectionResetError):
                client.recv(1)


def test_server_that_refuses_resets_the_client(server: socket.socket) -> None:
    with relay(server, "10ms") as address:
        server.close()
        with socket.create_connection(address, 30) as client, pytest.raises(ConnectionResetError):
            client.recv(1)


def test_connections_do_not_wait_for_each_other(server: socket.socket) -> None:
    with relay(server, "10ms") as address, contextlib.ExitStack() as opened:
        pairs = [connect(address, server) for _ in range(300)]
        for pair in pairs:
            for sock in pair:
                opened.enter_context(sock)
        for client, _ in pairs:
            client.sendall(b"x")
        # The relay connects in the order in which it accepts.
        assert all(served.recv(1) == b"x" for _, served in pairs)


def test_cell_with_a_round_trip_is_measured() -> None:
    client = "downloader --connections 32"
    cell = replace(
        next(cell for cell in CELLS if cell.name == "rtt-20"), clients=(client,), files=300, rounds=1
    )
    results = Results(None)
    said: list[str] = []
    run_cell(cell, results, said.append, which="dev")
    (run,) = results.of(cell.name, client)
    assert (run.wrong, run.failure) == (0, "")
    assert run.said["latency_ms_p50"] >= 19
    assert "HTTP, 20 ms away" in tables.connections(results)
