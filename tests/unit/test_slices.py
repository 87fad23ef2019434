"""Which slices run, run again and are set aside; how limits are divided; what their actor tells."""

from __future__ import annotations

import msgspec
import pytest

from downloader.cluster.node.limits_actor import LimitsActor, SliceHeartbeat
from downloader.cluster.plan.plan import Slice
from downloader.core.slices import MOST_CRASHES, MOST_TRIES, Shares, SliceBook, plan_digest, shares


@pytest.mark.parametrize(
    ("slots", "workers", "per_host", "expected"),
    [
        (4, 2, 0, Shares(4, 2, 0)),
        (0, 1, 0, Shares(1, 1, 0)),
        (4, 2, 32, Shares(4, 2, 4)),
        (4, 2, 9, Shares(4, 2, 1)),
        (64, 4, 10, Shares(2, 4, 1)),  # fewer slices, since each worker has one connection at least
        (8, 4, 3, Shares(1, 3, 1)),
        (3, 1, 7, Shares(3, 1, 2)),
    ],
)
def test_shares(slots: int, workers: int, per_host: int, expected: Shares) -> None:
    assert shares(slots, workers, per_host) == expected


def test_shares_never_exceed_the_limit() -> None:
    for slots in range(1, 20):
        for workers in range(1, 8):
            for per_host in range(1, 60):
                share = shares(slots, workers, per_host)
                assert share.per_host >= 1
                assert share.running * share.workers * share.per_host <= per_host


def test_slice_that_fails_is_set_aside() -> None:
    book = SliceBook()
    book.add("a")
    for number in range(1, MOST_TRIES + 1):
        assert book.next() == "a"
        assert book.ended("a", "failed", "killed") == (number == MOST_TRIES)
    assert book.next() is None
    assert book.abandoned == {"a": "killed"}
    assert book.attempts == MOST_TRIES


def test_slice_that_is_lost_runs_again_at_once_and_any_number_of_times() -> None:
    book = SliceBook()
    book.add("a")
    book.add("b")
    for _ in range(100):
        assert book.next() == "a"
        assert not book.ended("a", "lost")
    assert book.next() == "a"
    book.ended("a", "done")
    assert (book.next(), book.done, book.abandoned) == ("b", 1, {})


def test_slice_whose_workers_crash_is_set_aside_later() -> None:
    book = SliceBook()
    book.add("a")
    ends = []
    for _ in range(MOST_CRASHES):
        book.next()
        ends.append(book.ended("a", "crashed", "no memory"))
    assert ends == [False] * (MOST_CRASHES - 1) + [True]


def test_drained_slice_waits() -> None:
    book = SliceBook()
    book.add("a")
    book.next()
    assert not book.ended("a", "drained")
    assert (book.waiting, book.running) == (1, set())


def test_digest_depends_on_every_fact() -> None:
    facts = {"source": "a", "limit": 0, "options": {"x": 1}}
    assert plan_digest(facts) == plan_digest({"options": {"x": 1}, "limit": 0, "source": "a"})
    assert (
        len({plan_digest(facts), plan_digest({**facts, "limit": 1}), plan_digest({**facts, "y": ""})}) == 3
    )


def test_board() -> None:
    now = [100.0]
    limits_actor = LimitsActor(lambda: now[0])
    heartbeat = SliceHeartbeat("s", "n", (1, 0, 0, 5))
    assert limits_actor.exchange("a", heartbeat, [("h", 10.0)], 0) == (0.0, False, [], 1)
    limits_actor.collect(7.0, False)
    now[0] += 4
    # Others are told of a pause once, with what is left of it; the one that reported it is not.
    assert limits_actor.exchange("b", heartbeat, [], 0) == (7.0, False, [("h", 6.0)], 1)
    assert limits_actor.exchange("b", heartbeat, [], 1) == (7.0, False, [], 1)
    assert limits_actor.exchange("a", heartbeat, [], 0)[2] == []
    now[0] += 7
    assert limits_actor.exchange("c", heartbeat, [], 0)[2] == []
    assert len(limits_actor.collect(7.0, True)[0]) == 3
    assert limits_actor.exchange("c", heartbeat, [], 1)[1]
    now[0] += 60
    assert limits_actor.collect(7.0, True)[0] == []


def test_slices_are_stored_as_by_earlier_versions() -> None:
    stored = {"name": "r00000000", "count": 2, "covers": ["00000000"], "first": 3, "seq": 4}
    found = msgspec.json.decode(msgspec.json.encode(stored), type=Slice)
    assert found.retries == ("00000000",)
    assert msgspec.to_builtins(found).items() >= {**stored, "covers": ("00000000",)}.items()
