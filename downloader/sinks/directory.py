"""Store each item as a file in a directory.

The bytes are written to a file without a name (``O_TMPFILE``) in the target's directory. When they are
complete, ``linkat`` gives the file its name. That call never replaces a file, so a second item of the same
name is detected at no cost; and a crash leaves nothing behind. On file systems without ``O_TMPFILE``, a
temporary name beside the target and ``link`` and ``unlink`` do the same. That name is
``.downloader-BATCH-ITEM``. What a killed worker has left under it is removed when its ledger is read
(``sinks.exchanged``), and by the next worker that stores the item.

Measured on ext4 and tmpfs, this is no slower than a temporary name and ``rename`` (docs/design.md).

Directories below the destination are opened one segment at a time without following symbolic links, and
files are created relative to the descriptor: nothing is written outside the destination.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import posix
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

from downloader.core.checksum import MOST_READ
from downloader.core.file_errors import Step, advice, code_of, is_of_disk
from downloader.core.item_states import NO_CLAIM, OWNED, UNOWNED, Claim
from downloader.core.naming import shown
from downloader.core.ownership import Rules, file_id, is_valid, lost_claim, unsettled
from downloader.errors import DestinationError, FetchError
from downloader.files.directory import HOME, check_same
from downloader.messages import Item, Lease, ResponseInfo
from downloader.process.file_descriptors import held_directories
from downloader.process.long_work import READ_AT_ONCE
from downloader.sinks.exchanged import temporary_name
from downloader.sinks.failing import destination_error, file_error
from downloader.sinks.files_writer import FilesWriter, check_kept, crc_at, remove
from downloader.sinks.obstacles import not_a_directory, taken_by_directory
from downloader.sinks.sink import NEW, BatchContent, Unprepared, Written
from downloader.sinks.stored import UTF8, file_matches, is_inside, place

__all__ = ["FilesSink", "HeldDirectory"]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TRUSTED = 1.0  # seconds for which a directory that is held open is taken to be where it was
_TRIES = 5  # to open a directory below the root, which others change meanwhile
_TMPFILE = getattr(os, "O_TMPFILE", 0)
_PROC_FDS = "/proc/self/fd"
# Unpatched functions: gevent's `os.close` checks whether each descriptor is one of its sockets, which takes
# two more system calls per file.
_open, _write, _link, _close = posix.open, posix.write, posix.link, posix.close
_digits = functools.cache(lambda fd: b"%d" % fd)
_UNNAMED = os.O_WRONLY | _TMPFILE | os.O_CLOEXEC
_NOWHERE = (-1, -1)


def _may_be_home(segment: str) -> bool:
    """Return whether a file system may take ``segment`` for HOME: for its case, or as its short name."""
    return segment[0] == "." or "~" in segment or not segment.isascii()


def _is_home(directory: int, above: int) -> bool:
    """Return whether ``directory`` is what ``above`` has as HOME, however it was spelled."""
    try:
        return os.path.samestat(os.fstat(directory), os.stat(HOME, dir_fd=above, follow_symlinks=False))
    except OSError:
        return False


class HeldDirectory:
    """A directory that is held open: its path below the destination, and which one it is.

    It may be moved at any time: then what is stored in it is not in the destination.
    """

    __slots__ = ("fd", "identity", "path", "trusted_until")

    def __init__(self, path: str, fd: int) -> None:
        found = os.fstat(fd)
        self.path = path
        self.fd = fd
        self.identity = (found.st_dev, found.st_ino)
        self.trusted_until = monotonic() + _TRUSTED


class FilesSink:
    """A sink that stores files in a directory. Raises DestinationError if ``root`` cannot be opened.

    ``one_system``: no directory may be on another file system than ``root``, since a sync of ``root`` would
    not cover it.
    """

    def __init__(self, root: Path, layout: str, rules: Rules, *, one_system: bool = False) -> None:
        self.wants_records = self.shards = False
        self.rules = rules
        self.layout = layout
        self._flat = layout == "flat" and UTF8
        try:
            self._root = os.open(root, _DIRECTORY)
        except OSError as error:
            raise DestinationError(f"{root}: {advice(error)}") from error
        check_same(self._root, root, rules.root)
        self._device = os.fstat(self._root).st_dev if one_system else -1
        # The directory of this process's descriptors, as names that can be linked; -1 if not available.
        self.open_files = -1
        if _TMPFILE:
            with contextlib.suppress(OSError):
                self.open_files = os.open(_PROC_FDS, _DIRECTORY)
        self._unnamed = self.open_files >= 0
        # Open directories: the least recently used is closed first, but not while a writer uses it.
        self._held: OrderedDict[str, HeldDirectory] = OrderedDict()
        self._most_held = held_directories()
        self._pins: dict[int, int] = {}
        self._retired: set[int] = set()
        self._unread: set[str] = set()  # large files that are kept, and read when asked for again

    def begin(self, lease: Lease) -> DirectoryBatch:
        """See ``Sink``. Each file is published at once, so a batch leaves nothing to remove."""
        return DirectoryBatch(self, lease.seq)

    def open(self, name: str, temporary: str, claim: Claim, used: set[HeldDirectory]) -> FilesWriter:
        """Begin the file ``name``; see ``BatchWriter``.

        ``temporary`` is the name that it has until it is published, on file systems without O_TMPFILE. Its
        directory is added to ``used``.
        """
        try:
            held, leaf = self._locate(name)
        except OSError as error:
            raise self.failed(error, name) from error
        directory = self._root
        if held is not None:
            directory = held.fd
            used.add(held)
        self.pin(directory)
        try:
            return FilesWriter(self, directory, leaf, name, temporary, claim)
        except OSError as error:
            self.unpin(directory)
            if self.made_again(directory, name) >= 0:
                return self.open(name, temporary, claim, used)
            raise self.failed(error, name, Step.CONTENT) from error

    def put(
        self, item: Item, index: int, body: bytes | bytearray, crc: int, response: ResponseInfo | None
    ) -> int:
        """See ``BatchWriter``. Makes only four system calls; constant names are bytes, to save encoding."""
        name = item.name
        if self._flat and self._unnamed and "/" not in name:
            root = self._root
            try:
                fd = _open(b".", _UNNAMED, 0o666, dir_fd=root)
                try:
                    if _write(fd, body) == len(body):
                        # `.`, `..` and "" cannot be made: the kernel refuses them.
                        files = self.open_files
                        _link(_digits(fd), name, src_dir_fd=files, dst_dir_fd=root, follow_symlinks=True)
                        return NEW
                finally:
                    _close(fd)
            except OSError:
                # FilesWriter handles all errors (the name is taken, the disk is full).
                pass
        return 0

    def failed(self, error: OSError, name: str, step: Step = Step.PLACE) -> Exception:
        """Return the FetchError of ``name``, or the DestinationError, that ``error`` means."""
        try:
            removed = os.fstat(self._root).st_nlink == 0
        except OSError as gone:  # with the file system, say with the daemon that serves it
            return destination_error(gone, name)
        if removed:
            return destination_error(error, name, errno.ENOENT)  # the errno depends on the file system
        code = code_of(error.errno or 0, step)
        if not code:
            return destination_error(error, name)
        refused = self._refuses_all()
        return file_error(error, name, code) if refused is None else destination_error(refused, name)

    def _refuses_all(self) -> OSError | None:
        """Return the error if no file at all can be stored in the destination any more, else None."""
        name = f".downloader-{self.rules.temporary}probe-{os.getpid()}"
        try:
            fd, named = self.make_unnamed(self._root, name)
            try:
                os.write(fd, b"downloader\n")
            finally:
                _close(fd)
                if named:
                    remove(named, self._root)
        except OSError as error:
            return error
        return None

    def verify(self, written: Written) -> bool:
        """See ``Sink``. What cannot be read is to be fetched again, unless nothing can be stored either."""
        try:
            held, leaf = self._locate(written.name)
            return file_matches(leaf, self._fd_of(held), written.size, written.crc)
        except FetchError:
            return False
        except OSError as error:
            if is_of_disk(error) and (refused := self._refuses_all()) is not None:
                raise destination_error(refused, written.name) from error
            return False

    def claim(self, written: Written) -> Claim:
        """See ``Claims``."""
        try:
            held, leaf = self._locate(written.name)
            found = os.stat(leaf, dir_fd=self._fd_of(held), follow_symlinks=False)
        except (OSError, FetchError):
            return Claim(OWNED)
        # Another item may have stored it, when somebody had removed that of this one.
        sole = self.rules.sole_owners or found.st_ctime_ns < self.rules.known_before_ns
        return Claim(lost_claim(found, self.rules), file_id(found) if sole else unsettled(file_id(found)))

    def find_existing(self, name: str) -> tuple[int, int] | None:
        """See ``Sink``."""
        return self.find_unowned(name, NO_CLAIM)

    def find_unowned(self, name: str, claim: Claim) -> tuple[int, int] | None:
        """See ``Claims``."""
        try:
            held, leaf = self._locate(name)
            directory = self._fd_of(held)
            found = os.stat(leaf, dir_fd=directory, follow_symlinks=False)
            is_unowned = claim.state == UNOWNED and is_valid(claim, found)
            if found.st_ctime_ns >= self.rules.foreign_before_ns and not is_unowned:
                return None
            if stat.S_ISDIR(found.st_mode):
                raise taken_by_directory(directory, leaf, name, self.layout)
            check_kept(name, found, self.rules)
            if READ_AT_ONCE < found.st_size <= MOST_READ and name not in self._unread:
                self._unread.add(name)
                raise Unprepared
            self._unread.discard(name)
            return found.st_size, crc_at(leaf, directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.failed(error, name) from error

    def close(self) -> None:
        """See ``Sink``."""
        held = [each.fd for each in self._held.values()]
        for fd in (self._root, self.open_files, *held, *self._retired):
            if fd >= 0:
                with contextlib.suppress(OSError):  # of a file system that is gone
                    _close(fd)
        self._held.clear()
        self._retired.clear()

    def make_unnamed(self, directory: int, temporary: str) -> tuple[int, str]:
        """Create a file without a name, or with ``temporary``; return its descriptor and name (or "")."""
        if self._unnamed:
            try:
                return os.open(".", os.O_WRONLY | _TMPFILE | os.O_CLOEXEC, 0o666, dir_fd=directory), ""
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                    raise
                self._unnamed = False
        # Removed, not truncated: after a crash between link and unlink it is also a published file.
        remove(temporary, directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(temporary, flags, 0o666, dir_fd=directory), temporary

    def made_again(self, directory: int, name: str) -> int:
        """Return what stands where ``directory``, that of ``name``, stood; -1 if it still does.

        Somebody may have removed it while this process held it open.
        """
        parent = next((path for path, held in self._held.items() if held.fd == directory), None)
        if parent is None:
            return -1
        try:
            fresh = self._descend(parent, name)
        except (OSError, FetchError):
            return -1
        if os.path.samestat(os.fstat(fresh), os.fstat(directory)):
            _close(fresh)
            return -1
        self._held[parent] = HeldDirectory(parent, fresh)
        self._release(directory)
        return fresh

    def astray(self, used: Iterable[HeldDirectory]) -> set[str]:
        """Return the paths of those directories that are not there any more, or are others by now.

        They were moved or removed, whether this process noticed that or not. They are not used any more.
        """
        known: dict[str, tuple[int, int]] = {}
        found = set()
        for held in used:
            if self._identity_at(held.path, known) != held.identity:
                found.add(held.path)
                self._drop(held)
        return found

    def _drop(self, held: HeldDirectory) -> None:
        """Hold ``held`` no longer, if it is still held."""
        if self._held.get(held.path) is held:
            del self._held[held.path]
            self._release(held.fd)

    def _identity_at(self, path: str, known: dict[str, tuple[int, int]]) -> tuple[int, int]:
        """Return which directory has ``path`` now, with no link on the way; _NOWHERE if none has.

        ``known`` has those that were found before.
        """
        if (found := known.get(path)) is not None:
            return found
        above = path.rpartition("/")[0]
        identity = _NOWHERE
        if not above or (known.get(above) or self._identity_at(above, known)) is not _NOWHERE:
            try:
                status = os.stat(path, dir_fd=self._root, follow_symlinks=False)
            except OSError:
                pass
            else:
                if stat.S_ISDIR(status.st_mode):
                    identity = (status.st_dev, status.st_ino)
        known[path] = identity
        return identity

    def _release(self, directory: int) -> None:
        """Close a directory that is no longer held, once no writer uses it."""
        if directory in self._pins:
            self._retired.add(directory)
        else:
            _close(directory)

    def pin(self, directory: int) -> None:
        """Keep ``directory`` open for a writer."""
        self._pins[directory] = self._pins.get(directory, 0) + 1

    def unpin(self, directory: int) -> None:
        """Release ``directory`` for a writer; close it if it is no longer in use."""
        left = self._pins[directory] - 1
        if left:
            self._pins[directory] = left
            return
        del self._pins[directory]
        if directory in self._retired:
            self._retired.discard(directory)
            _close(directory)

    def _fd_of(self, held: HeldDirectory | None) -> int:
        return self._root if held is None else held.fd

    def _locate(self, name: str) -> tuple[HeldDirectory | None, str]:
        """Return the directory of the file ``name``, None for that of all, and its name there."""
        path = place(name, self.layout)
        if not is_inside(path):
            raise FetchError("bad-name", f"{shown(name)}: not a safe relative path")
        parent, _, leaf = path.rpartition("/")
        if not parent:
            return None, leaf
        held = self._held.get(parent)
        if held is not None and (now := monotonic()) > held.trusted_until:
            if self._identity_at(parent, {}) == held.identity:
                held.trusted_until = now + _TRUSTED
            else:
                self._drop(held)
                held = None
        if held is None:
            held = HeldDirectory(parent, self._descend(parent, name))
            self._held[parent] = held
            if len(self._held) > self._most_held:
                self._release(self._held.popitem(last=False)[1].fd)
        else:
            self._held.move_to_end(parent)
        return held, leaf

    def _descend(self, parent: str, name: str) -> int:
        """Open the directory ``parent`` of the file ``name``; make it, and those above it, if need be."""
        for _ in range(_TRIES - 1):
            # Somebody may move or remove one at the very moment. Some file systems refuse a name so, too.
            with contextlib.suppress(FileNotFoundError):
                return self._descend_once(parent, name)
        return self._descend_once(parent, name)

    def _descend_once(self, parent: str, name: str) -> int:
        at = self._root
        try:
            for depth, segment in enumerate(parent.split("/"), 1):
                try:
                    below = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                except FileNotFoundError:
                    # Another worker may have created it in the meantime.
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(segment, dir_fd=at)
                    below = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                except (NotADirectoryError, OSError) as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP):
                        raise not_a_directory(at, segment, depth, name, self.layout) from error
                    raise
                is_home = _may_be_home(segment) and _is_home(below, at)
                if at != self._root:
                    _close(at)
                at = below
                if is_home:
                    text = f"{shown(name)}: {shown(segment)} is the directory of the downloader's own files"
                    raise FetchError("bad-name", text)
                if self._device >= 0 and os.fstat(at).st_dev != self._device:
                    raise DestinationError(
                        f"the directory of {name} is on a file system of its own; --fsync is for one"
                    )
        except BaseException:
            if at != self._root:
                _close(at)
            raise
        return at


class DirectoryBatch:
    """A batch whose files are published one at a time; see ``BatchWriter``."""

    __slots__ = ("_seq", "_sink", "_used", "put")

    recovered = None

    def __init__(self, sink: FilesSink, seq: int) -> None:
        self._sink = sink
        self._seq = seq
        self._used: set[HeldDirectory] = set()
        self.put = sink.put  # not a method of its own: it is called for every file

    def open(
        self, item: Item, index: int, claim: Claim = NO_CLAIM, response: ResponseInfo | None = None
    ) -> FilesWriter:
        """See ``BatchWriter``."""
        temporary = temporary_name(self._sink.rules.temporary, self._seq, index)
        return self._sink.open(item.name, temporary, claim, self._used)

    def astray(self) -> Callable[[str], bool] | None:
        """See ``Strays``. Looks at each directory, not at each file."""
        if not self._used or not (paths := self._sink.astray(self._used)):
            return None
        layout = self._sink.layout
        return lambda name: place(name, layout).rpartition("/")[0] in paths

    def found(self) -> None:
        """See ``Strays``."""
        self._used.clear()

    def flush(self) -> None:
        """Do nothing: ``put`` writes at once."""

    def commit(self, content: BatchContent) -> None:
        """Do nothing: each file is published already."""

    def abort(self) -> None:
        """Do nothing."""
