"""Encode the names of a batch as one blob, and decode what a journal keeps of a batch for its source."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

import msgspec

from downloader.core.frames import MAX_FRAME
from downloader.core.inflate import inflate
from downloader.core.limits import MOST_BATCH_ITEMS
from downloader.errors import UNDECODABLE, JournalError

__all__ = ["decode_names", "decoded_place", "encode_names"]

T = TypeVar("T")

# A batch is sent in a frame with its names, so there are no more bytes than a frame takes.
_Names = Annotated[list[str], msgspec.Meta(max_length=MOST_BATCH_ITEMS)]
_decode: Final = msgspec.msgpack.Decoder(_Names).decode


def encode_names(names: Sequence[str]) -> bytes:
    """Return the names of a batch as one blob."""
    return zlib.compress(msgspec.msgpack.encode(names), 1)


def decode_names(blob: bytes) -> list[str]:
    """Return the names of a batch. Raises JournalError if the blob is damaged."""
    try:
        return _decode(inflate(blob, MAX_FRAME))
    except UNDECODABLE as error:
        raise _damaged(error) from error


def decoded_place(blob: bytes, kind: type[T]) -> T:
    """Return a cursor or origin that a journal has kept. Raises JournalError if the blob is damaged."""
    try:
        return msgspec.msgpack.decode(blob, type=kind)
    except UNDECODABLE as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> JournalError:
    return JournalError(f"the journal is damaged ({error}); --restart begins anew")
