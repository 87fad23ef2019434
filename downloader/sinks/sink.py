"""Define the interfaces of sinks, which store files under their names, singly or a batch at a time.

::

    SinkKind.open(config, rules) ──► Sink.begin(lease) ──► BatchWriter ─┬─► put(item, body)
                                                                        ├─► open(item) ──► FileWriter
                                                                        └─► commit, abort
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from downloader.config.config import Config
from downloader.config.sink_kinds import SinkForm
from downloader.core.bucket_access import BucketAccess
from downloader.core.file_records import Record
from downloader.core.item_states import NO_CLAIM, Claim
from downloader.core.ownership import Rules
from downloader.files.directory import Directory
from downloader.messages import Failure, FileRecord, Item, Lease, ResponseInfo

__all__ = [
    "KEPT",
    "NEW",
    "OLD",
    "REPLACED",
    "REWRITTEN",
    "SAME",
    "SUPERSEDED",
    "WRITTEN",
    "BatchContent",
    "BatchWriter",
    "ChecksPublished",
    "Claims",
    "Compares",
    "Comparison",
    "Describe",
    "Describes",
    "FileWriter",
    "Inspect",
    "Locate",
    "Locates",
    "Opens",
    "Prepares",
    "Recovered",
    "Says",
    "Sink",
    "SinkKind",
    "Strays",
    "Suspends",
    "Undo",
    "Undoes",
    "Unprepared",
    "Verify",
    "Written",
]

# What ``FileWriter.publish`` returns.
SAME = 0
"""The name existed already and is unchanged: it has the same bytes."""
NEW = 1
"""The name is new, or has replaced an older file of the same item."""
REPLACED = 2
"""A file that belonged to no item of the job was replaced."""
WRITTEN = 3
"""The file is complete, and is published when its batch is committed."""
KEPT = 4
"""The name existed already and is unchanged, and the file belongs to no item of the job: --existing keep
applies, or it has the same bytes. When it differs later, --existing decides."""
OLD = (SAME, KEPT)
"""Nothing was stored: the item counts as skipped."""


class Written(msgspec.Struct, frozen=True, gc=False):
    """An item that a ledger or the journal has as written: its size in bytes and its CRC-32.

    ``shards``: the shards that items of its batch may be in, see ``messages.Lease``.
    """

    seq: int
    index: int
    name: str
    size: int
    crc: int
    shards: tuple[int, ...] = ()


class Recovered(msgspec.Struct, frozen=True):
    """What an earlier, killed attempt at a batch has left: items that are written, and failures.

    ``written``: size and CRC-32 by index. They are written and not published, like those of this attempt.
    """

    written: dict[int, tuple[int, int]]
    failures: list[Failure]


class BatchContent(msgspec.Struct, frozen=True):
    """The outcome of a batch that is to be published.

    ``records`` are those of the written items, in order, if the sink wants them; ``failures`` are of all
    items that failed; ``marks``: the packed item states (``core.item_states``).
    """

    records: Sequence[FileRecord]
    failures: Sequence[Failure]
    marks: bytes


Verify = Callable[[Written], bool]
"""Returns whether the stored file of an item has that size and CRC-32."""

Inspect = Callable[[Written], str]
"""Returns what is wrong with the stored file of an item ("missing"), "" if nothing is.

Raises DestinationError where that cannot be known, since the disk fails.
"""


class Unprepared(Exception):
    """Publishing takes long, so nothing was done: ``prepare`` has to be called first, in a greenlet."""


class FileWriter(Protocol):
    """One file that is being written. Exactly one of ``publish`` and ``abort`` ends it."""

    size: int
    crc: int

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``. Raises DestinationError if the destination fails."""

    def publish(self) -> int:
        """Publish the file and return NEW, SAME, KEPT or REPLACED.

        Or leave that to the batch and return WRITTEN.

        Afterwards ``size`` and ``crc`` are those of the file that has the name. Raises FetchError
        (``name-taken``, ``file-exists``, ``bad-name``) if the file cannot be published, DestinationError. A
        writer that ``Prepares`` may raise Unprepared: then the file is neither published nor aborted.

        It is called in the hub, so it must not take long.
        """

    def abort(self) -> None:
        """Discard the file and remove all traces of it."""


@runtime_checkable
class Prepares(Protocol):
    """What a ``FileWriter`` may have as well: something to do before ``publish`` that takes long."""

    def prepare(self) -> None:
        """Do what ``publish`` was Unprepared for. Called in a greenlet, where it must let others run.

        ``publish`` is called next, without a switch to another greenlet. Raises FetchError,
        DestinationError, and what is thrown into the greenlet; then ``abort`` is called next.
        """


class BatchWriter(Protocol):
    """The writer of one leased batch. Exactly one of ``commit`` and ``abort`` ends it.

    ``recovered``: what is known of its items; None where ``Sink.verify`` answers for each.
    """

    @property
    def recovered(self) -> Recovered | None:
        """See the class."""

    def put(
        self, item: Item, index: int, body: bytes | bytearray, crc: int, response: ResponseInfo | None
    ) -> int:
        """Publish a whole file under a new name and return NEW, or store it and return WRITTEN.

        Or change nothing and return 0; then the caller uses a FileWriter. What is WRITTEN is safe from a
        kill after ``flush``. ``crc`` is the CRC-32 of ``body``.
        """

    def flush(self) -> None:
        """Write what ``put`` has stored. Raises DestinationError."""

    def open(
        self, item: Item, index: int, claim: Claim = NO_CLAIM, response: ResponseInfo | None = None
    ) -> FileWriter:
        """Begin the file of ``item``, which is item ``index`` of the batch.

        ``claim``: whether an existing file with the name is known to be this item's own, or to belong to no
        item of the job (``core.ownership``). Raises FetchError (``bad-name``), DestinationError.
        """

    def commit(self, content: BatchContent) -> int | None:
        """Publish all written files atomically, even if the process is killed.

        Return how many files that belonged to no item of the job were replaced, if any.

        Called when all items are finished, if one is WRITTEN or the sink has shards; in a greenlet, where
        the sink has shards. Raises DestinationError.
        """

    def abort(self) -> None:
        """End a batch that is not finished. Called in a drain; not called after a kill.

        What is WRITTEN is removed, unless the sink has shards: then ``begin`` finds it again.
        """


@runtime_checkable
class Says(Protocol):
    """What a ``Sink`` may have as well."""

    def say_by(self, say: Callable[[str], None]) -> None:
        """Give ``say`` what the user is to know from now on, a line at a time."""


@runtime_checkable
class Suspends(Protocol):
    """What the ``BatchWriter`` of a sink with shards may have as well: the last samples may take long.

    Without it the batch has a slot in the ledger until it is finished, and there are few of them.
    """

    def suspend(self, lease: Lease) -> None:
        """Go on with ``lease``, the same one with compressed items; hold little memory, and no descriptor.

        Items may still be stored. Raises DestinationError.
        """


@runtime_checkable
class Strays(Protocol):
    """What the ``BatchWriter`` of a sink may have as well, if files may be moved while it stores them.

    Whoever moves a directory away takes with it what is stored there from then on.
    """

    def astray(self) -> Callable[[str], bool] | None:
        """Return a function that says of a name whether its file may be elsewhere; None if none is.

        It is called when all items of the batch are finished, and must not take long. What it returns True
        for is verified, and fetched again.
        """

    def found(self) -> None:
        """Note that what was ``astray`` is being verified, and is not to be told again."""


class Sink(Protocol):
    """The sink of one worker.

    ``wants_records``: pass it the ResponseInfo of each file, and FileRecords at ``commit``. ``shards``:
    each batch is a shard; it is passed the ResponseInfo of each file, and its batches have ``recovered``.
    """

    wants_records: bool
    shards: bool

    def begin(self, lease: Lease) -> BatchWriter:
        """Begin a batch; remove what an earlier, killed attempt at it has left unpublished.

        Files that it published stay: ``verify`` is called for each item that the ledger has as written,
        and those that match are not fetched again.
        """

    def find_existing(self, name: str) -> tuple[int, int] | None:
        """Return size and CRC-32 of a file ``name`` that existed before the job and is kept, else None.

        Called in a greenlet, where it must let others run if it takes long. It may be Unprepared, and is
        then called again when other files were looked for. The CRC-32 may be ``core.checksum.UNREAD``, for
        a large file, of which only the size is compared then. Raises FetchError ``file-exists`` if
        --existing does not allow it, DestinationError.
        """

    def verify(self, written: Written) -> bool:
        """Return whether the published file has that size and CRC-32. Raises DestinationError."""

    def close(self) -> None:
        """Close open descriptors."""


@runtime_checkable
class Claims(Protocol):
    """What a ``Sink`` may have as well, if each item is a file, and several may have one name."""

    def claim(self, written: Written) -> Claim:
        """Return the claim of an item on the file that has its name and is not what was stored of it."""

    def find_unowned(self, name: str, claim: Claim) -> tuple[int, int] | None:
        """Return the same as ``Sink.find_existing``, also of a file that ``claim`` says is UNOWNED."""


class SinkKind(SinkForm, Protocol):
    """A kind of sink. Its module is imported in every process, also in the supervisor, which has no
    gevent."""

    def open(self, config: Config, rules: Rules) -> Sink:
        """Return the sink of a worker; ``rules`` decide about existing files. Raises DestinationError."""

    def inspector(self, root: Path, identity: str) -> Inspect:
        """Return a function that inspects the files under ``root``; see ``SinkForm`` for ``identity``.

        It must agree with ``Sink.verify``, and must keep no file descriptor open.
        """


REWRITTEN: Final = "; the same command writes it again"
"""What is said, behind what is wrong, of a file that is made from others and will be made again."""

SUPERSEDED: Final = "; remove it: its samples are elsewhere, or are fetched again"
"""What is said, behind what is wrong, of a file that nobody needs, and which readers would stumble over."""


class Comparison(Protocol):
    """A comparison of what a sink with shards has published; see ``Compares``."""

    unrecorded: int
    """How many shards are compared less than wholly, since too little is known of them."""

    def batch(self, written: Sequence[Written], names: Sequence[str]) -> list[str]:
        """Return what is wrong with each of the ``written`` items of a batch, "" if nothing is.

        ``names`` are those of all its items. Raises OSError.
        """

    def publish_anew(self, shards: Sequence[int]) -> list[int]:
        """Return which of these shards of a batch are not what was published.

        Called where items of the batch are damaged: these shards are published anew. Raises OSError.
        """

    def left(self, shard: int) -> list[tuple[str, str]]:
        """Return which files of ``shard`` are not what was published.

        Each with what is wrong, and behind it what becomes of the file: REWRITTEN or SUPERSEDED. Called
        after ``publish_anew``. Raises OSError.
        """

    is_behind: bool
    """Whether what describes all shards was not compared: a run that ended early has not written it yet."""

    def finish(
        self, shards: Sequence[int], damaged: Sequence[int], *, complete: bool
    ) -> list[tuple[str, str]]:
        """Return the same of what describes all ``shards``, those that are published.

        ``damaged``: those that were found so before and are to be published anew, which are not in
        ``shards``. ``complete``: the job is, so that it has to be there. Raises OSError.
        """


@runtime_checkable
class Compares(Protocol):
    """What a ``SinkKind`` may have as well, if it publishes more than items: ``verify`` compares it."""

    def comparison(self, root: str, identity: str, home: Directory, access: BucketAccess) -> Comparison:
        """Return a comparison of the files under ``root``, a directory or s3://BUCKET/PREFIX.

        ``home``: of the tool's own files. ``access``: to a bucket. Raises DestinationError.
        """

    def is_described(self, home: Directory, shards: int) -> bool:
        """Return whether what describes all ``shards``, their number, is written, as far as is known."""


@runtime_checkable
class ChecksPlace(Protocol):
    """What a ``SinkKind`` may have as well, if DEST may be a place that is not there, or refuses us."""

    def check_place(self, config: Config) -> None:
        """Raise ConfigError then, DestinationError if it is down. Else the first shard would find that."""


@runtime_checkable
class ChecksPublished(Protocol):
    """What a ``SinkKind`` may have as well, if DEST may be a bucket: another one may have its name."""

    def check_published(
        self, root: str, identity: str, home: Directory, access: BucketAccess, shards: Sequence[int]
    ) -> None:
        """Raise DestinationError if the bucket ``root`` has none of ``shards``, or cannot be read.

        These were published, and are in order; ``home``: of the tool's own files.
        """


@runtime_checkable
class Stages(Protocol):
    """What a ``SinkKind`` may have as well, if the home keeps items until their shard is published."""

    def staged(self, home: Directory, shard: int) -> tuple[int, int]:
        """Return how many items of ``shard`` are kept there, and their bytes. Raises UnsafeFile."""

    def distrust(self, home: Directory) -> None:
        """Forget what is noted there of files in DEST: the machine went down, and may have lost some."""

    def forget(self, home: Directory) -> None:
        """Remove everything that any job of the kind has there. Raises OSError."""


Locate = Callable[[Sequence[Written], Sequence[str]], list[tuple[str, str]]]
"""Return the shard and the key there of each of these items of one batch, "" for what is not known.

The second argument has the names of all items of the batch; it is () where items have keys of earlier ones.
"""


@runtime_checkable
class Locates(Protocol):
    """What a ``SinkKind`` may have as well, if it stores several items in a file: where each of them is."""

    def locator(self, root: Path, identity: str, home: Directory) -> Locate:
        """Return a function that finds published items, for a manifest.

        It is called in the supervisor, after all workers have exited. ``home``: of the tool's own files.
        """


class Describe(Protocol):
    """What is stored of samples. ``changed``: files that say it, and are not what was published."""

    changed: list[str]

    def __call__(self, shard: str, key: str, /) -> Record | None:
        """Return what is stored of a sample of a shard, by the names of both; None if nothing is."""


@runtime_checkable
class Describes(Protocol):
    """What a ``SinkKind`` may have as well, if it stores metadata: that of each published item."""

    def describer(self, root: Path, identity: str, home: Directory) -> Describe:
        """Return what reads the metadata of published items, for a manifest.

        ``home``: of the tool's own files.
        """


Undo = Callable[[Written], None]
"""Takes back what was begun to publish an item as that; no worker has it.

Where the size is -1 it was not whole yet: what there is of it is removed.
"""


@runtime_checkable
class Undoes(Protocol):
    """What a ``SinkKind`` may have as well, if it replaces an existing file in several steps."""

    def undoer(self, root: Path, identity: str, prefix: str) -> Undo:
        """Return a function that takes back the steps of a process that was killed between them.

        ``prefix``: ``core.ownership.Rules.temporary``.
        """


@runtime_checkable
class Opens(Protocol):
    """What a ``SinkKind`` may have as well, if each item is a file."""

    def opener(self, root: Path, identity: str) -> Callable[[str], int]:
        """Return a function that opens the file of an item for reading, by name.

        It returns the descriptor, -1 if there is no such file. A manifest computes digests with it that no
        worker has computed.
        """
