"""Run real servers as processes: each with a configuration of its own, in a directory of its own.

A function for each kind writes the configuration into a ``Room`` and yields a running ``Program``, which
ends with the ``with`` block.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

import pytest

_SBIN = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
_APACHE_MODULES = Path("/usr/lib/apache2/modules")  # where Debian has them
_UP_WITHIN = 20.0
_DOWN_WITHIN = 10.0


class Tls(NamedTuple):
    """Files in PEM: a certificate with its key, and the CA that issued it."""

    certificate: Path
    ca: Path


@dataclass(frozen=True)
class Room:
    """A server's directories: what it serves (``tree``), and where it may write (``own``)."""

    tree: Path
    own: Path

    def write(self, name: str, text: str) -> Path:
        path = self.own / name
        path.write_text(text)
        return path


@dataclass(frozen=True)
class Program:
    """A server that accepts connections on ``port``."""

    port: int
    tls: bool = False

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"


def absent(reason: str) -> None:
    """Skip the test, for ``reason``; with INTEROP=all fail it."""
    if os.environ.get("INTEROP") == "all":
        pytest.fail(f"INTEROP=all, but {reason}; see tests/interop/install.sh")
    pytest.skip(reason)


def found(program: str) -> str:
    """Return the path of ``program``; skip or fail the test without it."""
    path = shutil.which(program, path=_SBIN)
    if path is None:
        absent(f"{program} is not installed")
    assert path is not None
    return path


def optional(program: str) -> str:
    """Return the path of ``program``; skip the test without it, whatever INTEROP says: it takes minutes to
    build."""
    path = shutil.which(program, path=_SBIN)
    if path is None:
        pytest.skip(f"{program} is not installed; tests/interop/install.sh {program} builds it with Go")
    return path


def free_port() -> int:
    """Return a port on which nothing listens; the servers cannot choose one themselves."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def nobody() -> dict[str, object]:
    """Return the options to run a server as ``nobody`` when the tests run as root: some servers refuse to
    be root, others change to another user."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def running(
    room: Room, argv: list[object], port: int, *, tls: bool = False, ourselves: bool = False
) -> Iterator[Program]:
    """Run ``argv`` and yield when it accepts connections; its output goes into the room.

    ``ourselves``: run it as the current user, where another user could not even read the program.
    """
    output = room.own / f"output-{port}"
    with output.open("wb") as file:
        process = subprocess.Popen(
            list(map(str, argv)),
            cwd=room.own,
            # gunicorn, for one, makes a directory in its home.
            env={"PATH": _SBIN, "HOME": str(room.own)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **({} if ourselves else nobody()),  # type: ignore[call-overload]
        )
    end = os.pidfd_open(process.pid)
    try:
        _await_port(port, end, output)
        yield Program(port, tls)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_DOWN_WITHIN)
        finally:
            # Its process group is this program's alone: end what it may have left behind.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(end)


def _await_port(port: int, end: int, output: Path) -> None:
    give_up = time.monotonic() + _UP_WITHIN
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        # No event reports that the port is open, but this one reports that it never will be.
        dead = wait([end], 0.01)
        if dead or time.monotonic() > give_up:
            pytest.fail(f"not listening: {output.read_text(errors='replace')[-3000:]}")


NGINX = """
daemon off;
worker_processes 1;
pid nginx-{port}.pid;
error_log stderr notice;
events {{ worker_connections 768; }}
http {{
    # As Debian's own configuration.
    sendfile on;
    tcp_nopush on;
    gzip on;
    default_type application/octet-stream;
    client_body_temp_path body-{port};
    proxy_temp_path proxy-{port};
    fastcgi_temp_path fastcgi-{port};
    uwsgi_temp_path uwsgi-{port};
    scgi_temp_path scgi-{port};
    log_format of_requests "$connection $connection_requests $status $request_uri";
    access_log {own}/nginx-{port}.log of_requests;
    {more}
    server {{
        listen 127.0.0.1:{port}{ssl};
        root {tree};
    }}
}}
"""


class Logged(NamedTuple):
    """A request in nginx's log: the ``number``-th of its ``connection``."""

    connection: int
    number: int
    status: int
    target: str


def nginx_log(room: Room, program: Program) -> list[Logged]:
    """Return what nginx has logged, in the order of its responses."""
    lines = (room.own / f"nginx-{program.port}.log").read_text().splitlines()
    fields = (line.split(" ", 3) for line in lines)
    return [
        Logged(int(connection), int(number), int(status), url) for connection, number, status, url in fields
    ]


def nginx(
    room: Room, *, requests: int | None = None, tls: Tls | None = None
) -> AbstractContextManager[Program]:
    """Run nginx; ``requests`` is its keepalive_requests where that is not to be the default."""
    program, port = found("nginx"), free_port()
    more = f"keepalive_requests {requests};" if requests else ""
    if tls:
        more += f" ssl_certificate {tls.certificate}; ssl_certificate_key {tls.certificate};"
    text = NGINX.format(port=port, own=room.own, tree=room.tree, more=more, ssl=" ssl" if tls else "")
    config = room.write(f"nginx-{port}.conf", text)
    argv = [program, "-p", room.own, "-e", "stderr", "-c", config]
    return running(room, argv, port, tls=bool(tls))


APACHE = """
ServerRoot {own}
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile {own}/apache.pid
DefaultRuntimeDir {own}
ErrorLog {own}/apache-error.log
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
DocumentRoot {tree}
<Directory {tree}>
    Require all granted
</Directory>
"""


def apache(room: Room) -> AbstractContextManager[Program]:
    """Run Apache with its event MPM."""
    program, port = found("apache2"), free_port()
    if not _APACHE_MODULES.is_dir():
        absent("the modules of Apache are not where Debian has them")
    text = APACHE.format(port=port, own=room.own, tree=room.tree, modules=_APACHE_MODULES)
    config = room.write("apache.conf", text)
    return running(room, [program, "-d", room.own, "-f", config, "-DFOREGROUND"], port)


LIGHTTPD = """
server.document-root = "{tree}"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "{own}/lighttpd-error.log"
"""


def lighttpd(room: Room) -> AbstractContextManager[Program]:
    """Run lighttpd."""
    program, port = found("lighttpd"), free_port()
    config = room.write("lighttpd.conf", LIGHTTPD.format(port=port, own=room.own, tree=room.tree))
    return running(room, [program, "-D", "-f", config], port)


HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 50s
    timeout server 50s
frontend front
    bind 127.0.0.1:{port}
    default_backend back
backend back
    server origin 127.0.0.1:{origin}
"""


def haproxy(room: Room, origin: Program) -> AbstractContextManager[Program]:
    """Run HAProxy before ``origin``."""
    program, port = found("haproxy"), free_port()
    config = room.write("haproxy.cfg", HAPROXY.format(port=port, origin=origin.port))
    return running(room, [program, "-db", "-f", config], port)


SQUID = """
http_port 127.0.0.1:{port}
acl origin port {origin}
http_access allow origin
http_access deny all
cache deny all
visible_hostname localhost
pid_filename {own}/squid.pid
cache_log {own}/squid-cache.log
access_log stdio:{own}/squid-access.log
coredump_dir {own}
netdb_filename none
pinger_enable off
max_filedescriptors 1024
shutdown_lifetime 0 seconds
"""


def squid(room: Room, origin: Program) -> AbstractContextManager[Program]:
    """Run Squid, which connects to ``origin`` and does nothing else."""
    program, port = found("squid"), free_port()
    config = room.write("squid.conf", SQUID.format(port=port, origin=origin.port, own=room.own))
    # Its shared memory is named after the service: with a name of its own it is independent of another
    # Squid.
    return running(room, [program, "-N", "-n", f"interop{port}", "-f", config], port)


def squid_log(room: Room) -> list[str]:
    """Return its log, a line per request; it is complete when Squid has ended.

    Connections that only test whether it is up are not in it.
    """
    lines = (room.own / "squid-access.log").read_text().splitlines()
    return [line for line in lines if "transaction-end-before-headers" not in line]


def http_server(room: Room) -> AbstractContextManager[Program]:
    """Run ``python -m http.server``."""
    port = free_port()
    argv = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1", "--directory", room.tree]
    return running(room, argv, port, ourselves=True)


GUNICORN = """
import os
ROOT = {tree!r}
def application(environ, start_response):
    path = os.path.join(ROOT, environ["PATH_INFO"].lstrip("/"))
    if not os.path.isfile(path):
        start_response("404 Not Found", [("Content-Length", "0")])
        return []
    with open(path, "rb") as file:
        body = file.read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


def gunicorn(room: Room) -> AbstractContextManager[Program]:
    """Run gunicorn with two workers of its default class, sync."""
    if importlib.util.find_spec("gunicorn") is None:
        absent("gunicorn is not installed")
    port = free_port()
    room.write("served.py", GUNICORN.format(tree=str(room.tree)))
    argv = [sys.executable, "-m", "gunicorn", "--workers", 2, "--bind", f"127.0.0.1:{port}"]
    argv += ["--worker-tmp-dir", room.own, "served:application"]
    return running(room, argv, port, ourselves=True)
