"""Run the servers that all cells fetch from, all with TLS: the test server, twice, and one without lengths.

    python -m docker.origin DIRECTORY [--host NAME]

Serves until SIGTERM. DIRECTORY gets ``ca.pem`` and then, atomically, ``origin.json``: ``{"delayed",
"unstated", "files", "cacert", "project"}``. The first three are URLs: of responses after DELAY, of the same
without Content-Length, and of a file server for the main job that responds at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import trustme

from downloader.process.tls_defaults import server_context

__all__ = ["BYTES", "DELAY", "FILES", "SIZES", "Origin", "serving"]

DELAY = 0.5  # seconds
BYTES = 100  # of each delayed response
FILES = 2000  # of the main job
SIZES = "100-2000"  # of its files
_ROOT = Path(__file__).resolve().parents[1]
_PARTS = ("diagnostics", "downloader", "docker/inside")


@dataclass(frozen=True)
class Origin:
    """The addresses of the servers.

    ``cacert``: a file with the CAs of all of them; ``project``: a copy of the code that runs in cells.
    Interpreters keep their compiled files in the copy, as compiling takes longer than running.
    """

    delayed: str
    unstated: str
    files: str
    cacert: str
    project: str


@contextlib.contextmanager
def serving(directory: Path, host: str = "127.0.0.1") -> Iterator[Origin]:
    """Yield the running servers; stop them when the block ends.

    Raises RuntimeError when one does not start.
    """
    with contextlib.ExitStack() as made:
        delayed, first = made.enter_context(_test_server(host, "--delay", str(DELAY), "--size", str(BYTES)))
        files, second = made.enter_context(_test_server(host, "--files", str(FILES), "--size", SIZES))
        unstated, third = made.enter_context(_unstated(host))
        bundle = directory / "ca.pem"
        bundle.write_bytes(Path(first).read_bytes() + Path(second).read_bytes() + third)
        origin = Origin(delayed, unstated, files, str(bundle), str(_copied(directory / "project")))
        whole = directory / "origin.json.part"
        whole.write_text(json.dumps(asdict(origin)))
        whole.rename(directory / "origin.json")
        yield origin


def _copied(project: Path) -> Path:
    for part in _PARTS:
        shutil.copytree(_ROOT / part, project / part, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "tests").mkdir()
    shutil.copy(_ROOT / "tests" / "checker.py", project / "tests")
    return project


@contextlib.contextmanager
def _test_server(host: str, *options: str) -> Iterator[tuple[str, str]]:
    """Yield the URL of a test server and the file with its CA."""
    argv = [sys.executable, "-m", "downloader", "serve", "--tls", "--host", host, *options]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        words = [process.stdout.readline().split() for _ in range(2)]
        if [pair[:1] for pair in words] != [["listening"], ["ca"]]:
            raise RuntimeError("the dev server did not start")
        yield _named(host, words[0][1].rpartition(":")[2]), words[1][1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        process.wait()


def _named(host: str, port: object) -> str:
    # By the name, which each certificate has: Python 2.7 does not match addresses in certificates.
    return f"https://{'localhost' if host == '127.0.0.1' else host}:{port}"


@contextlib.contextmanager
def _unstated(host: str) -> Iterator[tuple[str, bytes]]:
    """Yield the URL and the CA of a server whose responses end with the connection.

    Half of them end without close_notify.
    """
    authority = trustme.CA()
    context = server_context()
    authority.issue_cert("127.0.0.1", "localhost", host).configure_cert(context)
    with socket.create_server((host, 0), backlog=128) as listener:
        threading.Thread(target=_accept, args=(listener, context), daemon=True).start()
        try:
            yield _named(host, listener.getsockname()[1]), authority.cert_pem.bytes()
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends accept


def _accept(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_respond, args=(client, context), daemon=True).start()


def _respond(client: socket.socket, context: ssl.SSLContext) -> None:
    """Send BYTES bytes for ``/N`` after half a second, and close; without a TLS close_notify if N is
    odd."""
    # In some cells, the client is expected to give up.
    with contextlib.suppress(OSError), client, context.wrap_socket(client, server_side=True) as tls:
        head = b""
        while b"\r\n\r\n" not in head:
            part = tls.recv(4096)
            if not part:
                return
            head += part
        number = int(head.split(b" ", 2)[1].rpartition(b"/")[2] or b"0")
        time.sleep(DELAY)
        tls.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * BYTES)
        if number % 2 == 0:
            tls.unwrap()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="The servers of the matrix.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    given = parser.parse_args()
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # threads inherit it, test servers set their own
    with serving(given.directory, given.host):
        signal.sigwait(stops)


if __name__ == "__main__":
    main()
