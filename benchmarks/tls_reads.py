"""Compare SSLObject on the socket, as the pipelined client reads TLS, with SSLObject over MemoryBIO.

``python -m benchmarks.tls_reads``: nginx on one core; on the other an event loop that requests, reads and
counts bytes, and does nothing else, so that the difference stays visible. CPU per response, median of
alternating rounds.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from benchmarks.origin import Origin, nginx
from benchmarks.rounds import scratch
from benchmarks.running import cores
from downloader.process.tls_defaults import client_context

CONNECTIONS, ANSWERS, ROUNDS = 32, 100_000, 5
_BUFFER = memoryview(bytearray(256 << 10))
_RECORD = 16 << 10


def _drained(tls: Any) -> int:
    """Read all that OpenSSL has now; return its size in bytes."""
    count = 0
    try:
        while count <= len(_BUFFER) - _RECORD:
            count += tls.read(len(_BUFFER) - count, _BUFFER[count:])
    except ssl.SSLWantReadError:
        pass
    return count


class OnSocket:
    """OpenSSL reads the socket itself: a system call for the header of a record and one for the rest."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self.sock = context.wrap_socket(sock, server_hostname=name)
        self.sock.setblocking(False)
        self._tls = self.sock._sslobj  # type: ignore[attr-defined]

    def send(self, text: bytes) -> None:
        assert self._tls.write(text) == len(text)

    def receive(self) -> int:
        """Read all that is available; return its size in bytes."""
        return _drained(self._tls)


class OverMemory:
    """We read the socket and pass the bytes to OpenSSL."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self.sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=name)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(self._out.read())
                self._in.write(sock.recv(_RECORD))
        sock.sendall(self._out.read())
        sock.setblocking(False)

    def send(self, text: bytes) -> None:
        self._tls.write(text)
        sealed = self._out.read()
        assert self.sock.send(sealed) == len(sealed)

    def receive(self) -> int:
        """Read all that is available; return its size in bytes."""
        try:
            taken = self.sock.recv_into(_BUFFER)
        except BlockingIOError:
            return 0
        self._in.write(_BUFFER[:taken])
        return _drained(self._tls)


Kind = Callable[[socket.socket, ssl.SSLContext, str], "OnSocket | OverMemory"]


def once(origin: Origin, kind: Kind, depth: int) -> float:
    """Return CPU seconds for ANSWERS responses, with that many in flight on each connection."""
    parts = urlsplit(origin.url)
    host, port = parts.hostname or "", parts.port or 0
    context = client_context()
    context.load_verify_locations(origin.cafile)
    request = f"GET /get/file-0000000000 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    poll = select.epoll()
    opened, owed = {}, {}
    for _ in range(CONNECTIONS):
        one = kind(socket.create_connection((host, port)), context, host)
        opened[one.sock.fileno()] = one
        poll.register(one.sock.fileno(), select.EPOLLIN)
    first = next(iter(opened.values()))
    first.send(request)
    size = 0
    while not size:  # all responses are of one length
        poll.poll()
        size = first.receive()
    asked = 0
    began = time.thread_time()
    for fd, one in opened.items():
        one.send(request * depth)
        owed[fd] = size * depth
        asked += depth
    while owed:
        for fd, _ in poll.poll():
            if fd not in owed:
                continue
            owed[fd] -= opened[fd].receive()
            if not owed[fd] and asked < ANSWERS:
                opened[fd].send(request * depth)
                owed[fd] = size * depth
                asked += depth
            elif not owed[fd]:
                del owed[fd]
    spent = time.thread_time() - began
    for one in opened.values():
        one.sock.close()
    return spent / asked


def main() -> None:
    kinds: dict[str, Kind] = {"on the socket": OnSocket, "over MemoryBIO": OverMemory}
    client = {int(core) for core in cores("client").split(",")}
    with scratch() as room, nginx(1, 100, True, room, cores("origin"), 10_000_000) as origin:
        os.sched_setaffinity(0, client)
        for depth in (1, 16, 64):
            found: dict[str, list[float]] = {name: [] for name in kinds}
            for _ in range(ROUNDS):
                for name, kind in kinds.items():
                    found[name].append(once(origin, kind, depth) * 1e6)
            for name, spent in found.items():
                sys.stdout.write(
                    f"depth {depth}, {name}: {statistics.median(spent):.2f} µs of CPU an answer "
                    f"({min(spent):.2f}–{max(spent):.2f})\n"
                )


if __name__ == "__main__":
    main()
