"""Open a destination for the supervisor: create it, lock it, open its journal and reconcile that.

The tool's own files are under ``DEST/.downloader/``, or in that of --journal: ``lock``,
``journal.sqlite``, one ``ledger-N`` for each worker.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from downloader.config.config import Config
from downloader.config.options import OutputOptions
from downloader.core import item_states as core_marks
from downloader.core.bucket_place import is_bucket, is_same_place
from downloader.core.file_errors import advice
from downloader.core.item_states import Claim
from downloader.core.naming import shown
from downloader.core.ownership import Rules
from downloader.errors import UNDECODABLE, ConfigError, DestinationError, DownloaderError, JournalError
from downloader.files.directory import HOME, Directory, Entry, MissingHome, is_at, open_home
from downloader.messages import Lease, Tally
from downloader.sinks.registry import sink_kind, undoer, verifier
from downloader.sinks.shards.files import INDEXED
from downloader.sinks.shards.files import forget as forget_shards
from downloader.sinks.shards.kept import kept_samples
from downloader.sinks.sink import Undo, Verify, Written
from downloader.sources.registry import source_kind
from downloader.storage import known_names as known
from downloader.storage import known_records, record_spool
from downloader.storage.fsync import boot_id, syncfs
from downloader.storage.journal import NAME as JOURNAL
from downloader.storage.journal import JobSpec, Journal
from downloader.storage.ledger import read_merged
from downloader.storage.lock import lock, lock_destination
from downloader.storage.name_key import check_key, key_digest, key_path, name_key, read_key
from downloader.storage.name_owners import settle_contested
from downloader.storage.name_probes import colon_of, folds_names, remove_probe
from downloader.storage.reserved_names import Reserved, check_reserved, reserved_names

__all__ = [
    "HOME",
    "PLAN",
    "Destination",
    "begun_here",
    "check_mounted",
    "clock_of",
    "collect_ledgers",
    "foreign_before",
    "forget",
    "has_journal",
    "home_of",
    "leads_to",
    "ledgers",
    "make_directory",
    "make_home",
    "moved",
    "temporary_prefix",
]


def home_of(root: str) -> Path:
    """Return the directory of the tool's own files under ``root``, a ``Config.journal_root``."""
    return Path(root) / HOME


def has_journal(config: OutputOptions) -> bool:
    """Return whether there is a journal where that of ``config`` is to be, which may be another job's.

    What cannot be looked at counts as there: whoever opens it says why.
    """
    try:
        os.stat(home_of(config.journal_root) / JOURNAL)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


PLAN = "cluster"
"""The directory of the plan of a job over many machines, below the home."""
_PATH = getattr(os, "O_PATH", 0)


class Destination:
    """A locked destination; close it when the run is over.

    Raises ConfigError if ``config.output`` cannot be a destination (a file, no permission, a journal of
    another job), InUse if another run has locked it, DestinationError if the disk fails, JournalError.

    ``cut_off``: the machine went down while a run was active here. ``rules``: how to treat existing files
    with the names of items. ``reserved``: names that no item may have, each with the option of the file.
    ``relisting``: the source is to be read from its beginning, and the journal has its former items still.
    ``known_before_ns``: see ``core.ownership.Rules``.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._may_begin = False
        self._verify = verifier(config.store, Path(config.local_output), config.sink_kind.identity(config))
        self._apart = _is_apart(config)
        output = Path(config.local_output)
        self._root = self._journal_file = -1
        if not has_journal(config):
            self._check_new()
        with contextlib.ExitStack() as opened:
            if self._apart or config.is_bucket:
                self.home = opened.enter_context(make_home("--journal", config.journal))
            else:
                self.home = opened.enter_context(make_home("-o", config.local_output))
            self.lock_fd = lock(self.home)
            opened.callback(os.close, self.lock_fd)
            if self._apart:
                self._check_mounted()
                make_directory("-o", output)
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
            # The journal may have lost shards, which are then published again, with other bytes.
            (self.home / INDEXED).unlink(missing_ok=True)
        self.job, self.resumed = self._agree()
        self.name_key = self._agree_on_key()
        self.journal.run(boot)
        self._undo = undoer(
            *(config.store, Path(config.local_output), config.sink_kind.identity(config), self._prefix)
        )
        collect_ledgers(self.home, self.journal, self._verify, self._undo)
        self.complete_since = "" if config.relist else self.journal.complete_since
        self.reserved = Reserved() if self._has_shards else reserved_names(config)
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
        self.listed_before: int = 0 if self.relisting else self.journal.position()[2]

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
        """Raise DestinationError where the files of the job are not there; see ``check_mounted``.

        This is before anything is made in DEST: its time would change.
        """
        config = self._config
        if config.restart or config.slice or not has_journal(config):
            return
        is_there = os.path.lexists(config.local_output)
        try:
            if is_there and not _is_empty(config.local_output):
                return
            with contextlib.closing(Journal(self.home, read_only=True)) as journal:
                job = journal.job()
                stored = journal.tally(open_too=True).stored
        except (JournalError, OSError):
            return  # who opens it to write says why
        if job is None or not stored:
            return
        if not is_there and job.output == self._shown_output():
            raise DestinationError(
                f"{config.local_output} is not there, and this job has stored files in it: mount what they "
                "are on, or put it back, then run the same command again (if they are lost, run "
                f"`{shlex.join(['mkdir', '-p', config.local_output])}` first)"
            )
        check_mounted(config.local_output, job.began_ns)

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
        if not gone:
            return None
        return DestinationError(
            f"{gone} was removed, moved or replaced while the run was at work; move it back, if it "
            "was moved, then run the same command again"
        )

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
                for path in ledgers(self.home):
                    path.unlink()
            raise self._unsynced from error

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that the processes of the run inherit: the locks, and the home."""
        return self.lock_fd, self.home.fd, self._root

    def ledger(self, number: int) -> Entry:
        """Return the ledger of worker ``number``."""
        return self.home / f"ledger-{number}"

    def spool(self, number: int) -> Entry | None:
        """Return the spool of worker ``number``, None if nothing is recorded."""
        if not self._config.recording:
            return None
        return record_spool.spool_path(self.home, self._records_run, number)

    def inherit(self, number: int, held: Mapping[int, Lease]) -> dict[int, tuple[bytes, list[int]]]:
        """Move the ledger of worker ``number``, which is dead, into the journal.

        Returns, for each batch that it held, the packed item states and the items that were in flight.
        Raises JournalError; the ledger then stays for the next run.
        """
        path = self.ledger(number)
        self.sync()
        found = {}
        for seq, (marks, in_flight) in read_merged(path).items():
            if (lease := held.get(seq)) is not None:
                # It may have died before it had checked all items that were stored before.
                packed = core_marks.merge(lease.done, marks, lease.count)
                found[seq] = (packed, in_flight)
        _keep(self.journal, found, self._verify, self._undo)
        path.unlink(missing_ok=True)
        return found

    def keep(self, marks: dict[int, bytes]) -> None:
        """See ``Journal.keep_marks``."""
        _keep(self.journal, {seq: (each, []) for seq, each in marks.items()}, self._verify, self._undo)

    def unreported(self, leases: Iterable[Lease]) -> Tally:
        """Return what this run has stored of ``leases``, of which no worker will report: as `status` does.

        It is in the journal; or in a ledger, if that could not be moved into the journal; or in a part of a
        shard, with what earlier runs have stored there, which counts as skipped. Raises JournalError.
        """
        left: dict[int, bytes] = {}
        for path in ledgers(self.home):
            for seq, (marks, _) in read_merged(path).items():
                left[seq] = core_marks.merge(left.get(seq, b""), marks, len(core_marks.unpack(marks)[0]))
        found = Tally()
        for lease in leases:
            if lease.shards:
                count, size = kept_samples(self.home, lease.shards[-1]) if not lease.only else (0, 0)
                known = [mark.size for mark in core_marks.written(lease.earlier)]
                skipped = min(len(known), count)
                found += Tally(count - skipped, skipped, bytes=max(size - sum(known), 0))
            else:
                now = core_marks.merge(self.journal.marks(lease.seq), left.get(lease.seq, b""), lease.count)
                found += core_marks.gained(lease.earlier, now, frozenset(lease.only))
        return found

    def close(self) -> None:
        """Close the journal and release the lock."""
        with self._opened, contextlib.suppress(JournalError):
            self.journal.run("")  # on failure, this run counts as interrupted

    def _read_again(self) -> None:
        """Let the source be read from its beginning, unless an interrupted run has begun that already.

        The journal of a server is kept until its first page is there (``relisting``): it may be down. A
        list has been checked.
        """
        going_on = known.exists(self.home) and not self.journal.read
        if self.journal.position()[1] and not (going_on and source_kind(self._config).cursors_last):
            # Whatever is killed in between: a record is found by its name, or by its place in this journal.
            begun_anew = known.exists(self.home)
            known.write(self.home, self.journal)
            known_records.write(self.home, self.journal, keep=begun_anew)
            # Where a name may be another one's file, too, its owner is searched for when all is listed.
            folds = not self._has_shards and folds_names(self._config.local_output)
            self.journal.relist(0 if folds else self._now)
            self.relisting = True
            if source_kind(self._config).editable:
                self.begin_anew()

    def _take_back_all(self) -> None:
        """Undo what a killed run was about to do, as far as its journal can be read, which is forgotten."""
        left = ledgers(self.home)
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
                        _take_back(journal, read_merged(path), undo)

    def begin_anew(self) -> None:
        """Forget what the journal has listed, if the source is read again: its first page is there."""
        if self.relisting:
            self.relisting = False
            self.journal.begin_anew()

    def finish(self, complete: bool) -> int:
        """End the run: record since when the job is ``complete``, and remove the table of known names.

        Return how many files of somebody else were replaced by what describes all stored files.
        """
        if self.relisting or (self.journal.ended and not self.journal.open_count()):
            known.remove(self.home)
        self._tidy()
        shards = self.journal.shards.finished()
        replaced = self._config.sink_kind.complete(self._config, self.home, shards)
        if self._has_shards:
            self.sync()  # the indexes
        grown = self.journal.position()[2] != self.listed_before
        if complete and self.journal.ended and (grown or not self.complete_since):
            self.journal.complete(datetime.now(timezone.utc).isoformat(timespec="seconds"))
        return replaced or 0

    def _tidy(self) -> None:
        self._config.sink_kind.tidy(self.home, self.journal.shards.is_finished)

    @property
    def _has_shards(self) -> bool:
        return self._config.sink_kind.shard_items(self._config) > 0

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
        unique = source_kind(self._config).unique_names
        if unique and self.resumed and not self._has_shards and folds_names(self._config.local_output):
            unique = False
        lost_before = self.job.lost_before_ns if unique else 0
        sole = unique or bool(self._config.slice)
        return Rules(
            *(self.job.foreign_before_ns, lost_before, self._config.existing, self._prefix, sole),
            known_before_ns=self.known_before_ns,
        )

    @property
    def _prefix(self) -> str:
        """Return ``Rules.temporary``."""
        # Runs with journals of their own may share a destination; their temporary names must differ.
        return temporary_prefix(self.home) if self._apart else ""

    def settle_names(self) -> dict[int, dict[int, Claim]]:
        """See ``name_owners.settle_contested``."""
        if self._config.slice:
            return {}  # the owner may be in another slice
        if self._has_shards:
            return {}  # no file has the name of an item
        return settle_contested(
            self.journal,
            self.root,
            self._config.layout,
            self.job.lost_before_ns,
            functools.partial(known.among, self.home),
        )

    def _agree(self) -> tuple[JobSpec, bool]:
        """Return the job of the journal, which must match, and whether it is resumed.

        If the journal has no job, begin this one. Raises ConfigError if the jobs do not match.
        """
        config = self._config
        identity = source_kind(config).identity(config)
        mine = JobSpec(
            source=identity.digest,
            shown=config.shown_source,
            kind=config.kind,
            store=config.store,
            layout=config.sink_kind.identity(config),
            foreign_before_ns=self._foreign_before(),
            output=self._shown_output(),
            kept=self._kept_columns(),
            began_ns=self._now if self._apart and not config.slice else 0,
        )
        job = self.journal.job()
        if job is None:
            self._check_begin()
            known_records.forget(self.home)
            mine = self._settled(mine)
            self.journal.begin(mine)
            return mine, False
        same = job.kind == mine.kind and identity.owns(job.source)
        # Killed when it had just begun to read its source again, the job still has what it has stored.
        read_again = same and known.exists(self.home)
        if not (self.journal.position()[2] or read_again):
            # Nothing was listed: the journal belongs to no source yet, and all files existed before. Or a
            # power cut lost what was listed.
            if self.cut_off:
                before = job.foreign_before_ns
                mine = msgspec.structs.replace(mine, foreign_before_ns=before, lost_before_ns=self._now)
            else:
                self._check_begin()
            if not same:
                known_records.forget(self.home)
                known.remove(self.home)
            mine = self._settled(mine)
            self.journal.begin(mine, anew=True)
            return mine, same
        if not same:
            raise ConfigError(
                f"{config.journal_root} holds a job of another source, {job.shown}; "
                f"choose another {'--journal' if self._apart else '-o'}, "
                "or --restart to forget that job (its files stay)"
            )
        job = self._check_output(job, mine)
        if (job.store, job.layout) != (mine.store, mine.layout):
            try:
                begun = f"--store {job.store} {sink_kind(job.store).describe(job.layout)}"
            except UNDECODABLE as error:
                raise self.journal.damaged(error) from error
            raise ConfigError(f"{config.output} was begun with {begun}; give the same, or --restart")
        job = self._check_kept(job, mine)
        if job.source != mine.source:
            job = msgspec.structs.replace(job, source=mine.source)
            self.journal.begin(job)
        if self.cut_off or self.journal.unsynced:
            # Files that are not in the journal may be damaged, and are to be replaced.
            job = msgspec.structs.replace(job, lost_before_ns=self._now)
            self.journal.begin(job)
        return job, True

    def _agree_on_key(self) -> bytes:
        """Return the key of names, that of the job if a name of it depends on one; else record it.

        Raises JournalError.
        """
        if not self._config.slice:  # whose items have their names
            check_key(key_path(self.home), read_key(self.home), self.job.key, self._has_keyed)
        key = name_key(self.home)
        if self.job.key != key_digest(key):
            self.job = msgspec.structs.replace(self.job, key=key_digest(key))
            self.journal.begin(self.job)
        return key

    def _has_keyed(self) -> bool:
        return known.has_keyed(self.home) or self.journal.has_keyed()

    def _check_output(self, job: JobSpec, mine: JobSpec) -> JobSpec:
        """Raise ConfigError if ``job`` has another DEST than this run; return it with that of this one."""
        root = self._config.journal_root
        if not leads_to(job.output, mine.output):
            raise ConfigError(
                f"{root} has the journal of {job.output or root}; give that as -o, or another --journal, "
                f"or --restart to forget that job (its files stay){moved(job.output, mine.output)}"
            )
        known = msgspec.structs.replace(job, output=mine.output, began_ns=job.began_ns or mine.began_ns)
        if known != job:
            self.journal.begin(known)
        return known

    def _check_kept(self, job: JobSpec, mine: JobSpec) -> JobSpec:
        """Raise ConfigError if ``job`` keeps other columns than this run; return it with these."""
        if job.kept == mine.kept or not mine.kept:
            return job
        if not job.kept:
            job = msgspec.structs.replace(job, kept=mine.kept)
            self.journal.begin(job)
            return job
        try:
            columns = ",".join(msgspec.json.decode(job.kept, type=list[str]))
        except UNDECODABLE as error:
            raise self.journal.damaged(error) from error
        begun = f"--keep-columns {columns}" if columns else "no --keep-columns"
        raise ConfigError(f"{self._config.output} was begun with {begun}; give the same, or --restart")

    def _kept_columns(self) -> str:
        """Return ``JobSpec.kept``. Of files, only a manifest has columns."""
        config = self._config
        if config.slice or not (self._has_shards or config.recording):
            return ""
        options = {option.name for option in config.source_kind.options}
        kept = str(config.source_option("keep_columns")) if "keep_columns" in options else ""
        return msgspec.json.encode([name for name in kept.split(",") if name]).decode()

    def config_of_job(self) -> Config:
        """Return the Config of this run, with what was settled when the job began."""
        types = self._config.column_types if self._config.slice else self.job.types
        return self._config.replace(colon=self.job.colon, naming=self.job.naming, column_types=types)

    def settle_types(self, types: str) -> None:
        """Record the types of the kept columns, which are those of all further runs of this job."""
        if types != self.job.types:
            self.job = msgspec.structs.replace(self.job, types=types)
            self.journal.begin(self.job)

    def _settled(self, job: JobSpec) -> JobSpec:
        """Return ``job``, which begins, with what depends on the file system and is never changed."""
        if self._config.slice:
            return job  # its items have their names
        return msgspec.structs.replace(job, colon=colon_of(self._config), naming=self._config.naming)

    def _foreign_before(self) -> int:
        if self._config.slice:
            return self._config.slice.shared_since_ns
        return 0 if _is_empty(self._config.local_output) else self._now

    def _shown_output(self) -> str:
        """Return DEST where the journal is elsewhere, "" if it is in DEST."""
        if self._config.is_bucket:
            return self._config.output
        return os.path.realpath(self._config.output) if self._apart else ""

    @property
    def _now(self) -> int:
        """Time when the lock was written, by the destination's own clock, which also stamps files."""
        if not self._apart:
            return os.fstat(self.lock_fd).st_ctime_ns
        return clock_of(self._config.local_output)


def ledgers(home: Directory) -> list[Entry]:
    """Return the ledgers that workers have left."""
    return home.entries("ledger-[0-9]+")


def collect_ledgers(home: Directory, journal: Journal, verify: Verify, undo: Undo | None) -> None:
    """Move the ledgers that the workers of a killed run have left into the journal."""
    for path in ledgers(home):
        _keep(journal, read_merged(path), verify, undo)
        path.unlink()


_Left = dict[int, tuple[bytes, list[int]]]
"""What workers have left, by batch: the packed item states, and the items that were in flight."""


def _keep(journal: Journal, left: _Left, verify: Verify, undo: Undo | None) -> None:
    """See ``Journal.keep_marks``; ``undo``: what items were about to do, before it is looked at."""
    if undo is not None:
        _take_back(journal, left, undo)
    journal.keep_marks({seq: packed for seq, (packed, _) in left.items()}, verify)


def _take_back(journal: Journal, left: _Left, undo: Undo) -> None:
    for seq, (packed, in_flight) in left.items():
        unfinished = {index: (-1, 0) for index in in_flight}
        for mark in core_marks.written(packed):
            if not mark.published:
                unfinished[mark.index] = mark.size, mark.crc
        names = journal.names(seq) if unfinished else []
        for index, content in unfinished.items():
            if index < len(names):
                undo(Written(seq, index, names[index], *content))


def temporary_prefix(home: Directory) -> str:
    """Return ``core.ownership.Rules.temporary`` of a job whose journal is not in the destination."""
    return f"{hashlib.blake2b(name_key(home), digest_size=6).hexdigest()}-"


def foreign_before(output: str) -> int:
    """Return ``core.ownership.Rules.foreign_before_ns`` of a job that begins now."""
    return 0 if _is_empty(output) else clock_of(output)


def _is_empty(output: str) -> bool:
    with os.scandir(output) as entries:
        return all(entry.name == HOME for entry in entries)


def check_mounted(output: str, began_ns: int) -> None:
    """Raise DestinationError if DEST is empty, and another directory than that of a job which stored files.

    It is if it was last changed before the job began, at ``began_ns`` (0: that is not known): say, the
    place of a mount, whose disk is not mounted. One that was emptied, copied, moved, or made anew has
    changed since, whatever device and inode it has.
    """
    try:
        found = os.stat(output)
        if not began_ns or found.st_ctime_ns >= began_ns or not _is_empty(output):
            return
    except OSError:
        return  # who opens it says why
    raise DestinationError(
        f"{output} is empty, and has been since before this job began, so its files are elsewhere: mount "
        "what they are on, or put it back, then run the same command again (if they are lost, run "
        f"`{shlex.join(['touch', output])}` first)"
    )


def clock_of(output: str) -> int:
    """Return the time in ns by the clock of the file system, which stamps files."""
    with tempfile.TemporaryFile(dir=output) as stamped:
        return os.fstat(stamped.fileno()).st_ctime_ns


def _is_apart(config: OutputOptions) -> bool:
    """Return whether the journal is in another directory than the destination."""
    return os.path.realpath(config.journal_root) != os.path.realpath(config.local_output)


def leads_to(recorded: str, output: str) -> bool:
    """Return whether ``recorded``, the DEST that a journal elsewhere has, is ``output``.

    Whoever moves DEST may leave a link to it where it was.
    """
    if recorded == output or not recorded or is_bucket(recorded) or is_bucket(output):
        return is_same_place(recorded, output)
    return os.path.realpath(recorded) == os.path.realpath(output)


def moved(recorded: str, output: str) -> str:
    """Return what to do if ``recorded``, see ``leads_to``, was moved to ``output``; "" if it is there."""
    if not recorded or not output or is_bucket(recorded) or is_bucket(output) or os.path.lexists(recorded):
        return ""
    link = shlex.join(["ln", "-s", os.path.realpath(output), recorded])
    return f"; nothing is there: if it was moved, run `{link}`, then the same command again"


def make_directory(option: str, root: Path) -> None:
    """Create the directory ``root``, that ``option`` names, and check that it can be written."""
    with _made(option, root, root):
        root.mkdir(parents=True, exist_ok=True)
        _check_writable(root)


def make_home(option: str, root: str) -> Directory:
    """Create the home of the tool's own files in ``root``, that ``option`` names; return it, opened.

    Raises ConfigError if it cannot be written or is not to be trusted, DestinationError.
    """
    path = home_of(root)
    with _made(option, Path(root), path):
        home = open_home(path, create=True)
        try:
            _check_writable(path)
        except BaseException:
            home.close()
            raise
        return home


def _check_writable(directory: Path) -> None:
    with tempfile.TemporaryFile(dir=directory) as probe:
        probe.write(b"downloader\n")
        probe.flush()


@contextlib.contextmanager
def _made(option: str, root: Path, directory: Path) -> Iterator[None]:
    """Raise what says why ``directory`` of ``root``, which ``option`` names, cannot be made or written.

    What was made of its path is then removed again.
    """
    missing = [path for path in (directory, *directory.parents) if not os.path.lexists(path)]
    try:
        yield
    except BaseException as error:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError):
            raise _unfit(option, root, directory, error, new=bool(missing)) from error
        raise


def _unfit(
    option: str, root: Path, directory: Path, error: OSError, *, new: bool
) -> ConfigError | DestinationError:
    """Return the error to raise for ``error``; ``new``: something of the path had to be made."""
    named = f"{option} {root}"
    at = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
    if at.is_symlink() and not at.exists():
        loop = _errno_of(at) == errno.ELOOP
        why = "itself" if loop else f"{os.readlink(at)}, which is not there"
        return ConfigError(
            f"{named}: {at} is a symbolic link to {why}; mend it, or choose another directory"
        )
    if not at.is_dir():
        return ConfigError(f"{named}: {at} is a file, not a directory; choose another one")
    if error.errno == errno.ENAMETOOLONG:
        return ConfigError(
            f"{option} {shown(str(root))}: longer than the file system takes; choose a shorter path"
        )
    if error.errno == errno.ENOENT and new:
        return ConfigError(f"{named}: no directory can be made in {at}; choose another directory")
    if isinstance(error, PermissionError):
        return ConfigError(f"{named}: {error.strerror}; choose a directory you may write to")
    if error.errno == errno.EROFS:
        return ConfigError(f"{named}: {error.strerror}; choose another directory")
    return DestinationError(f"{named}: {advice(error)}")


def _errno_of(path: Path) -> int:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno or 0
    return 0


def begun_here(home: Directory) -> bool:
    """Return whether ``home`` has the journal of a job that has listed something. Raises JournalError."""
    if not (home / JOURNAL).exists():
        return False
    with contextlib.closing(Journal(home)) as journal:
        return journal.position()[2] > 0


def forget(home: Directory) -> None:
    """Remove the state of an earlier job, synced so that a power cut does not bring it back.

    Also that of a job over many machines: `status` and `verify` would look at that.
    """
    (home / PLAN).remove_tree()
    for entry in home.entries("(journal.sqlite|ledger-|known.sqlite|names.sqlite|records-).*"):
        entry.remove_tree()  # whatever it is
    forget_shards(home)
    home.sync()
