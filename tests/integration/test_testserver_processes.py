"""The test server as a process: its memory and descriptors, TLS, signals, workers, counters, settings."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
from contextlib import ExitStack
from multiprocessing.connection import wait
from pathlib import Path

import psutil
import pytest
from testserver_process import MIB, ROOT, Answers, Server, expected, get, request, serving, spawned

from downloader.errors import ConfigError
from downloader.testserver.settings import Settings

# Bounds


def resident(server: Server) -> int:
    return psutil.Process(server.process.pid).memory_info().rss


def test_a_slow_reader_of_a_large_file_takes_no_memory() -> None:
    size = 128 * MIB
    with serving(files=1, size=(size, size)) as server:
        before = resident(server)
        digest = hashlib.sha256()
        with server.connect() as connection:
            connection.sendall(get(0))
            # A server without back-pressure makes a block in each iteration of its event loop.
            for _ in range(250):
                stats = server.json("/stats")
            assert stats["bytes"] < 32 * MIB
            assert resident(server) - before < 32 * MIB
            head, _, part = connection.recv(1 << 16).partition(b"\r\n\r\n")
            assert b"Content-Length: %d" % size in head
            left = size
            while part:
                digest.update(part)
                left -= len(part)
                part = connection.recv(min(left, 1 << 18)) if left else b""
        assert left == 0
        assert digest.digest() == hashlib.sha256(expected(0, size, size)[1]).digest()
        assert resident(server) - before < 32 * MIB


@pytest.mark.parametrize("size", [100, 100_000])
def test_client_that_never_reads_is_not_read_for_ever(size: int) -> None:
    with serving(files=10, size=(size, size)) as server:
        before = resident(server)
        with server.connect() as connection:
            connection.setblocking(False)
            data = get(1) * 1000
            sent = 0
            for _ in range(600):
                try:
                    while sent < 200 * MIB:
                        sent += connection.send(data)
                except BlockingIOError:
                    pass
                server.get("/stats")
            assert sent < 100 * MIB
            assert resident(server) - before < 32 * MIB


@pytest.mark.parametrize("tls", [False, True])
def test_reading_continues_once_the_client_reads(tls: bool) -> None:
    with serving(files=10, size=(20_000, 20_000), tls=tls) as server, ExitStack() as made:
        connections = []
        for _ in range(2):
            connection = made.enter_context(server.connect())
            if tls:
                context = ssl.create_default_context(cafile=server.ca)
                connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
                made.enter_context(connection)
            connections.append(connection)
        answers, other = map(Answers, connections)
        # Far more responses than all buffers hold: the server has stopped reading before the second half is
        # sent, and must continue later. Other connections are not affected.
        for _ in range(2):
            answers.connection.sendall(get(1) * 1000)
            for _ in range(50):
                other.connection.sendall(request("/stats"))
                _, body = other.next()
        assert json.loads(body)["gets"] < 2000
        body = expected(1, 20_000, 20_000)[1]
        for _ in range(2000):
            assert answers.next() == (200, body)


def test_open_files_are_raised_to_the_hard_limit() -> None:
    # The child starts with a low limit, as a shell sets it.
    low = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, HARD))\n"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with serving(low.replace("HARD", str(hard)), files=10) as server, ExitStack() as made:
        for _ in range(200):
            connection = made.enter_context(server.connect())
            connection.sendall(get(1))
            assert Answers(connection).next()[0] == 200
        assert server.json("/stats")["connections_open"] == 201


# The process


def test_tls_is_verified_with_the_announced_ca() -> None:
    with serving(files=4, tls=True, size=(0, 3 * MIB)) as server:
        context = ssl.create_default_context(cafile=server.ca)
        for name in ("127.0.0.1", "::1", "localhost"):
            with context.wrap_socket(server.connect(), server_hostname=name) as connection:
                connection.sendall(get(0) + get(1) + request("/list") + get(2, "Connection: close"))
                answers = Answers(connection)
                assert answers.next() == (200, expected(0, 0, 3 * MIB)[1])
                assert answers.next() == (200, expected(1, 0, 3 * MIB)[1])
                assert answers.next()[0] == 200
                assert answers.next() == (200, expected(2, 0, 3 * MIB)[1])
                assert answers.at_end()
        with server.connect() as raw, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(raw, server_hostname="127.0.0.1")


@pytest.mark.parametrize("lowered", [False, True])
def test_tls_below_1_2_is_refused(lowered: bool) -> None:
    # OpenSSL's security level refuses it too: removed on both sides, so that only the server's minimum is
    # left. With that lowered as well the connection succeeds, so the test detects a missing minimum.
    minimum = "context.minimum_version = server.ssl.TLSVersion.TLSv1_1" if lowered else "pass"
    before = (
        "import warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "certify = server._certify\n"
        "def insecurely(*given):\n"
        "    context, path = certify(*given)\n"
        "    context.set_ciphers('ALL:@SECLEVEL=0')\n"
        f"    {minimum}\n"
        "    return context, path\n"
        "server._certify = insecurely\n"
    )
    with serving(before, tls=True) as server, server.connect() as raw:
        context = ssl.create_default_context(cafile=server.ca)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match=r"TLSv1_1"):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match=r"TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        if lowered:
            with context.wrap_socket(raw, server_hostname="localhost") as connection:
                assert connection.version() == "TLSv1.1"
        else:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(raw, server_hostname="localhost")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_and_leaves_nothing(number: signal.Signals, workers: int) -> None:
    with serving(tls=True, workers=workers) as server:
        directory = Path(server.ca).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(server.ca).stat().st_mode) == 0o600
        assert os.listdir(directory) == ["ca.pem"]
        children = psutil.Process(server.process.pid).children()
        assert len(children) == (0 if workers == 1 else workers)
        context = ssl.create_default_context(cafile=server.ca)
        with context.wrap_socket(server.connect(), server_hostname="localhost") as connection:
            connection.sendall(get(1))
            assert Answers(connection).next()[0] == 200
            if number == signal.SIGINT:  # a terminal sends it to the whole group
                for child in children:
                    child.send_signal(number)
            assert server.stop(number) == 0  # an open connection does not delay the exit
        assert not directory.exists()
        assert not any(child.is_running() for child in children)  # reaped, not only dead
        assert server.process.stdout is not None
        assert server.process.stderr is not None
        assert server.process.stdout.read() == "returned\n"
        assert server.process.stderr.read() == ""


@pytest.mark.parametrize("prctl", [True, False])
def test_workers_die_with_their_parent(prctl: bool) -> None:
    before = "" if prctl else "server._die_with_parent = lambda parent: False"
    with serving(before, workers=2) as server, ExitStack() as made:
        children = psutil.Process(server.process.pid).children()
        assert len(children) == 2
        descriptors = [os.pidfd_open(child.pid) for child in children]
        for descriptor in descriptors:
            made.callback(os.close, descriptor)
        if prctl:  # a stopped process would not notice an end of file
            for child in children:
                child.suspend()
        assert wait(descriptors, 0) == []
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        for descriptor in descriptors:
            assert wait([descriptor], 20) == [descriptor]
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_a_worker_that_dies_ends_the_server() -> None:
    with serving(workers=2) as server:
        children = psutil.Process(server.process.pid).children()
        children[0].kill()
        assert server.process.wait() == 1
        assert server.process.stderr is not None
        assert "a process of the file server died" in server.process.stderr.read()
        assert not any(child.is_running() for child in children)


def test_worker_start_failure_is_reported() -> None:
    before = "def broken(*_): raise OSError('broken')\nserver.Site = broken"
    with spawned(before, workers=2) as process:
        _, errors = process.communicate()
        assert process.returncode == 1
        assert "could not start" in errors


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("other", [1, 2])
def test_a_port_in_use_is_a_configuration_error(workers: int, other: int) -> None:
    with serving(workers=other) as server, spawned(port=server.port, workers=workers) as second:
        out, errors = second.communicate()
        assert second.returncode == 1
        assert out == ""
        assert f"ConfigError: cannot listen on 127.0.0.1 port {server.port}: Address" in errors


def test_port_can_be_reused_at_once() -> None:
    with serving() as server:
        with server.connect() as connection:
            connection.sendall(get(1, "Connection: close"))
            assert Answers(connection).next()[0] == 200
        port = server.port
    with serving(port=port) as server:
        assert server.port == port


@pytest.mark.parametrize("workers", [1, 2])
def test_stats(workers: int) -> None:
    with serving(files=10, workers=workers) as server, ExitStack() as made:
        connections = [made.enter_context(server.connect()) for _ in range(40)]
        for connection in connections:
            connection.sendall(
                get(1)
                + get(99)
                + request("/list")
                + request("/x")
                + request("/stats")
                + request("/stats?x", method="HEAD")
                + request("/get/file-0000000002", method="HEAD")
            )
            answers = Answers(connection)
            assert [answers.next()[0] for _ in range(5)] == [200, 404, 200, 404, 200]
            answers.next(head_only=True)
            answers.next(head_only=True)
        assert server.json("/stats") == {
            "requests": 200,
            "gets": 120,
            "lists": 40,
            "connections_opened": 41,
            "connections_open": 41,
            "connections_peak": 41,
            "bytes": 4000,
            "drops": 0,
            "closes": 0,
        }
        for connection in connections:
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
        connections[0].close()
        while True:  # the server closes before it counts
            stats = server.json("/stats")
            if stats["connections_open"] == 1:
                break
        assert stats["connections_peak"] in (41, 42)  # 42 where the first /stats was still open
        assert stats["connections_opened"] >= 42


def test_workers_share_the_connections() -> None:
    with serving(workers=2) as server, ExitStack() as made:
        children = psutil.Process(server.process.pid).children()
        for _ in range(64):
            connection = made.enter_context(server.connect())
            connection.sendall(get(1))
            assert Answers(connection).next()[0] == 200
        counts = [
            sum(1 for c in child.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED)
            for child in children
        ]
        assert sum(counts) == 64
        assert min(counts) > 0


# Other


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": -1},
        {"files": 10**9 + 1},
        {"size": (2, 1)},
        {"size": (-1, 1)},
        {"page": 0},
        {"port": 65536},
        {"delay": (-0.1, 0.1)},
        {"delay": (0.2, 0.1)},
        {"delay": (0.0, float("inf"))},
        {"delay": (float("nan"), 1.0)},
        {"workers": 0},
        {"drop_rate": -0.1},
        {"drop_rate": 1.1},
        {"drop_rate": float("nan")},
        {"seed": -1},
        {"close_after": -1},
    ],
)
def test_invalid_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("module", ["", ".settings", ".content", ".drops"])
def test_importing_the_server_imports_no_ssl(module: str) -> None:
    script = (
        f"import sys, downloader.testserver{module}\n"
        "found = {'ssl', 'asyncio', 'gevent', 'httptools', 'trustme'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(found)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
