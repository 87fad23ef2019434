"""Provide the fastest CRC-32 available.

isal's takes a tenth of the time of zlib's, which saves a seventh of the CPU time of a large file.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
