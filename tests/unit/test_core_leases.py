"""The lease book: credit, deaths, suspects, poison."""

from __future__ import annotations

import random

import pytest

from downloader.core.item_states import ItemStates
from downloader.core.leases import DEATHS_TO_POISON, LeaseBook
from downloader.messages import Lease


def lease(seq: int, count: int = 10) -> Lease:
    return Lease(seq, count, b"items %d" % seq)


def book(*credits: int) -> LeaseBook:
    made = LeaseBook()
    for worker, credit in enumerate(credits):
        made.add_worker(worker)
        made.grant(worker, credit)
    return made


def test_least_loaded_worker_with_credit_gets_the_next_batch() -> None:
    made = book(2, 1)
    for seq in range(5):
        made.add(lease(seq))
    assert [(worker, each.seq) for worker, each in made.assign()] == [(0, 0), (1, 1), (0, 2)]
    assert (len(made._waiting), made.open, made.ready_target) == (2, 5, -2)
    made.grant(1, 1)
    assert [(worker, each.seq) for worker, each in made.assign()] == [(1, 3)]
    assert made.busy() == [0, 1]


def test_without_credit_nothing_is_leased() -> None:
    made = book(0)
    made.add(lease(0))
    assert list(made.assign()) == []
    assert list(LeaseBook().assign()) == []


def test_settled_batches_are_removed() -> None:
    made = book(1)
    made.add(lease(7))
    list(made.assign())
    assert made.lease(0, 7) == lease(7)
    assert made.lease(0, 8) is None
    assert made.lease(5, 7) is None
    made.settle(0, 7)
    assert (made.open, made.busy(), made.held_by(0)) == (0, [], {})
    with pytest.raises(KeyError):
        made.settle(0, 7)


def narrowed(seq: int) -> Lease:
    return Lease(seq, 10, b"the rest", (3, 7), narrowed=True)


def test_narrowed_batches_do_not_count_as_load_and_are_inherited_as_they_are() -> None:
    made = book(3, 3)
    for seq in range(4):
        made.add(lease(seq))
    assert [(worker, each.seq) for worker, each in made.assign()] == [(0, 0), (1, 1), (0, 2), (1, 3)]
    for seq in (0, 2, 2):  # once narrowed, a batch may be narrowed again
        made.narrow(0, narrowed(seq))
    made.add(lease(4))
    assert [(worker, each.seq) for worker, each in made.assign()] == [(0, 4)]
    assert made.settle(0, 0) == narrowed(0)
    made.add_worker(2)
    made.grant(2, 2)
    made.died(0, {2: (b"states", [7])})
    made.grant(1, 1)
    assert [(worker, each.seq, each.only, each.done) for worker, each in made.assign()] == [
        (2, 2, (3, 7), b"states"),
        (2, 4, (), b""),
    ]
    assert made.open == 4
    with pytest.raises(KeyError):
        made.narrow(1, narrowed(2))


def test_batches_of_a_dead_worker_are_requeued_first_with_published_items() -> None:
    made = book(2, 0)
    for seq in range(3):
        made.add(lease(seq))
    list(made.assign())
    marks = ItemStates(10)
    marks.publish(3, 100, 1)
    assert made.died(0, {1: (marks.packed(), [4, 5])}) == []
    made.grant(1, 3)
    again = [each for _, each in made.assign()]
    assert [each.seq for each in again] == [0, 1, 2]
    assert again[1].done == marks.packed()
    # After one death the items in flight are not yet fetched one at a time.
    assert [each.suspects for each in again] == [(), (), ()]
    assert again[0].done == b""


def test_credit_of_a_dead_worker_is_dropped() -> None:
    made = book(3)
    made.died(0, {})
    made.add(lease(0))
    assert list(made.assign()) == []
    assert made.ready_target == -1


def test_death_of_an_unknown_worker_is_ignored() -> None:
    assert book().died(9, {}) == []


def die(made: LeaseBook, worker: int, in_flight: dict[int, list[int]]) -> list[tuple[int, int]]:
    """Let ``worker`` take what waits, and die."""
    made.add_worker(worker)
    made.grant(worker, 10)
    list(made.assign())
    return made.died(worker, {seq: (b"", indices) for seq, indices in in_flight.items()})


def test_item_is_a_suspect_after_two_deaths_and_poison_after_three() -> None:
    made = book()
    made.add(lease(0))
    assert die(made, 0, {0: [1, 2, 3]}) == []
    assert die(made, 1, {0: [2, 3, 4]}) == []
    made.add_worker(2)
    made.grant(2, 1)
    [(_, third)] = made.assign()
    assert third.suspects == (2, 3)
    assert made.died(2, {0: (b"", [3])}) == [(0, 3)]
    made.add_worker(3)
    made.grant(3, 1)
    [(_, fourth)] = made.assign()
    assert (fourth.suspects, fourth.poison) == ((2,), (3,))
    assert made.died(3, {0: (b"", [2])}) == [(0, 2)]


def test_deaths_are_forgotten_with_the_batch() -> None:
    made = book()
    made.add(lease(0))
    die(made, 0, {0: [1]})
    made.add_worker(1)
    made.grant(1, 1)
    list(made.assign())
    made.settle(1, 0)
    made.add(lease(0))
    for worker in range(2, 1 + DEATHS_TO_POISON):
        assert die(made, worker, {0: [1]}) == []
    assert die(made, 9, {0: [1]}) == [(0, 1)]


def test_lease_fields_survive_a_worker_death() -> None:
    made = book(1)
    made.add(Lease(4, 10, b"x", only=(1, 2), done=b"d", earlier=b"e", poison=(9,), replace=(2,)))
    list(made.assign())
    made.died(0, {})
    made.add_worker(1)
    made.grant(1, 1)
    [(_, again)] = made.assign()
    assert again == Lease(4, 10, b"x", only=(1, 2), done=b"d", earlier=b"e", poison=(9,), replace=(2,))


def test_drain_returns_waiting_batches() -> None:
    made = book(1)
    for seq in range(3):
        made.add(lease(seq))
    list(made.assign())
    assert [each.seq for each in made.forget_waiting()] == [1, 2]
    assert (len(made._waiting), made.open) == (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_no_batch_is_ever_lost_or_held_twice(seed: int) -> None:
    """After any sequence of events each batch waits, or one worker holds it, or it is settled; credit is
    kept."""
    rng = random.Random(seed)
    made, workers, added, settled, number = LeaseBook(), set[int](), 0, set[int](), 0
    held: dict[int, set[int]] = {}
    credit: dict[int, int] = {}
    for _ in range(400):
        what = rng.random()
        if what < 0.1 or not workers:
            made.add_worker(number)
            workers.add(number)
            held[number], credit[number] = set(), 0
            number += 1
        elif what < 0.35:
            made.add(lease(added))
            added += 1
        elif what < 0.6:
            worker = rng.choice(sorted(workers))
            made.grant(worker, 1)
            credit[worker] += 1
        elif what < 0.75:
            for worker, each in made.assign():
                held[worker].add(each.seq)
                credit[worker] -= 1
        elif what < 0.95:
            worker = rng.choice(sorted(workers))
            if held[worker]:
                seq = held[worker].pop()
                assert made.settle(worker, seq).seq == seq
                settled.add(seq)
        else:
            worker = rng.choice(sorted(workers))
            workers.discard(worker)
            made.died(worker, {})
            del held[worker], credit[worker]
        everywhere = [seq for seqs in held.values() for seq in seqs]
        assert len(everywhere) == len(set(everywhere))
        assert made.open == added - len(settled)
        assert len(made._waiting) == made.open - len(everywhere)
        assert made.ready_target == sum(credit.values()) - len(made._waiting)
        assert min(credit.values(), default=0) >= 0
        assert all(set(made.held_by(worker)) == held[worker] for worker in workers)
