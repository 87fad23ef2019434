"""The key of the digests that stand in names in the place of secrets; see ``core.naming``.

A file of 32 random bytes among the tool's own, which only its owner may read: a name, wherever it is shown,
does not tell whether a guess of the secret is right. It is made once and outlives --restart, so that
the same URL keeps its name. Where it was lost, another is made: what is in the journal keeps the names that
it has there, and only what is listed later gets new ones.
"""

from __future__ import annotations

import os
from pathlib import Path

from downloader.errors import DestinationError

__all__ = ["found_key", "name_key"]

_FILE = "name-key"
_BYTES = 32


def name_key(home: Path) -> bytes:
    """Return the key under ``home``, made if there is none; the caller owns the destination.

    Raises DestinationError.
    """
    path = home / _FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            key = os.read(fd, _BYTES + 1)
            if len(key) != _BYTES:
                key = os.urandom(_BYTES)
                os.ftruncate(fd, 0)
                os.pwrite(fd, key, 0)
            return key
        finally:
            os.close(fd)
    except OSError as error:
        raise DestinationError(f"{path}: {error.strerror}") from error


def found_key(output: str) -> bytes:
    """Return the key of the destination ``output``, or one for this time where it has none."""
    try:
        key = (Path(output) / ".downloader" / _FILE).read_bytes() if output else b""
    except OSError:
        key = b""
    return key if len(key) == _BYTES else os.urandom(_BYTES)
