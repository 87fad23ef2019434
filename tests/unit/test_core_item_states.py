"""ItemStates: what is published of a batch, in two arrays."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.item_states import (
    FOREIGN,
    ITEM_BYTES,
    NO_CLAIM,
    OWNED,
    REPLACED,
    SKIPPED,
    UNOWNED,
    Claim,
    ItemState,
    ItemStates,
    claimed,
    claims,
    gained,
    intent,
    merge,
    published,
    summed,
    unpack,
    without,
    written,
)
from downloader.messages import Tally

COUNT = 20
SOME = st.dictionaries(
    st.integers(0, COUNT - 1), st.tuples(st.integers(0, 2**59 - 1), st.integers(0, 2**32 - 1))
)


def packed(content: dict[int, tuple[int, int]], begun: tuple[int, ...] = ()) -> bytes:
    marks = ItemStates(COUNT)
    for index in begun:
        marks.begin(index)
    for index, (size, crc) in content.items():
        marks.publish(index, size, crc)
    return marks.packed()


def as_dict(blob: bytes) -> dict[int, tuple[int, int]]:
    return {mark.index: (mark.size, mark.crc) for mark in published(blob)}


@given(SOME)
def test_published_states_round_trip(content: dict[int, tuple[int, int]]) -> None:
    blob = packed(content)
    assert as_dict(blob) == content
    assert summed(blob) == (len(content), sum(size for size, _ in content.values()))


@given(SOME, SOME)
def test_merge_unites_and_prefers_the_newer_state(
    older: dict[int, tuple[int, int]], newer: dict[int, tuple[int, int]]
) -> None:
    begun = tuple(set(range(COUNT)) - newer.keys())
    assert as_dict(merge(packed(older), packed(newer, begun), COUNT)) == older | newer
    assert as_dict(merge(b"", packed(newer), COUNT)) == newer


@given(SOME, st.sets(st.integers(0, COUNT - 1)))
def test_without_removes_items(content: dict[int, tuple[int, int]], gone: set[int]) -> None:
    left = {index: mark for index, mark in content.items() if index not in gone}
    assert as_dict(without(packed(content), COUNT, gone)) == left


def test_item_state_transitions() -> None:
    marks = ItemStates(3)
    marks.begin(0)
    marks.begin(1)
    marks.begin(2)
    assert marks.in_flight() == [0, 1, 2]
    marks.set(0, NO_CLAIM)
    marks.publish(2, 0, 0)
    assert marks.in_flight() == [1]
    assert list(published(marks.packed())) == [ItemState(2, 0, 0)]
    assert summed(marks.packed()) == (1, 0)
    marks.clear()
    assert marks.in_flight() == []
    assert list(published(marks.packed())) == []


def test_states_over_a_borrowed_buffer() -> None:
    buffer = bytearray(ITEM_BYTES * 5 + 7)
    marks = ItemStates(5, memoryview(buffer))
    marks.publish(4, 100, 0xDEADBEEF)
    assert int.from_bytes(buffer[32:40], "little") == 102
    assert int.from_bytes(buffer[56:60], "little") == 0xDEADBEEF
    marks.release()
    buffer.clear()  # would raise BufferError if a view were left


def test_no_states() -> None:
    assert list(published(b"")) == []
    assert summed(b"") == (0, 0)
    assert summed(ItemStates(0).packed()) == (0, 0)


@pytest.mark.parametrize(
    "blob", [b"x", zlib.compress(b"1234567"), packed({1: (5, 5)})[:-6]], ids=["no", "odd", "cut"]
)
def test_damaged_states_are_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match="damaged marks"):
        unpack(blob)


def test_an_item_about_to_be_published() -> None:
    marks = ItemStates(3)
    marks.intend(0, 0, 7)
    marks.intend(1, 100, 8)
    marks.publish(2, 5, 9)
    assert marks.in_flight() == [0, 1]
    blob = marks.packed()
    assert list(written(blob)) == [
        ItemState(0, 0, 7, False),
        ItemState(1, 100, 8, False),
        ItemState(2, 5, 9),
    ]
    assert list(published(blob)) == [ItemState(2, 5, 9)]
    assert summed(blob) == (1, 5)


STATES = {"nothing": 0, "in flight": 1, "stored": 102, "owned": OWNED, "unowned": UNOWNED, "intent": -50}
# What is known from an older source (row) and a newer one (column).
MERGED = """
            nothing  in_flight  stored  owned   unowned  intent
nothing     nothing  nothing    stored  owned   unowned  intent
in_flight   nothing  nothing    stored  owned   unowned  intent
stored      stored   stored     stored  stored  stored   stored
owned       owned    owned      stored  owned   unowned  owned
unowned     unowned  unowned    stored  owned   unowned  unowned
intent      intent   intent     stored  owned   unowned  intent
"""


def test_merge_walks_the_table_of_states() -> None:
    header, *rows = [line.split() for line in MERGED.strip().splitlines()]
    for older, *outcomes in rows:
        for newer, outcome in zip(header, outcomes, strict=True):
            merged = merge(_one(older, 1), _one(newer, 2), 1)
            states, crcs = unpack(merged)
            assert states[0] == STATES[outcome.replace("_", " ")], (older, newer)
            if outcome == "stored":
                assert crcs[0] == (2 if newer == "stored" else 1)


def _one(state: str, crc: int) -> bytes:
    marks = ItemStates(1)
    states, crcs = marks.arrays
    states[0], crcs[0] = STATES[state.replace("_", " ")], crc
    return marks.packed()


def test_claims_are_kept_beside_published_states() -> None:
    given = {1: Claim(OWNED, 4), 3: Claim(UNOWNED)}
    blob = claimed(packed({1: (5, 6), 2: (7, 8)}), COUNT, given)
    assert claims(blob) == given
    assert as_dict(blob) == {2: (7, 8)}
    assert claims(claimed(b"", 2, {0: Claim(OWNED, 9)})) == {0: Claim(OWNED, 9)}


@pytest.mark.parametrize("flags", [0, FOREIGN, REPLACED])
def test_a_state_says_whose_the_file_was(flags: int) -> None:
    """Size and sums are those of the file; a kept one that is not as it was is nobody's."""
    marks = ItemStates(3)
    marks.publish(0, 2**40, 7, flags)
    states = marks.arrays[0]
    states[1] = intent(2**40, flags)
    states[2] = SKIPPED
    blob = marks.packed()
    assert list(written(blob)) == [
        ItemState(0, 2**40, 7, True, flags),
        ItemState(1, 2**40, 0, False, flags),
    ]
    assert summed(blob) == (2, 2**40)
    mark = next(published(merge(blob, b"", 3)))
    assert mark.state == states[0]
    assert mark.lost == (UNOWNED if flags == FOREIGN else OWNED)
    skipped, replaced = flags == FOREIGN, flags == REPLACED
    size = 0 if skipped else 2**40
    assert gained(b"", blob) == Tally(1 - skipped, int(skipped), bytes=size, replaced=int(replaced))
    marks.publish_intents()
    assert states[1] == states[0]
