"""Write a file of an item, and give it its name: what has the name is kept, replaced, or refuses it.

``link`` never replaces a file, so a second item of the same name is detected at no cost. Without hard links
(FAT, some network file systems), ``renameat2`` with RENAME_NOREPLACE is used.

A file that is to be replaced is locked, exchanged with the new one, under a temporary name beside it
(``renameat2``), and looked at once more: only if it is the one that the decision was about is it removed.
Else the two are exchanged back. After a kill in between ``sinks.exchanged`` does that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posix
import stat
from time import monotonic
from typing import NamedTuple, Protocol

from downloader.core.checksum import MOST_READ, UNREAD, crc32
from downloader.core.file_errors import Step
from downloader.core.item_states import OWNED, Claim
from downloader.core.ownership import (
    Decision,
    Rules,
    content_id,
    file_id,
    is_valid,
    link_id,
    rule,
    unsettled,
)
from downloader.errors import FetchError
from downloader.files.rename import exchange, rename_new
from downloader.process.long_work import PIECE, READ_AT_ONCE, close_file, in_thread
from downloader.sinks.obstacles import taken_by_directory
from downloader.sinks.sink import KEPT, NEW, REPLACED, SAME, Unprepared
from downloader.sinks.stored import READ, crc_of, file_matches

__all__ = ["FilesWriter", "check_kept", "crc_at", "remove"]

# Unpatched functions, as in `sinks.directory`.
_open, _link, _close = posix.open, posix.link, posix.close
_LONG_TO_READ = 256 << 20
_MOST_READS = 3  # of a large file that has the name and is changed meanwhile
_MOST_LOOKS = 10  # at files that have the name, each of which is another one when it is to be replaced
_MOST_EXCHANGES = 100  # to put a file back where somebody else puts others all the time
_MOST_LOCKED = 0.05  # seconds for which another worker is waited for, which replaces the same file
# The errors of link() on file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def remove(name: str, directory: int) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _crc_in_pieces(fd: int, size: int) -> int:
    """Return the CRC-32 of a file; other greenlets run meanwhile, and one that is killed ends soon."""
    crc = 0
    for _ in range(0, size, PIECE):
        crc = in_thread(crc_of, fd, crc, PIECE)
    return crc


class _Met(NamedTuple):
    """What was read of the file that has the name: which it was, its CRC-32, and how often one was read.

    Or ``error``: why it could not be read.
    """

    identity: tuple[int, ...]
    crc: int
    error: OSError | None
    times: int


def _which(found: os.stat_result) -> tuple[int, ...]:
    """Return which file that is. A rename changes nothing of it."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _locked(leaf: str, directory: int) -> int:
    """Return a descriptor that keeps other workers from replacing that file, -1 if there can be none.

    That is so for a file that cannot be read, or that somebody else has locked, and on some network file
    systems. Waits for a worker that is just replacing it, which takes microseconds.
    """
    try:
        fd = _open(leaf, READ, dir_fd=directory)
    except OSError:
        return -1
    until = monotonic() + _MOST_LOCKED
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK or monotonic() > until:
                _close(fd)
                return -1
        os.sched_yield()


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """Return which file that is, with which content: whatever is done to it changes that."""
    return *_which(found), found.st_ctime_ns


def crc_at(leaf: str, directory: int) -> int:
    """Return the CRC-32 of a file, UNREAD if it is too large to be read for that. Raises OSError.

    Call it in a greenlet, which waits meanwhile if the file is large.
    """
    fd = os.open(leaf, READ, dir_fd=directory)
    try:
        size = os.fstat(fd).st_size
        if size > MOST_READ:
            return UNREAD
        return crc_of(fd) if size <= READ_AT_ONCE else _crc_in_pieces(fd, size)
    finally:
        _close(fd)


def check_kept(name: str, found: os.stat_result, rules: Rules) -> None:
    """Raise FetchError ``file-exists`` unless --existing keeps a file that belongs to no item.

    So it is for --existing fail, or if it is not a regular file. It is no directory.
    """
    if not stat.S_ISREG(found.st_mode):
        text = "not a regular file; move it away, or give --existing replace, which replaces it"
        raise FetchError("file-exists", f"{name}: {text}")
    if rules.existing == "fail":
        raise FetchError("file-exists", f"{name}: remove it, or give --existing replace or keep")


class Directories(Protocol):
    """What a writer needs of its sink, which holds the directories open.

    ``open_files``: the directory of this process's descriptors, -1 if there is none.
    """

    rules: Rules
    layout: str
    open_files: int

    def make_unnamed(self, directory: int, temporary: str) -> tuple[int, str]:
        """Create a file without a name, or with ``temporary``; return its descriptor and name (or "")."""

    def made_again(self, directory: int, name: str) -> int:
        """Return what stands where ``directory``, that of ``name``, stood; -1 if it still does."""

    def failed(self, error: OSError, name: str, step: Step = Step.PLACE) -> Exception:
        """Return the FetchError of ``name``, or the DestinationError, that ``error`` means."""

    def pin(self, directory: int) -> None:
        """Keep ``directory`` open for a writer."""

    def unpin(self, directory: int) -> None:
        """Release ``directory`` for a writer."""


class FilesWriter:
    """The writer of a file that does not have its final name yet."""

    __slots__ = (
        "_claim",
        "_directory",
        "_fd",
        "_leaf",
        "_met",
        "_name",
        "_replaced",
        "_sink",
        "_spare",
        "_temporary",
        "crc",
        "size",
    )

    def __init__(
        self, sink: Directories, directory: int, leaf: str, name: str, temporary: str, claim: Claim
    ) -> None:
        self._sink = sink
        self._directory = directory
        self._leaf = leaf  # encoded for system calls; see `place`
        self._name = name
        self._spare = temporary
        self._claim = claim
        self._met: _Met | None = None
        # A large file that was replaced and its size: held open, so that removing it frees nothing yet.
        self._replaced: tuple[int, int] | None = None
        self._fd, self._temporary = sink.make_unnamed(directory, temporary)
        self.size = 0
        self.crc = 0

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``; repeat short writes."""
        try:
            written = os.write(self._fd, chunk)
            while written < len(chunk):
                written += os.write(self._fd, memoryview(chunk)[written:])
        except OSError as error:
            raise self._sink.failed(error, self._name, Step.CONTENT) from error
        self.size += len(chunk)
        self.crc = crc32(chunk, self.crc)

    def publish(self) -> int:
        """See ``FileWriter``."""
        try:
            how = self._publish_anywhere()
        except Unprepared:
            raise
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError):
                raise self._sink.failed(error, self._name) from error
            raise
        self.abort()
        return how

    def prepare(self) -> None:
        """Read the large file that has the name, see ``Prepares``."""
        times = self._met.times + 1 if self._met is not None else 1
        self._met = _Met((), 0, None, times)
        try:
            fd = os.open(self._leaf, READ, dir_fd=self._directory)
        except OSError as error:
            self._met = _Met((), 0, error, times)
            return
        try:
            before = os.fstat(fd)
            crc = _crc_in_pieces(fd, before.st_size)
            self._met = _Met(_identity(before), crc, None, times)
        except OSError as error:
            self._met = _Met((), 0, error, times)
        finally:
            _close(fd)

    def _is_same(self, found: os.stat_result) -> bool:
        """Return whether the file that has the name has the bytes of this one; may raise Unprepared."""
        if not stat.S_ISREG(found.st_mode) or found.st_size != self.size:
            return False
        if found.st_size <= READ_AT_ONCE:
            with contextlib.suppress(OSError):
                return file_matches(self._leaf, self._directory, self.size, self.crc)
            return False
        met = self._read_before(found)
        return met.identity == _identity(found) and met.crc == self.crc

    def _kept_crc(self, found: os.stat_result) -> int:
        """Return the CRC-32 of the file that has the name; may raise Unprepared."""
        if found.st_size <= READ_AT_ONCE or found.st_size > MOST_READ:
            return crc_at(self._leaf, self._directory)
        met = self._read_before(found)
        if met.error is not None:
            raise met.error
        return met.crc

    def _claim_on(self, found: os.stat_result) -> Claim:
        """Return the claim, valid if it is about the bytes that ``found`` has; may raise Unprepared."""
        claim = self._claim
        if unsettled(claim.file) == claim.file or is_valid(claim, found):
            return claim
        if stat.S_ISLNK(found.st_mode):
            with contextlib.suppress(OSError):
                target = os.fsencode(os.readlink(self._leaf, dir_fd=self._directory))
                if claim.file == link_id(target):
                    return claim._replace(file=file_id(found))
            return claim
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_READ:
            return claim
        if found.st_size <= READ_AT_ONCE:
            try:
                crc = crc_at(self._leaf, self._directory)
            except OSError:
                return claim
        else:
            met = self._read_before(found)
            if met.identity != _identity(found):
                return claim
            crc = met.crc
        is_about = claim.file == content_id(found.st_size, crc)
        return claim._replace(file=file_id(found)) if is_about else claim

    def _read_before(self, found: os.stat_result) -> _Met:
        met = self._met
        if met is None or (met.identity != _identity(found) and met.times < _MOST_READS):
            raise Unprepared
        return met

    def _publish_anywhere(self) -> int:
        try:
            return self._publish()
        except OSError as error:
            if (directory := self._sink.made_again(self._directory, self._name)) < 0:
                raise
            if self._temporary:
                raise FetchError("not-writable", f"{self._name}: its directory was removed") from error
            self._sink.pin(directory)
            self._sink.unpin(self._directory)
            self._directory = directory
        return self._publish()

    def _publish(self) -> int:
        for _ in range(_MOST_LOOKS):
            try:
                self._link(self._leaf)
                return NEW
            except FileExistsError:
                pass
            # Otherwise it was removed, or another file has the name by now.
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(self._leaf, dir_fd=self._directory, follow_symlinks=False)
                if (how := self._resolve_conflict(found)) is not None:
                    return how
        raise FetchError("name-taken", f"{self._name}: others put files in its place all the time")

    def _link(self, leaf: str) -> None:
        if not self._temporary:
            at = self._directory
            _link(
                str(self._fd), leaf, src_dir_fd=self._sink.open_files, dst_dir_fd=at, follow_symlinks=True
            )
            return
        try:
            os.link(
                self._temporary,
                leaf,
                src_dir_fd=self._directory,
                dst_dir_fd=self._directory,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            rename_new(self._temporary, leaf, self._directory)

    def _resolve_conflict(self, found: os.stat_result) -> int | None:
        """Replace or keep the existing file with the name, ``found``; see ``core.ownership``.

        Return None, and change nothing, if another file has the name by now.
        """
        if stat.S_ISDIR(found.st_mode):
            raise taken_by_directory(self._directory, self._leaf, self._name, self._sink.layout)
        claim = self._claim_on(found)
        decision = rule(claim, found, self._sink.rules)
        kept = decision in (Decision.KEEP, Decision.REFUSE)
        foreign = kept or decision is Decision.REPLACE_FOREIGN
        same = False
        # A large file that is replaced anyway is not read, which takes long. A file of the item's own that
        # was not verified is replaced even if it looks the same.
        unread = decision is Decision.REPLACE_FOREIGN and self.size > _LONG_TO_READ
        if not (claim.state == OWNED and is_valid(claim, found)) and not unread:
            same = self._is_same(found)
            if same and (kept or not claim.unsynced):
                return KEPT if foreign else SAME
            if kept:
                check_kept(self._name, found, self._sink.rules)
                self.size, self.crc = found.st_size, self._kept_crc(found)
                return KEPT
        if decision is Decision.CONTESTED and not same:
            raise FetchError(
                "name-taken", f"{self._name}: another file of this job, with other bytes, has this name"
            )
        if not self._temporary:
            remove(self._spare, self._directory)
            self._link(self._spare)
            # It keeps that name to the end: what had a name once gets none from its descriptor any more.
            self._temporary = self._spare
        if not self._replace(found):
            return None
        return REPLACED if decision is Decision.REPLACE_FOREIGN else NEW

    def _replace(self, found: os.stat_result) -> bool:
        """Give this file, which has its temporary name, the name of ``found``; return whether that had it.

        Another file that has the name by now keeps it.
        """
        # Of workers that have looked at the same file, one at a time.
        locked = _locked(self._leaf, self._directory)
        try:
            is_there = _which(self._at(self._leaf)) == _which(found)
            return is_there and self._exchange(found)
        except FileNotFoundError:
            return False
        finally:
            if locked >= 0 and found.st_size > PIECE and self._replaced is None:
                fcntl.flock(locked, fcntl.LOCK_UN)
                self._replaced = locked, found.st_size
            elif locked >= 0:
                _close(locked)

    def _exchange(self, found: os.stat_result) -> bool:
        """Do that where others, who hold no lock, may put a file there at any instant."""
        spare, leaf, directory = self._spare, self._leaf, self._directory
        if not exchange(spare, leaf, directory):
            os.rename(spare, leaf, src_dir_fd=directory, dst_dir_fd=directory)  # the system cannot
            return True
        if _which(self._at(spare)) == _which(found):
            return True
        mine = _which(os.fstat(self._fd))
        for _ in range(_MOST_EXCHANGES):
            try:
                exchange(spare, leaf, directory)
            except FileNotFoundError:
                # Somebody has removed this file, which had the name.
                with contextlib.suppress(FileExistsError):
                    rename_new(spare, leaf, directory)
                    return False
                continue
            if _which(self._at(spare)) == mine:
                return False
        self._temporary = ""  # it stays: it is the file of somebody else
        raise FetchError("name-taken", f"{self._name}: others put files in its place all the time")

    def _at(self, leaf: str) -> os.stat_result:
        return os.stat(leaf, dir_fd=self._directory, follow_symlinks=False)

    def abort(self) -> None:
        """Close, and remove the temporary name if it has one."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        if self._temporary:
            # If the directory was removed, the next write reports that.
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._directory)
        close_file(fd, self.size)
        if self._replaced is not None:
            close_file(*self._replaced)
            self._replaced = None
        self._sink.unpin(self._directory)
