"""Lock a destination for one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from downloader.core.file_errors import advice
from downloader.errors import DestinationError, InUse
from downloader.files.directory import Directory, UnsafeFile, open_directory

__all__ = ["is_alive", "is_locked", "lock", "lock_destination", "locked_destination"]

_ORPHANS_END_WITHIN = 10.0  # seconds
_PROCESS = re.compile(r"[1-9][0-9]{0,18}").fullmatch
_LOCKS = Path("/proc/locks")


def lock(home: Directory) -> int:
    """Lock the destination until all processes have closed the returned descriptor.

    The children of a run inherit it. After a SIGKILL of the supervisor they terminate at once, so this
    function waits for them. Raises InUse with the owner's process ID, DestinationError.
    """
    path = home / "lock"
    try:
        fd = path.open(os.O_RDWR | os.O_CREAT)
    except UnsafeFile:
        raise
    except OSError as error:
        raise DestinationError(f"{path}: {advice(error)}") from error
    try:
        owner = _locked_by(fd, lambda: os.pread(fd, 32, 0).decode("ascii", "replace").strip())
    except OSError as error:
        os.close(fd)
        raise DestinationError(f"{path} cannot be locked: {advice(error)}") from error
    if owner:
        left = [] if is_alive(owner) else _holders(os.fstat(fd))
        os.close(fd)
        if left:
            raise InUse(
                f"{home.path.parent} is in use by what a run has left that was killed (process "
                f"{', '.join(left)}); end it, then run the same command again"
            )
        raise InUse(
            f"{home.path.parent} is in use by another run (process {owner}); wait for it, or stop it"
        )
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def lock_destination(directory: int, path: str) -> None:
    """Lock the open directory that files are stored in, for runs whose journals are in different places.

    As ``lock``, it lasts until all processes have closed the descriptor, and raises InUse. A file system
    that locks no directory (NFS) is left as it is: such runs are then not kept apart.
    """
    try:
        owner = _locked_by(directory, lambda: _owner_of(os.fstat(directory)))
    except OSError:
        return
    if owner:
        raise InUse(
            f"{path} is in use by another run (process {owner}), with another --journal; wait for it, or "
            "stop it"
        )


@contextlib.contextmanager
def locked_destination(path: str) -> Iterator[None]:
    """Lock the directory ``path`` in the block; see ``lock_destination``."""
    with open_directory(path) as directory:
        lock_destination(directory.fd, path)
        yield


def _locked_by(fd: int, owner: Callable[[], str]) -> str:
    """Lock ``fd`` and return ""; or return who has locked it, as ``owner`` says, or "unknown"."""
    give_up = time.monotonic() + _ORPHANS_END_WITHIN
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = owner()
            if is_alive(found) or time.monotonic() > give_up:
                return found if _PROCESS(found) else "unknown"
            time.sleep(0.02)
        else:
            return ""


def _owner_of(status: os.stat_result) -> str:
    """Return the process that has locked a file by ``flock``, as the kernel says; "" if it does not."""
    with contextlib.suppress(OSError, ValueError):
        for line in _LOCKS.read_text().splitlines():
            _, kind, _, _, process, place, *_ = line.split()
            if kind == "FLOCK" and place.rpartition(":")[2] == str(status.st_ino):
                return process
    return ""


def _holders(status: os.stat_result) -> list[str]:
    """Return the other processes of this user that have the file open, as far as the system says it."""
    found = set()
    for path in glob.iglob("/proc/[1-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if os.path.samestat(os.stat(path), status):
                found.add(path.split("/")[2])
    return sorted(found - {str(os.getpid())}, key=int)


def is_locked(home: Directory) -> bool:
    """Return whether a run owns the destination; True where that cannot be told."""
    try:
        fd = (home / "lock").open()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def is_alive(owner: str) -> bool:
    """Return whether process ``owner`` runs; a zombie does not count."""
    if not _PROCESS(owner):
        return False
    try:
        os.kill(int(owner), 0)
    except (ProcessLookupError, OverflowError):
        return False  # no process has a number that large
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{owner}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state not in "ZX"
