"""Give each attempt at a slice a directory on the node's disk, for the journal of its run.

An attempt that does not finish leaves the directory to the next one on this node, which goes on from it.
Attempts can overlap: the directory belongs to the one that has locked it, and another gets one of its own.
Without the lock, an attempt that ends would remove the directory that another is about to use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from downloader.cluster.plan.local_home import own_temporary
from downloader.files.directory import Directory, Entry, open_home

__all__ = ["Scratch", "scratch_of"]

_LOCK = "attempt.lock"


class Scratch:
    """The directory ``name`` of an attempt in ``home``, locked until all have closed ``lock_fd``."""

    def __init__(self, home: Directory, name: str, lock_fd: int) -> None:
        self._home = home
        self._name = name
        self.path = home.path / name
        self.lock_fd = lock_fd

    def file(self, name: str) -> Entry:
        """Return the file ``name`` in the directory."""
        return self._home / self._name / name

    def clear(self) -> None:
        """Remove what is in the directory, but not the lock. Raises OSError."""
        for name in (self._home / self._name).names():
            if name != _LOCK:
                self.file(name).remove_tree()

    def remove(self) -> None:
        """Remove the directory, if it can be removed."""
        # By another name: the next attempt makes the directory anew, and nothing in that one is removed.
        removed = f".{self._name}.{os.getpid()}"
        with contextlib.suppress(OSError):
            (self._home / self._name).rename(removed)
            (self._home / removed).remove_tree()


@contextlib.contextmanager
def scratch_of(base: str, plan: str, name: str, attempt: str) -> Iterator[Scratch]:
    """Return the directory for ``attempt`` at the slice ``name`` of ``plan``, below ``base`` or our own.

    Raises OSError, and ConfigError if somebody else could change what is in it.
    """
    with contextlib.ExitStack() as opened:
        if not base:
            base = own_temporary()
            # Anybody can make a directory of that name before us.
            opened.enter_context(open_home(Path(base), create=True, option="--scratch"))
        home, shared = _locked(Path(base) / plan, name)
        opened.callback(home.close)
        scratch = shared or _lock(home, f"{name}-{attempt}")
        assert scratch is not None  # nobody else has that name
        try:
            yield scratch
            if scratch is not shared:
                scratch.remove()  # no other attempt looks there
        finally:
            os.close(scratch.lock_fd)
    with contextlib.suppress(OSError):
        home.path.rmdir()  # if it is empty


def _locked(path: Path, name: str) -> tuple[Directory, Scratch | None]:
    """Open the directory ``path`` of a plan, and ``_lock`` the directory ``name`` in it."""
    while True:
        home = open_home(path, create=True, option="--scratch")
        try:
            return home, _lock(home, name)
        except FileNotFoundError:
            # An attempt that has ended has just removed one of the two.
            home.close()
        except BaseException:
            home.close()
            raise


def _lock(home: Directory, name: str) -> Scratch | None:
    """Make and lock the directory ``name``; return None if another attempt has it."""
    while True:
        (home / name).make_directory()
        fd = (home / name / _LOCK).open(os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = (home / name / _LOCK).stat()
            if found is not None and os.path.samestat(found, os.fstat(fd)):
                return Scratch(home, name, fd)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        os.close(fd)  # removed after it was opened
