"""A test server in a process of its own, and what a client of raw sockets needs to talk to it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

SCRIPT = """
import sys
from downloader.testserver import server
from downloader.testserver.settings import Settings
def announce(line):
    sys.stdout.write(line + chr(10))
    sys.stdout.flush()
{before}
server.serve(Settings(**{settings!r}), announce)
announce("returned")
"""


class Server:
    """A server process that has announced itself."""

    def __init__(self, process: subprocess.Popen[str], tls: bool) -> None:
        assert process.stdout is not None
        self.process = process
        scheme = "https" if tls else "http"
        line = process.stdout.readline()
        match = re.fullmatch(rf"listening {scheme}://127\.0\.0\.1:(\d+)\n", line)
        assert match, line
        self.port = int(match[1])
        self.ca = ""
        if tls:
            self.ca = process.stdout.readline().removeprefix("ca ").rstrip("\n")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def get(self, target: str, method: str = "GET") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request(method, target)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, target: str) -> dict[str, object]:
        status, body = self.get(target)
        assert status == 200, body
        return json.loads(body)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait()


# asyncio of Python 3.10 does not close a TLS transport whose handshake failed, and warns about it.
WARNINGS = ["-W", "error", *(["-W", "ignore::ResourceWarning"] if sys.version_info < (3, 11) else [])]


@contextmanager
def spawned(before: str = "", **settings: object) -> Iterator[subprocess.Popen[str]]:
    script = SCRIPT.format(before=before, settings=settings)
    with ExitStack() as made:
        # A server that has to be killed leaves nothing behind, either.
        directory = made.enter_context(tempfile.TemporaryDirectory())
        process = made.enter_context(
            subprocess.Popen(
                [sys.executable, *WARNINGS, "-c", script],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": directory},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def serving(before: str = "", **settings: object) -> Iterator[Server]:
    """Run a server. One that the test has not ended must end with exit code 0 and no output."""
    with spawned(before, **settings) as process:
        server = Server(process, bool(settings.get("tls")))
        yield server
        if process.poll() is None:
            assert server.stop() == 0
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read() == "returned\n"
            assert process.stderr.read() == ""


def expected(index: int, least: int, most: int) -> tuple[str, bytes]:
    """Return name and bytes of a file by the published recipe, not by the server's code."""
    name = f"file-{index:010d}"
    drawn = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    size = least + drawn % (most - least + 1)
    blocks = [hashlib.shake_128(f"{name}:{k}".encode()).digest(MIB) for k in range(size // MIB + 1)]
    return name, b"".join(blocks)[:size]


def request(target: str, *fields: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", "Host: 127.0.0.1", *fields, "", ""]
    return "\r\n".join(lines).encode()


def get(index: int, *fields: str, version: str = "1.1") -> bytes:
    return request(f"/get/file-{index:010d}", *fields, version=version)


class Answers:
    """Read responses from a connection, one after another."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.data = b""
        self.fields: dict[str, str] = {}

    def more(self) -> bool:
        part = self.connection.recv(1 << 14)
        self.data += part
        return bool(part)

    def next(self, head_only: bool = False) -> tuple[int, bytes]:
        while b"\r\n\r\n" not in self.data:
            assert self.more(), self.data
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.fields = {}
        for line in lines:
            name, _, value = line.partition(": ")
            self.fields[name.lower()] = value
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        length = 0 if head_only else int(self.fields["content-length"])
        parts = [self.data]
        have = len(self.data)
        while have < length:
            part = self.connection.recv(1 << 18)
            assert part, "the body is cut off"
            parts.append(part)
            have += len(part)
        body = b"".join(parts)
        self.data = body[length:]
        return int(status), body[:length]

    def at_end(self) -> bool:
        return not self.data and not self.more()
