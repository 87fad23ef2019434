"""Implement ``status`` and ``verify``: summarize a journal, and compare the files with it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from downloader.core import item_states
from downloader.core.bucket_access import NO_OPTIONS, BucketAccess
from downloader.core.bucket_place import is_bucket
from downloader.core.file_errors import advice
from downloader.core.item_states import OWNED, Claim
from downloader.core.name_list import decode_names
from downloader.core.ownership import unsettled
from downloader.core.pipeline_order import doubtful_text
from downloader.core.units import show_count
from downloader.errors import UNDECODABLE, ConfigError, DestinationError, JournalError
from downloader.files.directory import Directory, check_owner, open_home
from downloader.messages import Failure, Tally
from downloader.sinks.registry import sink_kind, staged_in, undoer, verifier
from downloader.sinks.sink import REWRITTEN, SUPERSEDED, Compares, Comparison, Inspect, Written
from downloader.sinks.stored import is_inside, open_root, place
from downloader.storage.homes import home_of
from downloader.storage.journal import NAME as JOURNAL
from downloader.storage.journal import BatchRow, JobSpec, Journal
from downloader.storage.known_names import has_keyed
from downloader.storage.ledger import read as read_ledger
from downloader.storage.left_ledgers import collect_ledgers, left_ledgers, temporary_prefix
from downloader.storage.lock import is_locked, lock
from downloader.storage.name_key import check_key, key_path, read_key
from downloader.storage.name_owners import CHUNK, damaged_at, is_left, settle_damaged
from downloader.storage.places import leads_to, moved
from downloader.storage.stored_there import check_bucket, check_stored, merged

__all__ = ["HeldRoot", "Status", "Verified", "remarks", "status", "verify"]

_NAMED = 1000
_RECORDED = 6  # rules for names of the jobs whose shards have records from the first on


class Status(msgspec.Struct, frozen=True):
    """A summary of a destination's journal. ``stored`` counts all runs.

    ``complete``, as in a report: the source was read to its end, or to --limit, every file is stored or
    failed, and the indexes of shards are written. ``source_read``: it was read to its end. ``doubtful``:
    see ``Report``.
    """

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
    slices: dict[str, int] = {}
    doubtful: int = 0


class Verified(msgspec.Struct, frozen=True):
    """The result of ``verify``.

    ``damaged`` names the files that differ from what was stored, at most the first 1,000; also those that
    were recorded as damaged before and not fetched again yet, ``recorded`` of them. These are not compared.
    ``written_down``: they are recorded as damaged, so that the next run fetches them again. ``published``:
    what is wrong with files that the store has made of them, by name, at most the first 1,000;
    ``unrecorded``: how many shards are compared less than wholly, since their records are not there.
    ``doubtful``: how many files may have had the bodies of others when they were stored. ``behind``: the
    indexes of shards were not compared, as shards were published since a run has written them.
    ``records_lost``: the version that began the job has kept records, so those that are missing were there.
    """

    checked: int
    agree: int
    damaged_count: int
    damaged: list[str]
    written_down: bool = True
    published: dict[str, str] = {}
    unrecorded: int = 0
    doubtful: int = 0
    recorded: int = 0
    behind: bool = False
    records_lost: bool = False

    @property
    def exit_code(self) -> int:
        """Return the exit code of ``verify``."""
        return 1 if self.damaged_count or self.published or self.doubtful else 0


def status(root: str) -> Status:
    """Return a summary of the journal under ``root`` (DEST, or --journal) and the ledgers of workers.

    A run may be writing them at the same time. Raises ConfigError if there is no journal,
    DestinationError, JournalError.
    """
    with _opened(root) as home, contextlib.closing(_readable(home)) as journal:
        job = _job(journal)
        tally = journal.tally(open_too=True) + _unrecorded(home, journal, job.store)
        listed = journal.position().listed
        pending = listed - tally.stored - tally.failed
        return Status(
            source=job.shown,
            store=job.store,
            layout=job.layout,
            listed=listed,
            stored=tally.stored,
            failed=tally.failed,
            pending=pending,
            bytes=tally.bytes,
            source_read=journal.ended,
            complete=journal.read
            and not (pending or journal.open_count())
            and _is_described(home, journal, job.store),
            failed_by_error=journal.failures_by_code(),
            doubtful=journal.doubtful,
        )


def _is_described(home: Directory, journal: Journal, store: str) -> bool:
    """Return whether a run has written what describes all shards, if the store has any."""
    kind = sink_kind(store)
    return not isinstance(kind, Compares) or kind.is_described(home, len(journal.shards.finished()))


def _readable(home: Directory) -> Journal:
    """Return the journal, to read only, also where nothing can be written beside it."""
    try:
        return Journal(home, read_only=True)
    except JournalError:
        if not home.is_full() or is_locked(home):
            raise
        return Journal(home, read_only=True, alone=True)


def _unrecorded(home: Directory, journal: Journal, store: str) -> Tally:
    """Return the files of open batches that are stored, and that the journal does not have yet.

    They are published and in a ledger, or samples of a shard that is not published.
    """
    found = _in_ledgers(home, journal)
    staged = staged_in(store, home)
    for row in journal.unsettled():
        if numbers := journal.shards.of(row.seq):
            count, size = staged(numbers[-1])
            known = item_states.summed(row.marks)
            # No more than it has: what is kept under its number may be another's.
            more = min(count, row.count) - known[0], size - known[1]
            found[row.seq] = max(more, found.get(row.seq, (0, 0)))
    return Tally(stored=sum(n for n, _ in found.values()), bytes=sum(size for _, size in found.values()))


def _in_ledgers(home: Directory, journal: Journal) -> dict[int, tuple[int, int]]:
    """Return how many files, and bytes, of open batches are published in the ledgers only, by batch."""
    found = {}
    known: dict[int, bytes] = {}
    for path in left_ledgers(home):
        for seq, marks in read_ledger(path):
            if journal.is_open(seq):
                known[seq] = item_states.merge(known.get(seq, b""), marks.packed(), marks.count)
    for seq, packed in known.items():
        older = journal.marks(seq)
        count = len(item_states.unpack(packed)[0])
        try:
            now = item_states.summed(item_states.merge(older, packed, count))
        except (IndexError, ValueError) as error:
            raise journal.damaged(f"batch {seq}, or a ledger beside it: {error}") from error
        before = item_states.summed(older)
        found[seq] = (now[0] - before[0], now[1] - before[1])
    return found


def verify(output: str, quiet: bool = False, root: str = "", access: BucketAccess = NO_OPTIONS) -> Verified:
    """Compare every stored file with its size and checksum in the journal, and return the result.

    A file that is missing or differs is recorded as damaged, so that the next run fetches it again, except
    on a file system that is read-only or full. A disk that fails says nothing of the files: that raises
    DestinationError. ``root`` is --journal; ``access``: to a bucket. Also raises ConfigError, InUse,
    JournalError.
    """
    root = root or output
    place = _Place(output, access)
    with _opened(root) as home:
        if home.is_read_only():
            return _verify_with(place, root, home, quiet, read_only=True)
        check_owner(home.fd, home.path, "copy it")
        fd = lock(home)
        try:
            return _verify_with(place, root, home, quiet, read_only=False)
        except JournalError:
            if not home.is_full():
                raise
            return _verify_with(place, root, home, quiet, read_only=True)
        finally:
            os.close(fd)


class _Place(NamedTuple):
    """DEST, and what a bucket needs."""

    output: str
    access: BucketAccess


class HeldRoot:
    """DEST while it is compared, which is held open: what is there is not taken for empty once it is away.

    Nothing is to be recorded as damaged without ``check``. Close it at the end. Raises DestinationError.
    """

    def __init__(self, output: str) -> None:
        self._directory = None if is_bucket(output) else open_root(output)

    def check(self) -> None:
        """Raise DestinationError if another directory, or none, has its path by now."""
        if self._directory is not None and not self._directory.is_in_place():
            raise DestinationError(
                f"{self._directory} was moved, unmounted or replaced meanwhile; put it back, then run the "
                "same command again"
            )

    def close(self) -> None:
        """Release it."""
        if self._directory is not None:
            self._directory.close()


def _verify_with(place: _Place, root: str, home: Directory, quiet: bool, *, read_only: bool) -> Verified:
    output = place.output
    with contextlib.closing(Journal(home, read_only=read_only, alone=read_only)) as journal:
        job = _job(journal)
        if job.output and not leads_to(job.output, output):
            remedy = moved(job.output, output)
            raise ConfigError(f"{root} has the journal of {job.output}, not of {output}; give that{remedy}")
        check_key(key_path(home), read_key(home), job.key, lambda: has_keyed(home) or journal.has_keyed())
        with contextlib.closing(HeldRoot(output)) as held:
            if is_bucket(output):
                check_bucket(output, place.access, job, home, journal)
            elif job.output:
                check_stored(output, job, home, journal)
            if not read_only:
                try:
                    check = verifier(job.store, Path(output), job.layout)
                except UNDECODABLE as error:
                    raise journal.damaged(error) from error
                apart = os.path.realpath(root) != os.path.realpath(output)
                prefix = temporary_prefix(home) if apart else ""
                undo = undoer(job.store, Path(output), job.layout, prefix)
                collect_ledgers(home, journal, check, undo)
            left = merged(left_ledgers(home)) if read_only else None
            return _verify(journal, place, held, home, quiet, left)


def _verify(
    journal: Journal,
    place: _Place,
    held: HeldRoot,
    home: Directory,
    quiet: bool,
    left: dict[int, bytes] | None,
) -> Verified:
    """Compare; ``left``: what is in ledgers and stays there, where nothing can be written, else None."""
    job, root = _job(journal), Path(place.output)
    kind = sink_kind(job.store)
    if not kind.keeps:
        raise ConfigError(f"{root} was stored with --store {job.store}; there are no files to verify")
    checked = agree = recorded = 0
    names: list[str] = []
    for name in journal.damaged_names():
        recorded += 1
        names += [name] if recorded <= _NAMED else []
    shown = monotonic()
    settling = _Settling(journal, root, job.layout, has_files=kind.name == "files")
    comparison: Comparison | None = None
    published: list[tuple[str, str]] = []
    finished: list[int] = []
    waiting: list[int] = []
    try:
        inspect = kind.inspector(root, job.layout)
        if isinstance(kind, Compares):
            journal.shards.inspect(expected=True)
            comparison = kind.comparison(place.output, job.layout, home, place.access)
    except UNDECODABLE as error:
        raise journal.damaged(error) from error
    for row in _batches(journal, left or {}):
        shards = journal.shards.of(row.seq)
        if claimed := settling.left(row, shards) if row.done else _claimed(row):
            recorded += len(claimed)
            names += claimed[: max(0, _NAMED - len(names))]
        damaged = _damaged(row, shards, inspect, comparison) if row.marks else []
        held.check()
        anew: list[int] = []
        names += [failure.name for failure in damaged[: max(0, _NAMED - len(names))]]
        if comparison is not None:
            anew, to_come, found = _compare_shards(
                journal, row, shards, comparison, damaged=bool(damaged), read_only=left is not None
            )
            waiting += to_come
            published += found
            finished += [shard for shard in shards if journal.shards.is_finished(shard)]
        count = sum(1 for _ in item_states.published(row.marks)) if row.marks else 0
        checked += count
        agree += count - len(damaged)
        if damaged and left is None:
            settling.mark(row.seq, damaged, anew)
        if not quiet and monotonic() - shown > 2:
            shown = monotonic()
            print(f"downloader: {show_count(checked)} files verified", file=sys.stderr)  # noqa: T201
    settling.settle()
    if comparison is not None:
        complete = journal.read and not journal.open_count()
        published += comparison.finish(sorted(finished), waiting, complete=complete)
        held.check()
    return Verified(
        checked,
        agree,
        checked - agree + recorded,
        names,
        left is None,
        dict(published[:_NAMED]),
        comparison.unrecorded if comparison is not None else 0,
        journal.doubtful,
        recorded,
        comparison is not None and comparison.is_behind,
        job.naming >= _RECORDED,
    )


class _Settling:
    """Record damaged files, and which files these are; ``has_files``: each item is a file.

    Then a claim says which file was damaged, and whether that is still there can be seen.
    """

    def __init__(self, journal: Journal, root: Path, layout: str, *, has_files: bool) -> None:
        self._journal = journal
        self._root = root
        self._layout = layout
        self._has_files = has_files
        # By name: batch, index and file. An item that has stored its own file there may be still to come.
        self._waiting: dict[str, tuple[int, int, int]] = {}

    def mark(self, seq: int, damaged: list[Failure], shards: Sequence[int]) -> None:
        """Record that files of batch ``seq`` are damaged; ``settle`` makes the claims on them valid.

        ``shards``: those that are to be published anew.
        """
        files: dict[int, int] = {}
        for each in damaged if self._has_files else ():
            where = place(each.name, self._layout)
            file = damaged_at(self._root, where) if is_inside(where) else 0
            if file:
                files[each.index] = unsettled(file)
                self._waiting[each.name] = seq, each.index, file
        self._journal.mark_damaged(seq, damaged, files, shards)
        if len(self._waiting) >= CHUNK:
            self.settle()

    def left(self, row: BatchRow, shards: Sequence[int]) -> list[str]:
        """Return the names of items of a batch that are damaged, also after they were requested again.

        Those that were not requested are in ``Journal.damaged_names``. Where another item has the name,
        what this one had is gone. ``shards`` of the batch are compared as they are.
        """
        owned = {index: claim.file for index, claim in _claims(row).items() if claim.state == OWNED}
        if not owned or shards:
            return []
        found = [
            each
            for each in self._journal.failures(row.seq)
            if each.index in owned and each.code not in ("damaged", "name-taken")
        ]
        return [
            each.name
            for each in found
            if not self._has_files or self._is_left(each.name, owned[each.index])
        ]

    def _is_left(self, name: str, file: int) -> bool:
        where = place(name, self._layout)
        return bool(is_inside(where)) and is_left(self._root, where, file)

    def settle(self) -> None:
        """Search the journal for other owners of those files."""
        if self._waiting:
            settle_damaged(self._journal, self._waiting)
            self._waiting.clear()


def _compare_shards(
    journal: Journal,
    row: BatchRow,
    shards: tuple[int, ...],
    comparison: Comparison,
    *,
    damaged: bool,
    read_only: bool,
) -> tuple[list[int], list[int], list[tuple[str, str]]]:
    """Return which of the ``shards`` of a batch are to be published anew, and what is wrong with files.

    Between the two: which were to be published anew before. ``damaged``: items are found damaged. Those of
    earlier times may not be fetched again yet.
    """
    done = [shard for shard in shards if journal.shards.is_finished(shard)]
    earlier = journal.shards.damaged_of(row.seq)
    waits = bool(earlier) and (damaged or next(journal.failures(row.seq), None) is not None)
    if waits:
        comparison.publish_anew(earlier)
    anew = comparison.publish_anew(done) if damaged and row.done else []
    found = [each for shard in done for each in comparison.left(shard)]
    for shard in earlier:
        wrong = comparison.left(shard)
        found += wrong
        if not (wrong or waits or read_only):
            journal.shards.settle(row.seq, shard)  # another one has its samples, and it was removed
    return anew, earlier if waits else [], found


def _claimed(row: BatchRow) -> list[str]:
    """Return the names of items of an open batch that are recorded as damaged.

    Of those that are UNOWNED, too: only a file that was kept is that in an open batch.
    """
    indices = _claims(row)
    names = decode_names(row.names) if indices else []
    return [names[index] for index in indices if index < len(names)]


def _claims(row: BatchRow) -> dict[int, Claim]:
    return item_states.claims(row.marks) if row.marks else {}


def _batches(journal: Journal, left: dict[int, bytes]) -> Iterator[BatchRow]:
    """Yield the batches of ``journal``, with what is in ledgers only."""
    for row in journal.batches():
        if not row.done and row.seq in left:
            yield replace(row, marks=item_states.merge(row.marks, left[row.seq], row.count))
        else:
            yield row


def _damaged(
    row: BatchRow, shards: tuple[int, ...], inspect: Inspect, comparison: Comparison | None
) -> list[Failure]:
    names = decode_names(row.names)
    if len(names) != row.count:
        raise JournalError(f"the journal is damaged (batch {row.seq}); --restart begins anew")
    written = [
        Written(row.seq, mark.index, names[mark.index], mark.size, mark.crc, shards)
        for mark in item_states.published(row.marks)
    ]
    problems = map(inspect, written) if comparison is None else comparison.batch(written, names)
    return [
        Failure(each.index, each.name, "", "damaged", problem, 0)
        for each, problem in zip(written, problems, strict=True)
        if problem
    ]


def _opened(root: str) -> Directory:
    """Return the home under ``root``, which has a journal, for reading.

    Raises ConfigError if there is no journal, or if this user may not read it, DestinationError.
    """
    home = home_of(root)
    denied = ConfigError(
        f"{home}: Permission denied; only the user who downloaded into {root} may read its journal"
    )
    none = ConfigError(
        f"{root} has no journal; nothing was downloaded there by this program, or with --journal"
    )
    try:
        directory = open_home(home, write=False)
    except PermissionError:
        raise denied from None
    except (FileNotFoundError, NotADirectoryError):
        raise none from None
    except OSError as error:
        raise DestinationError(f"{home}: {advice(error)}") from error
    try:
        if not (directory / JOURNAL).check(write=False):
            raise none
        if not os.access(JOURNAL, os.R_OK, dir_fd=directory.fd):
            raise denied
    except BaseException:
        directory.close()
        raise
    return directory


def _job(journal: Journal) -> JobSpec:
    job = journal.job()
    if job is None:
        raise JournalError(f"{journal.path} is empty; the run that made it ended before it began")
    return job


def remarks(found: Verified) -> Iterator[str]:
    """Yield what is to be known of what was compared, and what to do."""
    if found.recorded:
        are = "file is" if found.recorded == 1 else "files are"
        yield f"{found.recorded:,} {are} recorded as damaged or out of date, and not fetched again yet"
    if found.doubtful:
        yield doubtful_text(found.doubtful)
    left = [name for name, what in found.published.items() if not what.endswith((REWRITTEN, SUPERSEDED))]
    if left:
        yield (
            "to have files beside a shard written again, move the shard away with the files beside it, "
            "verify, and run the same command again"
        )
    if any(what.endswith(REWRITTEN) for what in found.published.values()):
        yield "with --existing keep or fail, move away first what the same command is to write again"
    if found.behind:
        yield "shards.json and sizes.json were not compared: a run writes them at its end"
    if found.unrecorded:
        of_whom = (
            "though they had one (a power cut without --fsync takes it, or somebody has removed it)"
            if found.records_lost
            else "as those of earlier versions"
        )
        yield (
            f"{show_count(found.unrecorded)} shards have no record of what was published, {of_whom}: of "
            "these, samples and shards were compared with what is known, not the rows"
        )
