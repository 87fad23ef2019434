"""Connections that a server's system has no room for, while the server answers at once on others."""

from __future__ import annotations

import http.server
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import pytest
from servers import Result, download

SLOW = 2.0  # seconds until a slow file begins
LANES = pytest.mark.parametrize("lane", ["auto", "requests"])


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the path; of some files late, and only to the first request for it."""

    server: FileServer

    def do_GET(self) -> None:
        self.server.requests[self.path] += 1
        if self.path.startswith("/slow"):
            sleep(SLOW)
        if self.server.requests[self.path] > 1:
            self.send_error(410)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.path)))
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *args: object) -> None:
        pass


class FileServer(http.server.ThreadingHTTPServer):
    """A server of the standard library, whose listening socket has a queue of five."""

    def __init__(self, handler: type[Handler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.requests: Counter[str] = Counter()
        self.begun = threading.Event()

    def serve_when(self, full: bool) -> None:
        while full and not self.begun.wait(0.01):
            info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
            waiting, most = struct.unpack_from("II", info, 24)  # tcpi_unacked, tcpi_sacked: of a listener
            if waiting > most:
                self.begun.set()
        self.serve_forever()


@contextmanager
def serving(protocol: str, queue: int, *, full: bool = False) -> Iterator[FileServer]:
    """Serve as soon as something connects, or the queue is ``full``."""
    handler = type("Of", (Handler,), {"protocol_version": protocol})
    with FileServer(handler) as server:
        server.socket.listen(queue)
        threading.Thread(target=server.serve_when, args=(full,), daemon=True).start()
        try:
            yield server
        finally:
            server.begun.set()
            server.shutdown()


def fetch(server: FileServer, names: list[str], dest: Path, *options: str) -> Result:
    listed = "\n".join(f"http://127.0.0.1:{server.server_port}/{name}" for name in names)
    return download("-", dest, "--workers", "1", *options, stdin=listed)


@LANES
@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
def test_server_of_the_standard_library_is_not_flooded(lane: str, protocol: str, tmp_path: Path) -> None:
    """What comes beyond its queue is answered after up to half a minute, if it is not sent again."""
    names = [f"f{n}" for n in range(300)]
    with serving(protocol, FileServer.request_queue_size, full=True) as server:
        result = fetch(server, names, tmp_path / "d", "--lane", lane, "--read-timeout", "10s")
    assert (result.exit, len(result.files)) == (0, 300)
    assert (result.report["retries"], result.report["attempts_by_error"]) == (0, {})
    assert result.report["requests"] > 300


@LANES
@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
def test_file_that_a_server_takes_long_for_is_requested_once(
    lane: str, protocol: str, tmp_path: Path
) -> None:
    """It has taken the request, which may be valid once: a link to an export, an invoice."""
    names = [f"f{n}" for n in range(150)]
    names[5:5] = slow = [f"slow{n}" for n in range(8)]
    with serving(protocol, 128) as server:
        # In a window, files are requested again to see that they are in order.
        result = fetch(server, names, tmp_path / "d", "--lane", lane, "--pipeline", "off")
        assert {name: server.requests[f"/{name}"] for name in slow} == dict.fromkeys(slow, 1)
    assert (result.exit, len(result.files)) == (0, len(names))
