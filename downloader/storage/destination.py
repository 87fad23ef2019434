"""Open a destination for the supervisor: create it, lock it, open its journal and reconcile that."""

from __future__ import annotations

import contextlib
import functools
import os
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.core.file_errors import advice
from downloader.core.item_states import Claim
from downloader.core.ownership import Rules
from downloader.errors import ConfigError, DestinationError, DownloaderError, JournalError
from downloader.files.directory import Entry, MissingHome, displaced, is_at
from downloader.messages import Tally
from downloader.sinks.registry import distrust, staged_in, undoer, verifier
from downloader.sources.registry import source_kind
from downloader.storage import known_names as known
from downloader.storage import known_records, record_spool
from downloader.storage.activity import Activity
from downloader.storage.former_files import FormerFiles
from downloader.storage.fsync import boot_id, syncfs
from downloader.storage.homes import (
    PLAN,
    forget,
    has_journal,
    home_of,
    make_directory,
    make_home,
    removed_if_refused,
)
from downloader.storage.job_agreement import JobAgreement, duplicates_of, has_shards
from downloader.storage.journal import NAME as JOURNAL
from downloader.storage.journal import Journal
from downloader.storage.ledger import read_merged
from downloader.storage.left_ledgers import (
    WorkerLedgers,
    collect_ledgers,
    left_ledgers,
    take_back,
    temporary_prefix,
)
from downloader.storage.lock import lock, lock_destination
from downloader.storage.name_owners import settle_contested
from downloader.storage.name_probes import folds_names, remove_probe
from downloader.storage.places import began_at, clock_of, is_apart, leads_to, shown_output
from downloader.storage.reserved_names import Reserved, check_reserved, reserved_names
from downloader.storage.stored_there import check_bucket, check_stored

__all__ = ["Destination"]

_PATH = getattr(os, "O_PATH", 0)


class Destination:
    """A locked destination; close it when the run is over.

    Raises ConfigError if ``config.output`` cannot be a destination (a file, no permission, a journal of
    another job), InUse if another run has locked it, DestinationError if the disk fails, JournalError.

    ``cut_off``: the machine went down while a run was active here. ``rules``: how to treat existing files
    with the names of items. ``reserved``: names that no item may have, each with the option of the file.
    ``relisting``: the source is to be read from its beginning, and the journal has its former items still.
    ``known_before_ns``: see ``core.ownership.Rules``. ``ledgers``: those of the workers.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._may_begin = False
        self._apart = is_apart(config)
        output = Path(config.local_output)
        self._root = self._journal_file = -1
        self._activity: Activity | None = None
        self._made = False
        if not has_journal(config):
            self._check_new()
        with contextlib.ExitStack() as opened:
            opened.enter_context(removed_if_refused(home_of(config.journal_root)))
            if self._apart or config.is_bucket:
                self.home = opened.enter_context(make_home("--journal", config.journal))
            else:
                self.home = opened.enter_context(make_home("-o", config.local_output))
            self.lock_fd = lock(self.home)
            opened.callback(os.close, self.lock_fd)
            if self._apart or config.is_bucket:
                self._check_mounted()
            if self._apart:
                self._made = make_directory("-o", output)
            try:
                self._open(opened)
            except (ConfigError, MissingHome):
                raise
            except (DownloaderError, OSError) as error:
                if (displaced := self.displaced()) is None:
                    raise
                raise displaced from error
            self._opened = opened.pop_all()

    def _open(self, opened: contextlib.ExitStack) -> None:
        """Open and reconcile what is in the locked home; ``opened`` gets what is to be closed."""
        config = self._config
        # Opened before files are stored: a sync reports the failures since its descriptor was opened.
        self._root = os.open(config.local_output, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.callback(os.close, self._root)
        if not config.slice and not config.is_bucket:  # slices share it: the driver has locked it
            lock_destination(self._root, config.output)
            remove_probe(self._root)
        self._unsynced: DestinationError | None = None
        if not config.slice and not config.restart:
            self._check_engine()
        if config.restart:
            self._check_begin()
            self._take_back_all()
            forget(self.home)
        self._records_run = record_spool.next_run(self.home)
        self.journal = Journal(self.home, durable=config.fsync)
        opened.callback(self.journal.close)
        # Without O_PATH: to close another descriptor would give up the locks that SQLite has on it.
        self._journal_file = (self.home / JOURNAL).open(_PATH) if _PATH else -1
        if self._journal_file >= 0:
            opened.callback(os.close, self._journal_file)
        if config.slice:
            self.journal.shards.begin_slice(config.slice.first_shard)
        # This also syncs what an earlier run without --fsync has left in memory.
        self.sync()
        boot, before = boot_id(), self.journal.running
        self.cut_off = bool(before and boot and before != boot)
        if self.cut_off:
            distrust(config.store, self.home)
        agreement = JobAgreement(config, self.home, self.journal, self._now, self._began, self._check_begin)
        job, self.resumed = agreement.agree(cut_off=self.cut_off)
        self.job, self.name_key = agreement.agree_on_key(job)
        if has_shards(config):
            self.journal.shards.inspect(expected=True)
        if config.slice:  # which does not know when the attempts before it were active, on other machines
            self.journal.run(boot, ())
            opened.callback(self._end_slice)
        else:
            crashed = self.cut_off or not boot
            self._activity = Activity(
                *(self.home, self.journal, boot, self._active_at), resumed=self.resumed, crashed=crashed
            )
            opened.callback(self._activity.end)
        undo = undoer(
            *(config.store, Path(config.local_output), config.sink_kind.identity(config), self._prefix)
        )
        verify = verifier(config.store, Path(config.local_output), config.sink_kind.identity(config))
        self.ledgers = WorkerLedgers(
            self.home, self.journal, verify, undo, staged_in(config.store, self.home), self.sync
        )
        collect_ledgers(self.home, self.journal, verify, undo)
        self.complete_since = "" if config.relist else self.journal.complete_since
        self.reserved = Reserved() if has_shards(self._config) else reserved_names(config)
        # Before the listing is forgotten, which says what was stored.
        check_reserved(config, self.reserved, self.journal)
        if self.journal.ended and not self.journal.open_count():
            known.remove(self.home)  # of a run that was killed before it could begin anew
        self.relisting = False
        if config.relist:
            self._read_again()
        self.known_before_ns = self.journal.relisted_ns if known.exists(self.home) else 0
        self._tidy()
        self.before: Tally = Tally() if self.relisting else self.journal.tally()
        self.listed_before: int = 0 if self.relisting else self.journal.position().listed

    def _check_new(self) -> None:
        """Raise ConfigError if no job can begin here: before the first file of the journal is made."""
        config = self._config
        if config.retry_failed:
            raise ConfigError(
                f"{config.journal_root} has no journal, so nothing to retry; leave out --retry-failed"
            )
        if config.is_bucket or os.path.isdir(config.local_output):
            self._check_begin()

    def _check_mounted(self) -> None:
        """Raise DestinationError where the files of the job are not there; see ``stored_there``.

        This is before anything is made in DEST: its time would change.
        """
        config = self._config
        if config.restart or config.slice or not has_journal(config):
            return
        try:
            with contextlib.closing(Journal(self.home, read_only=True)) as journal:
                job = journal.job()
                # Another DEST is refused later.
                if job is not None and config.is_bucket:
                    if leads_to(job.output, config.output):
                        check_bucket(config.output, config.bucket_access, job, self.home, journal)
                elif job is not None and (
                    os.path.lexists(config.local_output) or job.output == shown_output(config)
                ):
                    check_stored(config.local_output, job, self.home, journal)
        except (JournalError, OSError):
            return  # who opens it to write says why

    def _check_engine(self) -> None:
        """Raise ConfigError if the job here has a plan, and no journal: what failed is in that."""
        if (self.home / PLAN / "plan.json").exists() and not (self.home / JOURNAL).exists():
            raise ConfigError(
                f"{self._config.journal_root} has the plan of a job over many machines: go on with "
                "--engine ray, or give another -o, or --restart to forget that job (its files stay)"
            )

    def _check_begin(self) -> None:
        """Raise ConfigError if DEST has what a job that begins must not replace; ask a bucket once."""
        if not (self._may_begin and self._config.is_bucket):
            self._config.sink_kind.check_begin(self._config)
        self._may_begin = True

    def displaced(self) -> DestinationError | None:
        """Return the error where DEST or the journal is not at its path any more, else None.

        Whoever has moved or removed it has what was stored, or nobody has: the run must not say that it is
        there. The run itself goes on with what it holds open, and would not notice.
        """
        config = self._config
        gone = ""
        there = (
            is_at(config.local_output, self._root)
            if self._root >= 0
            else os.path.isdir(config.local_output)
        )
        if not there:
            gone = config.local_output
        elif not self.home.is_in_place():
            gone = str(self.home)
        elif self._journal_file >= 0 and not is_at(JOURNAL, self._journal_file, self.home.fd):
            gone = str(self.home / JOURNAL)
        elif self._journal_file >= 0 and (log := self.journal.lost()) is not None:
            gone = str(log)
        return displaced(gone) if gone else None

    def refused_page(self) -> DestinationError:
        """Return the error where a worker died of SIGBUS: the disk has refused a page of a mapped file."""
        try:
            self.home.check_room()
        except OSError as error:
            return DestinationError(f"{self.home}: {advice(error)}")
        return DestinationError(
            f"{self.home}: no space left, or the disk fails: it refused a page of a mapped file (SIGBUS); "
            "look after it, then run the same command again"
        )

    def sync(self) -> None:
        """Wait until all published files are on the disk, if --fsync is given; else do nothing.

        Raises DestinationError if that fails. The files then do not count as stored, even if they look
        right, and the next run writes them again.
        """
        if not self._config.fsync:
            return
        if self._unsynced is not None:
            raise self._unsynced  # a second sync would succeed although data was lost
        try:
            syncfs(self._root)
        except OSError as error:
            self._unsynced = DestinationError(
                f"{self._config.output} cannot be synced ({error.strerror}): what was stored last may be "
                "lost; look after the file system, then run the same command again"
            )
            with contextlib.suppress(JournalError, OSError):
                self.journal.mark_unsynced()
                for path in left_ledgers(self.home):
                    path.unlink()
            raise self._unsynced from error

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that the processes of the run inherit: the locks, and the home."""
        return self.lock_fd, self.home.fd, self._root

    def spool(self, number: int) -> Entry | None:
        """Return the spool of worker ``number``, None if nothing is recorded."""
        if not self._config.recording:
            return None
        return record_spool.spool_path(self.home, self._records_run, number)

    def close(self) -> None:
        """Close the journal and release the lock."""
        self._opened.close()

    def _read_again(self) -> None:
        """Let the source be read from its beginning, unless an interrupted run has begun that already.

        The journal of a server is kept until its first page is there (``relisting``): it may be down. A
        list has been checked.
        """
        going_on = known.exists(self.home) and not self.journal.read
        if self.journal.position().seq and not (going_on and source_kind(self._config).cursors_last):
            # Whatever is killed in between: a record is found by its name, or by its place in this journal.
            begun_anew = known.exists(self.home)
            known.write(self.home, self.journal)
            known_records.write(self.home, self.journal, keep=begun_anew)
            # Where a name may be another one's file, too, its owner is searched for when all is listed.
            folds = not has_shards(self._config) and folds_names(self._config.local_output)
            self.journal.relist(0 if folds else self._now())
            self.relisting = True
            if source_kind(self._config).editable:
                self.begin_anew()

    def _take_back_all(self) -> None:
        """Undo what a killed run was about to do, as far as its journal can be read, which is forgotten."""
        left = left_ledgers(self.home)
        if not left or self._config.is_bucket:
            return
        with (
            contextlib.suppress(DownloaderError, OSError),
            contextlib.closing(Journal(self.home, read_only=True)) as journal,
        ):
            job = journal.job()
            output = self._config.local_output
            if job is not None and (not job.output or leads_to(job.output, output)):
                undo = undoer(job.store, Path(output), job.layout, self._prefix)
                if undo is not None:
                    for path in left:
                        take_back(journal, read_merged(path), undo)

    def begin_anew(self) -> None:
        """Forget what the journal has listed, if the source is read again: its first page is there."""
        if self.relisting:
            self.relisting = False
            self.journal.begin_anew()
            self.job = msgspec.structs.replace(self.job, duplicates=duplicates_of(self._config))
            self.journal.begin(self.job)

    def finish(self, *, complete: bool, idle: bool) -> int:
        """End the run: record since when the job is ``complete``, and remove the table of known names.

        ``idle``: nothing was stored, so that whatever has changed meanwhile the run has not changed.
        Return how many files of somebody else were replaced by what describes all stored files. Raises
        DestinationError, also where DEST is not at its path any more: nothing is written into another one.
        """
        if (problem := self.displaced()) is not None:
            raise problem
        if self._activity is not None:
            self._activity.idle = idle
        if self.relisting or (self.journal.ended and not self.journal.open_count()):
            known.remove(self.home)
        self._tidy()
        shards = self.journal.shards.finished()
        replaced = self._config.sink_kind.complete(self._config, self.home, shards)
        if has_shards(self._config):
            self.sync()  # the indexes
        grown = self.journal.position().listed != self.listed_before
        if complete and self.journal.ended and (grown or not self.complete_since):
            self.journal.complete(datetime.now(timezone.utc).isoformat(timespec="seconds"))
        return replaced or 0

    def _tidy(self) -> None:
        self._config.sink_kind.tidy(self.home, self.journal.shards.is_finished)

    @property
    def root(self) -> Path:
        """Return the directory that items are stored in."""
        return Path(self._config.local_output)

    @functools.cached_property
    def rules(self) -> Rules:
        """Rules for existing files, for workers. Raises DestinationError."""
        # Once, and not in each worker: what is asked of the file system is asked with files.
        # If several items can have one name, a file left by a power cut may belong to another item; then
        # the journal is searched for its owner.
        config = self._config
        unique = source_kind(config).unique_names
        if unique and self.resumed and not has_shards(config) and folds_names(config.local_output):
            unique = False
        lost_before = self.job.lost_before_ns if unique else 0
        sole = unique or bool(config.slice)
        found = os.fstat(self._root)
        return Rules(
            *(self.job.foreign_before_ns, lost_before, config.existing, self._prefix, sole),
            known_before_ns=self.known_before_ns,
            runs=self._activity.times if self._activity is not None else (),
            root=(found.st_dev, found.st_ino),
        )

    @property
    def _prefix(self) -> str:
        """Return ``Rules.temporary``."""
        # Runs with journals of their own may share a destination; their temporary names must differ.
        return temporary_prefix(self.home) if self._apart else ""

    def _end_slice(self) -> None:
        with contextlib.suppress(JournalError):
            self.journal.run("", ())  # on failure, this run counts as interrupted

    def touch(self) -> None:
        """Record that the run is active."""
        if self._activity is not None:
            self._activity.touch()

    def _active_at(self) -> int:
        """The time now, by the clock that stamps files; by that of the journal where DEST takes none."""
        config = self._config
        if self._apart and not config.is_bucket and self.displaced() is None:
            with contextlib.suppress(OSError):
                return clock_of(config.local_output)
        with contextlib.suppress(OSError):
            os.utime(self.lock_fd)
        return os.fstat(self.lock_fd).st_ctime_ns

    def settle_names(self) -> dict[int, dict[int, Claim]]:
        """See ``name_owners.settle_contested``."""
        if self._config.slice or has_shards(self._config):
            return {}  # the owner may be in another slice; no file has the name of an item
        former = FormerFiles(self.root, self._config.layout, self.rules)
        return settle_contested(
            self.journal,
            self.root,
            self._config.layout,
            self.job.lost_before_ns,
            functools.partial(known.among, self.home, former),
        )

    def config_of_job(self) -> Config:
        """Return the Config of this run, with what was settled when the job began."""
        types = self._config.column_types if self._config.slice else self.job.types
        return self._config.replace(colon=self.job.colon, naming=self.job.naming, column_types=types)

    def settle_types(self, types: str) -> None:
        """Record the types of the kept columns, which are those of all further runs of this job."""
        if types != self.job.types:
            self.job = msgspec.structs.replace(self.job, types=types)
            self.journal.begin(self.job)

    def _began(self) -> int:
        """Return ``JobSpec.began_ns`` of a job that begins in this run."""
        if not self._apart or self._config.slice:
            return 0
        return began_at(self._config.local_output, made=self._made)

    def _now(self) -> int:
        """Time when the lock was written, by the destination's own clock, which also stamps files."""
        if not self._apart:
            return os.fstat(self.lock_fd).st_ctime_ns
        return clock_of(self._config.local_output)
