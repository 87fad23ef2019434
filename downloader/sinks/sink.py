"""What a sink is: it stores files under their names."""

from __future__ import annotations

from typing import Protocol

from downloader.core.item_states import UNTOUCHED

__all__ = ["NEW", "REPLACED", "SAME", "Sink", "Writer"]

# What ``publish`` and ``put`` return.
SAME = 0
"""The name was there already, and stays: with the same bytes, or because --existing keep says so."""
NEW = 1
"""The name is new, or stands for other bytes of the same item now."""
REPLACED = 2
"""A file that belonged to no item of the job was replaced."""


class Writer(Protocol):
    """One file on its way in. Exactly one of ``publish`` and ``abort`` ends it."""

    size: int
    crc: int

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``. Raises DestinationError when the destination fails."""

    def publish(self) -> int:
        """Make the name appear; return NEW, SAME or REPLACED.

        ``size`` and ``crc`` are afterwards those of the file that has the name. Raises FetchError
        (``name-taken``, ``file-exists``, ``bad-name``) when it cannot, DestinationError.
        """

    def abort(self) -> None:
        """Leave nothing behind."""


class Sink(Protocol):
    """A destination."""

    def open(self, name: str, seq: int, index: int, claim: int = UNTOUCHED) -> Writer:
        """Begin the file ``name`` (a safe relative path), item ``index`` of batch ``seq``.

        ``claim``: OWNED where the file that has the name now is known to be this item's own, UNOWNED
        where it is known to be of no item of the job (``core.item_states``). Raises FetchError
        (``bad-name``), DestinationError.
        """

    def put(self, name: str, body: bytes | bytearray) -> bool:
        """Store a whole file under a new name and return True, or change nothing and return False: then
        it takes a writer."""

    def standing(self, name: str) -> tuple[int, int] | None:
        """Return size and CRC-32 of the file ``name`` where it was there before the job and is to be
        kept, None where there is no such file.

        Raises FetchError ``file-exists`` where --existing refuses it, DestinationError.
        """

    def verify(self, name: str, size: int, crc: int) -> bool:
        """Whether the published file has that size and CRC-32."""

    def close(self) -> None:
        """Close open descriptors."""
