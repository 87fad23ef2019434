"""Keep the files of a plan in a directory that all nodes see. ``bucket_files`` keeps them in a bucket."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from downloader.core.bucket_place import is_bucket
from downloader.errors import DestinationError
from downloader.sinks.rename import rename_new

__all__ = ["DirectoryFiles", "PlanFiles", "Writer", "open_files"]

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Writer(Protocol):
    """A file that gets its name when it is complete: write to ``file``, then call one of the two."""

    file: BinaryIO

    def publish(self) -> None:
        """Give the file its name, also if another has it."""

    def abort(self) -> None:
        """Remove the file."""


class PlanFiles(Protocol):
    """Files by name, as in ``done/00000000.json``; each appears whole or not at all.

    Methods raise DestinationError. ``root`` is for messages. ``contended``: two drivers could write one
    name for a moment, since the lock that keeps them apart is lost by one that does not answer in time.
    """

    root: str
    contended: bool

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it is not there."""

    def read_all(self, directory: str, suffix: str) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of the files of ``directory`` that end with ``suffix``, in order."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, also if it is there."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file; return False if it is there with another content, and leave it."""

    def writer(self, name: str) -> Writer:
        """Return the writer of a large file."""

    def open(self, name: str) -> BinaryIO:
        """Return a large file, open for reading from its start."""

    def local(self, name: str, directory: Path) -> str:
        """Return the path of the file on this machine, if need be that of a copy in ``directory``."""

    def names(self, prefix: str) -> list[str]:
        """Return the names of files that begin with ``prefix``, which has a directory, in order."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def clear(self) -> None:
        """Remove all files."""


def open_files(root: str, endpoint_url: str = "", region: str = "") -> PlanFiles:
    """Return the files under ``root``, a directory or s3://BUCKET/PREFIX. Raises DestinationError."""
    if is_bucket(root):
        from downloader.cluster.bucket_files import BucketFiles

        return BucketFiles(root, endpoint_url, region)
    return DirectoryFiles(root)


class DirectoryFiles:
    """See ``PlanFiles``. Only the owner may read them."""

    contended = False

    def __init__(self, root: str) -> None:
        self.root = root
        self._root = Path(root)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(error) from error

    def read_all(self, directory: str, suffix: str) -> Iterator[tuple[str, bytes]]:
        for name in self.names(f"{directory}/"):
            if name.endswith(suffix) and (content := self.read(name)) is not None:
                yield name, content

    def write(self, name: str, content: bytes) -> None:
        with self._translated():
            writer = _DirectoryWriter(self._target(name))
            writer.file.write(content)
            writer.publish()

    def create(self, name: str, content: bytes) -> bool:
        with self._translated():
            target = self._target(name)
            temporary = target.with_name(f".{target.name}.{os.getpid():x}-{os.urandom(4).hex()}")
            try:
                writer = _DirectoryWriter(temporary)
                writer.file.write(content)
                writer.publish()
                _link_new(temporary, target)
            except FileExistsError:
                return self.read(name) == content
            finally:
                temporary.unlink(missing_ok=True)
        return True

    def writer(self, name: str) -> Writer:
        with self._translated():
            return _DirectoryWriter(self._target(name), self._translated)

    def _target(self, name: str) -> Path:
        target = self._root / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return target

    def open(self, name: str) -> BinaryIO:
        with self._translated():
            return open(self._root / name, "rb")

    def local(self, name: str, directory: Path) -> str:
        return os.fspath(self._root / name)

    def names(self, prefix: str) -> list[str]:
        directory, _, leaf = prefix.rpartition("/")
        with self._translated():
            try:
                found = os.listdir(self._root / directory)
            except FileNotFoundError:
                return []
        return sorted(f"{directory}/{each}" for each in found if each.startswith(leaf) and each[0] != ".")

    def remove(self, name: str) -> None:
        with self._translated():
            (self._root / name).unlink(missing_ok=True)

    def clear(self) -> None:
        with self._translated():
            if self._root.exists():
                shutil.rmtree(self._root)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> DestinationError:
        return DestinationError(
            f"{error.filename or self.root}: {error.strerror}; look after that storage, then run the same "
            "command again"
        )


class _DirectoryWriter:
    def __init__(
        self,
        target: Path,
        translated: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._target = target
        self._translated = translated
        self._temporary = target.with_name(f".{target.name}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self.file: BinaryIO = open(os.open(self._temporary, flags, 0o600), "wb")  # noqa: SIM115

    def publish(self) -> None:
        with self._translated(), self.file:
            self.file.flush()
            os.fsync(self.file.fileno())
            os.replace(self._temporary, self._target)

    def abort(self) -> None:
        self.file.close()
        self._temporary.unlink(missing_ok=True)


def _link_new(temporary: Path, target: Path) -> None:
    """Give the file its name, which it must not have yet. Raises FileExistsError."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            rename_new(temporary.name, target.name, directory)
        finally:
            os.close(directory)
