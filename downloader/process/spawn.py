"""Fork a child and boot it: the only way in which the feeder and the workers are started.

::

    supervisor ── fork ──► child: signals, descriptors, die with the parent
                                  patching.apply()          before anything else, unless it is plain
                                  role's main(link)         imports requests only now, if it needs it

A plain child is not patched: it has one thread, fetches nothing, and saves what gevent takes to import.
The child inherits its end of the socketpair, the owner lock (so that the destination stays locked until the
last process of a run has exited) and standard error; everything else is closed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata  # noqa: F401 — gevent needs it for patching; imported here once for all children
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from downloader.core.file_errors import refusal
from downloader.core.frames import pack
from downloader.errors import BootError, DownloaderError, SourceError
from downloader.messages import Ready, Stop
from downloader.process.channel import ChildLink, Link, PlainChildLink
from downloader.process.file_descriptors import close_all_but, raise_limit
from downloader.process.lifetime import die_with

__all__ = ["Child", "ChildMain", "die_with", "fork"]

ChildMain = Callable[[Any, Callable[[bool], Ready]], None]
"""The main function of a role: runs over its link, and calls its second argument when all is imported.

The link is a ChildLink; in a plain child a PlainChildLink.
"""


class Child(NamedTuple):
    """A child process, as the supervisor sees it."""

    pid: int
    link: Link


def fork(main: ChildMain, *, keep: tuple[int, ...] = (), stdin: bool = False, plain: bool = False) -> Child:
    """Fork a child that runs ``main`` and inherits the descriptors ``keep``, and ``stdin`` if asked to.

    A ``plain`` one is not patched.

    Call it only in a process with one thread and without gevent. Raises BootError when the system cannot
    create another process.
    """
    parent = os.getpid()
    try:
        parent_end, child_end = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
    except OSError as error:
        raise BootError(f"cannot fork a process: {error.strerror}") from error
    if pid:
        child_end.close()
        return Child(pid, Link(parent_end))
    status = 70
    try:
        parent_end.close()
        # The child must not return into the supervisor's frames.
        status = _child(main, child_end.detach(), parent, keep, stdin, plain)
    finally:
        os._exit(status)


def _child(main: ChildMain, fd: int, parent: int, keep: tuple[int, ...], stdin: bool, plain: bool) -> int:
    try:
        _set_up(fd, parent, keep, stdin)
        link = PlainChildLink(fd) if plain else _patched_link(fd)
    except BaseException as error:
        _report(fd, error)
        return 3
    booted = False

    def ready(check: bool) -> Ready:
        nonlocal booted
        message = Ready({}, "") if plain else _ready(check)
        # Imported objects stay until exit: the garbage collector need not scan them again and again.
        gc.freeze()
        gc.enable()
        booted = True
        return message

    try:
        main(link, ready)
    except BaseException as error:
        with contextlib.suppress(OSError):
            # A defect, or no memory: a run that has begun safely has only stopped early.
            link.send(_stop(error, DownloaderError.exit_code if booted else BootError.exit_code))
        return 4
    finally:
        link.flush()
        if plain:
            link.close()
    return 0


def _patched_link(fd: int) -> ChildLink:
    from downloader.process import patching

    patching.apply()
    return ChildLink(fd)


def _set_up(fd: int, parent: int, keep: tuple[int, ...], stdin: bool) -> None:
    die_with(parent)
    gc.disable()  # until it is ready: imports make no garbage
    # Ctrl-C signals the whole process group; only the supervisor acts on it.
    signal.set_wakeup_fd(-1)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    close_all_but({0, 1, 2, fd, *keep})
    devnull = os.open(os.devnull, os.O_RDWR)
    if not stdin:
        os.dup2(devnull, 0)
    os.dup2(2, 1)  # stdout is reserved for the supervisor's results
    os.close(devnull)
    raise_limit()


def _ready(check: bool) -> Ready:
    """Return the versions that run in this process and, unless --preflight off, that it is safe.

    Raises UnsafeProcess when it is not.
    """
    import platform

    import gevent

    from downloader._version import VERSION
    from downloader.process import patching

    preflight = "off"
    if check:
        preflight = patching.require().summary
    versions = {
        "downloader": VERSION,
        "python": platform.python_version(),
        "gevent": gevent.__version__,
    }
    # The feeder of a list does not import them.
    imported = {name: sys.modules[name] for name in ("requests", "urllib3") if name in sys.modules}
    versions |= {name: module.__version__ for name, module in imported.items()}
    return Ready(versions, preflight)


def _stop(error: BaseException, exit_code: int) -> Stop:
    detail = "".join(traceback.format_exception(error))
    if isinstance(error, DownloaderError):
        source_broke = isinstance(error, SourceError)
        return Stop(error.exit_code, _encodable(str(error)), _encodable(detail), source_broke)
    if text := refusal(error):
        exit_code = DownloaderError.exit_code  # a file that the run needs, whenever the process needs it
    elif isinstance(error, MemoryError):
        text = "a child process found no memory; free some, or use fewer --workers or --connections"
    else:
        text = f"a child process failed: {type(error).__name__}: {error}"
    return Stop(exit_code, _encodable(text), _encodable(detail))


def _encodable(text: str) -> str:
    """Return ``text`` without surrogates, which a name from a list or of a file can have."""
    return text.encode("utf-8", "backslashreplace").decode()


def _report(fd: int, error: BaseException) -> None:
    """Send the supervisor the reason of a failed boot.

    Uses the plain descriptor, since nothing else works yet.
    """
    import msgspec

    stop = _stop(error, BootError.exit_code)
    if stop.exit_code == 4:
        stop = Stop(BootError.exit_code, stop.text, stop.detail)
    frame = pack(msgspec.msgpack.encode(stop))
    with contextlib.suppress(OSError):
        while frame:
            frame = frame[os.write(fd, frame) :]
