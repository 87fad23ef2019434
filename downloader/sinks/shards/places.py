"""Read what was published of shards, in a directory or in a bucket."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from downloader.core.bucket_access import BucketAccess
from downloader.core.bucket_place import is_bucket
from downloader.errors import DestinationError
from downloader.files.directory import Directory, UnsafeFile, open_regular
from downloader.sinks.bucket_store import BucketError, is_denied, open_bucket, translated
from downloader.sinks.shards.files import STATS
from downloader.sinks.shards.stats import ShardStats, read_stats, stats_name
from downloader.sinks.stored import open_root, unreadable

__all__ = ["BucketFiles", "DirectoryFiles", "PublishedFiles", "open_published", "open_shard"]

_BUFFER = 1 << 20


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
        self._names: frozenset[str] | None = None

    def has(self, name: str) -> bool:
        if self._names is None:
            import obstore

            with self._read():
                pages = obstore.list(self._store)
                self._names = frozenset(entry["path"] for page in pages for entry in page)
        return name in self._names

    def is_gone(self, name: str) -> bool:
        """See ``PublishedFiles``. Raises DestinationError where the listing lacks what is there.

        obstore takes what is no listing, as the page of a proxy, for one that ends there.
        """
        import obstore

        if self.has(name):
            return False
        with self._read():
            try:
                obstore.head(self._store, name)
            except FileNotFoundError:
                return True
            except Exception as error:
                if not is_denied(error):
                    raise
                return True
        raise DestinationError(
            f"{self._root} cannot be read: it is listed without {name}, which it has; check --endpoint-url "
            "and --proxy, and run the same command again"
        )

    def open(self, name: str) -> BinaryIO:
        import obstore

        with self._read():
            reader = obstore.open_reader(self._store, name, buffer_size=_BUFFER)
        return io.BufferedReader(_Raw(reader, self._read), _BUFFER)

    def stats(self, shard: int) -> ShardStats | None:
        if self._home is None:
            return None
        return read_stats(self._home / STATS / stats_name(shard))

    @contextlib.contextmanager
    def _read(self) -> Iterator[None]:
        """Raise DestinationError for what fails in the block."""
        try:
            with translated():
                yield
        except (BucketError, OSError) as error:
            raise DestinationError(f"{self._root} cannot be read: {error}") from error


class _Raw(io.RawIOBase):
    """An object that obstore reads. ``read``: in its block a request may fail."""

    def __init__(self, reader: Any, read: Callable[[], AbstractContextManager[None]]) -> None:
        self._reader = reader
        self._in_block = read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self._in_block():
            piece = bytes(self._reader.read(len(buffer)))
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())
