"""Give each attempt at a slice a directory on the node's disk, for the journal of its run.

An attempt that does not finish leaves the directory to the next one on this node, which goes on from it.
Attempts can overlap: the directory belongs to the one that has locked it, and another gets one of its own.
Without the lock, an attempt that ends would remove the directory that another is about to use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from downloader.config.config import Config

__all__ = ["Scratch", "journal_beside_bucket", "own_temporary", "scratch_of"]

_LOCK = "attempt.lock"


def own_temporary() -> str:
    """Return the directory for what is kept on this machine where no other is named."""
    return f"{tempfile.gettempdir()}/mass-downloader-{os.getuid()}"


def journal_beside_bucket(config: Config) -> str:
    """Return a local --journal for the job ``config``, whose plan is in a bucket."""
    mark = zlib.crc32(os.fsencode(f"{config.journal} {config.output}"))
    return f"{own_temporary()}/journal-{mark:08x}"


class Scratch:
    """The directory ``path`` of an attempt, locked until all processes have closed ``lock_fd``."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self.lock_fd = lock_fd

    def clear(self) -> None:
        """Remove what is in the directory, but not the lock. Raises OSError."""
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()

    def remove(self) -> None:
        """Remove the directory, if it can be removed."""
        # By another name: the next attempt makes the directory anew, and nothing in that one is removed.
        removed = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            os.rename(self.path, removed)
            shutil.rmtree(removed, ignore_errors=True)


@contextlib.contextmanager
def scratch_of(root: Path, name: str, attempt: str) -> Iterator[Scratch]:
    """Return the directory for ``attempt`` at the slice ``name``, below ``root``. Raises OSError."""
    shared = _lock(root / name)
    scratch = shared or _lock(root / f"{name}-{attempt}")
    assert scratch is not None  # nobody else has that name
    try:
        yield scratch
        if scratch is not shared:
            scratch.remove()  # no other attempt looks there
    finally:
        os.close(scratch.lock_fd)


def _lock(path: Path) -> Scratch | None:
    """Make and lock the directory ``path``; return None if another attempt has it."""
    while True:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # an attempt that has ended has just removed it
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, fd):
                return Scratch(path, fd)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        os.close(fd)  # removed after it was opened


def _is_at(path: Path, fd: int) -> bool:
    """Return whether ``fd`` is still the lock in ``path``."""
    try:
        return os.path.samestat(os.stat(path / _LOCK), os.fstat(fd))
    except FileNotFoundError:
        return False
