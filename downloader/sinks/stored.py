"""Locate the file of an item, and compare it with what was stored."""

from __future__ import annotations

import errno
import hashlib
import os
import posix
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from downloader.core.checksum import crc32, is_unread
from downloader.core.file_errors import advice, is_of_disk
from downloader.core.naming import SafeName, hashed
from downloader.errors import DestinationError
from downloader.files.directory import Directory, is_inside, open_directory

__all__ = [
    "READ",
    "UTF8",
    "crc_of",
    "file_matches",
    "is_inside",
    "matches",
    "md5_of_file",
    "open_below",
    "open_root",
    "place",
    "unreadable",
]

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BLOCK = 1 << 20


# Names on the disk are UTF-8, whatever the locale is. If Python uses another encoding for file names, it is
# given the text that it encodes to the UTF-8 bytes (PEP 383).
UTF8 = sys.getfilesystemencoding().lower() == "utf-8"


def place(name: str, layout: str) -> str:
    """Return the path of ``name`` under the destination, for system calls."""
    path = hashed(SafeName(name)) if layout == "hashed" else name
    return path if UTF8 else os.fsdecode(path.encode())


def crc_of(fd: int, crc: int = 0, most: int = sys.maxsize) -> int:
    """Return the CRC-32 of all data that can be read from ``fd``, ``most`` bytes at most.

    ``crc``: that of the data before.
    """
    while most > 0 and (chunk := os.read(fd, min(_BLOCK, most))):
        crc = crc32(chunk, crc)
        most -= len(chunk)
    return crc


def md5_of_file(file: BinaryIO) -> str:
    """Return the MD5 of an open file from where it is, in hexadecimal. Raises OSError."""
    digest = hashlib.md5(usedforsecurity=False)
    while piece := file.read(_BLOCK):
        digest.update(piece)
    return digest.hexdigest()


def file_matches(path: str, directory: int | None, size: int, crc: int) -> bool:
    """Return whether ``path`` is a regular file with that size and CRC-32 (symlinks are not followed).

    Raises OSError where the disk fails (``core.file_errors.is_of_disk``).
    """
    try:
        fd = os.open(path, READ, dir_fd=directory)
    except OSError as error:
        if is_of_disk(error):
            raise
        return False
    try:
        return matches(fd, size, crc)
    finally:
        posix.close(fd)


def matches(fd: int, size: int, crc: int) -> bool:
    """Return whether ``fd`` is a regular file with that size and CRC-32. Raises OSError."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        return False
    return is_unread(size, crc) or crc_of(fd, 0, size) == crc


def open_below(root: Path, where: str) -> int:
    """Return the regular file ``where`` below the directory ``root``, open for reading.

    ``root`` may be a link; below it none is followed. Raises OSError, UnsafeFile; DestinationError where
    not the file but ``root`` cannot be opened.
    """
    with open_root(root) as directory:
        return (directory / where).open()


def open_root(root: str | os.PathLike[str]) -> Directory:
    """Return DEST, opened. Raises DestinationError."""
    try:
        return open_directory(root)
    except FileNotFoundError:
        raise DestinationError(
            f"{root} is not there; if it was moved or unmounted, put it back, then run the same command "
            "again (if all that was stored is lost, make an empty directory there)"
        ) from None
    except OSError as error:
        raise unreadable(root, error) from error


def unreadable(path: str | os.PathLike[str], error: OSError) -> DestinationError:
    """Return the error where it is not known what ``path`` has, since it cannot be read."""
    remedy = ""
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = (
            "; run the command as a user who may read it, or permit it (`chmod u+r`, u+rx for directories)"
        )
    return DestinationError(f"{os.fspath(path)} cannot be read: {advice(error)}{remedy}")
