"""Keep SQLite to the files of a database while it opens those beside it, which it does by path.

At the first access SQLite looks for a rollback journal, plays it back, and removes the file that this names
as its super-journal, wherever that is. Whoever may rename the directory of the database can have it find a
journal of his own, for a moment; nothing that is looked at before or afterwards prevents that. But SQLite
takes no journal for one to be played back while another process is about to write the database. So the lock
of such a process is held meanwhile: one of the open file, which SQLite does not take for its own. And each
database has a write-ahead log from its first page on, so that a journal is never looked for again.
Afterwards the files that SQLite has opened must be those that are beside the database.

https://sqlite.org/lockingv3.html, https://sqlite.org/fileformat2.html, and fcntl(2) for the locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import posix
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from typing import Final

from downloader.files.directory import Entry, unsafe

__all__ = ["begin_with_log", "first_access"]

_RESERVED: Final = (0x40000001, 1)  # place and length of the lock of whoever is about to write
_SHARED: Final = (0x40000002, 510)  # that of those who read, which keeps others from a checkpoint
_VERSIONS: Final = 18  # place of the two bytes of the header that say whether there is a log
_JOURNAL, _LOG = b"\1\1", b"\2\2"
_DESCRIPTORS: Final = "/proc/self/fd"
_SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)  # Linux only
_FLOCK: Final = "hhqqi0q"  # struct flock: its kind, whence, the place, the length, no process


def begin_with_log(database: Entry) -> None:
    """Have ``database``, if it is there, use a write-ahead log; an empty file becomes an empty database.

    It has to be called before the first connection. Raises OSError.
    """
    if any(database.beside(f"{database.leaf}{suffix}").exists() for suffix in ("-wal", "-shm")):
        return  # it does; and to close a descriptor would release the locks of a connection
    try:
        fd = database.open(os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        if _is_empty(fd):
            os.pwrite(fd, _empty_database(), 0)
            # A log is dropped whose database is empty: this has to be on the disk before that.
            os.fsync(fd)
        elif (
            os.pread(fd, 2, _VERSIONS) == _JOURNAL
            and database.beside(f"{database.leaf}-journal").size() <= 0
        ):
            os.pwrite(fd, _LOG, _VERSIONS)
    finally:
        posix.close(fd)


@contextlib.contextmanager
def first_access(database: Entry, *, exclusive: bool = False) -> Iterator[None]:
    """Let the block make the first access to ``database``, which a connection has just opened to write.

    ``exclusive``: for itself, with no file for the index of its log. Raises UnsafeFile if SQLite has opened
    files of another directory, which is in the place of that of the database; none of them was written, nor
    will be when the connection is closed.
    """
    if _SET_LOCK is None or not os.path.isdir(_DESCRIPTORS):
        yield
        return
    fd = _descriptor(database)
    # Of an empty database no journal is played back. One that is there by right, of a run that was killed
    # while it made the database, is.
    guarded = not _is_empty(fd) and database.beside(f"{database.leaf}-journal").size() <= 0
    if guarded:
        _lock(fd, fcntl.F_WRLCK, _RESERVED)
        if not exclusive:
            _lock(fd, fcntl.F_RDLCK, _SHARED)
    yield
    if guarded:
        for suffix in ("-wal",) if exclusive else ("-wal", "-shm"):
            _descriptor(database.beside(f"{database.leaf}{suffix}"))
        for place in (_RESERVED, _SHARED):
            _lock(fd, fcntl.F_UNLCK, place)


def _is_empty(fd: int) -> bool:
    """Return whether SQLite takes the file for an empty database, as it does one of one byte."""
    return os.fstat(fd).st_size <= 1


def _descriptor(file: Entry) -> int:
    """Return a descriptor of this process with which ``file`` may be written. Raises UnsafeFile."""
    found = file.stat()
    for fd in map(int, os.listdir(_DESCRIPTORS)):
        with contextlib.suppress(OSError):  # that of the list itself
            mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            if found is not None and mode == os.O_RDWR and os.path.samestat(os.fstat(fd), found):
                return fd
    raise unsafe(file, "was replaced while it was opened", "run the same command again")


def _lock(fd: int, kind: int, place: tuple[int, int]) -> None:
    """Take or give up a lock, where it can be; SQLite says what is wrong where none can be taken."""
    assert _SET_LOCK is not None
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, _SET_LOCK, struct.pack(_FLOCK, kind, os.SEEK_SET, *place, 0))


@functools.lru_cache
def _empty_database() -> bytes:
    """Return the bytes of a database with a write-ahead log and nothing else."""
    with tempfile.TemporaryDirectory(prefix="downloader-") as directory:
        path = os.path.join(directory, "empty.sqlite")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
        with open(path, "rb") as file:
            return file.read()
