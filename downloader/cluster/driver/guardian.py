"""Run the process that calls Ray below one that ends all of it: what Ray has started, too.

::

    driver ──► guardian ──► the process that calls Ray ──► with --ray-address local: its servers and workers

Ray ends the process that calls it when the cluster is lost, and leaves servers behind when that process is
killed. So the driver, which answers with the exit code, does not call Ray itself; and the guardian, of whom
every process that is orphaned below it becomes a child (PR_SET_CHILD_SUBREAPER), kills them all when the
driver closes its end of a pipe, or dies, and when the process that calls Ray has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import shutil
import signal
import sys
import time

from downloader.process.lifetime import die_with

__all__ = ["main"]

_PR_SET_CHILD_SUBREAPER = 36
_REAP_EVERY = 1.0  # seconds
_ENDS_WITHIN = 5.0


def main() -> int:
    """Run the guardian. argv: the descriptors of the pipe and of the socket for calls, the address, and the
    directory of a local cluster, which is removed at the end, "" for another.

    Returns the exit code of the process that calls Ray, 128 and the number of the signal that ended it.
    """
    lifeline, calls, address, temporary = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
    # Ctrl-C and the like are for the driver.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guardian = os.getpid()
    pid = os.fork()
    if not pid:
        status = 70
        try:
            die_with(guardian)
            os.close(lifeline)
            from downloader.cluster.driver.fleet_process import serve

            # Not the directory itself, since Ray gives it the mode 777.
            status = serve(calls, address, temporary and f"{temporary}/ray")
        finally:
            os._exit(status)
    os.close(calls)
    try:
        return _watch(pid, lifeline)
    finally:
        _end_all()
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def _watch(pid: int, lifeline: int) -> int:
    """Return the exit code of child ``pid`` when it ends, or 0 when the driver closes its end."""
    with selectors.DefaultSelector() as selector:
        selector.register(lifeline, selectors.EVENT_READ)
        with contextlib.suppress(AttributeError, OSError):
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ)
        while True:
            ready = selector.select(_REAP_EVERY)
            if (status := _reap().get(pid)) is not None:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if any(key.fd == lifeline for key, _ in ready):
                return 0


def _reap() -> dict[int, int]:
    """Reap what has ended; return the wait statuses."""
    found = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found[ended[0]] = ended[1]
    return found


def _end_all() -> None:
    """Kill all processes below this one, and those that they start meanwhile."""
    by = time.monotonic() + _ENDS_WITHIN
    while time.monotonic() < by:
        _reap()
        below = _below(os.getpid())
        if not below:
            return
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _below(root: int) -> list[int]:
    """Return the processes whose ancestor is ``root``."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):  # not Linux: what PR_SET_PDEATHSIG does is all that is done
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    with open(f"/proc/{entry}/stat", "rb") as file:
                        parent = int(file.read().rpartition(b") ")[2].split()[1])
                    children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    new = [root]
    while new:
        new = [child for pid in new for child in children.get(pid, ())]
        found += new
    return found
