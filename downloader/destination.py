"""The destination as the supervisor has it: made, locked, its journal open and reconciled.

All that is the tool's own stands under ``DEST/.downloader/``: ``lock``, ``journal.sqlite``, one
``ledger-N`` for each worker.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from downloader.config import Config
from downloader.core import marks as core_marks
from downloader.core.marks import Mark
from downloader.durable import boot_id, syncfs
from downloader.errors import ConfigError, DestinationError, InUse, JournalError
from downloader.journal import Job, Journal
from downloader.journal import exists as journal_exists
from downloader.ledger import read as read_ledger
from downloader.model import Lease, Tally
from downloader.sinks.files import file_matches, place
from downloader.sources import identify

__all__ = ["HOME", "Destination", "home_of", "lock"]

HOME = ".downloader"
_ORPHANS_END_WITHIN = 10.0


def home_of(output: str) -> Path:
    """Where the tool's own files stand under ``output``."""
    return Path(output) / HOME


class Destination:
    """An owned destination; close it when the run is over.

    Raises ConfigError when it cannot be one (a file, not permitted, a journal of another job),
    InUse when another run owns it, DestinationError when the disk fails, JournalError.

    ``cut_off``: the machine went down while a run was at work here.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.home = home_of(config.output)
        _make(Path(config.output), self.home)
        self.lock_fd = lock(self.home)
        # Before anything is written: a sync reports what failed since it was opened.
        self._root = os.open(config.output, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._unsynced: DestinationError | None = None
        try:
            if config.restart:
                _forget(self.home)
            if config.retry_failed and not journal_exists(self.home):
                raise ConfigError(
                    f"{config.output} has no journal, so nothing to retry; leave out --retry-failed"
                )
            self.journal = Journal(self.home, durable=config.fsync)
            try:
                # Also what a run without --fsync has left in memory.
                self.sync()
                self.cut_off = self._begin()
                self.job, self.resumed = self._agree()
                self._collect_ledgers()
                self.before: Tally = self.journal.tally()
                self.listed_before: int = self.journal.position()[2]
            except BaseException:
                self.journal.close()
                raise
        except BaseException:
            os.close(self._root)
            os.close(self.lock_fd)
            raise

    def sync(self) -> None:
        """With --fsync: what is published is on the disk when this returns.

        Raises DestinationError when it is not: then it is not stored, whatever it looks like, and the
        next run writes it again.
        """
        if not self._config.fsync:
            return
        if self._unsynced is not None:
            raise self._unsynced  # asked again, the kernel would say that all is well
        try:
            syncfs(self._root)
        except OSError as error:
            self._unsynced = DestinationError(
                f"{self._config.output} cannot be synced ({error.strerror}): what was stored last may be "
                "lost; look after the file system, then run the same command again"
            )
            with contextlib.suppress(JournalError, OSError):
                self.journal.distrust()
                for path in self.home.glob("ledger-*"):
                    path.unlink()
            raise self._unsynced from error

    def ledger(self, number: int) -> Path:
        """The ledger of worker ``number``."""
        return self.home / f"ledger-{number}"

    def inherit(self, number: int, held: Mapping[int, Lease]) -> dict[int, tuple[bytes, list[int]]]:
        """What the ledger of worker ``number``, now dead, says of the batches it held: what is
        published (packed) and which items were in flight. It goes into the journal.

        Raises JournalError; the ledger then stays where it is, for the next run.
        """
        path = self.ledger(number)
        self.sync()
        found = {}
        for seq, marks in read_ledger(path):
            if (lease := held.get(seq)) is not None:
                # It may have died before it had looked at all that was stored already.
                packed = core_marks.merge(lease.done, marks.packed(), lease.count)
                found[seq] = (packed, marks.in_flight())
        self.keep({seq: packed for seq, (packed, _) in found.items()})
        path.unlink(missing_ok=True)
        return found

    def keep(self, marks: dict[int, bytes]) -> None:
        """See ``Journal.keep_marks``."""
        self.journal.keep_marks(marks, self._holds)

    def close(self) -> None:
        """Close the journal and give up the lock."""
        try:
            with contextlib.suppress(JournalError):  # then this run was cut off, too
                self.journal.run("")
            self.journal.close()
        finally:
            os.close(self._root)
            os.close(self.lock_fd)

    def _begin(self) -> bool:
        """This run is at work; whether another was when the machine went down."""
        boot, before = boot_id(), self.journal.running
        self.journal.run(boot)
        return bool(before and boot and before != boot)

    def _holds(self, name: str, mark: Mark) -> bool:
        path = os.path.join(self._config.output, place(name, self._config.layout))
        return file_matches(path, None, mark.size, mark.crc)

    def _agree(self) -> tuple[Job, bool]:
        """The job of the journal, which must be ours; or ours, begun now."""
        config = self._config
        identity = identify(config)
        mine = Job(
            source=identity.digest,
            shown=config.shown_source,
            kind=config.kind,
            store=config.store,
            layout=config.layout,
            foreign_before_ns=self._foreign_before(),
        )
        job = self.journal.job()
        if job is None:
            self.journal.begin(mine)
            return mine, False
        same = job.kind == mine.kind and identity.owns(job.source)
        if not self.journal.position()[2]:
            # Nothing was listed: it belongs to no source yet, and all that is there was there before.
            mine = msgspec.structs.replace(mine, foreign_before_ns=os.fstat(self.lock_fd).st_ctime_ns)
            self.journal.begin(mine, anew=True)
            return mine, same
        if not same:
            raise ConfigError(
                f"{config.output} holds a job of another source, {job.shown}; "
                "choose another -o, or --restart to forget that job (its files stay)"
            )
        if (job.store, job.layout) != (mine.store, mine.layout):
            raise ConfigError(
                f"{config.output} was begun with --store {job.store} --layout {job.layout}; "
                "give the same, or --restart"
            )
        if job.source != mine.source:
            job = msgspec.structs.replace(job, source=mine.source)
            self.journal.begin(job)
        if self.cut_off:
            # What is there and not in the journal may be damaged, and must not be in the way.
            # The lock was written just now; the journal's own time is that of its last checkpoint.
            now = os.fstat(self.lock_fd).st_ctime_ns
            job = msgspec.structs.replace(job, foreign_before_ns=now)
            self.journal.begin(job)
        return job, True

    def _foreign_before(self) -> int:
        """A file whose ctime is older was there before the job; 0 when nothing was.

        Read from the file system itself, whose clock is the one that stamps files.
        """
        with os.scandir(self._config.output) as entries:
            empty = all(entry.name == HOME for entry in entries)
        return 0 if empty else (self.home / "journal.sqlite").stat().st_ctime_ns

    def _collect_ledgers(self) -> None:
        """What workers of a run that was killed had published, into the journal."""
        for path in sorted(self.home.glob("ledger-*")):
            self.keep({seq: marks.packed() for seq, marks in read_ledger(path)})
            path.unlink()


def _make(output: Path, home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = home / "probe"
        probe.write_bytes(b"downloader\n")
        probe.unlink()
    except (FileExistsError, NotADirectoryError):
        culprit = next((p for p in (output, *output.parents) if p.is_file()), home)
        raise ConfigError(f"-o {output}: {culprit} is a file, not a directory") from None
    except PermissionError as error:
        raise ConfigError(f"-o {output}: {error.strerror}; choose a directory you may write to") from None
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ConfigError(f"-o {output}: {error.strerror}; choose another directory") from None
        raise DestinationError(f"-o {output}: {error.strerror}") from error


def _forget(home: Path) -> None:
    for path in home.iterdir():
        if path.name.startswith(("journal.sqlite", "ledger-")):
            path.unlink()


def lock(home: Path) -> int:
    """Own the destination until the descriptor that is returned is closed by all who inherit it.

    A run's children inherit it; after a SIGKILL of the supervisor they end at once, so that is
    waited for. Raises InUse with the owner's process number, DestinationError.
    """
    path = home / "lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DestinationError(f"{path}: {error.strerror}") from error
    give_up = time.monotonic() + _ORPHANS_END_WITHIN
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            if _alive(owner) or time.monotonic() > give_up:
                os.close(fd)
                raise InUse(
                    f"{home.parent} is in use by another run (process {owner or 'unknown'}); "
                    "wait for it, or stop it"
                ) from None
            time.sleep(0.02)
            continue
        except OSError as error:
            os.close(fd)
            raise DestinationError(f"{path} cannot be locked: {error.strerror}") from error
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd


def _alive(owner: str) -> bool:
    """Whether process ``owner`` runs; one that is dead and only not reaped yet does not."""
    if not owner.isdigit():
        return False
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{owner}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state not in "ZX"
