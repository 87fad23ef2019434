"""Give a client a resolv.conf of its own, in a mount namespace; nothing outside of it sees the change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.openweb.names import Addresses, Kind, host
from benchmarks.running import environment

__all__ = ["Unavailable", "inside", "resolves", "unavailable", "write_resolv_conf"]

_RESOLV_CONF: Final = "/etc/resolv.conf"
_MOUNT: Final = f'mount --bind "$0" {_RESOLV_CONF} && exec "$@"'
_LOOK_UP: Final = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"


class Unavailable(Exception):
    """What is to be measured needs something that there is not here; the text says what."""


def inside(resolv_conf: Path, argv: list[str]) -> list[str]:
    """Return the command line of ``argv`` in a namespace in which ``resolv_conf`` is the system's."""
    return ["unshare", "--mount", "sh", "-c", _MOUNT, str(resolv_conf), *argv]


def write_resolv_conf(path: Path, nameserver: str) -> None:
    """Write the file: one server, at port 53, and the resolver's default options."""
    path.write_text(f"nameserver {nameserver}\n")


@cache
def unavailable() -> str:
    """Return why there can be no such namespace here, empty where there can."""
    if os.geteuid() != 0:
        return "needs root, for port 53 and a resolv.conf of its own"
    if shutil.which("unshare") is None:
        return "needs unshare, for a resolv.conf of its own"
    if not os.path.exists(_RESOLV_CONF):
        return f"needs {_RESOLV_CONF}"
    tried = subprocess.run(
        inside(Path(_RESOLV_CONF), ["true"]), capture_output=True, text=True, check=False
    )
    return f"no mount namespace: {tried.stderr.strip()}" if tried.returncode else ""


def resolves(resolv_conf: Path, addresses: Addresses) -> str:
    """Return why a client in the namespace does not get its addresses from our server, empty where it
    does. The system may have a resolver that does not read resolv.conf."""
    name = host(Kind.LIVE, 0)
    argv = inside(resolv_conf, [sys.executable, "-c", _LOOK_UP, name])
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment())
    found = done.stdout.strip() or (done.stderr.strip().splitlines() or [""])[-1]
    return "" if found == addresses.live else f"{name} is {found}, not {addresses.live}"
