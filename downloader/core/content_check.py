"""Check a message body against the size and checksum that the source states, and against --max-size.

The parser checks the length that delimits the body on the connection. This module checks the file.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Protocol

from downloader.core.checksum import crc32
from downloader.core.units import show_size
from downloader.errors import FetchError
from downloader.messages import Item

__all__ = ["ALGORITHMS", "ContentCheck", "check_item", "check_length", "is_checksum"]

ALGORITHMS: Final = {"md5": 32, "sha1": 40, "sha256": 64, "crc32": 8}
"""The algorithms of ``Item.checksum``, each with its number of hexadecimal digits."""

_HEX = re.compile(r"[0-9a-f]+")


class _Digest(Protocol):
    def update(self, chunk: bytes | bytearray | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, chunk: bytes | bytearray | memoryview, /) -> None:
        self._value = crc32(chunk, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


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
            self._digest = (
                _Crc32() if algorithm == "crc32" else hashlib.new(algorithm, usedforsecurity=False)
            )

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
    """Raise FetchError ``bad-checksum`` if the checksum of ``item`` is malformed or of an unknown kind."""
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
