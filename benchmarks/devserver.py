"""Measure the responses per second that the test server gives on one core: ``python
benchmarks/devserver.py``.

The server is pinned to core 0, a client of raw sockets to core 1; files of 100 bytes, plain HTTP.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time

_SERVER = """
import os, sys
os.sched_setaffinity(0, {0})
from downloader.testserver.server import serve
from downloader.testserver.settings import Settings
def say(line):
    sys.stdout.write(line + chr(10))
    sys.stdout.flush()
serve(Settings(files=10**9), say)
"""


def answers_per_second(port: int, connections: int, depth: int, seconds: float) -> float:
    """Count responses by their length: each request is for a file of the same size."""
    request = b"GET /get/file-0123456789 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n\r\n"
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(client, selectors.EVENT_READ, [0])
    length = 0
    buffer = bytearray(1 << 16)
    for key in selector.get_map().values():
        opened = key.fileobj
        assert isinstance(opened, socket.socket)
        opened.sendall(request)
        length = opened.recv_into(buffer)
        assert buffer.startswith(b"HTTP/1.1 200 OK\r\n"), bytes(buffer[:100])
        opened.sendall(request * depth)
    answers = 0
    begin = now = time.perf_counter()
    while now < begin + seconds:
        for key, _ in selector.select():
            ready, rest = key.fileobj, key.data
            assert isinstance(ready, socket.socket)
            whole, rest[0] = divmod(rest[0] + ready.recv_into(buffer), length)
            if whole:
                answers += whole
                ready.sendall(request * whole)
        now = time.perf_counter()
    for key in tuple(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    selector.close()
    return answers / (now - begin)


def main() -> None:
    """Start the server, measure and print the rate."""
    os.sched_setaffinity(0, {1})
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rpartition(":")[2])
        for connections, depth in ((8, 32), (32, 1), (32, 32)):
            rate = answers_per_second(port, connections, depth, 5.0)
            sys.stdout.write(f"{connections} connections, depth {depth}: {rate:,.0f} answers/s\n")
            sys.stdout.flush()
        server.terminate()


if __name__ == "__main__":
    main()
