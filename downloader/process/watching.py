"""Watch a process that this one waits for, and end it without waiting for ever.

On Linux its progress is seen from outside, in ``/proc``: a process that computes, reads or writes is not
stuck, whether or not it says so. On other systems only messages count, and a process that sends none may be
silent for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from downloader.core.silence import Silence, VitalSigns
from downloader.errors import BootError

__all__ = [
    "STALL_TIMEOUT",
    "Stalled",
    "Watch",
    "end",
    "reap",
    "run_watched",
    "stalled_text",
    "start",
    "vital_signs",
    "watched",
]

STALL_TIMEOUT = 30.0
"""The default of ``Config.stall_timeout``, for processes that are started without a Config."""

LOOK_EVERY = 0.5  # seconds
ENDS_WITHIN = 5.0
_POLL_EVERY = 0.02
_CHUNK = 64 << 10


_left: list[subprocess.Popen[Any]] = []  # killed, and to be reaped when their disk answers


class Stalled(Exception):
    """A process has made no progress for too long, and was killed; the message says so."""


def stalled_text(limit: float) -> str:
    """Return what to say of a process that was killed after ``limit`` seconds without progress."""
    return f"gave no sign of life for {limit:.0f} s; killed"


def vital_signs(pid: int) -> VitalSigns | None:
    """Return what process ``pid`` has done so far; None where that cannot be known."""
    if sys.platform != "linux":
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program comes second, and may have blanks and parentheses.
            fields = file.read().rpartition(b") ")[2].split()
        state, cpu = fields[0].decode("ascii"), int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return None
    moved = 0
    with contextlib.suppress(OSError, ValueError):  # not that of another user
        with open(f"/proc/{pid}/io", "rb") as file:
            counts = dict(line.split(b": ") for line in file.read().splitlines())
        moved = int(counts[b"rchar"]) + int(counts[b"wchar"])
    return VitalSigns(state, cpu, moved)


class Watch:
    """The watch over process ``pid``, which may be silent for ``limit`` seconds; see ``Silence``.

    ``speaks``: it sends a message once a second, or answers. ``by_messages``: nothing else counts, for a
    process that polls all the time.
    """

    def __init__(
        self,
        pid: int,
        limit: float,
        *,
        patient: bool = False,
        speaks: bool = False,
        by_messages: bool = False,
    ) -> None:
        self._pid = pid
        self._speaks = speaks or by_messages
        self._by_messages = by_messages
        self._silence = Silence(limit, time.monotonic(), patient=patient)
        self.limit = limit

    def heard(self) -> None:
        """Record a message of the process."""
        self._silence.heard()

    def stalled(self) -> bool:
        """Return whether the process is to be killed; call it once a second or more often."""
        signs = vital_signs(self._pid)
        if signs is None and not self._speaks:
            return False
        if signs is not None and self._by_messages:
            signs = VitalSigns(signs.state, 0, 0)
        return self._silence.look(time.monotonic(), signs)


def reap(pid: int, within: float) -> tuple[int, resource.struct_rusage] | None:
    """Wait ``within`` seconds for child ``pid``; return its wait status and usage, None if it lives on."""
    by = time.monotonic() + within
    with contextlib.ExitStack() as opened:
        selector = opened.enter_context(selectors.DefaultSelector())
        every = _POLL_EVERY
        with contextlib.suppress(AttributeError, OSError):  # not Linux, or no descriptor left
            descriptor = os.pidfd_open(pid)
            opened.callback(os.close, descriptor)
            selector.register(descriptor, selectors.EVENT_READ)
            every = within
        while True:
            found, status, usage = os.wait4(pid, os.WNOHANG)
            if found:
                return status, usage
            if (left := by - time.monotonic()) <= 0:
                return None
            selector.select(min(left, every))


def start(argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process with the ``options`` of Popen. Raises BootError."""
    try:
        return subprocess.Popen(argv, **options)
    except OSError as error:
        long = "; sys.path is handed on in its arguments" if error.errno == errno.E2BIG else ""
        raise BootError(f"cannot start a process: {error.strerror}{long}") from error


def end(process: subprocess.Popen[Any]) -> int:
    """Kill ``process`` and return its status.

    One that waits for a disk dies when the disk answers. It is not waited for, and -9 is returned.
    """
    _left[:] = [each for each in _left if each.poll() is None]
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    try:
        return process.wait(ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        _left.append(process)
        return -9


@contextlib.contextmanager
def watched(process: subprocess.Popen[Any], limit: float) -> Iterator[Callable[[], bool]]:
    """Kill ``process`` if it makes no progress while the block waits for it; yield whether it was."""
    over = threading.Event()
    watch = Watch(process.pid, limit)
    found = []

    def look() -> None:
        while not over.wait(LOOK_EVERY):
            if process.returncode is None and watch.stalled():
                found.append(process.pid)
                process.kill()
                return

    thread = threading.Thread(target=look, name="watch", daemon=True)
    thread.start()
    try:
        yield lambda: bool(found)
    finally:
        over.set()
        thread.join()


def run_watched(
    argv: Sequence[str], env: Mapping[str, str], given: bytes, limit: float, *, patient: bool = False
) -> tuple[int, bytes]:
    """Run a process that reads ``given``; return its status and what it has written.

    Raises OSError, and Stalled where it makes no progress for ``limit`` seconds.
    """
    process = subprocess.Popen(list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(env))
    assert process.stdin is not None
    assert process.stdout is not None
    watch = Watch(process.pid, limit, patient=patient)
    found = bytearray()
    left = memoryview(given)
    try:
        with selectors.DefaultSelector() as selector:
            for pipe, event in (
                (process.stdin, selectors.EVENT_WRITE),
                (process.stdout, selectors.EVENT_READ),
            ):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, event)
            while selector.get_map():
                for key, _ in selector.select(LOOK_EVERY):
                    if key.fileobj is process.stdout:
                        if data := os.read(key.fd, _CHUNK):
                            found += data
                            continue
                    else:
                        with contextlib.suppress(BrokenPipeError):
                            left = left[os.write(key.fd, left[:_CHUNK]) :]
                            if left:
                                continue
                        process.stdin.close()
                    selector.unregister(key.fileobj)
                if selector.get_map() and watch.stalled():
                    raise Stalled(f"its process {stalled_text(limit)}")
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY)
            if process.poll() is None and watch.stalled():
                raise Stalled(f"its process {stalled_text(limit)}")
        return process.returncode, bytes(found)
    finally:
        if process.poll() is None:
            end(process)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
