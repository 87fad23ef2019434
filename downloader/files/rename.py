"""Rename without replacing (``renameat2``), for file systems without hard links."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

__all__ = ["rename_new"]

_RENAME_NOREPLACE = 1


def rename_new(source: str, target: str, directory: int, other: int | None = None) -> None:
    """Rename a file; raise FileExistsError instead of replacing one, OSError ENOSYS if not supported.

    ``directory``: of ``source``, and of ``target`` unless that is in ``other``.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "renameat2"):
            names = os.fsencode(source), os.fsencode(target)
            other = directory if other is None else other
            if not libc.renameat2(directory, names[0], other, names[1], _RENAME_NOREPLACE):
                return
            number = ctypes.get_errno()
            if number not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(number, os.strerror(number))
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
