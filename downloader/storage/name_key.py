"""Store the key of the digests that replace secrets in names; see ``core.naming``.

The key is 32 random bytes in a file under ``.downloader`` that only its owner may read. Without the key,
a name does not reveal whether a guess of the secret is right. It is created once and kept on --restart, so
that the same URL keeps its name. The journal has a digest of it: with another key, the same URLs would get
other names, and their files be stored twice. If it is lost, a new one is created only where no name depends
on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from downloader.core.file_errors import advice
from downloader.errors import ConfigError, DestinationError, JournalError
from downloader.files.directory import Directory, UnsafeFile, open_home, without_copy

__all__ = [
    "KEY_BYTES",
    "KEY_NAME",
    "check_key",
    "found_key",
    "key_digest",
    "key_path",
    "name_key",
    "read_key",
    "wrong_key",
]

KEY_NAME = "name-key"
KEY_BYTES = 32


def name_key(home: Directory) -> bytes:
    """Return the key under ``home``; create it if there is none. The caller must hold the lock.

    Raises DestinationError.
    """
    path = home / KEY_NAME
    try:
        fd = path.open(os.O_RDWR | os.O_CREAT)
        try:
            key = os.read(fd, KEY_BYTES + 1)
            if len(key) != KEY_BYTES:
                key = os.urandom(KEY_BYTES)
                os.ftruncate(fd, 0)
                os.pwrite(fd, key, 0)
                os.fsync(fd)  # the journal, which has its digest, survives a power cut
                home.sync()
            return key
        finally:
            os.close(fd)
    except UnsafeFile as error:
        raise without_copy(error) from None
    except OSError as error:
        raise DestinationError(f"{path}: {advice(error)}") from error


def read_key(home: Directory) -> bytes:
    """Return the key under ``home``, b"" if there is none of its length. Raises DestinationError."""
    path = home / KEY_NAME
    try:
        with path.reader() as file:
            key = file.read(KEY_BYTES + 1)
    except FileNotFoundError:
        return b""
    except UnsafeFile as error:
        raise without_copy(error) from None
    except OSError as error:
        raise DestinationError(f"{path}: {advice(error)}") from error
    return key if len(key) == KEY_BYTES else b""


def key_digest(key: bytes) -> str:
    """Return what a journal has of ``key``, "" if there is none."""
    return blake2b(key, digest_size=16).hexdigest() if key else ""


def check_key(path: Path, key: bytes, digest: str, is_needed: Callable[[], bool]) -> None:
    """Raise JournalError if ``key``, in the file ``path``, is not that of a job.

    ``digest``: what its journal has of it, "" if that is not known. ``is_needed``: whether a name of the
    job depends on it.
    """
    if key and digest in ("", key_digest(key)):
        return
    if is_needed():
        raise wrong_key(path)


def wrong_key(path: object) -> JournalError:
    """Return the error for a key in the file ``path`` that is not that of the job."""
    return JournalError(
        f"{path} is missing, damaged or another job's: with another key, files whose URLs have secrets get "
        "other names; put it back from a copy, or --restart begins anew (the files stay)"
    )


def key_path(home: Directory) -> Path:
    """Return the file of the key under ``home``, for messages."""
    return home.path / KEY_NAME


def found_key(journal_root: str) -> bytes:
    """Return the key under ``journal_root``, or a temporary one if it has none."""
    if not journal_root:
        return os.urandom(KEY_BYTES)
    try:
        with open_home(Path(journal_root) / ".downloader", write=False) as home:
            key = (home / KEY_NAME).read(KEY_BYTES)
    except (ConfigError, OSError):
        key = b""
    return key if len(key) == KEY_BYTES else os.urandom(KEY_BYTES)
