"""Lock a destination for one run at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from pathlib import Path

from downloader.errors import DestinationError, InUse
from downloader.files.directory import Directory, UnsafeFile

__all__ = ["is_alive", "is_locked", "lock"]

_ORPHANS_END_WITHIN = 10.0  # seconds
_PROCESS = re.compile(r"[1-9][0-9]{0,18}").fullmatch


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
        raise DestinationError(f"{path}: {error.strerror}") from error
    give_up = time.monotonic() + _ORPHANS_END_WITHIN
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            if is_alive(owner) or time.monotonic() > give_up:
                os.close(fd)
                said = owner if _PROCESS(owner) else "unknown"
                raise InUse(
                    f"{home.path.parent} is in use by another run (process {said}); wait for it, or stop it"
                ) from None
            time.sleep(0.02)
            continue
        except OSError as error:
            os.close(fd)
            raise DestinationError(f"{path} cannot be locked: {error.strerror}") from error
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd


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
