"""Keep the plan of a job on storage that all nodes see: its slices, and the records of those that are done.

::

    JOURNAL/.downloader/cluster/      a directory, or s3://BUCKET/PREFIX
        plan.json           what the job is; another job is refused
        slices/NAME.items   the items of a slice (sources.slice_file); in a bucket NAME.WRITER.items
        slices/NAME.json    its Slice, created after the items: the slice is there when this is
        failures/NAME.ATTEMPT.jsonl   what failed, of one attempt
        manifest/NAME.ATTEMPT.rows    rows of --manifest, of one attempt (reporting.manifest_rows)
        stored/NAME.ATTEMPT.stored    what is stored, of one attempt (plan.stored)
        done/NAME.json      its SliceRecord, created if absent and last: the first attempt wins

Names: ``00000000``, … in the order of the source; ``r00000000``, … for slices of items that failed before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from downloader.cluster.plan.plan_files import DirectoryFiles, PlanFiles, Writer
from downloader.config.config import Config
from downloader.config.options import OutputOptions
from downloader.core.bucket_access import NO_OPTIONS, BucketAccess
from downloader.core.bucket_place import is_bucket
from downloader.core.column_types import ColumnTypes
from downloader.core.frames import MAX_FRAME
from downloader.core.item_states import OWNED, UNOWNED, Claim
from downloader.core.naming import COLON, is_keyed
from downloader.core.slices import plan_digest
from downloader.errors import UNDECODABLE, ConfigError, JournalError
from downloader.files.directory import HOME, Entry
from downloader.messages import Failure, Item
from downloader.reporting.manifest_rows import RowsMade
from downloader.reporting.record import Report
from downloader.sinks.shards.staging import StagedShard
from downloader.sinks.shards.stats import IS_OURS
from downloader.sources.registry import source_kind
from downloader.sources.slice_file import read_items
from downloader.storage.homes import PLAN
from downloader.storage.name_key import KEY_NAME, wrong_key

__all__ = ["FailedItem", "Plan", "PlanDirectory", "Slice", "SliceRecord", "digest_of"]

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}").fullmatch
_LONGEST_LINE = MAX_FRAME  # bytes
_KEPT = ("failures", "manifest", "stored")


class FailedItem(msgspec.Struct, frozen=True):
    """A line about an item that failed: its number in the slice, and what is in a ``Failure``.

    ``file``: of a damaged one, which file has its name, and whether it was kept, since it was ``foreign``;
    see ``core.item_states``.
    """

    item: int
    name: str
    url: str
    code: str
    detail: str
    attempts: int
    file: int = 0
    foreign: bool = False

    @property
    def failure(self) -> Failure:
        """What failed, for a report."""
        return Failure(self.item, self.name, self.url, self.code, self.detail, self.attempts)

    @property
    def claim(self) -> Claim:
        """The claim of a damaged one on that file."""
        return Claim(UNOWNED if self.foreign else OWNED, self.file)


class Plan(msgspec.Struct, frozen=True):
    """What a job is. ``shared_since_ns``: see ``core.ownership.Rules.foreign_before_ns``.

    ``began_ns``, ``key``: see ``storage.records.JobSpec``.

    ``identity``: see ``config.sink_kinds.SinkForm``. ``id`` is that of this plan: after --restart the
    journals on the disks of nodes belong to another. ``colon``, ``naming``: see
    ``storage.records.JobSpec``.
    """

    digest: str
    source: str
    output: str
    slice_files: int
    shared_since_ns: int
    version: int = 1
    store: str = "files"
    identity: str = "flat"
    id: str = ""
    colon: str = COLON
    naming: int = 1
    began_ns: int = 0
    key: str = ""


class Slice(msgspec.Struct, frozen=True):
    """A slice. ``retries``: the slices whose failed items it has, for one of those; stored as ``covers``.

    Of a slice of the source: ``cursor``, ``listed`` and ``seq`` are the position behind it (see
    ``messages.Continue``); ``ended``: the source ends there, or ``limited``: --limit does. Its batches are
    ``first`` to ``seq`` - 1, and so are its shards, if there are any; of another slice these are numbers
    that only its shards may have. ``items``: the name of its slice file. ``types``: those of the kept
    columns of the job (``core.column_types``), "" in a plan of an earlier version.
    """

    name: str
    count: int
    retries: tuple[str, ...] = msgspec.field(default=(), name="covers")
    cursor: bytes = b""
    listed: int = 0
    seq: int = 0
    ended: bool = False
    limited: bool = False
    first: int = 0
    items: str = ""
    types: str = ""


class SliceRecord(msgspec.Struct, frozen=True):
    """The record of a slice that is done. ``failures``: file with what failed, "" if nothing has.

    ``latency``: the counts of a ``core.latency.Histogram``. ``shards``, and where they were published:
    see ``plan.staging``. ``manifest``: file with its rows, "" if it ran without --manifest; ``rows``: how
    many there are. ``stored``: file with what is stored, "" in a plan of an earlier version.
    ``disk``: the mark of the disk that has the files, with --store local.
    """

    name: str
    attempt: str
    node: str
    report: Report
    latency: dict[int, int]
    failures: str = ""
    staging: str = ""
    shards: list[StagedShard] = []
    manifest: str = ""
    rows: RowsMade = RowsMade()
    stored: str = ""
    disk: str = ""


def digest_of(config: Config) -> str:
    """Return the digest of the source and of the options that decide what is stored, and where."""
    identity = source_kind(config).identity(config)
    source = ""
    if identity.older is None and config.source != "-":
        # The kind alone identifies it: all lists are one to a journal, which knows their contents.
        source = config.source if "://" in config.source else os.path.abspath(config.source)
    return plan_digest(
        {
            "kind": config.kind,
            "identity": identity.digest,
            "source": os.fsencode(source).hex(),
            "source_options": config.source_options,
            "output": os.fsencode(_real(config)).hex(),
            "store": config.store,
            "store_options": config.store_options,
            "layout": config.layout,
            "limit": config.limit,
            "slice_files": config.slice_files,
        }
    )


def _real(config: OutputOptions) -> str:
    if config.is_bucket:
        return config.output.rstrip("/")
    # A path on the disks of nodes says nothing here.
    return config.output if config.store == "local" else os.path.realpath(config.output)


class PlanDirectory:
    """The plan under ``journal_root``, a directory or s3://BUCKET/PREFIX.

    Methods raise DestinationError if the storage fails. ``access``: to a bucket.
    """

    def __init__(self, journal_root: str, access: BucketAccess = NO_OPTIONS) -> None:
        self.root = f"{journal_root.rstrip('/')}/{HOME}/{PLAN}"
        self.files = _open_files(self.root, access)
        self._writer = f".{os.urandom(4).hex()}" if self.files.contended else ""

    def open(self, plan: Plan, *, restart: bool) -> Plan:
        """Return the plan that is there, or begin ``plan``. The caller holds the lock.

        Raises ConfigError if the plan of another job is there.
        """
        if restart:
            self.files.clear()
        found = self.read()
        if found is None:
            self.files.write("plan.json", msgspec.json.encode(plan))
            return plan
        if found.digest != plan.digest:
            raise ConfigError(
                f"{self.root} has the plan of another job: {found.source} → {found.output}, "
                f"--slice-files {found.slice_files}; give the same source and options, another --journal, "
                "or --restart to forget that job (its files stay)"
            )
        if plan.key and found.key != plan.key:
            self.check_key(found, plan.key)
            found = msgspec.structs.replace(found, key=plan.key)
            self.files.write("plan.json", msgspec.json.encode(found))
        return found

    def check_key(self, plan: Plan, digest: str) -> None:
        """Raise JournalError if the key of names that has this digest is not that of ``plan``.

        Unless no name depends on it. Also raises SourceError.
        """
        if plan.key in ("", digest):
            return
        if any(
            is_keyed(item.name) for slice_ in self.slices() for page in self.items(slice_) for item in page
        ):
            raise wrong_key(f"{self.root.rpartition('/')[0]}/{KEY_NAME}")

    def read(self) -> Plan | None:
        """Return the plan, None if there is none. Raises JournalError if it is damaged."""
        return self._read("plan.json", Plan)

    def items_writer(self, name: str) -> Writer:
        """Return the writer of the slice file ``name``."""
        return self.files.writer(self._items(name))

    def _items(self, name: str) -> str:
        return f"slices/{name}{self._writer}.items"

    def add(self, slice_: Slice) -> Slice | None:
        """Record a slice whose file this object has written; return None if another driver has."""
        slice_ = msgspec.structs.replace(slice_, items=self._items(slice_.name))
        return (
            slice_ if self.files.create(f"slices/{slice_.name}.json", msgspec.json.encode(slice_)) else None
        )

    def items(self, slice_: Slice) -> Iterator[list[Item]]:
        """Yield the items of a slice, some at a time. Raises SourceError."""
        with self.files.open(slice_.items) as file:
            yield from read_items(f"{self.root}/{slice_.items}", file)

    def slices(self) -> list[Slice]:
        """Return all slices, those of the source first, in order."""
        return [self._decoded(*found, Slice) for found in self.files.read_all("slices", ".json")]

    def slice(self, name: str) -> Slice | None:
        """Return one slice, None if it is not there."""
        return self._read(f"slices/{name}.json", Slice)

    def records(self) -> Iterator[SliceRecord]:
        """Yield the records of all slices that are done, in order of their names."""
        for found in self.files.read_all("done", ".json"):
            yield self._decoded(*found, SliceRecord)

    def count_stored(self) -> int:
        """Return how many files the slices have that are done."""
        return sum(done.report.stored + done.report.skipped for done in self.records())

    def done(self, name: str) -> SliceRecord | None:
        """Return the record of a slice, None if it is not done."""
        return self._read(f"done/{name}.json", SliceRecord)

    def publish(self, record: SliceRecord) -> bool:
        """Create the record of a slice; return False if another attempt was first."""
        return self.files.create(f"done/{record.name}.json", msgspec.json.encode(record))

    def keep(self, kind: str, name: str, attempt: str, path: Entry) -> str:
        """Copy a local file of ``attempt`` at a slice to the plan; return its name there.

        ``kind``: failures (jsonl), manifest (rows) or stored.
        """
        kept = f"{name}.{attempt}{os.path.splitext(path.leaf)[1]}"
        writer = self.files.writer(f"{kind}/{kept}")
        try:
            with path.reader() as file:
                while piece := file.read(1 << 20):
                    writer.file.write(piece)
            writer.publish()
        except BaseException:
            writer.abort()
            raise
        return kept

    def sweep(self, done: SliceRecord) -> None:
        """Remove what other attempts at a slice left behind."""
        kept = {f"{kind}/{getattr(done, kind)}" for kind in _KEPT}
        for kind in _KEPT:
            for name in self.files.names(f"{kind}/{done.name}."):
                if name not in kept:
                    self.files.remove(name)

    def discard(self, record: SliceRecord) -> None:
        """Remove what an attempt has kept that is not the one which counts."""
        for kind in _KEPT:
            if kept := getattr(record, kind):
                self.files.remove(f"{kind}/{kept}")

    def amend(self, done: SliceRecord, failures: bytes) -> None:
        """Replace the record of a slice that is done, and what failed of it. The caller owns the plan."""
        name = f"{done.name}.{os.urandom(6).hex()}.jsonl"
        self.files.write(f"failures/{name}", failures)
        done = msgspec.structs.replace(done, failures=name)
        self.files.write(f"done/{done.name}.json", msgspec.json.encode(done))
        self.sweep(done)

    def failed_lines(self, done: SliceRecord) -> Iterator[bytes]:
        """Yield the lines of what failed of a slice: JSON, with ``item``, its number in the slice."""
        if done.failures:
            name = f"failures/{done.failures}"
            with self.files.open(name) as file:
                while line := file.readline(_LONGEST_LINE):
                    if len(line) == _LONGEST_LINE:
                        raise self._damaged(name, "it has a line that is too long")
                    yield line

    def failed(self, done: SliceRecord) -> Iterator[FailedItem]:
        """Yield what failed of a slice. Raises JournalError if a line of it is damaged."""
        for line in self.failed_lines(done):
            try:
                yield msgspec.json.decode(line, type=FailedItem)
            except UNDECODABLE as error:
                raise self._damaged(f"failures/{done.failures}", error) from error

    def _read(self, name: str, kind: type[T]) -> T | None:
        content = self.files.read(name)
        return None if content is None else self._decoded(name, content, kind)

    def _decoded(self, name: str, content: bytes, kind: type[T]) -> T:
        try:
            found = msgspec.json.decode(content, type=kind)
            _check_names(found)
        except UNDECODABLE as error:
            raise self._damaged(name, error) from error
        return found

    def _damaged(self, name: str, what: object) -> JournalError:
        return JournalError(f"{self.root}/{name} is damaged ({what}); --restart begins anew")


def _check_names(found: object) -> None:
    """Raise ValueError if a name or a type in a record of the plan is not one that this program gives."""
    names: list[str] = []
    shards: list[str] = []
    if isinstance(found, Plan):
        names = [found.id]
    elif isinstance(found, Slice):
        names = [found.name, *found.retries, *found.items.split("/")]
        ColumnTypes.decode(found.types)
    elif isinstance(found, SliceRecord):
        names = [found.name, found.failures, found.staging, found.manifest, found.stored, found.disk]
        shards = [file.name for shard in found.shards for file in shard.in_order()]
    for name in names:
        if name and not _NAME(name):
            raise ValueError(f"{name[:100]!r} is not a name in a plan")
    for name in shards:
        if not IS_OURS(name):
            raise ValueError(f"{name[:100]!r} is not the name of a shard")


def _open_files(root: str, access: BucketAccess = NO_OPTIONS) -> PlanFiles:
    """Return the files under ``root``, a directory or s3://BUCKET/PREFIX. Raises DestinationError."""
    if is_bucket(root):
        from downloader.cluster.plan.bucket_files import BucketFiles

        return BucketFiles(root, access)
    return DirectoryFiles(root)
