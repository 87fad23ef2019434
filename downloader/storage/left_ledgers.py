"""Take what the workers of a run have left in their ledgers into the journal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

from downloader.core import item_states
from downloader.files.directory import Directory, Entry
from downloader.messages import Lease, Tally
from downloader.sinks.sink import Undo, Verify, Written
from downloader.storage.journal import Journal
from downloader.storage.ledger import read_merged
from downloader.storage.name_key import name_key

__all__ = ["WorkerLedgers", "collect_ledgers", "left_ledgers", "take_back", "temporary_prefix"]

_Left = dict[int, tuple[bytes, list[int]]]
"""What workers have left, by batch: the packed item states, and the items that were in flight."""


class WorkerLedgers:
    """The ledgers of the workers of a run.

    ``undo``: see ``sinks.sink.Undoes``. ``staged``: see ``sinks.registry.staged_in``. ``sync``: called
    before what a dead worker has stored counts as stored.
    """

    def __init__(
        self,
        home: Directory,
        journal: Journal,
        verify: Verify,
        undo: Undo | None,
        staged: Callable[[int], tuple[int, int]],
        sync: Callable[[], None],
    ) -> None:
        self._home = home
        self._journal = journal
        self._verify = verify
        self._undo = undo
        self._staged = staged
        self._sync = sync

    def path(self, number: int) -> Entry:
        """Return the ledger of worker ``number``."""
        return self._home / f"ledger-{number}"

    def inherit(self, number: int, held: Mapping[int, Lease]) -> dict[int, tuple[bytes, list[int]]]:
        """Move the ledger of worker ``number``, which is dead, into the journal.

        Returns, for each batch that it held, the packed item states and the items that were in flight.
        Raises JournalError; the ledger then stays for the next run.
        """
        path = self.path(number)
        self._sync()
        found = {}
        for seq, (marks, in_flight) in read_merged(path).items():
            if (lease := held.get(seq)) is not None:
                # It may have died before it had checked all items that were stored before.
                packed = item_states.merge(lease.done, marks, lease.count)
                found[seq] = (packed, in_flight)
        _keep(self._journal, found, self._verify, self._undo)
        path.unlink(missing_ok=True)
        return found

    def keep(self, marks: dict[int, bytes]) -> None:
        """See ``Journal.keep_marks``."""
        _keep(self._journal, {seq: (each, []) for seq, each in marks.items()}, self._verify, self._undo)

    def unreported(self, leases: Iterable[Lease]) -> Tally:
        """Return what this run has stored of ``leases``, of which no worker will report: as `status` does.

        It is in the journal; or in a ledger, if that could not be moved into the journal; or in a part of a
        shard, with what earlier runs have stored there, which counts as skipped. Raises JournalError.
        """
        left: dict[int, bytes] = {}
        for path in left_ledgers(self._home):
            for seq, (marks, _) in read_merged(path).items():
                left[seq] = item_states.merge(left.get(seq, b""), marks, len(item_states.unpack(marks)[0]))
        found = Tally()
        for lease in leases:
            if lease.shards:
                count, size = self._staged(lease.shards[-1]) if not lease.only else (0, 0)
                known = [mark.size for mark in item_states.written(lease.earlier)]
                skipped = min(len(known), count)
                found += Tally(count - skipped, skipped, bytes=max(size - sum(known), 0))
            else:
                before = self._journal.marks(lease.seq)
                now = item_states.merge(before, left.get(lease.seq, b""), lease.count)
                found += item_states.gained(lease.earlier, now, frozenset(lease.only))
        return found


def left_ledgers(home: Directory) -> list[Entry]:
    """Return the ledgers that workers have left."""
    return home.entries("ledger-[0-9]+")


def collect_ledgers(home: Directory, journal: Journal, verify: Verify, undo: Undo | None) -> None:
    """Move the ledgers that the workers of a killed run have left into the journal."""
    for path in left_ledgers(home):
        _keep(journal, read_merged(path), verify, undo)
        path.unlink()


def _keep(journal: Journal, left: _Left, verify: Verify, undo: Undo | None) -> None:
    """See ``Journal.keep_marks``; ``undo``: what items were about to do, before it is looked at."""
    if undo is not None:
        take_back(journal, left, undo)
    journal.keep_marks({seq: packed for seq, (packed, _) in left.items()}, verify)


def take_back(journal: Journal, left: _Left, undo: Undo) -> None:
    for seq, (packed, in_flight) in left.items():
        unfinished = {index: (-1, 0) for index in in_flight}
        for mark in item_states.written(packed):
            if not mark.published:
                unfinished[mark.index] = mark.size, mark.crc
        names = journal.names(seq) if unfinished else []
        for index, content in unfinished.items():
            if index < len(names):
                undo(Written(seq, index, names[index], *content))


def temporary_prefix(home: Directory) -> str:
    """Return ``core.ownership.Rules.temporary`` of a job whose journal is not in the destination."""
    return f"{hashlib.blake2b(name_key(home), digest_size=6).hexdigest()}-"
