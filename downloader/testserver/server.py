"""The file server as a process, or several: listening, forking, TLS, signals.

::

    serve ──► one worker: the loop runs here
        └───► more: the sockets are bound here, each forked child takes one (SO_REUSEPORT);
              this process waits for signals and for deaths, and reaps

SIGTERM and SIGINT are blocked from the first line to the last, but while the loop handles them or
``sigwait`` takes them: whenever they come, what was made is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from downloader.errors import BootError, ConfigError, DownloaderError
from downloader.process.file_descriptors import raise_limit
from downloader.testserver.counters import Counters
from downloader.testserver.protocol import Connection
from downloader.testserver.settings import Settings
from downloader.testserver.site import Site

__all__ = ["Settings", "serve"]

_BACKLOG: Final = 4096
_STOPS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_PATIENCE: Final = 5.0  # seconds between SIGTERM and SIGKILL for a child
_PR_SET_PDEATHSIG: Final = 1


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, in the calling process, in its main thread.

    Calls ``announce`` with ``listening http://127.0.0.1:PORT`` as soon as connections are accepted;
    with TLS ``listening https://…`` and then ``ca PATH``, a PEM file that is removed at the end.
    Raises ConfigError where it cannot listen, BootError and DownloaderError where a worker could
    not start or died.
    """
    if threading.current_thread() is not threading.main_thread():
        raise DownloaderError("the file server needs the main thread: it handles signals")
    with _signals_blocked(), contextlib.ExitStack() as made:
        raise_limit()
        listeners = _listen(settings)
        for listener in listeners:
            made.callback(listener.close)
        host, port = listeners[0].getsockname()[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"listening http{'s' if settings.tls else ''}://{where}"]
        context: ssl.SSLContext | None = None
        if settings.tls:
            directory = tempfile.mkdtemp(prefix="downloader-devserver-")  # mode 0700
            made.callback(shutil.rmtree, directory, ignore_errors=True)
            context, path = _certify(settings.host, directory)
            lines.append(f"ca {path}")
        counters = Counters(settings.workers)

        def started() -> None:
            for line in lines:
                announce(line)

        if settings.workers == 1:
            site = Site(settings, counters)
            asyncio.run(_accept(listeners[0], site, context, started))
        else:
            _supervise(settings, counters, listeners, context, started)


# Before anything is served


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks the signals that this module deals with; handlers and mask are put back at the end."""
    watched = _STOPS | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    before = {number: signal.getsignal(number) for number in watched}
    # Where it is ignored, children vanish before they can be waited for.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield
    finally:
        # A second Ctrl-C while stopping asks for nothing new.
        while waiting := signal.sigpending() & watched:
            signal.sigwait(waiting)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _listen(settings: Settings) -> list[socket.socket]:
    """A listening socket for each worker, all on one port."""
    listeners: list[socket.socket] = []
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        shared = settings.workers > 1
        if shared and settings.port:
            # Sockets that share a port would also share it with those of another server.
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        for _ in range(settings.workers):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            address = listener.getsockname()
        for listener in listeners:
            listener.listen(_BACKLOG)
    except OSError as error:
        for listener in listeners:
            listener.close()
        where = f"{settings.host} port {settings.port}"
        raise ConfigError(f"cannot listen on {where}: {error.strerror or error}") from error
    return listeners


def _certify(host: str, directory: str) -> tuple[ssl.SSLContext, str]:
    """A context with a certificate of a CA made for this run, and the path of the CA's PEM file."""
    import trustme  # costly, and wanted for TLS alone

    authority = trustme.CA(organization_name="downloader devserver")
    names = dict.fromkeys(("127.0.0.1", "::1", "localhost", host))
    certificate = authority.issue_cert(*names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    certificate.configure_cert(context)
    path = os.path.join(directory, "ca.pem")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(authority.cert_pem.bytes())
    return context, path


# Serving


async def _accept(
    listener: socket.socket,
    site: Site,
    context: ssl.SSLContext | None,
    started: Callable[[], None],
    stops: frozenset[signal.Signals] = _STOPS,
    lifeline: int | None = None,
) -> None:
    """Serves until one of ``stops``, or until the other end of the pipe ``lifeline`` is closed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in stops:
        loop.add_signal_handler(number, stop.set)
    if lifeline is not None:
        loop.add_reader(lifeline, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    try:
        server = await loop.create_server(
            lambda: Connection(loop, site), sock=listener, backlog=_BACKLOG, ssl=context
        )
        started()
        await stop.wait()
        server.close()
        for connection in tuple(site.connections):
            connection.abort()
        await asyncio.sleep(0)  # the ends of the connections are seen to in the next turn
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def _supervise(
    settings: Settings,
    counters: Counters,
    listeners: list[socket.socket],
    context: ssl.SSLContext | None,
    started: Callable[[], None],
) -> None:
    """Forks the workers and waits for a signal; a worker that dies ends the whole server."""
    parent = os.getpid()
    lifeline, held = os.pipe()  # held open by this process alone: its end is seen by the children
    ready, tell = os.pipe()
    children: set[int] = set()
    try:
        for process, listener in enumerate(listeners):
            child = os.fork()
            if child == 0:
                os.close(held)
                os.close(ready)
                for other in listeners:
                    if other is not listener:
                        other.close()
                site = Site(settings, counters, process)
                _work(parent, listener, site, context, tell, lifeline)
            children.add(child)
        os.close(tell)
        tell = -1
        for _ in listeners:
            if not os.read(ready, 1):
                raise BootError("a process of the file server could not start")
        started()
        while signal.sigwait(_STOPS | {signal.SIGCHLD}) == signal.SIGCHLD:
            for child in tuple(children):
                if _reaped(child):
                    children.discard(child)
                    raise DownloaderError("a process of the file server died")
    finally:
        _stop(children)
        for descriptor in (lifeline, held, ready, tell):
            if descriptor != -1:
                os.close(descriptor)


def _work(
    parent: int,
    listener: socket.socket,
    site: Site,
    context: ssl.SSLContext | None,
    tell: int,
    lifeline: int,
) -> NoReturn:
    """A child's whole life. It never returns into what the parent was doing when it forked."""
    status = 1
    try:
        # Ctrl-C reaches the whole group; the parent stops the children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        tied = _die_with_parent(parent)

        def started() -> None:
            os.write(tell, b".")
            os.close(tell)

        stops = frozenset({signal.SIGTERM})
        asyncio.run(_accept(listener, site, context, started, stops, None if tied else lifeline))
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _die_with_parent(parent: int) -> bool:
    """Has the kernel kill this process when its parent ends; False where it cannot."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return False
    if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        return False
    if os.getppid() != parent:
        os._exit(1)  # it had ended before we asked
    return True


def _reaped(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] == child


def _stop(children: set[int]) -> None:
    """Ends and reaps the children: drain, then kill."""
    for child in children:
        os.kill(child, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    left = set(children)
    while left:
        left = {child for child in left if not _reaped(child)}
        if left and time.monotonic() > deadline:
            for child in left:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            return
        if left:
            time.sleep(0.005)
