"""Look up host names: with the system's function in threads, or with c-ares in the event loop.

The system's function knows all that ``/etc/nsswitch.conf`` names, and waits, so each look-up takes a
thread. A thread that has its answer needs Python's lock, for which it stops the worker. c-ares needs no
thread; it reads ``/etc/hosts`` and ``/etc/resolv.conf`` and asks the name servers.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import _socket
import functools
import re
import socket
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

from downloader.config.options import LimitOptions
from downloader.core.server_address import split_address

__all__ = ["Lookup", "NoAnswer", "numeric", "open_lookup", "tries_within"]

# The end of an address: a label that begins with a digit (`0x7f.1`, `127.1`), or with a colon in it.
_may_be_numeric: Final = re.compile(r"(?:.*[.])?(?:[0-9][^.]*|[^.]*:.*)", re.DOTALL).fullmatch
_HOSTS = Path("/etc/hosts")
_NSSWITCH = Path("/etc/nsswitch.conf")
_FEWEST_TRIES = 3
_CHANNELS = 2
# Seconds that c-ares waits for an answer, at least (MIN_TIMEOUT_MS) and at most (MAX_TIMEOUT_MS).
_LEAST_PATIENCE, _MOST_PATIENCE = 0.25, 5.0
_MAX_CACHED = 250  # answers that a channel of c-ares keeps, at 2.4 kB each
# ares.h: codes that say for certain that there is no such name, or no address for it.
_ARES_NO_NAME: Final = {1, 4, 8}
_ARES_TIMEOUT = 12


class NoAnswer(socket.gaierror):
    """The name server did not answer within the timeout."""


class Lookup(Protocol):
    """A way to look up names.

    ``most``: how many look-ups may be in progress at a time.
    """

    most: int

    def addresses(self, host: str) -> list[str]:
        """Return the numeric addresses of ``host``, best first. Raises socket.gaierror, UnicodeError."""


def open_lookup(config: LimitOptions) -> Lookup:
    """Return the way to look up names that ``config`` asks for."""
    cares = config.resolver == "cares" or (config.resolver == "auto" and (config.dns_server or _is_usual()))
    return _CaresLookup(config.dns_server, config.connect_timeout) if cares else _SystemLookup()


def numeric(host: str) -> list[str] | None:
    """Return the address ``host``, in a list, or None if it is a name."""
    if not _may_be_numeric(host):
        return None
    try:
        # As bytes, since text goes through the codec of IDNA, which takes longer than all the rest.
        return _getaddrinfo(host.encode("ascii"), socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):  # the latter for a name that is not ASCII
        return None


def _is_usual() -> bool:
    """Return whether the system looks names up in ``/etc/hosts`` and DNS only, as c-ares does."""
    try:
        text = _NSSWITCH.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    found = re.search(r"^hosts:([^#\n]*)", text, re.MULTILINE)
    return found is not None and found[1].split() == ["files", "dns"]


@functools.cache
def _hosts_for_the_system() -> frozenset[str]:
    """Return the names of ``/etc/hosts`` of which c-ares does not know all addresses.

    It reads the first line of a name only, where a host with an IPv4 and an IPv6 address has two; and it
    takes a comment without a blank before it for a part of the name.
    """
    names: set[str] = set()
    again: set[str] = set()
    try:
        with _HOSTS.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                entry, mark, _ = line.partition("#")
                _, *found = entry.lower().split() or [""]
                again.update(name for name in found if name in names)
                names.update(found)
                if mark and found and not entry[-1].isspace():
                    again.add(found[-1])
    except OSError:
        return frozenset()
    return frozenset(again)


class _SystemLookup:
    """The system's getaddrinfo, in threads."""

    most = 64

    def __init__(self) -> None:
        from gevent.threadpool import ThreadPool

        self._threads = ThreadPool(self.most)

    def addresses(self, host: str) -> list[str]:
        """See ``Lookup``."""
        found, error = self._threads.apply(_looked_up, (host,))
        if error is not None:
            raise error
        return list(found)


class _Channel:
    """A resolver of c-ares: how many look-ups it has begun, and how many are in progress."""

    __slots__ = ("asked", "busy", "resolver")

    def __init__(self, options: dict[str, Any]) -> None:
        from gevent.resolver.ares import Resolver

        self.resolver = Resolver(use_environ=False, **options)
        self.asked = self.busy = 0


class _CaresLookup:
    """c-ares, which comes with gevent.

    ``server``: ADDRESS or ADDRESS:PORT, "" for those of the system. A look-up has ``timeout`` seconds in
    all. A query is repeated, each time after twice the time, and waits for the answers to all of its
    packets. c-ares derives that time from how long other answers took (since 1.32): after quick ones it may
    be some seconds in all, and a name whose own servers are far away takes longer. So the name is then
    asked again by a patient channel, which knows of no answers.

    A channel has one socket for a name server, which has room for 277 packets (Linux by default), and a
    look-up gets two. An answer for which there is no room costs a second and more. So there are several
    channels.

    c-ares keeps every answer for as long as it is valid, up to an hour, and gevent has no option for that
    (``ares_options.qcache_max_ttl``). So another channel takes the place of one that has kept many.
    """

    most = 256

    def __init__(self, server: str, timeout: float) -> None:
        self._timeout = timeout
        first = timeout / (2**_FEWEST_TRIES - 1)
        self._options: dict[str, Any] = {"timeout": first, "tries": tries_within(first, timeout)}
        self._patience = min(timeout / 2, _MOST_PATIENCE)
        if server:
            address, port = split_address(server)
            self._options.update(servers=address, udp_port=str(port), tcp_port=str(port))
        self._channels = [_Channel(self._options) for _ in range(_CHANNELS)]
        self._patient: _Channel | None = None
        self._system = _SystemLookup()

    def addresses(self, host: str) -> list[str]:
        """See ``Lookup``."""
        if host.lower() in _hosts_for_the_system():
            return self._system.addresses(host)
        give_up = monotonic() + self._timeout
        channel, patience = self._usual_channel(host), _LEAST_PATIENCE
        while True:
            began = monotonic()
            try:
                return self._ask(channel, host)
            except socket.gaierror as error:
                problem = _translated(error)
                # That there is no address may be half of an answer, where the other half may be lost.
                is_half = problem.errno == socket.EAI_NONAME and monotonic() - began >= patience
                if not (is_half or isinstance(problem, NoAnswer)):
                    raise problem from error
                if monotonic() >= give_up:
                    raise _no_answer() from error
            channel, patience = self._patient_channel(), self._patience

    def _ask(self, channel: _Channel, host: str) -> list[str]:
        channel.asked += 1
        channel.busy += 1
        try:
            found = channel.resolver.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
            if channel is self._patient:
                self._patient = None  # by now it knows how long an answer took
        finally:
            channel.busy -= 1
            self._close_unused(channel)
        return [str(address[0]) for *_, address in found]

    def _usual_channel(self, host: str) -> _Channel:
        channels = self._channels
        which = hash(host) % len(channels)  # the same one again, which may know it
        channel = channels[which]
        if channel.asked >= _MAX_CACHED:
            full, channel = channel, _Channel(self._options)
            channels[which] = channel
            self._close_unused(full)
        return channel

    def _patient_channel(self) -> _Channel:
        former = self._patient
        if former is not None and former.asked < _MAX_CACHED:
            return former
        self._patient = _Channel(
            {
                **self._options,
                "timeout": self._patience,
                "tries": tries_within(self._patience, self._timeout),
            }
        )
        if former is not None:
            self._close_unused(former)
        return self._patient

    def _close_unused(self, channel: _Channel) -> None:
        if not channel.busy and channel not in (*self._channels, self._patient):
            channel.resolver.close()


def tries_within(first: float, seconds: float) -> int:
    """Return how many tries of c-ares, of which the first waits ``first`` seconds, wait for ``seconds``."""
    tries, waited = 0, 0.0
    while waited < seconds:
        waited += min(first * 2**tries, _MOST_PATIENCE)
        tries += 1
    return tries


def _no_answer() -> NoAnswer:
    return NoAnswer(socket.EAI_AGAIN, "the name server does not answer")


def _translated(error: socket.gaierror) -> socket.gaierror:
    """Return ``error``, which has a code of c-ares, with a code of the system."""
    code, text = error.args
    if code == _ARES_TIMEOUT:
        return _no_answer()
    if code == socket.EAI_NONAME or code in _ARES_NO_NAME:
        return socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return socket.gaierror(socket.EAI_AGAIN, str(text).partition(": ")[2] or str(text))


def _looked_up(host: str) -> tuple[list[str], Exception | None]:
    """Return the addresses of ``host``, or why there are none: gevent prints what its threads raise."""
    try:
        return _getaddrinfo(host, 0), None
    except (socket.gaierror, UnicodeError) as error:
        return [], error
    except OSError as error:  # what the system's library met, as a code of its own
        return [], socket.gaierror(socket.EAI_SYSTEM, error.strerror or str(error))


def _getaddrinfo(host: str | bytes, flags: int) -> list[str]:
    # The system's own function: in a thread, gevent's would switch back to the hub.
    found = _socket.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, flags)
    return [str(address[0]) for *_, address in found]
