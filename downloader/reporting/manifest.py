"""Write --manifest: a row for each file that the journal has as stored, over all runs of the job.

The rows are those of the journal, so none is lost and none is there twice, whenever processes were killed.
What the journal does not have comes from the records that workers have kept (``storage.known_records``);
what they do not have, as far as it can be had, from the source and from the file itself. Memory does not
grow with the number of files.

This runs when all children have exited: pyarrow starts threads, and the supervisor forks.
"""

from __future__ import annotations

import functools
import gc
import os
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from downloader.config.config import Config
from downloader.core.checksum import is_unread
from downloader.core.content_check import Checking, ContentCheck, check_item
from downloader.core.file_records import Record
from downloader.core.item_states import FOREIGN, decoded, is_stored, unpack
from downloader.core.name_list import decode_names
from downloader.core.naming import SafeName, quote_all, quote_name
from downloader.core.redact import redact_url
from downloader.core.units import show_count
from downloader.errors import UNDECODABLE, DownloaderError, FetchError, JournalError, SourceError
from downloader.messages import Item, Recall
from downloader.reporting.manifest_formats import Row, writer_of
from downloader.reporting.manifest_rows import RowsMade
from downloader.reporting.published_file import publish
from downloader.sinks.registry import sink_kind
from downloader.sinks.sink import Describes, Locates, Opens, Written
from downloader.sources.registry import source_kind
from downloader.sources.slice_file import SliceLister
from downloader.sources.source import Closes, Fetch, Lister
from downloader.storage.destination import Destination
from downloader.storage.journal import BatchRow, Journal
from downloader.storage.known_records import KnownRecords

__all__ = ["JournalRows", "remarks", "write_manifest"]

_LOG_INTERVAL = 2.0
_BLOCK = 1 << 20
_MANY_OBJECTS = 50_000  # more than the rows of a batch, which the collector would visit several times
_NOTHING = Record("", "", 0, "", "", "", 0, "", b"")
_decode_columns = msgspec.msgpack.Decoder(dict[str, Any]).decode


def _columns(record: Record) -> dict[str, Any]:
    """Return the kept columns of ``record``; damaged ones are as if they were not there."""
    try:
        return _decode_columns(record.columns) if record.columns else {}
    except UNDECODABLE:
        return {}


def write_manifest(config: Config, destination: Destination, log: Callable[[str], None]) -> None:
    """Write the manifest of ``config``; ``log`` gets lines about what takes long, and what is not known.

    Raises DestinationError, JournalError.
    """
    known = KnownRecords(destination.home)
    thresholds = gc.get_threshold()
    gc.set_threshold(_MANY_OBJECTS)
    try:
        rows = JournalRows(config, destination.journal, known, destination.name_key, log)
        write = writer_of(config.manifest, config.layout, rows, destination.job.types)
        # Each run of DEST writes to this name first, so it replaces what a killed one has left.
        mark = f"manifest-{zlib.crc32(os.fsencode(os.path.realpath(config.output))):08x}"
        publish(config.manifest, write, config.output, mark)
    finally:
        gc.set_threshold(*thresholds)
        known.close()
    for line in remarks(config, rows.made):
        log(line)
    if rows.changed:
        more = f" and {len(rows.changed) - 1} more" if len(rows.changed) > 1 else ""
        log(
            f"{config.manifest}: {rows.changed[0]}{more} in DEST is not what was published, and "
            "the rows have nothing of it; `downloader verify` names what is damaged"
        )


class JournalRows:
    """The rows of what the journal of a run has as stored. They can be iterated several times.

    Raises JournalError. ``made``: how many there are, and ``changed``: files that are not what was
    published, and are left out, once they have been iterated.
    """

    def __init__(
        self,
        config: Config,
        journal: Journal,
        known: KnownRecords,
        name_key: bytes,
        log: Callable[[str], None],
    ) -> None:
        self._config = config
        self._journal = journal
        self._name_key = name_key
        self._known = known
        self._log = log
        self.made = RowsMade()
        self.changed: list[str] = []
        kind = sink_kind(config.store)
        root, identity = Path(config.local_output), config.sink_kind.identity(config)
        self._locate = kind.locator(root, identity, known.home) if isinstance(kind, Locates) else None
        self._describe = kind.describer(root, identity, known.home) if isinstance(kind, Describes) else None
        self._open = kind.opener(root, identity) if isinstance(kind, Opens) else None
        self._algorithm = config.hash_algorithm
        self._checksums = config.checksums
        self._builder = source_kind(config).request_builder(config)
        self._without_record = self._without_hash = self._without_shard = 0

    def __iter__(self) -> Iterator[list[Row]]:
        """Yield the rows of each batch."""
        for _, rows in self.numbered():
            yield rows

    def numbered(self) -> Iterator[tuple[list[int], list[Row]]]:
        """Yield the rows of each batch, with the number of each item in the source."""
        self._without_record = self._without_hash = self._without_shard = 0
        recalled = _Recalled(self._config, self._name_key)
        count, before, behind, logged_at = 0, 0, 0, monotonic()
        for batch in self._journal.batches():
            before, behind = behind, behind + batch.count
            states, crcs = (array.tolist() for array in unpack(batch.marks))
            stored = [index for index, state in enumerate(states) if is_stored(state)]
            if not stored:
                continue
            names = decode_names(batch.names)
            if len(names) != batch.count:
                raise JournalError(f"the journal is damaged (batch {batch.seq}); --restart begins anew")
            shards = self._journal.shards.of(batch.seq)
            marks = [
                Written(batch.seq, at, names[at], decoded(states[at])[0], crcs[at], shards) for at in stored
            ]
            places = [("", "")] * len(marks)
            if self._locate is not None:
                places = self._locate(marks, () if self._config.slice.again else names)
                if (
                    shards and not self._config.slice.again
                ):  # a slice of what has failed knows them otherwise
                    self._without_shard += sum([not shard for shard, _ in places])
            found = self._known.find(batch, names, self._journal.digests)
            stated: dict[int, str] = {}
            if missing := {
                index: place for index, place in zip(stored, places, strict=True) if index not in found
            }:
                found |= self._without(missing, batch, recalled, stated)
            # A file of yours that was kept may be another one than the source has.
            sums = ["" if decoded(states[at])[1] & FOREIGN else stated.get(at, "") for at in stored]
            records = [found[at] for at in stored]
            yield [before + at for at in stored], self._rows(marks, records, places, sums)
            count += len(stored)
            if monotonic() - logged_at > _LOG_INTERVAL:
                logged_at = monotonic()
                self._log(f"{show_count(count)} rows of the manifest so far")
        recalled.close()
        self.made = RowsMade(count, self._without_record, self._without_hash, self._without_shard)
        self.changed = list(dict.fromkeys(self._describe.changed)) if self._describe is not None else []

    def _without(
        self,
        missing: dict[int, tuple[str, str]],
        batch: BatchRow,
        recalled: _Recalled,
        stated: dict[int, str],
    ) -> dict[int, Record]:
        """Return what is known of the ``missing`` items, which have no record, each with its place.

        That is what the rows of shards say, and what the source says again: its checksums go to ``stated``.
        """
        items = [] if self._builder.base_url else recalled.items(batch)
        found = {}
        for index, place in missing.items():
            record = self._describe(*place) if self._describe is not None and place[0] else None
            if record is None:
                self._without_record += 1
                record = _NOTHING
            elif self._algorithm and not record.hash.startswith(f"{self._algorithm}:"):
                record = msgspec.structs.replace(record, hash="")
            if items:
                stated[index] = items[index].checksum
                url = record.url or self._url_of(items[index])
                record = msgspec.structs.replace(record, url=url, columns=items[index].columns)
            found[index] = record
        return found

    def _hashes(self, marks: list[Written], records: list[Record], sums: list[str]) -> list[str]:
        """Return the digests in ``records``; where they are of another algorithm, those of the files.

        ``sums``: the checksums that the source states of the files without a record.
        """
        known = [record.hash for record in records]
        if not self._algorithm:
            return known
        prefix = f"{self._algorithm}:"
        found = [
            digest if digest.startswith(prefix) else self._hash_of(mark, digest or checksum)
            for mark, digest, checksum in zip(marks, known, sums, strict=True)
        ]
        self._without_hash += found.count("")
        return found

    def _rows(
        self,
        marks: list[Written],
        records: list[Record],
        places: list[tuple[str, str]],
        sums: list[str],
    ) -> list[Row]:
        # By columns: most of the work is then done in C.
        own = [mark.name for mark in marks]
        urls = [record.url for record in records]
        if self._builder.base_url:
            urls = [url or derived for url, derived in zip(urls, self._derived(own), strict=True)]
        return list(
            map(
                Row,
                own,
                [url or None for url in urls],
                [
                    (each.final_url or url or None) if each.status else None
                    for each, url in zip(records, urls, strict=True)
                ],
                [record.status or None for record in records],
                [mark.size for mark in marks],
                [digest or None for digest in self._hashes(marks, records, sums)],
                [record.etag or None for record in records],
                [record.last_modified or None for record in records],
                [record.content_type or None for record in records],
                [_time(record.fetched_at) for record in records],
                *zip(*[(shard or None, key or None) for shard, key in places], strict=True),
                [_columns(record) for record in records],
            )
        )

    def _derived(self, names: list[str]) -> list[str]:
        """Return the URLs that ``names`` give, redacted."""
        base = self._builder.base_url
        if quote_all(names) is not None and redact_url(f"{base}name") == f"{base}name":
            return [base + name for name in names]  # no name needs quoting, or has room for a secret
        return [redact_url(base + quote_name(SafeName(name))) for name in names]

    def _url_of(self, item: Item) -> str:
        """Return the URL of ``item``, redacted, "" if the source does not say."""
        try:
            return "" if item.fault else redact_url(self._builder.request(item).url)
        except FetchError:
            return ""

    def _hash_of(self, written: Written, checksum: str) -> str:
        """Return the digest of a stored file, "" if it is not there as it was stored.

        A file of another size is not read. ``checksum``: what else is known of it, ALGORITHM:HEX or "": a
        change made on purpose may keep its CRC-32.
        """
        fd = self._open(written.name) if self._open is not None else -1
        if fd < 0:
            return ""
        item = Item("", size=written.size, checksum=checksum)
        try:
            check_item(item)
        except FetchError:
            item = msgspec.structs.replace(item, checksum="")
        check = ContentCheck(item, Checking(checksums=self._checksums, hash=self._algorithm))
        crc, left = 0, written.size
        try:
            if os.fstat(fd).st_size != written.size:
                return ""  # it may be as large as it likes
            while left and (chunk := os.read(fd, min(_BLOCK, left))):
                check.feed(chunk)
                crc = zlib.crc32(chunk, crc)
                left -= len(chunk)
            check.finish()
        except (OSError, FetchError):
            return ""
        finally:
            os.close(fd)
        if crc != written.crc and not is_unread(written.size, written.crc):
            return ""
        return f"{self._algorithm}:{check.hash.hex()}"


def remarks(config: Config, made: RowsMade) -> Iterator[str]:
    """Yield what is to be known of the rows of --manifest."""
    sums = config.manifest_format == "SHA256SUMS"
    if made.without_shard and not sums:
        yield (
            f"{config.manifest}: of {show_count(made.without_shard)} files the shard is not known: "
            + (
                "an earlier version has stored them, and has not recorded in which of several it did"
                if config.is_bucket
                else "they are in none as they were stored; `downloader verify` names them"
            )
        )
    if made.without_record and not sums:
        yield (
            f"{config.manifest}: of {show_count(made.without_record)} files only name, size and "
            "what the source says are known: they were there before, or stored by a run without "
            "--manifest and --hash, or a power cut has lost their records"
        )
    if made.without_hash and config.sink_kind.shard_items(config):
        yield (
            f"{config.manifest}: {show_count(made.without_hash)} files have no "
            f"{config.hash_algorithm}: of what is in shards a run computes it where it fetches, so give "
            "--hash from the start; --restart fetches everything again"
        )
    elif made.without_hash:
        yield (
            f"{config.manifest}: {show_count(made.without_hash)} files have no "
            f"{config.hash_algorithm}{', so no line' if sums else ''}: they are not in DEST as they were "
            "stored, which `downloader verify` names, or have another checksum than the source says"
        )


class _Recalled:
    """The items of earlier batches, as the source gives them again; nothing once it does not."""

    def __init__(self, config: Config, name_key: bytes) -> None:
        self._config = config
        self._name_key = name_key
        self._lister: Lister | None = None
        self._given_up = config.reads_stdin

    def close(self) -> None:
        """Close what the source keeps open."""
        if isinstance(self._lister, Closes):
            self._lister.close()

    def items(self, batch: BatchRow) -> list[Item]:
        """Return the items of ``batch``, [] if they cannot be had. Batches are in ascending order."""
        if self._given_up:
            return []
        try:
            if self._lister is None:
                self._lister = self._open()
            page = self._lister.recall(Recall(batch.seq, batch.count, batch.names, batch.recall_data))
        except (DownloaderError, OSError):
            self._given_up = True  # the list is not what it was, and need not be
            return []
        return page.items if len(page.items) == batch.count else []

    def _open(self) -> Lister:
        if self._config.slice:
            return SliceLister(self._config.slice.path)
        return source_kind(self._config).lister(self._config, _no_listing, self._name_key)


def _no_listing() -> Fetch:
    raise SourceError("a listing is not requested again for a manifest")


@functools.lru_cache(64)
def _time(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, timezone.utc) if seconds else None
