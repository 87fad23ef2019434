"""Store the key of the digests that replace secrets in names; see ``core.naming``.

The key is 32 random bytes in a file under ``.downloader`` that only its owner may read. Without the key,
a name does not reveal whether a guess of the secret is right. It is created once and kept on --restart, so
that the same URL keeps its name. If it is lost, a new one is created: items in the journal keep their
names, and only items listed later get new ones.
"""

from __future__ import annotations

import os
from pathlib import Path

from downloader.core.file_errors import advice
from downloader.errors import ConfigError, DestinationError
from downloader.files.directory import Directory, UnsafeFile, open_home

__all__ = ["KEY_BYTES", "found_key", "name_key"]

_FILE = "name-key"
KEY_BYTES = 32


def name_key(home: Directory) -> bytes:
    """Return the key under ``home``; create it if there is none. The caller must hold the lock.

    Raises DestinationError.
    """
    path = home / _FILE
    try:
        fd = path.open(os.O_RDWR | os.O_CREAT)
        try:
            key = os.read(fd, KEY_BYTES + 1)
            if len(key) != KEY_BYTES:
                key = os.urandom(KEY_BYTES)
                os.ftruncate(fd, 0)
                os.pwrite(fd, key, 0)
            return key
        finally:
            os.close(fd)
    except UnsafeFile:
        raise
    except OSError as error:
        raise DestinationError(f"{path}: {advice(error)}") from error


def found_key(journal_root: str) -> bytes:
    """Return the key under ``journal_root``, or a temporary one if it has none."""
    if not journal_root:
        return os.urandom(KEY_BYTES)
    try:
        with open_home(Path(journal_root) / ".downloader", write=False) as home:
            key = (home / _FILE).read(KEY_BYTES)
    except (ConfigError, OSError):
        key = b""
    return key if len(key) == KEY_BYTES else os.urandom(KEY_BYTES)
