"""Read what was published of shards, in a directory or in a bucket."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeVar

from downloader.core.bucket_access import BucketAccess
from downloader.core.bucket_place import is_bucket
from downloader.errors import DestinationError
from downloader.files.directory import Directory, UnsafeFile, open_regular
from downloader.sinks.bucket_patience import START, Patience, say_on_stderr
from downloader.sinks.bucket_store import BucketError, is_told, open_bucket
from downloader.sinks.shards.files import STATS
from downloader.sinks.shards.stats import ShardStats, read_stats, stats_name
from downloader.sinks.stored import open_root, unreadable

__all__ = ["BucketFiles", "DirectoryFiles", "PublishedFiles", "open_published", "open_shard"]

_BUFFER = 1 << 20
_SHORT_ANSWERS: Final = 2  # after which a range is not asked for again
_T = TypeVar("_T")


class PublishedFiles(Protocol):
    """The files of shards, by name."""

    def has(self, name: str) -> bool:
        """Return whether there is anything of this name."""

    def is_gone(self, name: str) -> bool:
        """Return whether there is nothing of this name, which was published, or is due."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Raises UnsafeFile for what is no file, OSError, DestinationError."""

    def stats(self, shard: int) -> ShardStats | None:
        """Return the stats of ``shard``, None if there are none or damaged ones."""


def open_published(root: str, home: Directory | None, access: BucketAccess) -> PublishedFiles:
    """Return the files below ``root``, a directory or ``s3://…``; ``home``: of the tool's own files."""
    return BucketFiles(root, home, access) if is_bucket(root) else DirectoryFiles(Path(root))


class DirectoryFiles:
    """See ``PublishedFiles``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def has(self, name: str) -> bool:
        path = self._root / name
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise unreadable(path, error) from error
        return True

    def is_gone(self, name: str) -> bool:
        return not self.has(name)

    def open(self, name: str) -> BinaryIO:
        return open_shard(self._root / name)

    def stats(self, shard: int) -> ShardStats | None:
        with open_root(self._root) as directory:
            path = directory / stats_name(shard)
            try:
                return read_stats(path)
            except UnsafeFile:
                raise
            except OSError as error:
                raise unreadable(path, error) from error


def open_shard(path: Path) -> BinaryIO:
    """Return the file ``path`` of a shard, opened for reading.

    Raises FileNotFoundError, UnsafeFile; DestinationError where the disk fails, then or later.
    """
    try:
        fd = open_regular(path)
    except (FileNotFoundError, UnsafeFile):
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    return io.BufferedReader(_Shard(fd, path), _BUFFER)


class _Shard(io.FileIO):
    """A file of a shard. That it cannot be read says nothing of what it has."""

    def __init__(self, fd: int, path: Path) -> None:
        super().__init__(fd)
        self._path = path

    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise unreadable(self._path, error) from error

    def readall(self) -> bytes:
        try:
            return super().readall()
        except OSError as error:
            raise unreadable(self._path, error) from error


class BucketFiles:
    """See ``PublishedFiles``. obstore starts threads: the process must not fork afterwards.

    The names are listed once. Copies of the stats are in ``home``.
    """

    def __init__(self, root: str, home: Directory | None, access: BucketAccess) -> None:
        self._root = root
        self._home = home
        try:
            self._store = open_bucket(root, access)
        except BucketError as error:
            raise DestinationError(f"{root}: {error}") from error
        self._patience = Patience(START, say=say_on_stderr)
        self._names: frozenset[str] | None = None

    def has(self, name: str) -> bool:
        if self._names is None:
            self._names = self._ask(self._listed)
        return name in self._names

    def is_gone(self, name: str) -> bool:
        """See ``PublishedFiles``. Raises DestinationError where the listing lacks what is there.

        obstore takes what is no listing, as the page of a proxy, for one that ends there.
        """
        if self.has(name):
            return False
        if not self._ask(lambda: is_told(self._store, name)):
            return True
        raise DestinationError(
            f"{self._root} cannot be read: it is listed without {name}, which it has; check --endpoint-url "
            "and --proxy, and run the same command again"
        )

    def _listed(self) -> frozenset[str]:
        import obstore

        return frozenset(entry["path"] for page in obstore.list(self._store) for entry in page)

    def open(self, name: str) -> BinaryIO:
        import obstore

        size = self._ask(lambda: obstore.head(self._store, name)["size"])

        def read(start: int, length: int) -> bytes:
            return self._ask(lambda: self._range(name, start, length))

        return io.BufferedReader(_Raw(size, read), _BUFFER)

    def _range(self, name: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes of an object from ``start`` on."""
        import obstore

        for _ in range(_SHORT_ANSWERS):
            found = bytes(obstore.get_range(self._store, name, start=start, length=length))
            if len(found) == length:
                return found
        raise BucketError(
            f"{name}: the store has answered {_SHORT_ANSWERS} times with {len(found)} bytes where "
            f"{length} were asked for, from {start} on; check the store, or a proxy before it"
        )

    def stats(self, shard: int) -> ShardStats | None:
        if self._home is None:
            return None
        return read_stats(self._home / STATS / stats_name(shard))

    def _ask(self, ask: Callable[[], _T]) -> _T:
        """Return what ``ask`` returns. Raises DestinationError."""
        try:
            return self._patience(ask)
        except (BucketError, OSError) as error:
            raise DestinationError(f"{self._root} cannot be read: {error}") from error


class _Raw(io.RawIOBase):
    """An object of ``size`` bytes, of which ``read`` returns a range, by its start and length."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._read_range = read
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        buffer[:length] = self._read_range(self._at, length)
        self._at += length
        return length

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at
