"""Provide the fastest CRC-32 available, and CRC-32C where a package has it.

isal's CRC-32 takes a tenth of the time of zlib's, which saves a seventh of the CPU time of a large file.
Of the packages with a CRC-32C, ``crc32c`` takes any buffer, and is a little faster than google-crc32c.
"""

from __future__ import annotations

from downloader.core.extras import is_installed

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["MOST_READ", "UNREAD", "crc32", "crc32c", "has_crc32c", "is_unread"]

UNREAD = 0
"""The CRC-32 that is recorded of a file of somebody else which is kept, and too large to be read for it."""
MOST_READ = 1 << 30
"""Bytes of a file that is read to know its CRC-32. A sparse one may have terabytes, and takes no room."""


def is_unread(size: int, crc: int) -> bool:
    """Return whether only the size is known of a file with this record."""
    return crc == UNREAD and size > MOST_READ


def has_crc32c() -> bool:
    """Return whether CRC-32C can be computed; does not import anything."""
    return is_installed("crc32c")


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``, which follows what has the checksum ``value``."""
    import crc32c as library

    return library.crc32c(data, value)
