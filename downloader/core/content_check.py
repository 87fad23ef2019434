"""Check a message body against what the source and the response state, and against --max-size.

The parser checks the length that delimits the body on the connection. This module checks the file.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from downloader.core.checksum import has_crc32c
from downloader.core.digests import ALGORITHMS, Digest, new_digest
from downloader.core.extras import install_command
from downloader.core.stated_checksum import Stated
from downloader.core.units import show_size
from downloader.errors import FetchError
from downloader.messages import Item

__all__ = [
    "ALGORITHMS",
    "CRC32C_MISSING",
    "Checking",
    "ContentCheck",
    "check_item",
    "check_length",
    "is_checksum",
    "mismatch",
]

CRC32C_MISSING: Final = (
    f"verifying crc32c needs the package crc32c; install it with: {install_command('crc32c')}"
)
_HEX = re.compile(r"[0-9a-f]+")


class Checking(msgspec.Struct, frozen=True):
    """What is checked and computed of every body.

    ``max_size``: in bytes, the smaller of --max-size and what the store can have; 0 means no limit.
    ``checksums`` and ``hash`` are the options; ``hash`` is the algorithm of a digest to compute, "" for
    none.
    """

    max_size: int = 0
    checksums: Literal["off", "list", "all"] = "list"
    hash: str = ""


class ContentCheck:
    """The check of one body: call ``feed`` for each stored chunk, in order, and ``finish`` once at the end.

    ``stated``: the checksum that the response states of the stored bytes.
    """

    __slots__ = ("_digests", "_expected", "_hash", "_max_size", "_size", "size")

    def __init__(self, item: Item, checking: Checking, stated: Stated | None = None) -> None:
        self.size = 0
        self._size = item.size
        self._max_size = checking.max_size
        self._hash = checking.hash
        self._expected: list[Stated] = []
        self._digests: dict[str, Digest] = {}
        if item.checksum and checking.checksums != "off":
            algorithm, _, digits = item.checksum.partition(":")
            self._expected.append(Stated("the source", algorithm, bytes.fromhex(digits)))
        if stated is not None:
            self._expected.append(stated)
        for each in self._expected:
            if each.algorithm not in self._digests:
                self._digests[each.algorithm] = new_digest(each.algorithm)
        if self._hash and self._hash not in self._digests:
            self._digests[self._hash] = new_digest(self._hash)

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add the next chunk of the body. Raises FetchError ``too-large``."""
        self.size += len(chunk)
        if self._max_size and self.size > self._max_size:
            raise _too_large("it", self._max_size)
        for digest in self._digests.values():
            digest.update(chunk)

    def finish(self) -> None:
        """Raise FetchError (``size-mismatch``, ``checksum-mismatch``) unless size and checksum match."""
        if self._size >= 0 and self.size != self._size:
            raise FetchError("size-mismatch", f"{self.size} bytes arrived, the source says {self._size}")
        for expected in self._expected:
            found = self._digests[expected.algorithm].digest()
            if found != expected.digest:
                raise mismatch(expected, found)

    @property
    def hash(self) -> bytes:
        """The digest that --hash asks for, of what was fed so far; b"" without the option."""
        return self._digests[self._hash].digest() if self._hash else b""


def mismatch(expected: Stated, found: bytes) -> FetchError:
    """Return the error of a body that has the digest ``found``."""
    return FetchError(
        "checksum-mismatch",
        f"the body has {found.hex()}, {expected.field} says {expected.algorithm}:{expected.digest.hex()}",
    )


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
        raise _too_large(show_size(length), max_size)


def _too_large(size: str, most: int) -> FetchError:
    return FetchError(
        "too-large", f"{size} is more than {show_size(most)}, the limit of --max-size or --store"
    )


def is_checksum(text: str) -> bool:
    """Return whether ``text`` is a checksum that can be verified: ``ALGORITHM:HEX`` in lower case."""
    algorithm, _, digits = text.partition(":")
    return len(digits) == ALGORITHMS.get(algorithm) and _HEX.fullmatch(digits) is not None
