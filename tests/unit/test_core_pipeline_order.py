"""Decisions about the order of responses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as counting
from random import Random

import pytest

from downloader.core.pipeline_order import (
    OUT_OF_ORDER,
    Answer,
    Order,
    Verdict,
    asking,
    broken_off,
    contradicted,
    is_repeatable,
    judged,
    next_alone,
    recheck_size,
    repeated,
    room_before_recheck,
)

FILES: list[Answer] = [b"%d" % n for n in range(128)]
KNOWN = Order(asked=200, shown=200)


def after(
    held: list[Answer],
    right: list[Answer] = FILES,
    order: Order = KNOWN,
    alone: Callable[[int], Answer] | None = None,
) -> Verdict:
    """Return the verdict on a window; ``right`` is what a second request for each of its files gets."""
    seen = dict(enumerate(right[: len(held)]))
    found: dict[int, list[Answer]] = {}
    while (index := next_alone(held, seen, found)) is not None:
        found.setdefault(index, []).append(alone(index) if alone else right[index % len(right)])
    return judged(order, held, seen, found)


def test_many_are_requested_again_until_enough_have_agreed() -> None:
    first = recheck_size(Order(), 256, 0.01)
    assert first > recheck_size(Order(), 256, 1.0) > 1  # responses are slow
    assert first > recheck_size(Order(asked=1000), 256, 0.01) > 1  # the first ones are under way
    assert recheck_size(KNOWN, 256, 0.01) == recheck_size(Order(alike=1000), 256, 0.01) == 1
    assert [recheck_size(Order(), count, 0.01) for count in (1, 2, 3)] == [1, 2, 3]
    order = Order()
    while recheck_size(order, 128, 0.01) > 1:
        order = after(FILES, FILES[:16], asking(order, 16)).order
    assert order.shown == 128


@pytest.mark.parametrize("left", range(1, 200))
@pytest.mark.parametrize("order", [Order(), KNOWN])
def test_connection_lasts_until_a_window_is_rechecked(left: int, order: Order) -> None:
    count = room_before_recheck(order, left)
    assert count == 1 or count + recheck_size(order, count, 0.01) <= left - 1


def test_what_agrees_is_stored() -> None:
    assert after(FILES).store
    assert after([b"same"] * 9, [b"same"] * 9, Order()) == Verdict(Order(alike=9), store=True)


@pytest.mark.parametrize("held", [FILES[::-1], [*FILES[:70], FILES[71], FILES[70], *FILES[72:]]])
def test_exchanged_answers_are_disorder(held: list[Answer]) -> None:
    verdict = after(held)
    assert (verdict.order.why, verdict.store) == (OUT_OF_ORDER, False)
    assert after(FILES, order=verdict.order) == verdict


def test_one_answer_twice_and_one_missing_is_disorder() -> None:
    assert after([FILES[0], *FILES[:-1]]).order.why == OUT_OF_ORDER


def test_answer_of_the_last_for_all_is_disorder() -> None:
    assert after([b"last"] * 5).order.why == OUT_OF_ORDER


def test_answers_of_the_next_for_two_are_disorder() -> None:
    """As of a server that keeps one path for a connection, which the next request changes."""
    assert after([FILES[1], FILES[1], FILES[2], FILES[4], FILES[4]]).order.why == OUT_OF_ORDER
    one = after([FILES[1], FILES[1], FILES[2], FILES[3], FILES[4]])
    assert (one.order.why, one.store) == ("", False)


def test_completion_order_is_disorder_with_any_few_files() -> None:
    random = Random(3)
    for count in range(3, 12):
        held = FILES[:count]
        while held == FILES[:count]:
            random.shuffle(held)
        assert after(held, FILES[:count]).order.why == OUT_OF_ORDER


def test_exchanged_statuses_are_disorder() -> None:
    held: list[Answer] = [b"same", "http-404", b"same", "http-404"]
    assert after(held, [b"same", b"same", "http-404", "http-404"]).order.why == OUT_OF_ORDER
    assert after(held, held).store
    assert after(held, [b"same", "http-404", b"same", b"new"]).store  # it is there now


def test_a_file_that_has_changed_is_no_disorder() -> None:
    assert after([b"before", *FILES[1:]]).store
    changed: list[Answer] = [b"%d before" % n for n in range(128)]
    assert after(changed) == Verdict(Order(200, 200, why="answers differ each time"), store=False)


def test_files_that_may_be_fetched_once_only_are_stored() -> None:
    assert after(FILES, ["http-410"] * 128) == Verdict(
        Order(200, 200, why="answers differ each time"), store=True
    )


@pytest.mark.parametrize("again", ["elsewhere", "http-400", b"this link was used"])
def test_links_that_are_spent_are_stored(again: Answer) -> None:
    verdict = after(FILES[:9], [again] * 9)
    assert verdict == Verdict(Order(200, 200, why="answers differ each time"), store=True)
    assert not after([b"the same"] * 9, [again] * 9).store or isinstance(again, str)


def test_what_differs_each_time_exchanges_nothing() -> None:
    """A few bodies in turn, as of advertisements, among files that do not change."""
    numbers = counting()
    held = [b"b", b"a", *FILES[2:]]
    verdict = after(held, [b"a", b"c", *FILES[2:]], alone=lambda index: b"%d" % next(numbers))
    assert (verdict.order.why, verdict.store) == ("", True)
    for _ in range(9):
        verdict = after(held, [b"a", *held[1:]], verdict.order, lambda index: b"%d" % next(numbers))
    assert (verdict.order.why, verdict.store) == ("answers differ each time", True)


def test_what_has_become_the_same_is_no_exchange() -> None:
    held = [b"old", b"new", *FILES]
    verdict = after(held, [b"new", *held[1:]])
    assert (verdict.order.why, verdict.store) == ("", False)
    assert after(held, [b"new", b"old", *FILES]).order.why == OUT_OF_ORDER


def test_exchange_in_the_recheck_is_disorder() -> None:
    assert after(FILES, [FILES[1], FILES[0], *FILES[2:]], alone=FILES.__getitem__).order.why == OUT_OF_ORDER


def test_connections_that_end_too_early_show_it_in_the_end() -> None:
    order = KNOWN
    for _ in range(9):
        assert broken_off(order, [b"0"] * 9, {0: b"changed"}) == Verdict(order, store=False)
        order = broken_off(order, FILES[1::-1], dict(enumerate(FILES[:2]))).order
    assert order.why == OUT_OF_ORDER


def test_a_few_files_are_repeated_before_anything_is_pipelined() -> None:
    order = Order()
    while not is_repeatable(order):
        order = repeated(order, b"a", b"a").order
    assert order.repeated > 1
    assert repeated(order, b"a", b"b") == Verdict(order, store=True)
    order = Order()
    for again in (b"used", "elsewhere"):
        assert not order.why
        order = repeated(order, b"a", again).order
    assert order.why == "answers differ each time"
    assert repeated(order, None, None) == Verdict(order, store=True)
    for _ in range(9):
        order = repeated(Order(vain=order.vain), b"a", None).order
    assert order.why == "the order of answers could not be checked"


def test_page_that_several_files_have_may_change() -> None:
    """Of files that do not exist, a page with the time, as some servers send it with status 200."""
    for now in (b"page at 2", b"page at 1"):
        held = [b"page at 1"] * 3 + FILES[3:]
        assert not after(held, [b"page at 2", now, now, *held[3:]]).order.why


@pytest.mark.parametrize(("held", "alone"), [(FILES, [None] * 128), ([b"page"] * 9, [b"own"])])
def test_what_shows_nothing_is_not_stored(held: list[Answer], alone: list[Answer]) -> None:
    order, windows = Order(), 0
    while not order.why:
        verdict = after(held, alone, order)
        order, windows = verdict.order, windows + 1
        assert not verdict.store
    assert order.why == "the order of answers could not be checked"
    assert windows > 3
    assert after(FILES, order=Order(vain=windows - 1)).order.vain == 0


def test_failures_that_mean_no_file_have_no_order() -> None:
    assert judged(Order(), [None] * 9, {}, {}) == Verdict(Order(), store=True)


def test_a_host_that_fails_for_a_while_is_pipelined_on() -> None:
    order = KNOWN
    for _ in range(20):
        order = after(FILES, [None] * 128, order).order
    assert order.why == ""


def test_what_the_source_contradicts_is_checked_more_but_not_for_ever() -> None:
    order, times = KNOWN, 0
    for _ in range(100):
        order = contradicted(order)
        if recheck_size(order, 256, 0.01) > 1:
            order, times = KNOWN.__class__(200, 200, doubts=order.doubts), times + 1
    assert 0 < times < 20
