"""Keep the files of a plan in a directory that all nodes see. ``bucket_files`` keeps them in a bucket."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from downloader.errors import DestinationError
from downloader.files.directory import Entry, UnsafeFile, open_home
from downloader.files.rename import rename_new

__all__ = ["LARGEST_FILE", "DirectoryFiles", "PlanFiles", "Writer"]

LARGEST_FILE: Final = 256 << 20
"""Bytes of the largest file that is read at once."""
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


class DirectoryFiles:
    """See ``PlanFiles``. Only the owner may read them; ``root`` is a directory in a home."""

    contended = False

    def __init__(self, root: str) -> None:
        self.root = root
        self._home = Path(root).parent
        self._name = Path(root).name

    @contextlib.contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[Entry]:
        """Open the home; yield the directory of the plan in it."""
        with open_home(self._home, create=create, write=create) as home:
            yield home / self._name

    def read(self, name: str) -> bytes | None:
        with self._translated():
            try:
                with self._opened() as plan:
                    return (plan / name).read(LARGEST_FILE)
            except FileNotFoundError:
                return None

    def read_all(self, directory: str, suffix: str) -> Iterator[tuple[str, bytes]]:
        for name in self.names(f"{directory}/"):
            if name.endswith(suffix) and (content := self.read(name)) is not None:
                yield name, content

    def write(self, name: str, content: bytes) -> None:
        writer = self.writer(name)
        try:
            with self._translated():
                writer.file.write(content)
            writer.publish()
        except BaseException:
            writer.abort()
            raise

    def create(self, name: str, content: bytes) -> bool:
        with self._translated(), self._target(name) as target:
            temporary = target.beside(f".{target.leaf}.{os.getpid():x}-{os.urandom(4).hex()}")
            try:
                with temporary.writer() as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                _link_new(temporary, target)
            except FileExistsError:
                return self.read(name) == content
            finally:
                temporary.unlink(missing_ok=True)
        return True

    def writer(self, name: str) -> Writer:
        with self._translated(), contextlib.ExitStack() as opened:
            target = opened.enter_context(self._target(name))
            file = opened.enter_context(target.beside(f".{target.leaf}.{os.getpid()}").writer())
            return _DirectoryWriter(target, file, opened.pop_all(), self._translated)

    @contextlib.contextmanager
    def _target(self, name: str) -> Iterator[Entry]:
        """Make the directory of the file ``name``; yield the file."""
        with self._opened(create=True) as plan:
            at = plan
            at.make_directory()
            for segment in name.split("/")[:-1]:
                at = at / segment
                at.make_directory()
            yield plan / name

    def open(self, name: str) -> BinaryIO:
        with self._translated(), self._opened() as plan:
            return (plan / name).reader()

    def local(self, name: str, directory: Path) -> str:
        with self._translated(), self._opened() as plan:
            (plan / name).check(write=False)
            return os.fspath(plan / name)

    def names(self, prefix: str) -> list[str]:
        directory, _, leaf = prefix.rpartition("/")
        with self._translated():
            try:
                with self._opened() as plan:
                    found = (plan / directory).names()
            except FileNotFoundError:
                return []
        return sorted(f"{directory}/{each}" for each in found if each.startswith(leaf) and each[0] != ".")

    def remove(self, name: str) -> None:
        with self._translated(), contextlib.suppress(FileNotFoundError), self._opened() as plan:
            (plan / name).unlink(missing_ok=True)

    def clear(self) -> None:
        with self._translated(), contextlib.suppress(FileNotFoundError), self._opened() as plan:
            plan.remove_tree()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except UnsafeFile:
            raise
        except OSError as error:
            raise DestinationError(
                f"{error.filename or self.root}: {error.strerror}; look after that storage, then run the "
                "same command again"
            ) from error


class _DirectoryWriter:
    """See ``Writer``. ``opened``: what is to be closed at the end."""

    def __init__(
        self,
        target: Entry,
        file: BinaryIO,
        opened: contextlib.ExitStack,
        translated: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self.file = file
        self._target = target
        self._opened = opened
        self._translated = translated
        self._temporary = target.beside(f".{target.leaf}.{os.getpid()}")

    def publish(self) -> None:
        with self._translated(), self._opened:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self._temporary.rename(self._target.leaf)

    def abort(self) -> None:
        with self._opened:
            self.file.close()
            with contextlib.suppress(OSError):
                self._temporary.unlink()


def _link_new(temporary: Entry, target: Entry) -> None:
    """Give the file its name, which it must not have yet. Raises FileExistsError."""
    try:
        temporary.link(target.leaf)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with target.above() as directory:
            rename_new(temporary.leaf, target.leaf, directory)
