"""Run the server that all clients of a cell fetch from: nginx or the test server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

import trustme

from benchmarks.running import ROOT, environment, pinned
from downloader.testserver.content import blocks, name_of

__all__ = [
    "Origin",
    "Outcome",
    "Surroundings",
    "dev_server",
    "free_ports",
    "nginx",
    "nginx_installed",
    "relayed",
    "run_nginx",
    "wrong_files",
]

PAGE: Final = 1000
_BLOCK: Final = 1 << 20

_CONFIG: Final = """
{user}
worker_processes 1;
daemon off;
pid {room}/nginx.pid;
error_log {room}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests {keepalive};
    default_type application/octet-stream;
    client_body_temp_path {room}/body;
    proxy_temp_path {room}/proxy;
    fastcgi_temp_path {room}/fastcgi;
    uwsgi_temp_path {room}/uwsgi;
    scgi_temp_path {room}/scgi;
    map $args $page {{
        "" page-0;
        ~^next-marker=(?<token>page-[0-9]+)$ $token;
        default none;
    }}
    server {{
        listen 127.0.0.1:{plain};
        listen 127.0.0.1:{secure} ssl;
        ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
        ssl_prefer_server_ciphers on;
        ssl_certificate {room}/chain.pem;
        ssl_certificate_key {room}/key.pem;
        root {room};
        location /get/ {{ }}
        location = /list {{
            default_type application/json;
            try_files /pages/$page =404;
        }}
    }}
}}
"""


@dataclass(frozen=True)
class Surroundings:
    """What a client runs in: ``inside(argv)`` returns the command line; once the context has ended,
    ``said`` has the figures of its servers."""

    inside: Callable[[list[str]], list[str]] = list
    said: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a client left. ``wrong``: see ``results.Run``; ``said``: further figures."""

    wrong: int
    said: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """A listening server; ``content(name)`` returns the bytes that it serves, ``cafile`` is the CA to
    trust."""

    url: str
    cafile: str | None
    content: Callable[[str], Iterator[bytes]]

    def urls(self, files: int) -> Iterator[str]:
        """Yield the URLs of the first ``files`` files."""
        return (f"{self.url}/get/{name_of(index)}" for index in range(files))

    def surrounding(self, room: Path) -> contextlib.AbstractContextManager[Surroundings]:
        """Return a context in which one client runs; ``room`` is for its files."""
        return contextlib.nullcontext(Surroundings())

    def outcome(
        self, files: int, directory: Path, stored: Iterable[tuple[str, bytes]] | None = None
    ) -> Outcome:
        """Compare with the first ``files`` files what is in ``directory``, or, where it does not have them
        under their names, what is ``stored``."""
        if stored is None:
            return Outcome(wrong_files(self, directory, files))
        left = {name_of(index) for index in range(files)}
        wrong = 0
        for name, content in stored:
            if name in left and b"".join(self.content(name)) == content:
                left.discard(name)
            else:
                wrong += 1
        return Outcome(wrong + len(left))


def nginx_installed() -> bool:
    """Return whether nginx is installed; Debian's package puts it into a directory that is not on every
    PATH."""
    return _nginx() is not None


def _nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def wrong_files(origin: Origin, directory: Path, files: int) -> int:
    """Return how many of the first ``files`` are not in ``directory``, or differ from what the origin
    has.
    """
    wrong, where = 0, str(directory)
    for index in range(files):
        name = name_of(index)
        try:
            found = os.open(f"{where}/{name}", os.O_RDONLY)
        except OSError:
            wrong += 1
            continue
        try:
            same = all(_next(found, len(block)) == block for block in origin.content(name))
            wrong += not (same and not os.read(found, 1))
        except OSError:
            wrong += 1
        finally:
            os.close(found)
    return wrong


def _next(file: int, size: int) -> bytes:
    """Return the next ``size`` bytes of ``file``, fewer only at its end."""
    got = os.read(file, size)
    while len(got) < size and (more := os.read(file, size - len(got))):
        got += more
    return got


@contextlib.contextmanager
def nginx(
    files: int, size: int, tls: bool, room: Path, where: str, keepalive: int = 1000
) -> Iterator[Origin]:
    """Run nginx with ``files`` of ``size`` bytes, all its files in ``room``, on the cores ``where``.

    It closes a connection after ``keepalive`` requests.
    """
    served = room / "get"
    served.mkdir()
    for index in range(files):
        name = name_of(index)
        with open(served / name, "wb") as file:
            file.writelines(blocks(name.encode(), size))
    _write_pages(room / "pages", files)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(room / "ca.pem")
    certificate.private_key_pem.write_to_path(room / "key.pem")
    for position, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(room / "chain.pem", append=position > 0)
    plain, secure = free_ports(2)
    config = _CONFIG.format(
        # Started by root, nginx would serve as another user, who cannot read a private directory.
        user="user root;" if os.geteuid() == 0 else "",
        room=room,
        plain=plain,
        secure=secure,
        connections=8_192,
        keepalive=keepalive,
    )
    with run_nginx(config, room, where, "127.0.0.1", plain):
        url = f"https://127.0.0.1:{secure}" if tls else f"http://127.0.0.1:{plain}"
        yield Origin(url, str(room / "ca.pem") if tls else None, lambda name: _read(f"{served}/{name}"))


@contextlib.contextmanager
def run_nginx(config: str, room: Path, where: str, address: str, port: int) -> Iterator[None]:
    """Run nginx with ``config`` on the cores ``where``; the context begins when it listens at ``port``."""
    (room / "nginx.conf").write_text(config)
    program = _nginx()
    assert program is not None
    argv = [program, "-p", str(room), "-e", str(room / "error.log"), "-c", str(room / "nginx.conf")]
    with subprocess.Popen(pinned(where, argv), env=environment(), stderr=subprocess.DEVNULL) as process:
        try:
            _await_port(process, address, port, room / "error.log")
            yield
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def dev_server(files: int, size: int, tls: bool, delay: str, where: str) -> Iterator[Origin]:
    """Run ``python -m downloader serve`` on the cores ``where``."""
    argv = [sys.executable, "-m", "downloader", "serve", "--files", str(files), "--size", str(size)]
    argv += ["--page", str(PAGE), "--delay", delay, *(["--tls"] if tls else [])]
    with _listening("the test server", argv, where) as (url, output):
        cafile = output.readline().removeprefix("ca ").strip() if tls else None
        yield Origin(url, cafile, lambda name: blocks(name.encode(), size))


@contextlib.contextmanager
def relayed(origin: Origin, rtt: str, where: str) -> Iterator[Origin]:
    """Run a relay before ``origin`` on the cores ``where``: a round trip takes ``rtt`` longer."""
    scheme, _, address = origin.url.partition("://")
    argv = [sys.executable, "-m", "benchmarks.relay", "--to", address, "--rtt", rtt]
    with _listening("the relay", argv, where) as (listening, _):
        yield replace(origin, url=f"{scheme}://{listening}")


@contextlib.contextmanager
def _listening(what: str, argv: list[str], where: str) -> Iterator[tuple[str, IO[str]]]:
    """Run ``argv`` on the cores ``where``; yield where it says that it listens, and its further output."""
    with subprocess.Popen(
        pinned(where, argv), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            listening = process.stdout.readline().removeprefix("listening ").strip()
            if not listening:
                raise RuntimeError(f"{what} did not start: exit code {process.wait()}")
            yield listening, process.stdout
        finally:
            process.send_signal(signal.SIGTERM)


def _write_pages(directory: Path, files: int) -> None:
    directory.mkdir()
    for number, start in enumerate(range(0, max(files, 1), PAGE)):
        end = min(start + PAGE, files)
        page: dict[str, object] = {"FileNames": [name_of(index) for index in range(start, end)]}
        if end < files:
            page["NextMarker"] = f"page-{number + 1}"
        (directory / f"page-{number}").write_text(json.dumps(page))


def _read(path: str) -> Iterator[bytes]:
    file = os.open(path, os.O_RDONLY)  # not open(): a million small files are compared after every run
    try:
        while block := os.read(file, _BLOCK):
            yield block
            if len(block) < _BLOCK:
                return
    finally:
        os.close(file)


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens now; nginx does not report a port that the kernel chooses."""
    with contextlib.ExitStack() as bound:
        listeners = [bound.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def _await_port(process: subprocess.Popen[bytes], address: str, port: int, log: Path) -> None:
    give_up = time.monotonic() + 20
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((address, port)).close()
            return
        if process.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError(f"nginx did not start: {log.read_text() if log.exists() else 'no log'}")
        time.sleep(0.01)  # it does not report when it listens, so connect until it succeeds
