"""Check a message body against the size and checksum that the source states, and against --max-size.

The parser checks the length that delimits the body on the connection. This module checks the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final, Protocol

from downloader.core.checksum import crc32, crc32c, has_crc32c
from downloader.core.extras import install_command
from downloader.core.units import show_size
from downloader.errors import FetchError
from downloader.messages import Item

__all__ = ["ALGORITHMS", "CRC32C_MISSING", "ContentCheck", "check_item", "check_length", "is_checksum"]

ALGORITHMS: Final = {
    **{"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128},
    **{"crc32": 8, "crc32c": 8},
}
"""The algorithms of ``Item.checksum``, each with its number of hexadecimal digits."""

CRC32C_MISSING: Final = (
    f"verifying crc32c needs the package crc32c; install it with: {install_command('crc32c')}"
)
_HEX = re.compile(r"[0-9a-f]+")


class _Digest(Protocol):
    def update(self, chunk: bytes | bytearray | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class _Crc:
    def __init__(self, function: Callable[[bytes | bytearray | memoryview, int], int]) -> None:
        self._function = function
        self._value = 0

    def update(self, chunk: bytes | bytearray | memoryview, /) -> None:
        self._value = self._function(chunk, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


_CRCS: Final = {"crc32": crc32, "crc32c": crc32c}


class ContentCheck:
    """The check of one body: call ``feed`` for each stored chunk, in order, and ``finish`` once at the end.

    ``max_size`` is in bytes; 0 means no limit.
    """

    __slots__ = ("_checksum", "_digest", "_max_size", "_size", "size")

    def __init__(self, item: Item, max_size: int) -> None:
        self.size = 0
        self._size = item.size
        self._max_size = max_size
        self._checksum = item.checksum
        self._digest: _Digest | None = None
        if item.checksum:
            algorithm = item.checksum.partition(":")[0]
            crc = _CRCS.get(algorithm)
            self._digest = _Crc(crc) if crc else hashlib.new(algorithm, usedforsecurity=False)

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add the next chunk of the body. Raises FetchError ``too-large``."""
        self.size += len(chunk)
        if self._max_size and self.size > self._max_size:
            raise FetchError("too-large", f"more than --max-size {show_size(self._max_size)}")
        if self._digest is not None:
            self._digest.update(chunk)

    def finish(self) -> None:
        """Raise FetchError (``size-mismatch``, ``checksum-mismatch``) unless size and checksum match."""
        if self._size >= 0 and self.size != self._size:
            raise FetchError("size-mismatch", f"{self.size} bytes arrived, the source says {self._size}")
        if (
            self._digest is not None
            and (found := self._digest.hexdigest()) != self._checksum.partition(":")[2]
        ):
            raise FetchError("checksum-mismatch", f"the body has {found}, the source says {self._checksum}")


def check_item(item: Item) -> None:
    """Raise FetchError ``bad-checksum`` if the checksum of ``item`` cannot be verified."""
    if item.checksum.startswith("crc32c:") and not has_crc32c():
        raise FetchError("bad-checksum", CRC32C_MISSING)
    if item.checksum and not is_checksum(item.checksum):
        raise FetchError(
            "bad-checksum", f"{item.checksum[:80]!r} is not one of {', '.join(ALGORITHMS)}:HEX"
        )


def check_length(length: int, max_size: int) -> None:
    """Raise FetchError ``too-large`` if ``length`` bytes are more than ``max_size`` (0: no limit)."""
    if max_size and length > max_size:
        raise FetchError("too-large", f"{show_size(length)}, --max-size is {show_size(max_size)}")


def is_checksum(text: str) -> bool:
    """Return whether ``text`` is a checksum that can be verified: ``ALGORITHM:HEX`` in lower case."""
    algorithm, _, digits = text.partition(":")
    return len(digits) == ALGORITHMS.get(algorithm) and _HEX.fullmatch(digits) is not None
