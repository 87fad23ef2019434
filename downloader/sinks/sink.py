"""What a kind of sink is: it stores files under their names, one at a time or a batch at a time.

::

    SinkKind.open(config, rules) ──► Sink.begin(lease) ──► BatchWriter ─┬─► put(item, body)
                                                                        ├─► open(item) ──► FileWriter
                                                                        └─► commit, abort
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from downloader.config.config import Config
from downloader.config.sink_kinds import SinkForm
from downloader.core.item_states import UNTOUCHED
from downloader.core.ownership import Rules
from downloader.messages import FileRecord, Item, Lease, ResponseInfo

__all__ = [
    "NEW",
    "REPLACED",
    "SAME",
    "WRITTEN",
    "BatchWriter",
    "FileWriter",
    "Inspect",
    "Sink",
    "SinkKind",
    "Verify",
    "Written",
]

# What ``FileWriter.publish`` returns.
SAME = 0
"""The name was there already, and stays: with the same bytes, or because --existing keep says so."""
NEW = 1
"""The name is new, or stands for other bytes of the same item now."""
REPLACED = 2
"""A file that belonged to no item of the job was replaced."""
WRITTEN = 3
"""The file is complete, and is published when its batch is committed."""


class Written(msgspec.Struct, frozen=True, gc=False):
    """An item that a ledger or the journal has as written: size in bytes, CRC-32 of its bytes."""

    seq: int
    index: int
    name: str
    size: int
    crc: int


Verify = Callable[[Written], bool]
"""Returns whether what is stored of an item has that size and CRC-32."""

Inspect = Callable[[Written], str]
"""Returns what is wrong with what is stored of an item ("missing"), "" where nothing is."""


class FileWriter(Protocol):
    """One file on its way in. Exactly one of ``publish`` and ``abort`` ends it."""

    size: int
    crc: int

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append ``chunk``. Raises DestinationError when the destination fails."""

    def publish(self) -> int:
        """Make the name appear; return NEW, SAME or REPLACED. Or leave that to the batch; return WRITTEN.

        ``size`` and ``crc`` are afterwards those of the file that has the name. Raises FetchError
        (``name-taken``, ``file-exists``, ``bad-name``) when it cannot, DestinationError.
        """

    def abort(self) -> None:
        """Leave nothing behind."""


class BatchWriter(Protocol):
    """The files of one leased batch on their way in. Exactly one of ``commit`` and ``abort`` ends it."""

    def put(self, item: Item, body: bytes | bytearray, response: ResponseInfo | None = None) -> bool:
        """Publish a whole file under a new name and return True, or change nothing and return False: then
        it takes a FileWriter."""

    def open(
        self, item: Item, index: int, claim: int = UNTOUCHED, response: ResponseInfo | None = None
    ) -> FileWriter:
        """Begin the file of ``item``, which is item ``index`` of the batch.

        ``claim``: OWNED where the file that has the name now is known to be this item's own, UNOWNED where
        it is known to be of no item of the job (``core.item_states``). Raises FetchError (``bad-name``),
        DestinationError.
        """

    def commit(self, records: Sequence[FileRecord]) -> None:
        """Publish what is written, in one step that a kill cannot divide.

        Called when every item has come to its end, and only if one is WRITTEN. ``records`` are those of
        the items that are written, in their order, where the sink wants them. Raises DestinationError.
        """

    def abort(self) -> None:
        """Leave nothing behind of what is not published. Called in a drain; a kill calls nothing."""


class Sink(Protocol):
    """A destination, as one worker has it.

    ``wants_records``: it is given the ResponseInfo of each file, and FileRecords at ``commit``.
    """

    wants_records: bool

    def begin(self, lease: Lease) -> BatchWriter:
        """Begin a batch; remove what an earlier attempt at it, which was killed, has left.

        What that attempt had published stays: ``verify`` is asked for each item that the ledger has as
        written, and those that are there are not fetched again.
        """

    def standing(self, name: str) -> tuple[int, int] | None:
        """Return size and CRC-32 of the file ``name`` where it was there before the job and is to be
        kept, None where there is no such file.

        Raises FetchError ``file-exists`` where --existing refuses it, DestinationError.
        """

    def verify(self, written: Written) -> bool:
        """Return whether the published file has that size and CRC-32."""

    def close(self) -> None:
        """Close open descriptors."""


class SinkKind(SinkForm, Protocol):
    """A kind of sink. Its module is imported in every process, also in the supervisor, which has no
    gevent."""

    def open(self, config: Config, rules: Rules) -> Sink:
        """Return the sink of a worker; ``rules`` are for names that are taken. Raises DestinationError."""

    def inspector(self, root: Path, layout: str) -> Inspect:
        """Return what looks at the files under ``root``. It agrees with ``Sink.verify``, and needs no
        descriptor that stays open."""
