"""Run the servers of the open web: nginx for all names that work, addresses that do not, and DNS."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trustme

from benchmarks.openweb.names import ZONE, Addresses, own_addresses
from benchmarks.openweb.namespace import inside, resolves, write_resolv_conf
from benchmarks.openweb.urls import FILLER, SIZE, Page, compare, pages
from benchmarks.openweb.void import void
from benchmarks.origin import Origin, Outcome, Surroundings, run_nginx
from benchmarks.running import environment, pinned

__all__ = ["Dns", "OpenWeb", "dns_server", "open_web"]

_CONFIG: Final = """
{user}
worker_processes 1;
worker_rlimit_nofile 200000;
daemon off;
pid {room}/nginx.pid;
error_log {room}/error.log warn;
events {{ worker_connections 100000; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000;
    default_type application/octet-stream;
    client_body_temp_path {room}/body;
    proxy_temp_path {room}/proxy;
    fastcgi_temp_path {room}/fastcgi;
    uwsgi_temp_path {room}/uwsgi;
    scgi_temp_path {room}/scgi;
    map "$host$uri {filler}" $body {{
        "~^(?<begin>.{{{size}}})" $begin;
    }}
    server {{
{listen}
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_certificate {room}/chain.pem;
        ssl_certificate_key {room}/key.pem;
        location /get/ {{ return 200 $body; }}
        location / {{ return 404; }}
        location ~ ^/jpeg/(?<which>[0-9]+)/ {{
            root {room};
            types {{ }}
            default_type image/jpeg;
            try_files /jpeg/$which.jpg =404;
        }}
    }}
}}
"""


@dataclass
class Dns:
    """A running DNS server; ``counts`` are there when it has ended."""

    address: str
    port: int
    counts: dict[str, object] = field(default_factory=dict)


@contextlib.contextmanager
def dns_server(
    addresses: Addresses,
    where: str,
    port: int = 53,
    delay_ms: float = 20.0,
    servfails: tuple[int, int] = (1, 2),
) -> Iterator[Dns]:
    """Run the DNS server at its address on the cores ``where``."""
    argv = [sys.executable, "-m", "benchmarks.openweb.dns_server", "--address", addresses.dns]
    argv += ["--port", str(port), "--delay-ms", str(delay_ms), "--servfails", *map(str, servfails)]
    argv += [
        "--live",
        addresses.live,
        "--live-count",
        str(addresses.count),
        "--refuse",
        addresses.refuse,
        "--void",
        addresses.void,
    ]
    with subprocess.Popen(
        pinned(where, argv), env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            listening = process.stdout.readline().removeprefix("listening ").strip()
            if not listening:
                raise RuntimeError(f"the DNS server did not start: exit code {process.wait()}")
            running = Dns(addresses.dns, int(listening.rpartition(":")[2]))
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            lines = process.stdout.read().splitlines()
        running.counts = json.loads(lines[-1])


@dataclass(frozen=True)
class OpenWeb(Origin):
    """The open web as an origin: its URLs are those of ``listed``, and a client is run where ``addresses``
    has the DNS server, which is started anew for each: its names fail again."""

    listed: list[Page] = field(default_factory=list)
    addresses: Addresses = field(default_factory=own_addresses)
    where: str = "0"

    def urls(self, files: int) -> Iterator[str]:
        for page in self.listed[:files]:
            yield f"{self.url.replace('*', page.host)}{page.path}"

    @contextlib.contextmanager
    def surrounding(self, room: Path) -> Iterator[Surroundings]:
        resolv_conf = room / "resolv.conf"
        write_resolv_conf(resolv_conf, self.addresses.dns)
        # Another server for the check: queries are counted.
        with dns_server(self.addresses, self.where):
            if why := resolves(resolv_conf, self.addresses):
                raise RuntimeError(why)
        with dns_server(self.addresses, self.where) as dns:
            said: dict[str, float] = {}
            yield Surroundings(lambda argv: inside(resolv_conf, argv), said)
        for name, count in dns.counts.items():
            if isinstance(count, int):
                said[f"dns_{name}"] = count

    def outcome(
        self, files: int, directory: Path, stored: Iterable[tuple[str, bytes]] | None = None
    ) -> Outcome:
        found = _files(directory) if stored is None else stored
        right, missing, wrong = compare(self.listed[:files], found)
        return Outcome(wrong, {"right": right, "missing": missing})


def _files(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in ``directory``; ours keeps its journal in another one."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file():
                yield entry.name, Path(entry.path).read_bytes()


@contextlib.contextmanager
def open_web(
    files: int,
    hosts: int,
    tls: bool,
    room: Path,
    where: str,
    dead: bool = False,
    jpegs: Callable[[Path], list[bytes]] | None = None,
) -> Iterator[OpenWeb]:
    """Run the open web, all its files in ``room``, on the cores ``where``. ``jpegs`` writes the images that
    are served to a directory and returns them."""
    authority = trustme.CA()
    certificate = authority.issue_cert(f"*.{ZONE}")
    authority.cert_pem.write_to_path(room / "ca.pem")
    certificate.private_key_pem.write_to_path(room / "key.pem")
    for position, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(room / "chain.pem", append=position > 0)
    addresses = own_addresses(hosts)
    port = _free_port(addresses)
    how = "ssl backlog=4096" if tls else "backlog=4096"
    config = _CONFIG.format(
        user="user root;" if os.geteuid() == 0 else "",
        room=room, filler=FILLER, size=SIZE,
        listen="\n".join(f"        listen {address}:{port} {how};" for address in addresses.all_live()),
    )  # fmt: skip
    with run_nginx(config, room, where, addresses.live, port), void(addresses.void, port):
        yield OpenWeb(
            url=f"{'https' if tls else 'http'}://*:{port}",
            cafile=str(room / "ca.pem") if tls else None,
            content=lambda name: iter(()),
            listed=pages(files, hosts, dead, jpegs(room / "jpeg") if jpegs else ()),
            addresses=addresses,
            where=where,
        )


def _free_port(addresses: Addresses) -> int:
    """Return a port on which nothing listens at the first live address, nor at the others."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            first = stack.enter_context(socket.create_server((addresses.live, 0)))
            port: int = first.getsockname()[1]
            for address in (addresses.refuse, addresses.void):
                stack.enter_context(socket.create_server((address, port)))
            return port
