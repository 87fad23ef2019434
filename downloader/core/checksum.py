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

__all__ = ["crc32", "crc32c", "has_crc32c"]


def has_crc32c() -> bool:
    """Return whether CRC-32C can be computed; does not import anything."""
    return is_installed("crc32c")


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``, which follows what has the checksum ``value``."""
    import crc32c as library

    return library.crc32c(data, value)
