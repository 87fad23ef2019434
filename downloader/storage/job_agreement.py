"""Have a run and the job of its journal agree: source, DEST, store, columns, duplicates, key of names."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from downloader.config.config import Config
from downloader.errors import UNDECODABLE, ConfigError
from downloader.files.directory import Directory
from downloader.sinks.registry import sink_kind
from downloader.sources.registry import source_kind
from downloader.storage import known_names as known
from downloader.storage import known_records
from downloader.storage.journal import JobSpec, Journal
from downloader.storage.name_key import check_key, key_digest, key_path, name_key, read_key
from downloader.storage.name_probes import colon_of
from downloader.storage.places import is_apart, is_empty, leads_to, moved, shown_output

__all__ = ["JobAgreement", "duplicates_of", "has_shards"]


def has_shards(config: Config) -> bool:
    """Return whether the items of a run are stored in shards, so that no file has the name of one."""
    return config.sink_kind.shard_items(config) > 0


def duplicates_of(config: Config) -> str:
    """Return ``JobSpec.duplicates`` of a run. Of a slice, those are marked already."""
    if config.slice or all(option.name != "on_duplicate" for option in config.source_kind.options):
        return ""
    return str(config.source_option("on_duplicate"))


class JobAgreement:
    """What a run of ``config`` and the job of ``journal`` must agree about.

    ``now``: the time by the clock of DEST. ``began``: ``JobSpec.began_ns`` of a job that begins.
    ``check_begin``: raises ConfigError if DEST has what a job that begins must not replace.
    """

    def __init__(
        self,
        config: Config,
        home: Directory,
        journal: Journal,
        now: Callable[[], int],
        began: Callable[[], int],
        check_begin: Callable[[], None],
    ) -> None:
        self._config = config
        self._home = home
        self._journal = journal
        self._now = now
        self._began = began
        self._check_begin = check_begin
        self._apart = is_apart(config)

    def agree(self, *, cut_off: bool) -> tuple[JobSpec, bool]:
        """Return the job of the journal, which must match, and whether it is resumed.

        ``cut_off``: the machine went down while a run was active.

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
            output=shown_output(config),
            kept=self._kept_columns(),
            began_ns=self._began(),
            duplicates=duplicates_of(config),
        )
        job = self._journal.job()
        if job is None:
            self._check_begin()
            known_records.forget(self._home)
            mine = self._settled(mine)
            self._journal.begin(mine)
            return mine, False
        same = job.kind == mine.kind and identity.owns(job.source)
        # Killed when it had just begun to read its source again, the job still has what it has stored.
        read_again = same and known.exists(self._home)
        if not (self._journal.position().listed or read_again):
            # Nothing was listed: the journal belongs to no source yet, and all files existed before. Or a
            # power cut lost what was listed.
            if cut_off:
                before = job.foreign_before_ns
                mine = msgspec.structs.replace(mine, foreign_before_ns=before, lost_before_ns=self._now())
            else:
                self._check_begin()
            if not same:
                known_records.forget(self._home)
                known.remove(self._home)
            mine = self._settled(mine)
            self._journal.begin(mine, anew=True)
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
                begun, now = (
                    f"--store {each.store} {sink_kind(each.store).describe(each.layout)}"
                    for each in (job, mine)
                )
            except UNDECODABLE as error:
                raise self._journal.damaged(error) from error
            raise ConfigError(
                f"{config.output} was begun with {begun}, and this command has {now}; "
                "give the same, or --restart"
            )
        job = self._check_duplicates(self._check_kept(job, mine), mine)
        if job.source != mine.source:
            job = msgspec.structs.replace(job, source=mine.source)
            self._journal.begin(job)
        if cut_off or self._journal.unsynced:
            # Files that are not in the journal may be damaged, and are to be replaced.
            job = msgspec.structs.replace(job, lost_before_ns=self._now())
            self._journal.begin(job)
        return job, True

    def agree_on_key(self, job: JobSpec) -> tuple[JobSpec, bytes]:
        """Return ``job`` with the digest of the key of names, and the key: that on which its names depend.

        Where no name depends on one, the key is recorded. Raises JournalError.
        """
        if not self._config.slice:  # whose items have their names
            check_key(key_path(self._home), read_key(self._home), job.key, self._has_keyed)
        key = name_key(self._home)
        if job.key != key_digest(key):
            job = msgspec.structs.replace(job, key=key_digest(key))
            self._journal.begin(job)
        return job, key

    def _has_keyed(self) -> bool:
        return known.has_keyed(self._home) or self._journal.has_keyed()

    def _check_output(self, job: JobSpec, mine: JobSpec) -> JobSpec:
        """Raise ConfigError if ``job`` has another DEST than this run; return it with that of this one."""
        root = self._config.journal_root
        if not leads_to(job.output, mine.output):
            raise ConfigError(
                f"{root} has the journal of {job.output or root}; give that as -o, or another --journal, "
                f"or --restart to forget that job (its files stay){moved(job.output, mine.output)}"
            )
        began_ns = job.began_ns
        if not began_ns and not is_empty(self._config.local_output):
            # Of an earlier version, which did not record it. That of a DEST which is empty stays unknown:
            # it was perhaps emptied before this run, and is the right one.
            began_ns = mine.began_ns
        known = msgspec.structs.replace(job, output=mine.output, began_ns=began_ns)
        if known != job:
            self._journal.begin(known)
        return known

    def _check_kept(self, job: JobSpec, mine: JobSpec) -> JobSpec:
        """Raise ConfigError if ``job`` keeps other columns than this run; return it with these."""
        if not job.kept:
            job = msgspec.structs.replace(job, kept=mine.kept)
            if mine.kept:
                self._journal.begin(job)
            return job
        if self._columns(job) == self._named_columns or not (mine.kept or self._named_columns):
            return job
        columns = ",".join(self._columns(job))
        begun = f"--keep-columns {columns}" if columns else "no --keep-columns"
        raise ConfigError(f"{self._config.output} was begun with {begun}; give the same, or --restart")

    def _check_duplicates(self, job: JobSpec, mine: JobSpec) -> JobSpec:
        """Raise ConfigError if ``job`` has another --on-duplicate than this run; return it with this one.

        With --relist it is recorded when the former items are forgotten.
        """
        if job.duplicates == mine.duplicates or self._config.relist:
            return job
        if job.duplicates and self._journal.position().listed:
            raise ConfigError(
                f"{self._config.output} was begun with --on-duplicate {job.duplicates}; give the same, or "
                "--relist to read the list from its start (not with shards), or --restart"
            )
        job = msgspec.structs.replace(job, duplicates=mine.duplicates)
        self._journal.begin(job)
        return job

    def _columns(self, job: JobSpec) -> list[str]:
        """Return the columns that ``job`` keeps. Raises JournalError."""
        try:
            return msgspec.json.decode(job.kept, type=list[str]) if job.kept else []
        except UNDECODABLE as error:
            raise self._journal.damaged(error) from error

    def _kept_columns(self) -> str:
        """Return ``JobSpec.kept``. Of files, only a manifest has columns."""
        if self._config.slice or not (has_shards(self._config) or self._config.recording):
            return ""
        return msgspec.json.encode(self._named_columns).decode()

    @property
    def _named_columns(self) -> list[str]:
        """The columns that --keep-columns names."""
        config = self._config
        if config.slice or all(option.name != "keep_columns" for option in config.source_kind.options):
            return []
        return [name for name in str(config.source_option("keep_columns")).split(",") if name]

    def _settled(self, job: JobSpec) -> JobSpec:
        """Return ``job``, which begins, with what depends on the file system and is never changed."""
        if self._config.slice:
            return job  # its items have their names
        return msgspec.structs.replace(job, colon=colon_of(self._config), naming=self._config.naming)

    def _foreign_before(self) -> int:
        if self._config.slice:
            return self._config.slice.shared_since_ns
        return 0 if is_empty(self._config.local_output) else self._now()
