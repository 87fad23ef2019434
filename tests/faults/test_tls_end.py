"""An end of TLS that comes together with the last data, from a server that waits for ours to close."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Certificates, download

ROOT = Path(__file__).resolve().parents[2]
_GOOD = 9
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"
NO_LENGTH = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
# What waits for more than the end, which has come, makes the test wait for too long.
OPTIONS = (
    "--workers",
    "1",
    "--connections",
    "4",
    "--retries",
    "1",
    "--backoff",
    "50ms",
    "--read-timeout",
    "100s",
)


class EndsTogether:
    """A server whose tenth request on a connection is answered with ``response`` and close_notify.

    Both are in one segment. It closes after the client has.
    """

    def __init__(self, response: bytes, context: ssl.SSLContext) -> None:
        self._response, self._context = response, context
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        came, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(came, out, server_side=True)
        connection.settimeout(100)
        with connection, contextlib.suppress(OSError):
            requests, handshake, answered = 0, True, 0
            while requests < _GOOD + 1:
                with contextlib.suppress(ssl.SSLWantReadError):
                    if handshake:
                        tls.do_handshake()
                        handshake = False
                    requests += tls.read(65536).count(b"\r\n\r\n")
                    for _ in range(answered, min(requests, _GOOD)):
                        tls.write(WHOLE)
                        answered += 1
                    continue
                connection.sendall(out.read())
                if not (data := connection.recv(65536)):
                    return  # the client has had all that it wants
                came.write(data)
            tls.write(self._response)
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.unwrap()
            connection.sendall(out.read())
            while connection.recv(65536):
                pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def ends_together(response: bytes, context: ssl.SSLContext) -> Iterator[EndsTogether]:
    server = EndsTogether(response, context)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("lane", ["auto", "requests"])
@pytest.mark.parametrize(("response", "code"), [(SHORT, "truncated"), (NO_LENGTH, None)])
def test_end_that_comes_together_with_data(
    response: bytes, code: str | None, lane: str, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    with ends_together(response, certificates.context()) as server:
        listed = "\n".join(f"https://127.0.0.1:{server.port}/f{n}" for n in range(200))
        options = (*OPTIONS, "--cacert", str(certificates.ca), "--lane", lane, "--pipeline", "4")
        result = download("-", tmp_path / "d", *options, stdin=listed)
    assert set(result.report["attempts_by_error"]) <= {code}
    assert set(result.files.values()) == {b"hello"}
    assert len(result.files) > 190, result.codes  # one may be cut off each time


TRANSPORT = """
from downloader.process import patching
patching.apply()
import ssl, sys
from pathlib import Path
from downloader.http.pipelined.transport import Blocked, Transport
from servers import Certificates
anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
server = Certificates(Path(sys.argv[1])).context().wrap_bio(up, down, server_side=True)
client = anyone.wrap_bio(down, up)
for side in (client, server, client, server):
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        pass
server.write(b"hello")
try:
    server.unwrap()
except ssl.SSLWantReadError:
    pass
transport = Transport.__new__(Transport)
transport._tls, transport._end, transport._buffer = client, None, memoryview(bytearray(1 << 20))
assert transport._receive_tls(True) == 5
assert transport.pending(), "the end is forgotten"
try:
    assert not transport._receive_tls(True)
except ssl.SSLZeroReturnError:
    pass
"""


def test_end_that_was_read_together_with_data_is_pending(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TRANSPORT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    )
    assert done.returncode == 0, done.stderr
