"""The names of a batch as one blob, as the journal keeps them and sources recall them."""

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
    """Return the names of a batch; raise JournalError when the blob is damaged."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(blob), type=list[str])
    except (zlib.error, ValueError, msgspec.DecodeError) as error:
        raise JournalError(f"the journal is damaged ({error}); --restart begins anew") from error
