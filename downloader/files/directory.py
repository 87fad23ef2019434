"""Open a directory of the tool's own once, and everything below it relative to its descriptor.

::

    open_home(path) ──► Directory ── / "name" ──► Entry ── open, read, write, unlink, …

No link is followed below a Directory, and nothing but a regular file is opened: a pipe would block, and a
device might do anything. A name that was read from the disk becomes an Entry like any other, and is refused
there if it leads elsewhere. What is refused is an ``UnsafeFile``, which says what stands there and what to
do, and what the file system does not do (no space, read-only, a broken disk) a ``FailedFile``: OSErrors, so
that they are handled as any other error of that file is, and DestinationErrors where they are not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import posix  # gevent's os.close() leaves open what fstat() refuses, say when a network is lost
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from downloader.core.file_errors import advice
from downloader.errors import ConfigError, DestinationError
from downloader.files.rename import exchange, rename_new

__all__ = [
    "HOME",
    "Directory",
    "Entry",
    "FailedFile",
    "MissingHome",
    "UnsafeFile",
    "check_owner",
    "is_at",
    "is_inside",
    "open_directory",
    "open_home",
    "open_regular",
    "unsafe",
    "without_copy",
]

# Rejects empty segments, `.` and `..`.
is_inside: Final = re.compile(r"(?!\.{0,2}(?:/|\Z))[^/\0]+(?:/(?!\.{0,2}(?:/|\Z))[^/\0]+)*").fullmatch
"""Whether a name is that of something below a directory."""

HOME: Final = ".downloader"
"""The name of a directory of the tool's own, in DEST or --journal."""
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# With O_NONBLOCK, opening a pipe does not wait for its other end; regular files ignore it.
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_MADE_BY_OPEN: Final = os.O_CREAT | os.O_EXCL | os.O_TRUNC
# What the system says of a name that is not a regular file, depending on how it is opened.
_WRONG_KIND: Final = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOTDIR, errno.ENODEV, errno.EOPNOTSUPP)
_ROOM: Final = 1 << 20  # bytes, more than a transaction of the journal takes
_TRIES: Final = 10  # somebody who makes and removes a name all the time
_TMPFILE: Final = getattr(os, "O_TMPFILE", 0)
# What fstatfs() says of file systems that write a page to a new place each time. So a page of a mapped
# file that was allocated, or written before, can be refused when the disk is full: SIGBUS. Of an overlay,
# what is below it is not known.
_COPY_ON_WRITE: Final = {
    0x9123683E: "btrfs",
    0xCA451A4E: "bcachefs",
    0x2FC12FC1: "zfs",
    0x3434: "nilfs2",
    0x24051905: "ubifs",
    0x794C7630: "overlay",
}


class UnsafeFile(DestinationError, OSError):
    """What stands in the place of a file of the tool's own is not one; ``strerror`` is a whole sentence.

    ``removable``: what is the matter with it, where the advice is to remove it.
    """

    removable = ""

    def __str__(self) -> str:
        return str(self.strerror)


class FailedFile(DestinationError, OSError):
    """The file system did not do what was asked of it with a file of the tool's own."""

    def __str__(self) -> str:
        return f"cannot use {self.filename}: {advice(self)}"


class MissingHome(DestinationError, FileNotFoundError):
    """A directory of the tool's own is not there."""

    def __str__(self) -> str:
        return f"{self.filename} is not there; has it been moved or removed?"


def unsafe(path: str | os.PathLike[str], what: str, todo: str = "") -> UnsafeFile:
    """Return the error that says ``what`` is the matter with ``path``, and what to do: to remove it."""
    advised = todo or "remove it, then run the same command again"
    error = UnsafeFile(errno.EPERM, f"{os.fspath(path)} {what}; {advised}", os.fspath(path))
    error.removable = "" if todo else what
    return error


def without_copy(error: UnsafeFile) -> UnsafeFile:
    """Return ``error`` about a file that a job cannot go on without: it does not advise to remove it."""
    if not error.removable:
        return error
    todo = "put your own back, from a copy or with chown; or remove it and add --restart to begin anew"
    return unsafe(error.filename, error.removable, todo)


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a named pipe" if stat.S_ISFIFO(mode) else "a socket or device"


@contextlib.contextmanager
def _told(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise FailedFile for an OSError of the block, which uses ``path``.

    Not for those that have a type: not being there, for example, is an answer.
    """
    try:
        yield
    except OSError as error:
        if type(error) is not OSError:
            raise
        raise FailedFile(error.errno, error.strerror, os.fspath(path)) from error


def is_at(path: str | os.PathLike[str], fd: int, directory: int | None = None) -> bool:
    """Return whether ``path`` leads to what is open as ``fd``. What cannot be looked at counts as there."""
    try:
        return os.path.samestat(os.stat(path, dir_fd=directory), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def displaced(path: str | os.PathLike[str]) -> DestinationError:
    """Return the error where another directory or file, or none, has the path of what a run holds open."""
    return DestinationError(
        f"{os.fspath(path)} was removed, moved or replaced while the run was at work; move it back, if it "
        "was moved, then run the same command again"
    )


def check_same(fd: int, path: str | os.PathLike[str], which: tuple[int, int]) -> None:
    """Raise DestinationError unless ``fd``, opened at ``path``, has that device and inode; (0, 0): any."""
    found = os.fstat(fd)
    if which not in ((found.st_dev, found.st_ino), (0, 0)):
        raise displaced(path)


def open_regular(path: str | os.PathLike[str], directory: int | None = None) -> int:
    """Return the regular file ``path``, open for reading, without following a link at its end.

    Raises OSError, UnsafeFile.
    """
    try:
        fd = os.open(path, os.O_RDONLY | _FILE, dir_fd=directory)
    except OSError as error:
        if error.errno in _WRONG_KIND:
            found = os.stat(path, dir_fd=directory, follow_symlinks=False)
            raise unsafe(path, f"is {_kind(found.st_mode)}, not a file") from error
        raise
    if not stat.S_ISREG(mode := os.fstat(fd).st_mode):
        posix.close(fd)
        raise unsafe(path, f"is {_kind(mode)}, not a file")
    return fd


class Directory:
    """An open directory; ``path`` is for messages, and for those that can only open by path.

    ``owners``: who may own what is below it; None: anybody. Close it at the end. Made by ``open_home`` and
    ``open_directory``.
    """

    __slots__ = ("fd", "owners", "path")

    def __init__(self, fd: int, path: Path, owners: frozenset[int] | None) -> None:
        self.fd = fd
        self.path = path
        self.owners = owners

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return os.fspath(self.path)

    def __truediv__(self, name: str) -> Entry:
        """Return what has ``name`` below this directory. Raises UnsafeFile if that leads elsewhere."""
        return Entry(self, name)

    def close(self) -> None:
        """Close the descriptor."""
        posix.close(self.fd)

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def is_in_place(self) -> bool:
        """Return whether its path still leads to it: it was not moved, removed or replaced."""
        return is_at(self.path, self.fd)

    def names(self, pattern: str = "") -> list[str]:
        """Return the names in the directory that match ``pattern``, a regular expression, in order."""
        # By a descriptor of its own: the position of one belongs to all that share it, also after a fork.
        with _told(self):
            fd = os.open(".", _DIRECTORY, dir_fd=self.fd)
            try:
                found = os.listdir(fd)
            finally:
                posix.close(fd)
        return sorted(name for name in found if not pattern or re.fullmatch(pattern, name))

    def entries(self, pattern: str) -> list[Entry]:
        """Return what has a name that matches ``pattern``, as ``names`` does."""
        return [self / name for name in self.names(pattern)]

    def is_read_only(self) -> bool:
        """Return whether nothing can be written in it."""
        if not os.access(".", os.W_OK, dir_fd=self.fd):
            return True
        try:
            posix.close(self.unnamed())
        except OSError as error:
            # A file system that has turned read-only by itself is not mounted so.
            return error.errno == errno.EROFS
        return False

    def is_full(self) -> bool:
        """Return whether there is no room for another file in it, or none that this user may have."""
        try:
            self.check_room()
        except OSError as error:
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        return False

    def check_room(self) -> None:
        """Raise OSError if another file cannot be written in it."""
        fd = self.unnamed()
        try:
            with _told(self):
                if os.write(fd, bytes(_ROOM)) < _ROOM:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            posix.close(fd)

    def copies_on_write(self) -> bool:
        """Return whether a page of a mapped file in it that has its place on the disk may be refused."""
        if sys.platform != "linux":
            return False
        found = (ctypes.c_long * 64)()  # a struct statfs and more; it begins with the type
        refused = ctypes.CDLL(None).fstatfs(self.fd, found)
        return not refused and found[0] & 0xFFFFFFFF in _COPY_ON_WRITE

    def unnamed(self) -> int:
        """Return a new file in it that has no name, open for reading and writing. Raises OSError."""
        with _told(self):
            return _unnamed(self.fd)

    def sync(self) -> None:
        """Wait until the names in it are on the disk. Raises OSError."""
        with _told(self):
            os.fsync(self.fd)


class Entry:
    """What has ``name``, one or several segments, below ``directory``. Every method raises OSError.

    Also UnsafeFile, for what is not as it should be: no regular file, of another user, or, for writing,
    with a second name somewhere else.
    """

    __slots__ = ("directory", "name")

    def __init__(self, directory: Directory, name: str) -> None:
        if not is_inside(name):
            raise unsafe(directory, f"does not have {name[:100]!r}", "--restart begins anew")
        self.directory = directory
        self.name = name

    def __fspath__(self) -> str:
        return os.fspath(self.directory.path / self.name)

    def __str__(self) -> str:
        return os.fspath(self)

    def __truediv__(self, name: str) -> Entry:
        return Entry(self.directory, f"{self.name}/{name}")

    @property
    def leaf(self) -> str:
        """The last segment of the name."""
        return self.name.rpartition("/")[2]

    def beside(self, leaf: str) -> Entry:
        """Return what has the name ``leaf`` in the same directory."""
        above = self.name.rpartition("/")[0]
        return Entry(self.directory, f"{above}/{leaf}" if above else leaf)

    # what is there

    def stat(self) -> os.stat_result | None:
        """Return what the system says of it, None if there is nothing; a link is not followed."""
        try:
            with self._above() as (at, leaf):
                return os.stat(leaf, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def exists(self) -> bool:
        """Return whether there is something, whatever it is."""
        return self.stat() is not None

    def is_directory(self) -> bool:
        """Return whether it is a directory."""
        found = self.stat()
        return found is not None and stat.S_ISDIR(found.st_mode)

    def check(self, *, write: bool) -> bool:
        """Return whether it is there; raise UnsafeFile if ``open`` would, for reading or for writing."""
        found = self.stat()
        if found is not None:
            self._check(found, write=write)
        return found is not None

    def names(self) -> list[str]:
        """Return the names in this directory, in order; none if there is no directory."""
        try:
            with self.opened() as directory:
                return directory.names()
        except FileNotFoundError:
            return []

    # files

    def open(self, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
        """Return a descriptor of the file; as ``os.open`` does otherwise."""
        with self._above() as (at, leaf):
            return self._open(at, leaf, flags, mode)

    def _open(self, at: int, leaf: str, flags: int, mode: int) -> int:
        base = flags & ~_MADE_BY_OPEN | _FILE
        for _ in range(_TRIES):
            try:
                if not flags & os.O_EXCL:
                    fd = os.open(leaf, base, dir_fd=at)
                    break
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
            except OSError as error:
                if error.errno in _WRONG_KIND:
                    self._check(os.stat(leaf, dir_fd=at, follow_symlinks=False))
                raise
            try:
                return os.open(leaf, base | os.O_CREAT | os.O_EXCL, mode, dir_fd=at)
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
        else:
            raise unsafe(self, "is made and removed by somebody else all the time")
        try:
            self._check(os.fstat(fd), write=flags & os.O_ACCMODE != os.O_RDONLY)
            if flags & os.O_TRUNC:
                os.ftruncate(fd, 0)
        except BaseException:
            posix.close(fd)
            raise
        return fd

    def _check(self, found: os.stat_result, *, write: bool = False) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise unsafe(self, f"is {_kind(found.st_mode)}, not a file of this program")
        owners = self.directory.owners
        if owners is not None and found.st_uid not in owners:
            raise unsafe(self, f"belongs to another user ({_user(found.st_uid)})")
        # Somebody else may have linked a file of ours to this name, to have it overwritten.
        if write and found.st_nlink > 1:
            raise unsafe(self, "has another name, too (a hard link)")

    def create(self, mode: int = 0o600) -> int:
        """Return a new file, open for reading and writing; what had the name before is removed."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE
        with self._above() as (at, leaf):
            for _ in range(_TRIES):
                with contextlib.suppress(FileExistsError):
                    return os.open(leaf, flags, mode, dir_fd=at)
                with contextlib.suppress(FileNotFoundError):
                    self._remove(at, leaf)
        raise unsafe(self, "is made by somebody else again and again")

    def reader(self) -> BinaryIO:
        """Return the file, open for reading."""
        return open(self.open(), "rb")

    def writer(self, mode: int = 0o600, *, buffering: int = -1) -> BinaryIO:
        """Return a new file, as ``create`` does, open for writing."""
        return open(self.create(mode), "wb", buffering)

    def read(self, most: int) -> bytes:
        """Return the content, of at most ``most`` bytes; raise UnsafeFile if it is larger."""
        with self.reader() as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise unsafe(self, f"is larger than any such file ({most:,} bytes)")
        return content

    def write(self, content: bytes) -> None:
        """Give the file this content: whole, or not at all."""
        other = self.beside(f".{self.leaf}.new")
        with other.writer() as file:
            file.write(content)
        other.rename(self.leaf)

    def size(self) -> int:
        """Return the size of the file in bytes, -1 if there is no regular file."""
        found = self.stat()
        return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else -1

    def rename(self, leaf: str) -> None:
        """Give it the name ``leaf`` in the same directory, in place of a file that has it."""
        target = self.beside(leaf)
        with self._above() as (at, mine):
            try:
                os.rename(mine, leaf, src_dir_fd=at, dst_dir_fd=at)
            except (IsADirectoryError, NotADirectoryError):
                raise unsafe(target, "is a directory, not a file of this program") from None

    def move(self, target: Entry) -> None:
        """Give it the name ``target``, in place of a file that has it."""
        with self._above() as (at, mine), target._above() as (other, leaf):
            try:
                os.rename(mine, leaf, src_dir_fd=at, dst_dir_fd=other)
            except (IsADirectoryError, NotADirectoryError):
                raise unsafe(target, "is a directory, not a file of this program") from None

    def move_new(self, target: Entry) -> None:
        """Give it the name ``target``; raise FileExistsError if anything has that name."""
        with self._above() as (at, mine), target._above() as (other, leaf):
            try:
                rename_new(mine, leaf, at, other)
            except FileExistsError:
                raise
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise
                # This file system cannot: what is made between the two calls is replaced.
                with contextlib.suppress(FileNotFoundError):
                    os.stat(leaf, dir_fd=other, follow_symlinks=False)
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), leaf) from None
                os.rename(mine, leaf, src_dir_fd=at, dst_dir_fd=other)

    def exchange(self, leaf: str) -> None:
        """Give it the name ``leaf`` in the same directory, and what has that name this one's."""
        with self._above() as (at, mine):
            if not exchange(mine, leaf, at):
                raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), leaf)

    def link(self, leaf: str) -> None:
        """Give the file a second name in the same directory; raise FileExistsError if it is taken."""
        with self._above() as (at, mine):
            os.link(mine, leaf, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file, or whatever has its name, except a directory."""
        try:
            with self._above() as (at, leaf):
                self._remove(at, leaf)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _remove(self, at: int, leaf: str) -> None:
        try:
            os.unlink(leaf, dir_fd=at)
        except (IsADirectoryError, PermissionError):
            found = os.stat(leaf, dir_fd=at, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                raise unsafe(self, "is a directory, not a file of this program") from None
            raise

    # directories

    def make_directory(self, mode: int = 0o700) -> None:
        """Make this directory, unless it is there."""
        with self._above() as (at, leaf):
            with contextlib.suppress(FileExistsError):
                os.mkdir(leaf, mode, dir_fd=at)
            posix.close(self._below(at, self.name))

    def opened(self) -> Directory:
        """Return this directory, opened."""
        with self._above() as (at, _):
            return Directory(
                self._below(at, self.name), self.directory.path / self.name, self.directory.owners
            )

    def remove_tree(self) -> None:
        """Remove this directory with all that is in it, or whatever has its name."""
        with contextlib.suppress(FileNotFoundError), self._above() as (at, leaf):
            _remove_tree(at, leaf)

    @contextlib.contextmanager
    def above(self) -> Iterator[int]:
        """Open the directory that has this name; yield its descriptor."""
        with self._above() as (at, _):
            yield at

    @contextlib.contextmanager
    def _above(self) -> Iterator[tuple[int, str]]:
        """Open the directory of this entry; yield it with the last segment of the name."""
        *above, leaf = self.name.split("/")
        at = self.directory.fd
        try:
            for depth in range(1, len(above) + 1):
                below = self._below(at, "/".join(above[:depth]))
                if at != self.directory.fd:
                    posix.close(at)
                at = below
            with _told(self):
                yield at, leaf
        finally:
            if at != self.directory.fd:
                posix.close(at)

    def _below(self, at: int, name: str) -> int:
        """Open the directory ``name``, of which ``at`` is the directory that has its last segment."""
        segment = name.rpartition("/")[2]
        try:
            fd = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        except OSError as error:
            if error.errno not in _WRONG_KIND:
                raise
            found = os.stat(segment, dir_fd=at, follow_symlinks=False)
            what = "a file" if stat.S_ISREG(found.st_mode) else _kind(found.st_mode)
            raise unsafe(self.directory.path / name, f"is {what}, not a directory") from error
        owners = self.directory.owners
        if owners is None:
            return fd
        path, found = self.directory.path / name, os.fstat(fd)
        try:
            if found.st_uid not in owners:
                raise unsafe(path, f"belongs to another user ({_user(found.st_uid)})")
            if _is_everybodys(fd, found):
                todo = "take that permission away (chmod o-w), then run the same command again"
                raise unsafe(path, "can be written by every user", todo)
        except BaseException:
            posix.close(fd)
            raise
        return fd


def _remove_tree(at: int, name: str) -> None:
    try:
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno not in _WRONG_KIND:
            raise
        os.unlink(name, dir_fd=at)
        return
    try:
        for each in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):
                _remove_tree(fd, each)
    finally:
        posix.close(fd)
    os.rmdir(name, dir_fd=at)


def open_directory(path: str | os.PathLike[str]) -> Directory:
    """Return the directory ``path``, which a user has named: it may be a link, and anybody's.

    Raises OSError.
    """
    return Directory(os.open(path, _DIRECTORY), Path(path), None)


def open_home(
    path: Path, *, create: bool = False, write: bool = True, option: str = "--journal"
) -> Directory:
    """Return the directory ``path`` of the tool's own, a private one; ``create``: make it if need be.

    Raises ConfigError if it is a link, another user's (unless nothing is to be written: ``write``), or
    writable by everybody, OSError. ``option`` names another directory.
    """
    remedy = f"give another directory with {option}"
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        fd = os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
            raise ConfigError(f"{path} is a symbolic link, which is not followed; {remedy}") from error
        if error.errno == errno.ENOENT:
            raise MissingHome(error.errno, error.strerror, os.fspath(path)) from error
        raise
    try:
        owner = check_owner(fd, path, remedy, write=write)
    except BaseException:
        posix.close(fd)
        raise
    return Directory(fd, path, frozenset((owner, os.geteuid(), 0)))


def check_owner(fd: int, path: Path, remedy: str, *, write: bool = True) -> int:
    """Return the owner of the directory ``fd``; raise ConfigError if others could change what is in it.

    ``remedy``: what to do then.
    """
    found = os.fstat(fd)
    if _is_everybodys(fd, found):
        raise ConfigError(
            f"{path} can be written by every user, so what is in it is not to be trusted; take that "
            f"permission away (chmod o-w), or {remedy}"
        )
    if write and found.st_uid not in (os.geteuid(), 0):
        made = _made_here(fd)
        if made is None or made.st_uid != found.st_uid:
            raise ConfigError(
                f"{path} belongs to another user ({_user(found.st_uid)}); run the command as that user, or "
                f"{remedy}"
            )
    return found.st_uid


def _is_everybodys(fd: int, found: os.stat_result) -> bool:
    """Return whether every user can make files in the directory ``fd``; the system says ``found`` of it."""
    return bool(found.st_mode & stat.S_IWOTH) and _has_modes(fd)


def _has_modes(fd: int) -> bool:
    """Return whether the file system of the directory ``fd`` keeps permissions; FAT and NTFS may not.

    False, too, where nobody can write.
    """
    if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        return False
    made = _made_here(fd)
    return made is None or not made.st_mode & stat.S_IWOTH


def _made_here(fd: int) -> os.stat_result | None:
    """Return what the system says of a private file that is made in the directory ``fd``, None if none can.

    Some file systems give all files one owner: network file systems that map users, FAT.
    """
    try:
        probe = _unnamed(fd)
    except OSError:
        return None
    try:
        return os.fstat(probe)
    finally:
        posix.close(probe)


def _unnamed(directory: int) -> int:
    with contextlib.suppress(OSError):
        return os.open(".", os.O_RDWR | _TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=directory)
    name = f".temporary-{os.getpid()}-{os.urandom(4).hex()}"
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=directory)
    os.unlink(name, dir_fd=directory)
    return fd


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OSError):
        return f"uid {uid}"
