"""Measure what ``python -m diagnostics watch`` costs a busy gevent server: ``python -m
benchmarks.watch_overhead``.

Two servers of one kind run on core 0, one of them watched; a client of raw sockets on core 1 keeps each
busy in turn. Runs are paired, so that other load on the machine affects both; the ratio is that of
responses per second.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from contextlib import ExitStack

from benchmarks.devserver import answers_per_second
from benchmarks.running import ROOT, environment

_SERVER = """
from gevent import monkey
monkey.patch_all()
import sys
from gevent.server import StreamServer
# One piece: with two, Nagle's algorithm and a late acknowledgement would be what is measured.
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: 5\\r\\n\\r\\nhello"
def answer(connection, _):
    rest = b""
    while data := connection.recv(65536):
        *requests, rest = (rest + data).split(b"\\r\\n\\r\\n")
        for _ in requests:
            connection.sendall(ANSWER)
server = StreamServer(("127.0.0.1", 0), answer)
server.start()
sys.stdout.write(f"{server.server_port}\\n")
sys.stdout.flush()
server.serve_forever()
"""
_PAIRS, _SECONDS = 15, 2.0


def start(stack: ExitStack, *before: str) -> int:
    """Start a server; return its port."""
    argv = ["taskset", "-c", "0", *before, sys.executable, "-c", _SERVER]
    process = stack.enter_context(
        subprocess.Popen(argv, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    )
    stack.callback(process.terminate)
    assert process.stdout is not None
    return int(process.stdout.readline())


def main() -> None:
    """Start both servers, measure and print."""
    ratios, rates = [], []
    with ExitStack() as stack:
        plain = start(stack)
        watched = start(stack, sys.executable, "-m", "diagnostics", "watch", "--")
        os.sched_setaffinity(0, {1})
        for number in range(_PAIRS):
            pair = {}
            for port in (plain, watched) if number % 2 else (watched, plain):
                pair[port] = answers_per_second(port, 16, 1, _SECONDS)
            ratios.append(pair[watched] / pair[plain])
            rates.append(pair[plain])
    sys.stdout.write(
        f"{statistics.median(rates):,.0f} answers/s; watched {statistics.median(ratios):.3f} of that, "
        f"median of {_PAIRS} pairs ({min(ratios):.3f} to {max(ratios):.3f})\n"
    )


if __name__ == "__main__":
    main()
