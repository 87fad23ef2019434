"""Decisions about the order of responses."""

from __future__ import annotations

from random import Random

import pytest

from downloader.core.pipeline_order import (
    OUT_OF_ORDER,
    Answer,
    Order,
    answered,
    check_depth,
    check_size,
    contradicted,
    due,
    stored,
)

FILES: list[Answer] = [(100, crc) for crc in range(128)]


def pairs(deep: list[Answer], alone: list[Answer] = FILES) -> list[tuple[Answer, Answer]]:
    return list(zip(deep, alone, strict=False))


def proven(depth: int = 8) -> Order:
    return answered(Order(), depth, pairs(FILES))


def test_first_check_proves_all_depths_unless_responses_are_slow() -> None:
    assert check_depth(Order(), 8, 64, 0.01) == 64
    assert check_depth(Order(), 8, 64, 1.0) == 8
    assert check_depth(Order(), 4, 4, 0.01) == 4  # by the user
    assert check_depth(proven(8), 64, 64, 1.0) == 64
    assert check_depth(Order(), 1, 64, 0.01) == 1


def test_nothing_is_stored_before_the_first_check() -> None:
    assert not due(Order(), 1)
    assert due(Order(), 8)
    assert proven().proven == 8
    assert not due(proven(), 8)
    assert due(proven(), 64)  # where more can overtake
    assert check_size(Order(), 64) >= 128


@pytest.mark.parametrize("size", ["same", "different"])
def test_one_exchange_among_many_is_disorder(size: str) -> None:
    files = FILES if size == "same" else [(crc, crc) for _, crc in FILES]
    deep = [*files[:70], files[71], files[70], *files[72:]]
    order = answered(Order(), 8, pairs(deep, files))
    assert (order.proven, order.why) == (0, OUT_OF_ORDER)
    assert not due(order, 64)
    assert answered(order, 8, pairs(FILES)) == order


def test_one_answer_twice_and_one_missing_is_disorder() -> None:
    assert answered(Order(), 8, pairs([FILES[0], *FILES[:-1]])).why == OUT_OF_ORDER


def test_completion_order_is_disorder_with_any_few_files() -> None:
    random = Random(3)
    for count in range(3, 12):
        deep = FILES[:count]
        while deep == FILES[:count]:
            random.shuffle(deep)
        assert answered(Order(), 8, pairs(deep, FILES[:count])).why == OUT_OF_ORDER


def test_a_file_that_has_changed_is_no_disorder() -> None:
    order = answered(Order(), 8, pairs([(7, 7), *FILES[1:]]))
    assert order.proven == 8
    changed = [(7, 1000 + crc) for _, crc in FILES]
    assert answered(Order(), 8, pairs(changed)).why == "answers differ each time"


def test_equal_answers_prove_nothing() -> None:
    order = Order()
    for answers in ([(1, 1)] * 64, []) * 3 + ([],):
        order = answered(order, 8, pairs(answers, answers))
        assert order.proven == 1
    assert "could not be checked" in answered(order, 8, pairs([(1, 1)] * 9, [(1, 1)] * 9)).why
    # One other answer among them is little; many such windows are enough.
    for _ in range(16):
        order = answered(order, 8, pairs([(1, 1), (2, 2)], [(1, 1), (2, 2)]))
    assert order.proven == 8


def test_checks_are_repeated_ever_more_rarely_but_go_on() -> None:
    order, at = proven(64), []
    for window in range(1, 1001):
        order = stored(order)
        if due(order, 64):
            order = answered(order, 64, pairs(FILES[:64]))
            at.append(window)
    assert at[:8] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert at[8:11] == [192, 256, 320]


def test_what_the_source_contradicts_is_checked_soon_but_not_for_ever() -> None:
    order, checks = proven(), 0
    for _ in range(100):
        order = contradicted(stored(order))
        if due(order, 8):
            order, checks = answered(order, 8, pairs(FILES)), checks + 1
    assert due(contradicted(proven()), 8)
    assert checks < 20
