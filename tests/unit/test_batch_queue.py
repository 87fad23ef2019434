"""The batch queue: what is requested from the feeder, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from downloader.core.name_list import encode_names
from downloader.engine.batch_queue import BatchQueue
from downloader.files.directory import open_home
from downloader.messages import Batch, BatchDone, Continue, Credit, Lease, Recall, Tally
from downloader.storage.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(open_home(tmp_path))
    yield made
    made.close()


def batch(seq: int, *, recalled: bool = False) -> Batch:
    return Batch(seq, 1, b"behind %d" % seq, encode_names([str(seq)]), b"", b"", recalled)


def test_requests_are_grouped_and_cover_the_demand(journal: Journal) -> None:
    queue = BatchQueue(journal, failed_only=False)
    begin, credit = queue.next_requests(2)
    assert begin == Continue(b"", 0, 0)
    assert isinstance(credit, Credit)
    owed, orders = credit.batches, 1
    for seq in range(100):
        assert 2 <= owed <= 5
        assert queue.on_batch(batch(seq)) is None
        owed -= 1
        for order in queue.next_requests(2):
            assert isinstance(order, Credit)
            owed, orders = owed + order.batches, orders + 1
    assert orders <= 100 / 4 + 1
    assert not list(queue.next_requests(-3))
    queue.end()
    assert queue.drained
    assert not list(queue.next_requests(2))


def test_open_batches_come_first_and_again_after_a_feeder_death(journal: Journal) -> None:
    for seq in range(10):
        journal.open_batch(batch(seq))
    journal.record_done(BatchDone(3, Tally(1, 0, 0, 0, 0), 1, 1, 0, {}, {}, b"", []), b"")
    queue = BatchQueue(journal, failed_only=False)
    first = list(queue.next_requests(1))
    assert [order.seq for order in first if isinstance(order, Recall)] == [0, 1, 2, 4]
    assert queue.on_batch(batch(0, recalled=True)) == Lease(0, 1, b"")
    queue.feeder_lost()
    asked: list[int] = []
    while not queue.drained:
        for order in queue.next_requests(1):
            if isinstance(order, Recall):
                asked.append(order.seq)
            elif isinstance(order, Continue):
                assert order == Continue(b"behind 9", 10, 10)
            else:
                queue.end()
        for seq in asked[-4:]:
            if seq in queue._recalled:
                queue.on_batch(batch(seq, recalled=True))
    assert asked == [1, 2, 4, 5, 6, 7, 8, 9]
