"""Write --manifest: a row for each file that the journal has as stored, over all runs of the job.

The rows are those of the journal, so none is lost and none is there twice, whenever processes were killed.
What the journal does not have comes from the records that workers have kept (``storage.known_records``);
what they do not have, as far as it can be had, from the source and from the file itself. Memory does not
grow with the number of files.

This runs when all children have exited: pyarrow starts threads, and the supervisor forks.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from time import monotonic

import msgspec

from downloader.config.config import Config
from downloader.core.content_check import Checking, ContentCheck
from downloader.core.file_records import Record
from downloader.core.item_states import ItemState, published
from downloader.core.name_list import decode_names
from downloader.core.naming import SafeName, quote_name
from downloader.core.redact import redact_url
from downloader.core.units import show_count
from downloader.errors import DownloaderError, FetchError, JournalError, SourceError
from downloader.messages import Item, Recall
from downloader.reporting.manifest_formats import Row, writer_of
from downloader.reporting.published_file import publish
from downloader.sinks.registry import sink_kind
from downloader.sinks.sink import Locates, Opens, Written
from downloader.sources.registry import source_kind
from downloader.sources.source import Fetch, Lister
from downloader.storage.destination import Destination
from downloader.storage.journal import BatchRow
from downloader.storage.known_records import KnownRecords

__all__ = ["write_manifest"]

_LOG_INTERVAL = 2.0
_BLOCK = 1 << 20
_NOTHING = Record("", "", 0, "", "", "", 0.0, "", b"")


def write_manifest(config: Config, destination: Destination, log: Callable[[str], None]) -> None:
    """Write the manifest of ``config``; ``log`` gets lines about what takes long, and what is not known.

    Raises DestinationError, JournalError.
    """
    known = KnownRecords(destination.home)
    try:
        rows = _Rows(config, destination, known, log)
        write = writer_of(config.manifest, config.layout, rows)
        # Each run of DEST writes to this name first, so it replaces what a killed one has left.
        mark = f"manifest-{zlib.crc32(os.fsencode(os.path.realpath(config.output))):08x}"
        publish(config.manifest, write, mark)
    finally:
        known.close()
    for line in rows.remarks():
        log(line)


class _Rows:
    """The rows of the manifest. They can be iterated several times."""

    def __init__(
        self, config: Config, destination: Destination, known: KnownRecords, log: Callable[[str], None]
    ) -> None:
        self._config = config
        self._journal = destination.journal
        self._name_key = destination.name_key
        self._known = known
        self._log = log
        kind = sink_kind(config.store)
        root = destination.root
        self._locate = kind.locator(root, config.layout) if isinstance(kind, Locates) else None
        self._open = kind.opener(root, config.layout) if isinstance(kind, Opens) else None
        self._algorithm = config.hash_algorithm
        self._builder = source_kind(config).request_builder(config)
        self._without_record = self._without_hash = 0

    def __iter__(self) -> Iterator[Row]:
        self._without_record = self._without_hash = 0
        recalled = _Recalled(self._config, self._name_key)
        count, logged_at = 0, monotonic()
        for batch in self._journal.batches():
            marks = list(published(batch.marks))
            names = decode_names(batch.names) if marks else []
            if len(names) < len(marks):
                raise JournalError(f"the journal is damaged (batch {batch.seq}); --restart begins anew")
            found = self._known.find(batch.seq, marks, names) if marks else {}
            items: list[Item] | None = None
            for mark in marks:
                name, record = names[mark.index], found.get(mark.index)
                if record is None:
                    self._without_record += 1
                    if items is None:
                        items = [] if self._builder.base_url else recalled.items(batch)
                    item = items[mark.index] if items else Item(name)
                    record = _NOTHING._replace(url=self._url_of(item), columns=item.columns)
                yield self._row(batch.seq, name, mark, record)
                count += 1
            if monotonic() - logged_at > _LOG_INTERVAL:
                logged_at = monotonic()
                self._log(f"{show_count(count)} rows of the manifest so far")

    def _row(self, seq: int, name: str, mark: ItemState, record: Record) -> Row:
        url = record.url or self._url_of(Item(name))
        digest = record.hash
        if self._algorithm and digest.partition(":")[0] != self._algorithm:
            digest = self._hash_of(Written(seq, mark.index, name, mark.size, mark.crc))
            self._without_hash += not digest
        shard, key = self._locate(seq, mark.index, name) if self._locate is not None else ("", "")
        return Row(
            name=name,
            url=url or None,
            final_url=(record.final_url or url or None) if record.status else None,
            status=record.status or None,
            size=mark.size,
            hash=digest or None,
            etag=record.etag or None,
            last_modified=record.last_modified or None,
            content_type=record.content_type or None,
            fetched_at=_time(record.fetched_at) if record.status else None,
            shard=shard or None,
            key=key or None,
            columns=msgspec.msgpack.decode(record.columns) if record.columns else {},
        )

    def _url_of(self, item: Item) -> str:
        """Return the URL of ``item``, redacted, "" if neither it nor its name gives one."""
        base = self._builder.base_url
        if base and not item.url:
            return redact_url(base + quote_name(SafeName(item.name)))
        if not item.url:
            return ""
        try:
            return redact_url(self._builder.request(item).url)
        except FetchError:
            return ""

    def _hash_of(self, written: Written) -> str:
        """Return the digest of a stored file, "" if it is not there as it was stored."""
        fd = self._open(written.name) if self._open is not None else -1
        if fd < 0:
            return ""
        check = ContentCheck(Item("", size=written.size), Checking(hash=self._algorithm))
        crc = 0
        try:
            while chunk := os.read(fd, _BLOCK):
                check.feed(chunk)
                crc = zlib.crc32(chunk, crc)
        except OSError:
            return ""
        finally:
            os.close(fd)
        if (check.size, crc) != (written.size, written.crc):
            return ""
        return f"{self._algorithm}:{check.hash.hex()}"

    def remarks(self) -> Iterator[str]:
        """Yield what is to be known of the rows that were written last."""
        sums = self._config.manifest_format == "SHA256SUMS"
        if self._without_record and not sums:
            yield (
                f"{self._config.manifest}: of {show_count(self._without_record)} files only name, size and "
                "what the source says are known: they were there before, or stored by a run without "
                "--manifest and --hash, or a power cut has lost their records"
            )
        if self._without_hash:
            yield (
                f"{self._config.manifest}: {show_count(self._without_hash)} files have no "
                f"{self._algorithm}{', so no line' if sums else ''}: they are not in DEST as they were "
                "stored; `downloader verify` names them"
            )


class _Recalled:
    """The items of earlier batches, as the source gives them again; nothing once it does not."""

    def __init__(self, config: Config, name_key: bytes) -> None:
        self._config = config
        self._name_key = name_key
        self._lister: Lister | None = None
        self._given_up = config.source == "-"

    def items(self, batch: BatchRow) -> list[Item]:
        """Return the items of ``batch``, [] if they cannot be had. Batches are in ascending order."""
        if self._given_up:
            return []
        try:
            if self._lister is None:
                kind = source_kind(self._config)
                self._lister = kind.lister(self._config, _no_listing, self._name_key)
            page = self._lister.recall(Recall(batch.seq, batch.count, batch.names, batch.origin))
        except (DownloaderError, OSError):
            self._given_up = True  # the list is not what it was, and need not be
            return []
        return page.items if len(page.items) == batch.count else []


def _no_listing() -> Fetch:
    raise SourceError("a listing is not requested again for a manifest")


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), timezone.utc)
