"""Sync the destination with ``syncfs`` to survive a power cut, and identify the boot to detect one.

A published file is in the kernel's memory at first; it may take minutes until it is on the disk. With
--fsync the order is: publish, ``syncfs`` on the destination, journal. One call covers all batches that
ended since the last one: an fsync for each file would reduce the speed by nine tenths.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

__all__ = ["boot_id", "syncfs"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def syncfs(fd: int) -> None:
    """Wait until all data written to the file system of ``fd`` is on its disk.

    Raises OSError if data could not be written. It may be lost for good: the kernel may have dropped it,
    and a second call would succeed. (Linux reports this since 5.8, for an ``fd`` opened before the write.)
    Raises OSError ENOSYS if the system has no such call.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if libc.syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def boot_id() -> str:
    """Return the kernel's ID of this boot; "" if there is none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
