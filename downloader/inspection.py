"""``status`` and ``verify``: what a journal says, and whether the files agree with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import monotonic

import msgspec

from downloader.core import marks as core_marks
from downloader.core.units import show_count
from downloader.destination import home_of, lock
from downloader.errors import ConfigError, JournalError
from downloader.journal import BatchRow, Job, Journal, decode_names, exists
from downloader.model import Failure
from downloader.sinks.files import file_matches, place

__all__ = ["Status", "Verified", "faulty_lines", "first_failures", "status", "verify"]


_FAULTS = frozenset({"bad-url", "bad-name"})


class Status(msgspec.Struct, frozen=True):
    """What the journal of a destination says. ``stored`` counts all runs."""

    source: str
    store: str
    layout: str
    listed: int
    stored: int
    failed: int
    pending: int
    bytes: int
    source_read: bool
    complete: bool
    failed_by_error: dict[str, int]


class Verified(msgspec.Struct, frozen=True):
    """What ``verify`` found: ``damaged`` names the files (the first 1,000) that are not as stored."""

    checked: int
    agree: int
    damaged_count: int
    damaged: list[str]


def status(output: str) -> Status:
    """Read the journal of ``output``, also while a run is writing it.

    Raises ConfigError where there is none, JournalError.
    """
    journal = _open(output, read_only=True)
    try:
        job = _job(journal)
        tally = journal.tally()
        listed = journal.position()[2]
        open_batches = journal.open_count()
        return Status(
            source=job.shown,
            store=job.store,
            layout=job.layout,
            listed=listed,
            stored=tally.stored,
            failed=tally.failed,
            pending=listed - tally.stored - tally.failed,
            bytes=tally.bytes,
            source_read=journal.read,
            complete=journal.read and not open_batches and not tally.failed,
            failed_by_error=journal.failures_by_code(),
        )
    finally:
        journal.close()


def faulty_lines(output: str, most: int) -> list[str]:
    """The first ``most`` items of ``output`` that failed for what the list of URLs says; none where the
    source is no list. Raises ConfigError, JournalError."""
    journal = _open(output, read_only=True)
    try:
        if _job(journal).kind != "urls" or journal.failures_by_code().keys().isdisjoint(_FAULTS):
            return []
        # A name that was found bad only when its file was stored has a URL, and is no line's fault.
        faults = (
            f.name for f in journal.failures() if f.code in _FAULTS and (f.code == "bad-url" or not f.url)
        )
        return list(islice(faults, most))
    finally:
        journal.close()


def first_failures(output: str, most: int) -> list[Failure]:
    """The first ``most`` failed files of ``output``. Raises ConfigError, JournalError."""
    journal = _open(output, read_only=True)
    try:
        return list(islice(journal.failures(), most))
    finally:
        journal.close()


def verify(output: str, quiet: bool = False) -> Verified:
    """Compare every stored file with the size and checksum that the journal has.

    A file that is missing or differs is written down as failed (``damaged``), so that the same
    command fetches it again. Raises ConfigError, InUse, JournalError.
    """
    if not exists(home_of(output)):
        raise ConfigError(f"{output} has no journal; nothing was downloaded there by this program")
    fd = lock(home_of(output))
    try:
        journal = _open(output, read_only=False)
        try:
            return _verify(journal, Path(output), quiet)
        finally:
            journal.close()
    finally:
        os.close(fd)


def _verify(journal: Journal, root: Path, quiet: bool) -> Verified:
    job = _job(journal)
    if job.store != "files":
        raise ConfigError(f"{root} was stored with --store {job.store}; there are no files to verify")
    checked = agree = 0
    names: list[str] = []
    shown = monotonic()
    for row in _stored_batches(journal):
        damaged = []
        for failure in _damaged(row, root, job.layout):
            damaged.append(failure)
            if len(names) < 1000:
                names.append(failure.name)
        count, _ = core_marks.summed(row.marks)
        checked += count
        agree += count - len(damaged)
        if damaged:
            gone = {failure.index for failure in damaged}
            journal.mark_damaged(row.seq, damaged, core_marks.without(row.marks, row.count, gone))
        if not quiet and monotonic() - shown > 2:
            shown = monotonic()
            print(f"downloader: {show_count(checked)} files verified", file=sys.stderr)  # noqa: T201
    return Verified(checked, agree, checked - agree, names)


def _stored_batches(journal: Journal) -> Iterator[BatchRow]:
    for row in journal.batches():
        if row.marks:
            yield row


def _damaged(row: BatchRow, root: Path, layout: str) -> Iterator[Failure]:
    names = decode_names(row.names)
    if len(names) != row.count:
        raise JournalError(f"the journal is damaged (batch {row.seq}); --restart begins anew")
    for mark in core_marks.published(row.marks):
        name = names[mark.index]
        path = root / place(name, layout)
        if not file_matches(os.fspath(path), None, mark.size, mark.crc):
            detail = "changed since it was stored" if path.exists() else "missing"
            yield Failure(mark.index, name, "", "damaged", detail, 0)


def _open(output: str, *, read_only: bool) -> Journal:
    home = home_of(output)
    if not exists(home):
        raise ConfigError(f"{output} has no journal; nothing was downloaded there by this program")
    return Journal(home, read_only=read_only)


def _job(journal: Journal) -> Job:
    job = journal.job()
    if job is None:
        raise JournalError(f"{journal.path} is empty; the run that made it ended before it began")
    return job
