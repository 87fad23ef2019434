"""Rename without replacing, and exchange two files (``renameat2``)."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys

__all__ = ["exchange", "rename_new"]

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
# What the system says of a flag that the kernel, or the file system, does not know.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def rename_new(source: str, target: str, directory: int, other: int | None = None) -> None:
    """Rename a file; raise FileExistsError instead of replacing one, OSError ENOSYS if not supported.

    For file systems without hard links. ``directory``: of ``source``, and of ``target`` unless that is in
    ``other``.
    """
    if not _rename(source, target, directory, directory if other is None else other, _RENAME_NOREPLACE):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def exchange(one: str, other: str, directory: int) -> bool:
    """Give each of two files in ``directory`` the name of the other; return False if not supported.

    Raises OSError, FileNotFoundError if one of them is not there.
    """
    return _rename(one, other, directory, directory, _RENAME_EXCHANGE)


def _rename(source: str, target: str, directory: int, other: int, flag: int) -> bool:
    """Call ``renameat2``; return False if the system does not know ``flag``. Raises OSError."""
    libc = _libc() if sys.platform == "linux" else None
    if libc is None:
        return False
    if not libc.renameat2(directory, os.fsencode(source), other, os.fsencode(target), flag):
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number))


@functools.cache
def _libc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "renameat2") else None
