"""Open a TCP connection to the first of several addresses that accepts one.

urllib3 would try one address after the other, each for the whole timeout, and look each of them up again.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from time import monotonic
from typing import Any

import gevent
from gevent.queue import Empty, SimpleQueue
from gevent.socket import wait_write

__all__ = ["alternate", "connect"]

_HEAD_START = 0.25
"""Seconds until the next address is tried beside those before it: RFC 8305, §5."""

_ACCEPTED = (errno.ECONNRESET, errno.EPIPE)
"""What a connection that was accepted ends with. One that is refused has ECONNREFUSED."""


def connect(addresses: Sequence[str], port: int, timeout: float) -> tuple[socket.socket, str]:
    """Return a socket that is connected to one of ``addresses``, within ``timeout`` seconds, and which.

    The addresses are tried in order, the families in turn, each with a head start on the next (RFC 8305,
    "Happy Eyeballs"). Raises OSError: TimeoutError where at least one did not answer. If the server has
    ended the connection by now, whoever uses the socket sees that, as at any later time.
    """
    if len(addresses) == 1:
        return _connect(addresses[0], port, timeout), addresses[0]
    deadline = monotonic() + timeout
    ended: Any = SimpleQueue()  # of sockets and OSErrors, with their addresses
    waiting = list(alternate(addresses))
    attempts: list[gevent.Greenlet] = []
    failed: OSError | None = None
    running = 0
    try:
        while waiting or running:
            if waiting:
                attempts.append(gevent.spawn(_attempt, ended, waiting.pop(0), port, deadline - monotonic()))
                running += 1
            try:
                found, address = ended.get(timeout=_HEAD_START if waiting else None)
            except Empty:
                continue
            running -= 1
            if not isinstance(found, OSError):
                return found, address
            if failed is None or isinstance(found, TimeoutError):
                failed = found
    finally:
        gevent.killall(attempts)
        while not ended.empty():
            late, _ = ended.get()
            if not isinstance(late, OSError):
                late.close()
    raise failed or OSError("the name has no address")


def alternate(addresses: Sequence[str]) -> Iterator[str]:
    """Yield ``addresses`` with IPv6 and IPv4 in turn, beginning with the family of the first one."""
    first = [each for each in addresses if _family(each) == _family(addresses[0])]
    others = [each for each in addresses if _family(each) != _family(addresses[0])]
    for pair in zip_longest(first, others):
        yield from (each for each in pair if each is not None)


def _attempt(ended: Any, address: str, port: int, timeout: float) -> None:
    try:
        found: socket.socket | OSError = _connect(address, port, max(timeout, 0.001))
    except OSError as error:
        found = error
    ended.put((found, address))


def _connect(address: str, port: int, timeout: float) -> socket.socket:
    sock = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect((address, port))
        wait_write(sock.fileno(), timeout)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error and error not in _ACCEPTED:
            raise OSError(error, os.strerror(error))
        sock.settimeout(timeout)
    except BaseException:
        sock.close()
        raise
    return sock


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
