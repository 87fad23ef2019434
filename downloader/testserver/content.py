"""Generate names and bytes of the served files from their index, so that a billion files take no memory.

To check downloaded files without this module:

- The name of file ``i`` is ``f"file-{i:010d}"``.
- Its size is N if the size is fixed; if it is a range MIN-MAX it is
  ``MIN + int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
  % (MAX - MIN + 1)``.
- Its bytes are the blocks ``hashlib.shake_128(f"{name}:{k}".encode()).digest(1048576)`` for
  k = 0, 1, 2 …, concatenated and truncated to the size. So a file of at most 1 MiB is
  ``shake_128(b"file-0000000007:0").digest(size)``.

A page of the listing starts at a multiple of the page's length. Its marker is opaque to clients and
contains characters that a query must percent-encode, to detect clients that do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import blake2b, shake_128
from typing import Final

__all__ = [
    "BLOCK",
    "blocks",
    "index_of",
    "marker_of",
    "name_of",
    "page_json",
    "size_of",
    "start_of",
]

BLOCK: Final = 1 << 20

_MARKER: Final = re.compile(r"from=([1-9][0-9]{0,9})&page%[0-9]{2,10}\+", re.ASCII)


def name_of(index: int) -> str:
    """Return the name of the file at ``index``."""
    return f"file-{index:010d}"


def index_of(name: bytes, files: int) -> int | None:
    """Return the index of the file called ``name``, None if it is not one of the ``files``."""
    digits = name[5:]
    if len(name) != 15 or not digits.isdigit() or not name.startswith(b"file-"):
        return None
    index = int(digits)
    return index if index < files else None


def size_of(name: bytes, min_size: int, max_size: int) -> int:
    """Return the size of the file called ``name``, in bytes from ``min_size`` to ``max_size``."""
    if min_size == max_size:
        return min_size
    drawn = int.from_bytes(blake2b(name, digest_size=8).digest(), "big")
    return min_size + drawn % (max_size - min_size + 1)


def blocks(name: bytes, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of at most BLOCK bytes."""
    for number in range(-(-size // BLOCK)):
        wanted = min(BLOCK, size - number * BLOCK)
        # A shorter digest of shake_128 is a prefix of a longer one.
        yield shake_128(b"%b:%d" % (name, number)).digest(wanted)


def marker_of(start: int, page: int) -> str:
    """Return the marker of the page that begins with file ``start``.

    At least two digits follow the ``%``, so that an unencoded marker is decoded to something else.
    """
    return f"from={start}&page%{start // page:02d}+"


def start_of(marker: str, files: int, page: int) -> int | None:
    """Return the first index of the page with ``marker``, None if no page has that marker."""
    match = _MARKER.fullmatch(marker)
    if match is None:
        return None
    start = int(match[1])
    if start % page or start >= files or marker != marker_of(start, page):
        return None
    return start


def page_json(start: int, files: int, page: int, marker_key: str) -> bytes:
    """Return a page of the listing: the body of the response to ``/list``."""
    end = min(start + page, files)
    record: dict[str, object] = {"FileNames": [name_of(index) for index in range(start, end)]}
    if end < files:
        record[marker_key] = marker_of(end, page)
    return json.dumps(record).encode()
