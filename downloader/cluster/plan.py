"""Keep the plan of a job on storage that all nodes see: its slices, and the records of those that are done.

::

    JOURNAL/.downloader/cluster/
        plan.json           what the job is; another job is refused
        slices/NAME.items   the items of a slice (sources.slice_file)
        slices/NAME.json    its Head, written after the items: the slice is there when this is
        failures/NAME.ATTEMPT.jsonl   what failed, of one attempt
        done/NAME.json      its Done, created if absent and last: the first attempt wins

Names: ``00000000``, … in the order of the source; ``r00000000``, … for slices of items that failed before.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from downloader.config.config import Config
from downloader.core.slices import plan_digest
from downloader.errors import ConfigError, DestinationError, JournalError
from downloader.reporting.record import Report
from downloader.sinks.rename import rename_new
from downloader.sinks.shards.staging import StagedShard
from downloader.sources.registry import source_kind
from downloader.storage.destination import home_of

__all__ = ["Done", "Head", "Plan", "PlanDirectory", "digest_of"]

T = TypeVar("T")
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Plan(msgspec.Struct, frozen=True):
    """What a job is. ``shared_since_ns``: see ``core.ownership.Rules.foreign_before_ns``.

    ``id`` is that of this plan: after --restart the journals on the disks of nodes belong to another.
    """

    digest: str
    source: str
    output: str
    slice_files: int
    shared_since_ns: int
    version: int = 1
    store: str = "files"
    id: str = ""


class Head(msgspec.Struct, frozen=True):
    """A slice. ``covers``: the slices whose failed items it has, for one of those.

    Of a slice of the source: ``cursor``, ``listed`` and ``seq`` are the position behind it (see
    ``messages.Continue``); ``ended``: the source ends there, or ``limited``: --limit does. Its batches are
    ``first`` to ``seq`` - 1, and so are its shards, if there are any; of another slice these are numbers
    that only its shards may have.
    """

    name: str
    count: int
    covers: tuple[str, ...] = ()
    cursor: bytes = b""
    listed: int = 0
    seq: int = 0
    ended: bool = False
    limited: bool = False
    first: int = 0


class Done(msgspec.Struct, frozen=True):
    """The record of a slice that is done. ``failures``: file with what failed, "" if nothing has.

    ``latency``: the counts of a ``core.latency.Histogram``. ``shards``, and where they were published:
    see ``cluster.shards``.
    """

    name: str
    attempt: str
    node: str
    report: Report
    latency: dict[int, int]
    failures: str = ""
    staging: str = ""
    shards: list[StagedShard] = []


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


def _real(config: Config) -> str:
    return config.output.rstrip("/") if config.is_bucket else os.path.realpath(config.output)


class PlanDirectory:
    """The directory of a plan. Methods raise DestinationError if the storage fails."""

    def __init__(self, journal_root: str) -> None:
        self.root = home_of(journal_root) / "cluster"

    def open(self, plan: Plan, *, restart: bool) -> Plan:
        """Return the plan that is there, or begin ``plan``. The caller holds the lock.

        Raises ConfigError if the plan of another job is there.
        """
        try:
            if restart and self.root.exists():
                shutil.rmtree(self.root)
            for name in ("slices", "done", "failures"):
                (self.root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.read()
            if found is None:
                self._write(self.root / "plan.json", msgspec.json.encode(plan))
                return plan
        except OSError as error:
            raise self._failed(error) from error
        if found.digest != plan.digest:
            raise ConfigError(
                f"{self.root} has the plan of another job: {found.source} → {found.output}, "
                f"--slice-files {found.slice_files}; give the same source and options, another --journal, "
                "or --restart to forget that job (its files stay)"
            )
        return found

    def read(self) -> Plan | None:
        """Return the plan, None if there is none. Raises JournalError if it is damaged."""
        return self._read(self.root / "plan.json", Plan)

    def items(self, name: str) -> Path:
        """Return the path of the slice file ``name``."""
        return self.root / "slices" / f"{name}.items"

    def failures(self, name: str, attempt: str) -> Path:
        """Return the path for what failed of ``name`` in ``attempt``."""
        return self.root / "failures" / f"{name}.{attempt}.jsonl"

    def add(self, head: Head) -> None:
        """Record a slice whose file is there."""
        try:
            self._write(self.root / "slices" / f"{head.name}.json", msgspec.json.encode(head))
        except OSError as error:
            raise self._failed(error) from error

    def heads(self) -> list[Head]:
        """Return all slices, those of the source first, in order."""
        names = sorted(path.stem for path in (self.root / "slices").glob("*.json") if path.name[0] != ".")
        return [head for name in names if (head := self.head(name)) is not None]

    def head(self, name: str) -> Head | None:
        """Return one slice, None if it is not there."""
        return self._read(self.root / "slices" / f"{name}.json", Head)

    def done(self, name: str) -> Done | None:
        """Return the record of a slice, None if it is not done."""
        return self._read(self.root / "done" / f"{name}.json", Done)

    def publish(self, record: Done) -> bool:
        """Create the record of a slice; return False if another attempt was first."""
        target = self.root / "done" / f"{record.name}.json"
        temporary = target.with_name(f".{record.name}.{record.attempt}")
        try:
            try:
                self._write(temporary, msgspec.json.encode(record))
                _link_new(temporary, target)
                return True
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error

    def sweep(self, done: Done) -> None:
        """Remove what other attempts at a slice left behind."""
        for path in (self.root / "failures").glob(f"{done.name}.*"):
            if path.name != done.failures:
                path.unlink(missing_ok=True)

    def failed_lines(self, done: Done) -> Iterator[bytes]:
        """Yield the lines of what failed of a slice: JSON, with ``item``, its number in the slice."""
        if done.failures:
            try:
                with open(self.root / "failures" / done.failures, "rb") as lines:
                    yield from lines
            except OSError as error:
                raise self._failed(error) from error

    def _read(self, path: Path, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(error) from error
        except msgspec.DecodeError as error:
            raise JournalError(f"{path} is damaged ({error}); --restart begins anew") from error

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def _failed(self, error: OSError) -> DestinationError:
        return DestinationError(
            f"{error.filename or self.root}: {error.strerror}; look after that storage, then run the same "
            "command again"
        )


def _link_new(temporary: Path, target: Path) -> None:
    """Give the file its name, which it must not have yet. Raises FileExistsError."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            rename_new(temporary.name, target.name, directory)
        finally:
            os.close(directory)
