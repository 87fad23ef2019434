"""Marks: what is published of a batch, in two arrays."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.marks import ITEM_BYTES, Mark, Marks, merge, published, summed, unpack, without

COUNT = 20
SOME = st.dictionaries(
    st.integers(0, COUNT - 1), st.tuples(st.integers(0, 2**62), st.integers(0, 2**32 - 1))
)


def packed(content: dict[int, tuple[int, int]], begun: tuple[int, ...] = ()) -> bytes:
    marks = Marks(COUNT)
    for index in begun:
        marks.begin(index)
    for index, (size, crc) in content.items():
        marks.publish(index, size, crc)
    return marks.packed()


def as_dict(blob: bytes) -> dict[int, tuple[int, int]]:
    return {mark.index: (mark.size, mark.crc) for mark in published(blob)}


@given(SOME)
def test_what_is_published_comes_back(content: dict[int, tuple[int, int]]) -> None:
    blob = packed(content)
    assert as_dict(blob) == content
    assert summed(blob) == (len(content), sum(size for size, _ in content.values()))


@given(SOME, SOME)
def test_merge_has_all_of_both_and_the_newer_wins(
    older: dict[int, tuple[int, int]], newer: dict[int, tuple[int, int]]
) -> None:
    begun = tuple(set(range(COUNT)) - newer.keys())
    assert as_dict(merge(packed(older), packed(newer, begun), COUNT)) == older | newer
    assert as_dict(merge(b"", packed(newer), COUNT)) == newer


@given(SOME, st.sets(st.integers(0, COUNT - 1)))
def test_without(content: dict[int, tuple[int, int]], gone: set[int]) -> None:
    left = {index: mark for index, mark in content.items() if index not in gone}
    assert as_dict(without(packed(content), COUNT, gone)) == left


def test_the_life_of_an_item() -> None:
    marks = Marks(3)
    marks.begin(0)
    marks.begin(1)
    marks.begin(2)
    assert marks.in_flight() == [0, 1, 2]
    marks.forget(0)
    marks.publish(2, 0, 0)
    assert marks.in_flight() == [1]
    assert list(published(marks.packed())) == [Mark(2, 0, 0)]
    assert summed(marks.packed()) == (1, 0)
    marks.clear()
    assert marks.in_flight() == []
    assert list(published(marks.packed())) == []


def test_over_a_buffer_that_is_lent() -> None:
    buffer = bytearray(ITEM_BYTES * 5 + 7)
    marks = Marks(5, memoryview(buffer))
    marks.publish(4, 100, 0xDEADBEEF)
    assert int.from_bytes(buffer[32:40], "little") == 102
    assert int.from_bytes(buffer[56:60], "little") == 0xDEADBEEF
    marks.release()
    buffer.clear()  # would raise BufferError if a view were left


def test_empty() -> None:
    assert list(published(b"")) == []
    assert summed(b"") == (0, 0)
    assert summed(Marks(0).packed()) == (0, 0)


@pytest.mark.parametrize(
    "blob", [b"x", zlib.compress(b"1234567"), packed({1: (5, 5)})[:-6]], ids=["no", "odd", "cut"]
)
def test_damaged_marks(blob: bytes) -> None:
    with pytest.raises(ValueError, match="damaged marks"):
        unpack(blob)
