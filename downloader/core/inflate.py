"""Decompress what was read from the disk, up to a bound: a few bytes can stand for gigabytes."""

from __future__ import annotations

import zlib

__all__ = ["inflate"]


def inflate(data: bytes | memoryview, most: int) -> bytes:
    """Return the content of the zlib stream ``data``, of at most ``most`` bytes.

    Raises ValueError if it is longer, cut off, or no such stream.
    """
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, most)
        if not stream.eof and stream.decompress(stream.unconsumed_tail, 1):
            raise ValueError(f"it has more than {most:,} bytes")
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not stream.eof:
        raise ValueError("it is cut off")
    return content
