"""Encode the names of a batch as one blob, for the journal and for sources that recall a batch."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from downloader.errors import JournalError

__all__ = ["decode_names", "encode_names"]


def encode_names(names: Sequence[str]) -> bytes:
    """Return the names of a batch as one blob."""
    return zlib.compress(msgspec.msgpack.encode(names), 1)


def decode_names(blob: bytes) -> list[str]:
    """Return the names of a batch. Raises JournalError if the blob is damaged."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(blob), type=list[str])
    except (zlib.error, ValueError, msgspec.DecodeError) as error:
        raise JournalError(f"the journal is damaged ({error}); --restart begins anew") from error
