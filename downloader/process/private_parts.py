"""Contain every use of private parts of gevent, ssl, urllib3, requests and http.client.

The exception are methods that subclasses elsewhere override; ``OVERRIDDEN`` lists them. ``missing`` names
the parts that the installed versions lack. Importing this module imports none of the libraries.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "OVERRIDDEN",
    "hub_exists",
    "missing",
    "patched_modules",
    "raw_socket",
    "tls_object",
    "tunnel_host",
    "tunnel_target",
    "unopened_connection",
]

OVERRIDDEN: Final = {
    "urllib3.connection:HTTPConnection": ("_new_conn", "_tunnel"),
    "urllib3.connectionpool:HTTPConnectionPool": ("_get_conn", "_put_conn", "_make_request", "_new_conn"),
    "http.client:HTTPResponse": (
        *("_read_status", "_get_chunk_left", "_read_next_chunk_size", "_read_and_discard_trailer"),
        *("_check_close", "_close_conn", "_safe_read"),
    ),
    "requests.adapters:HTTPAdapter": ("get_connection_with_tls_context", "proxy_headers"),
}
"""The methods that subclasses override or call, by module and class."""


def raw_socket(sock: Any) -> Any:
    """Return the non-blocking socket of the system under a socket of gevent's."""
    return sock._sock


def tls_object(sock: Any) -> Any:
    """Return the TLS object under an SSLSocket, which reads and writes without waiting; None for a plain
    socket."""
    return getattr(sock, "_sslobj", None)


def unopened_connection(pool: Any) -> Any:
    """Return a new connection of ``pool``, a pool of urllib3's; it is not open and not in the pool."""
    return pool._new_conn()


def tunnel_host(pool: Any) -> str:
    """Return the host to which connections of ``pool`` request a tunnel."""
    host: str = pool._tunnel_host
    return host


def tunnel_target(connection: Any) -> tuple[str, int, dict[str, str]]:
    """Return host and port to which ``connection`` requests a tunnel, and the header fields for that."""
    return connection._tunnel_host, connection._tunnel_port, connection._tunnel_headers


def hub_exists() -> bool:
    """Return whether gevent has a hub in this thread, without importing gevent."""
    local = sys.modules.get("gevent._hub_local")
    return local is not None and local.get_hub_if_exists() is not None


def patched_modules() -> tuple[str, ...]:
    """Return the names of the modules that gevent has patched."""
    from gevent import monkey

    return tuple(name for name in monkey.saved if not name.startswith("_gevent"))


def missing() -> list[str]:
    """Return a sentence for each private part that the installed versions lack."""
    found = []
    for place, names in OVERRIDDEN.items():
        module, _, name = place.partition(":")
        owner = getattr(importlib.import_module(module), name)
        found += [_sentence(module, name, each) for each in names if not hasattr(owner, each)]
    for module, name, each, make in _INSTANCES:
        instance = make(getattr(importlib.import_module(module), name))
        if not hasattr(instance, each):
            found.append(_sentence(module, name, each))
        if hasattr(instance, "close"):
            instance.close()
    return found


def _tls_socket(kind: Any) -> Any:
    # Imported by name: an early import of ssl is attributed by the import statements in files.
    protocol = importlib.import_module("ssl").PROTOCOL_TLS_CLIENT
    unconnected = importlib.import_module("socket").socket()
    return kind(protocol).wrap_socket(unconnected, server_hostname="host")


# Attributes that only instances have: module, class, attribute, and what makes one.
_INSTANCES: Final[tuple[tuple[str, str, str, Callable[[Any], Any]], ...]] = (
    ("urllib3.connection", "HTTPConnection", "_dns_host", lambda kind: kind("host")),
    *(
        ("urllib3.connection", "HTTPConnection", each, lambda kind: kind("host"))
        for each in ("_tunnel_host", "_tunnel_port", "_tunnel_headers")
    ),
    ("urllib3.connectionpool", "HTTPConnectionPool", "_tunnel_host", lambda kind: kind("host")),
    ("gevent.socket", "socket", "_sock", lambda kind: kind()),
    ("ssl", "SSLContext", "_sslobj", _tls_socket),
    ("gevent._hub_local", "get_hub_if_exists", "__call__", lambda function: function),
    ("gevent.monkey", "saved", "items", lambda saved: saved),
)


def _sentence(module: str, name: str, attribute: str) -> str:
    package = module.partition(".")[0]
    version = getattr(sys.modules[package], "__version__", "Python " + sys.version.split()[0])
    return f"{module}.{name} ({package} {version}) has no {attribute}, on which this program relies"
