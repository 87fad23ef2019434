"""Connections that a server takes and does not serve, while it answers at once on others."""

from __future__ import annotations

import contextlib
import functools
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Result, download

SILENT = 3  # of four connections
BURST = 24


class Listener:
    """A server that never answers on three of four of its first connections, and on all others at once."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.requests = 0
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        number = 0
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                number += 1
                if number <= BURST and number % (SILENT + 1):
                    self._held.append(connection)
                else:
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        received = b""
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in received:
                    if not (data := connection.recv(65536)):
                        return
                    received += data
                received = received.partition(b"\r\n\r\n")[2]
                self.requests += 1
                last = "" if self._keeps else "Connection: close\r\n"
                connection.sendall(f"HTTP/1.1 200 OK\r\n{last}Content-Length: 1\r\n\r\nx".encode())
                if not self._keeps:
                    return

    def close(self) -> None:
        for each in (self._listener, *self._held):
            each.close()


@contextlib.contextmanager
def listener(*, keeps: bool) -> Iterator[Listener]:
    server = Listener(keeps=keeps)
    try:
        yield server
    finally:
        server.close()


def fetch(port: int, files: int, dest: Path, *options: str) -> Result:
    listed = "\n".join(f"http://127.0.0.1:{port}/f{n}" for n in range(files))
    return download("-", dest, "--workers", "1", *options, stdin=listed)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_requests_on_silent_connections_go_to_others(lane: str, keeps: bool, tmp_path: Path) -> None:
    """Nothing ends by a time limit, and no attempt is charged."""
    with listener(keeps=keeps) as server:
        result = fetch(server.port, 60, tmp_path / "d", "--lane", lane)
        assert (result.exit, len(result.files)) == (0, 60)
        assert (result.report["retries"], result.report["attempts_by_error"]) == (0, {})
        assert server.requests < 60 + BURST


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def test_server_of_the_standard_library_is_not_flooded(tmp_path: Path) -> None:
    """Its listening socket has a queue of five. What came beyond that is answered after half a minute."""
    (tmp_path / "files").mkdir()
    for n in range(300):
        (tmp_path / "files" / f"f{n}").write_text(f"content {n}")
    handler = functools.partial(Quiet, directory=str(tmp_path / "files"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            result = fetch(server.server_port, 300, tmp_path / "d", "--read-timeout", "10s")
        finally:
            server.shutdown()
    assert (result.exit, len(result.files)) == (0, 300)
    assert (result.report["retries"], result.report["attempts_by_error"]) == (0, {})
