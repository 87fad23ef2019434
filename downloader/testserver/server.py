"""Run the file server in one or several processes: listen, fork, set up TLS, handle signals.

::

    serve ──► one worker: the event loop runs here
        └───► more: the sockets are bound here, each forked child takes one (SO_REUSEPORT);
              this process waits for signals and for the exit of children, and reaps them

SIGTERM and SIGINT are blocked throughout, except while the event loop or ``sigwait`` handles them. So
temporary files are removed whenever a signal arrives.
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
from downloader.process.tls_defaults import server_context
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
    """Serve until SIGTERM or SIGINT, in the main thread of the calling process.

    Calls ``announce`` with ``listening http://127.0.0.1:PORT`` as soon as connections are accepted;
    with TLS ``listening https://…`` and then ``ca PATH``, a PEM file that is removed at the end.
    Raises ConfigError if it cannot listen, BootError if a worker could not start, DownloaderError if a
    worker died or if this is not the main thread.
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
    """Block the signals that this module handles; restore handlers and mask at the end."""
    watched = _STOPS | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    before = {number: signal.getsignal(number) for number in watched}
    # If SIGCHLD is ignored, children are reaped by the kernel and cannot be waited for.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield
    finally:
        # Ignore another Ctrl-C while stopping.
        while waiting := signal.sigpending() & watched:
            signal.sigwait(waiting)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _listen(settings: Settings) -> list[socket.socket]:
    """Return a listening socket for each worker, all on one port."""
    listeners: list[socket.socket] = []
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        shared = settings.workers > 1
        if shared and settings.port:
            # With SO_REUSEPORT, the sockets would also share the port with those of another server.
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
    """Return a context with a certificate of a CA of this run, and the path of the CA's PEM file."""
    import trustme  # slow to import, and used for TLS only

    authority = trustme.CA(organization_name="downloader devserver")
    names = dict.fromkeys(("127.0.0.1", "::1", "localhost", host))
    certificate = authority.issue_cert(*names)
    context = server_context()
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
    """Serve until a signal of ``stops``, or until the other end of the pipe ``lifeline`` is closed."""
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
        await asyncio.sleep(0)  # connection_lost is called in the next iteration
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)


def _supervise(
    settings: Settings,
    counters: Counters,
    listeners: list[socket.socket],
    context: ssl.SSLContext | None,
    started: Callable[[], None],
) -> None:
    """Fork the workers and wait for a signal; if a worker dies, the whole server ends."""
    parent = os.getpid()
    lifeline, held = os.pipe()  # only this process holds `held` open, so the children notice its end
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
    """Run a child process. Never returns to the parent's code that forked it."""
    status = 1
    try:
        # Ctrl-C signals the whole process group; the parent stops the children.
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
    """Let the kernel kill this process when its parent ends; return False if it cannot."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return False
    if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        return False
    if os.getppid() != parent:
        os._exit(1)  # the parent had ended before prctl
    return True


def _reaped(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] == child


def _stop(children: set[int]) -> None:
    """Terminate and reap the children: SIGTERM, then SIGKILL after ``_PATIENCE`` seconds."""
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
