"""Numbers of shards in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from downloader.files.directory import open_home
from downloader.storage.journal import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(open_home(tmp_path))
    yield made
    made.close()


def test_batches_are_numbered_in_order_and_only_once(journal: Journal) -> None:
    shards = journal.shards
    assert [shards.first(seq) for seq in (0, 1, 1, 0, 2)] == [(0,), (1,), (1,), (0,), (2,)]
    assert shards.of(7) == ()


def test_further_shards_are_behind_all_others_and_used_until_they_are_published(journal: Journal) -> None:
    shards = journal.shards
    for seq in range(3):
        shards.first(seq)
        shards.finish(seq)
    assert shards.again(1) == (1, 3)
    assert shards.again(1) == (1, 3), "nothing was published in it"
    assert shards.again(0) == (0, 4)
    shards.finish(1)
    assert shards.again(1) == (1, 5)
    assert shards.of(1) == (1, 3, 5)
    assert [shards.is_finished(number) for number in range(6)] == [True, True, True, True, False, False]


def test_batches_that_come_later_are_behind_further_shards(journal: Journal) -> None:
    shards = journal.shards
    shards.first(0)
    shards.finish(0)
    assert shards.again(0) == (0, 1)
    assert shards.first(1) == (2,)


def test_a_damaged_shard_is_used_again(journal: Journal) -> None:
    """The first one of its batch, before any further shard."""
    shards = journal.shards
    for seq in range(2):
        shards.first(seq)
        shards.finish(seq)
    assert shards.again(0) == (0, 2)
    shards.finish(0)
    shards.reopen(0, (0, 2))
    assert (shards.finished(), shards.damaged_of(0), shards.damaged_of(1)) == ([1], [0, 2], [])
    assert shards.again(0) == (0, 0)
    shards.finish(0)
    assert (shards.finished(), shards.again(0)) == ([0, 1], (0, 2))
    assert shards.damaged(superseded=True) == [2], "no item of its batch is to be fetched"
    shards.settle(0, 2)
    assert (shards.finished(), shards.again(0)) == ([0, 1, 2], (0, 3))
