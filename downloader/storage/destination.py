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
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.core import item_states as core_marks
from downloader.core.ownership import Rules
from downloader.errors import ConfigError, DestinationError, InUse, JournalError
from downloader.messages import Lease, Tally
from downloader.sinks.registry import verifier
from downloader.sinks.sink import Verify
from downloader.sources.registry import source_kind
from downloader.storage import known_names as known
from downloader.storage.fsync import boot_id, syncfs
from downloader.storage.journal import JobSpec, Journal
from downloader.storage.journal import exists as journal_exists
from downloader.storage.ledger import read as read_ledger
from downloader.storage.name_key import name_key
from downloader.storage.name_owners import settle_contested
from downloader.storage.reserved_names import check_reserved, reserved_names

__all__ = ["HOME", "Destination", "collect_ledgers", "home_of", "lock"]

HOME = ".downloader"
_ORPHANS_END_WITHIN = 10.0


def home_of(output: str) -> Path:
    """Where the tool's own files stand under ``output``."""
    return Path(output) / HOME


class Destination:
    """An owned destination; close it when the run is over.

    Raises ConfigError when it cannot be one (a file, not permitted, a journal of another job),
    InUse when another run owns it, DestinationError when the disk fails, JournalError.

    ``cut_off``: the machine went down while a run was at work here. ``rules``: what to do with files that
    have the names of items. ``reserved``: names that no item may have, and the option that names the file.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._verify = verifier(config.store, Path(config.output), config.layout)
        self.home = home_of(config.output)
        _make(Path(config.output), self.home)
        self.lock_fd = lock(self.home)
        # Before anything is written: a sync reports what failed since it was opened.
        self._root = os.open(config.output, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._unsynced: DestinationError | None = None
        try:
            self.name_key = name_key(self.home)
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
                boot, before = boot_id(), self.journal.running
                self.cut_off = bool(before and boot and before != boot)
                self.job, self.resumed = self._agree()
                self.journal.run(boot)
                collect_ledgers(self.home, self.journal, self._verify)
                self.complete_since = "" if config.relist else self.journal.complete_since
                if config.relist:
                    self._read_again()
                self.reserved = reserved_names(config)
                check_reserved(config, self.reserved, self.journal)
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
        self.journal.keep_marks(marks, self._verify)

    def close(self) -> None:
        """Close the journal and give up the lock."""
        try:
            with contextlib.suppress(JournalError):  # then this run was cut off, too
                self.journal.run("")
            self.journal.close()
        finally:
            os.close(self._root)
            os.close(self.lock_fd)

    def _read_again(self) -> None:
        """Have the source read from its beginning, unless a run that was cut off is at that already."""
        going_on = known.exists(self.home) and not self.journal.ended
        if self.journal.position()[1] and not (going_on and source_kind(self._config).cursors_last):
            known.write(self.home, self.journal)
            self.journal.begin_anew()

    def finish(self, complete: bool) -> None:
        """The run is over: write down since when the job is ``complete``, forget what is of no use now."""
        if self.journal.ended and not self.journal.open_count():
            known.remove(self.home)
        grown = self.journal.position()[2] != self.listed_before
        if complete and self.journal.ended and (grown or not self.complete_since):
            self.journal.complete(datetime.now(timezone.utc).isoformat(timespec="seconds"))

    @property
    def rules(self) -> Rules:
        """What workers are told of the files that are there."""
        # Where several items can have one name, what a cut left may be another's: the journal is asked.
        lost_before = self.job.lost_before_ns if source_kind(self._config).unique_names else 0
        return Rules(self.job.foreign_before_ns, lost_before, self._config.existing)

    def settle_names(self) -> dict[int, dict[int, int]]:
        """See ``owners.settle_contested``."""
        root = Path(self._config.output)
        return settle_contested(self.journal, root, self._config.layout, self.job.lost_before_ns)

    def _agree(self) -> tuple[JobSpec, bool]:
        """The job of the journal, which must be ours; or ours, begun now."""
        config = self._config
        identity = source_kind(config).identity(config)
        mine = JobSpec(
            source=identity.digest,
            shown=config.shown_source,
            kind=config.kind,
            store=config.store,
            layout=config.layout,
            foreign_before_ns=0 if self._is_empty() else self._now,
        )
        job = self.journal.job()
        if job is None:
            self.journal.begin(mine)
            return mine, False
        same = job.kind == mine.kind and identity.owns(job.source)
        if not self.journal.position()[2]:
            # Nothing was listed: it belongs to no source yet, and all that is there was there before. Or
            # a power cut took what was listed.
            if self.cut_off:
                before = job.foreign_before_ns
                mine = msgspec.structs.replace(mine, foreign_before_ns=before, lost_before_ns=self._now)
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
            job = msgspec.structs.replace(job, lost_before_ns=self._now)
            self.journal.begin(job)
        return job, True

    @property
    def _now(self) -> int:
        """When the lock was written, by the clock of the file system, which stamps files."""
        return os.fstat(self.lock_fd).st_ctime_ns

    def _is_empty(self) -> bool:
        with os.scandir(self._config.output) as entries:
            return all(entry.name == HOME for entry in entries)


def collect_ledgers(home: Path, journal: Journal, verify: Verify) -> None:
    """Bring what workers of a run that was killed have written into the journal."""
    for path in sorted(home.glob("ledger-*")):
        journal.keep_marks({seq: marks.packed() for seq, marks in read_ledger(path)}, verify)
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
    """Remove what is known of an earlier job; a power cut does not bring it back."""
    for path in home.iterdir():
        if path.name.startswith(("journal.sqlite", "ledger-", "known.sqlite")):
            path.unlink()
    fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
