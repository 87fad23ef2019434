"""Compute digests and checksums of bodies by the names of their algorithms, as ``ALGORITHM:HEX`` has them.

Of the packages with a CRC-32C and a BLAKE3, ``crc32c`` and ``blake3`` are used where they are installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, Protocol

from downloader.core.checksum import crc32, crc32c, has_crc32c
from downloader.core.extras import is_installed

__all__ = [
    "ALGORITHMS",
    "HASHES",
    "PACKAGES",
    "Digest",
    "can_compute",
    "digest_of",
    "new_digest",
]

ALGORITHMS: Final = {
    **{"md5": 32, "sha1": 40, "sha224": 56, "sha256": 64, "sha384": 96, "sha512": 128},
    **{"crc32": 8, "crc32c": 8},
}
"""The algorithms of ``Item.checksum``, each with its number of hexadecimal digits."""

HASHES: Final = (*ALGORITHMS, "blake3")
"""The algorithms of --hash."""

PACKAGES: Final = {"crc32c": "crc32c", "blake3": "blake3"}
"""The algorithms that need a package: its module, which is also the name of the extra."""


class Digest(Protocol):
    """A digest that is being computed, as ``hashlib`` has it."""

    def update(self, chunk: bytes | bytearray | memoryview, /) -> object: ...

    def digest(self) -> bytes: ...


class _Crc:
    def __init__(
        self, function: Callable[[bytes | bytearray | memoryview, int], int], data: bytes = b""
    ) -> None:
        self._function = function
        self._value = function(data, 0)

    def update(self, chunk: bytes | bytearray | memoryview, /) -> None:
        self._value = self._function(chunk, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


_CRCS: Final = {"crc32": crc32, "crc32c": crc32c}


def can_compute(algorithm: str) -> bool:
    """Return whether ``algorithm`` is known, and the package installed that it may need."""
    if algorithm == "crc32c":
        return has_crc32c()
    if algorithm == "blake3":
        return is_installed("blake3")
    return algorithm in ALGORITHMS


def new_digest(algorithm: str) -> Digest:
    """Return a digest of nothing yet. ``can_compute`` must be true of ``algorithm``."""
    if crc := _CRCS.get(algorithm):
        return _Crc(crc)
    if algorithm == "blake3":
        from blake3 import blake3

        return blake3()
    return hashlib.new(algorithm, usedforsecurity=False)


def digest_of(algorithm: str) -> Callable[[bytes | bytearray], bytes]:
    """Return a function that returns the digest of all of a body, at little more than its cost.

    ``can_compute`` must be true of ``algorithm``.
    """
    if crc := _CRCS.get(algorithm):
        return lambda body: crc(body, 0).to_bytes(4, "big")
    if algorithm == "blake3":
        from blake3 import blake3

        return lambda body: bytes(blake3(body).digest())
    function: Callable[..., Digest] = getattr(hashlib, algorithm)
    return lambda body: function(body, usedforsecurity=False).digest()
