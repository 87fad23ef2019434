"""The checkpoint syncs the disk before the journal: what could not be synced is not counted as stored."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from downloader.config.config import Config
from downloader.core.item_states import ItemStates
from downloader.core.leases import LeaseBook
from downloader.core.name_list import encode_names
from downloader.engine.checkpoint import Checkpoint
from downloader.errors import DestinationError
from downloader.messages import Batch, BatchDone, Lease, Tally
from downloader.reporting.stats import RunStats
from downloader.storage import destination as destinations
from downloader.storage.destination import Destination


def test_unsynced_files_are_not_counted_as_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    destination = Destination(Config(source="http://h", output=str(tmp_path), fsync=True))
    book, run = LeaseBook(), RunStats()
    try:
        destination.journal.open_batch(Batch(0, 1, b"cursor", encode_names(["a"]), b"", b""))
        book.add(Lease(0, 1, b""))
        book.add_worker(0)
        book.grant(0, 1)
        assert [lease.seq for _, lease in book.assign()] == [0]
        marks = ItemStates(1)
        marks.publish(0, 100, 1)
        checkpoint = Checkpoint(destination, book, run)
        checkpoint.add(0, BatchDone(0, Tally(1, 0, 0, 100, 0), 1, 1, 0, {}, {}, marks.packed(), []))

        def fails(fd: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        # Replaces the system call: the kernel reports an error once.
        monkeypatch.setattr(destinations, "syncfs", fails)
        with pytest.raises(DestinationError, match="cannot be synced"):
            checkpoint.write()
        monkeypatch.undo()
        assert destination.journal.open_count() == 1
        assert destination.journal.tally() == Tally()
        assert destination.journal.marks(0) == b""
        assert run.tally == Tally()
        assert set(book.held_by(0)) == {0}
        # Called again, the kernel reports success; that must not count.
        checkpoint.add(0, BatchDone(0, Tally(1, 0, 0, 100, 0), 1, 1, 0, {}, {}, marks.packed(), []))
        with pytest.raises(DestinationError):
            checkpoint.write()
        assert destination.journal.tally() == Tally()
    finally:
        destination.close()
