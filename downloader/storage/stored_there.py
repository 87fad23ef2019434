"""Say whether DEST has what a journal says was stored in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from downloader.core import item_states
from downloader.core.bucket_access import BucketAccess
from downloader.core.name_list import decode_names
from downloader.errors import UNDECODABLE
from downloader.files.directory import Directory, Entry
from downloader.sinks.registry import sink_kind, verifier
from downloader.sinks.sink import ChecksPublished, Written
from downloader.storage.journal import JobSpec, Journal
from downloader.storage.ledger import read_merged
from downloader.storage.left_ledgers import left_ledgers
from downloader.storage.places import check_mounted

__all__ = ["check_bucket", "check_stored", "merged"]


def check_stored(output: str, job: JobSpec, home: Directory, journal: Journal) -> None:
    """Raise DestinationError where the files that ``job`` has stored in ``output`` are elsewhere.

    See ``check_mounted``. The samples of shards that are not published yet are in the home, not in DEST.
    """
    if not sink_kind(job.store).keeps:
        return
    left = merged(left_ledgers(home))
    stored = journal.tally(open_too=True).stored
    stored += sum(item_states.summed(packed)[0] for packed in left.values())
    # Items that were skipped as duplicates count as stored, and have no file.
    if stored and next(_stored(journal, left), None) is not None:
        check_mounted(output, job.began_ns, stored, lambda: _has_all(output, job, journal, left))


def check_bucket(
    output: str, access: BucketAccess, job: JobSpec, home: Directory, journal: Journal
) -> None:
    """Raise DestinationError where the bucket ``output`` has none of the shards that ``job`` has published.

    See ``ChecksPublished``. Those that were found damaged need not be there.
    """
    kind = sink_kind(job.store)
    if not (isinstance(kind, ChecksPublished) and journal.shards.any()):
        return
    try:
        kind.check_published(output, job.layout, home, access, journal.shards.finished())
    except UNDECODABLE as error:
        raise journal.damaged(error) from error


def merged(paths: Iterable[Entry]) -> dict[int, bytes]:
    """Return the packed item states in the ledgers ``paths``, by batch."""
    found: dict[int, bytes] = {}
    for path in paths:
        for seq, (packed, _) in read_merged(path).items():
            count = len(item_states.unpack(packed)[0])
            found[seq] = item_states.merge(found.get(seq, b""), packed, count)
    return found


def _has_all(output: str, job: JobSpec, journal: Journal, left: dict[int, bytes]) -> bool:
    """Return whether the store finds all in ``output`` that was stored in it; ``left``: see ``merged``."""
    try:
        verify = verifier(job.store, Path(output), job.layout)
    except UNDECODABLE as error:
        raise journal.damaged(error) from error
    return all(map(verify, _stored(journal, left)))


def _stored(journal: Journal, left: dict[int, bytes]) -> Iterator[Written]:
    in_shards = journal.shards.any()
    for row in journal.batches():
        shards = tuple(filter(journal.shards.is_finished, journal.shards.of(row.seq)))
        if in_shards and not (row.done and shards):
            continue  # they are published before it is done
        packed = item_states.merge(row.marks, left.get(row.seq, b""), row.count)
        names = decode_names(row.names)
        for mark in item_states.published(packed):
            yield Written(row.seq, mark.index, names[mark.index], mark.size, mark.crc, shards)
