"""The ledger: what a killed worker leaves."""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path

import pytest

from downloader.core.item_states import NO_CLAIM, OWNED, Claim, ItemState, claims, published
from downloader.errors import DestinationError, JournalError
from downloader.files.directory import Entry, open_home
from downloader.storage.ledger import Entries, Ledger, Slot, read, read_merged


def at(path: Path) -> Entry:
    return open_home(path.parent) / path.name


def contents(path: Path) -> dict[int, tuple[list[ItemState], list[int]]]:
    return {
        seq: (list(published(packed)), in_flight)
        for seq, (packed, in_flight) in read_merged(at(path)).items()
    }


def test_killed_worker_leaves_its_item_states(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    pid = os.fork()
    if not pid:
        slot = Ledger(at(path), 4).open(7, 10)
        slot.marks.begin(0)
        slot.marks.begin(1)
        slot.marks.publish(1, 100, 5)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert contents(path) == {7: ([ItemState(1, 100, 5)], [0])}


def test_ledger_slots_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    ledger = Ledger(at(path), 3)
    slots = [ledger.open(seq, 5) for seq in range(3)]
    assert ledger.vacant == 0
    with pytest.raises(IndexError):
        ledger.open(3, 5)
    slots[1].marks.publish(0, 1, 1)
    assert set(contents(path)) == {0, 1, 2}
    assert (path.stat().st_mode & 0o777, ledger.vacant) == (0o600, 0)


def test_a_reported_batch_stays_readable_until_the_slot_is_the_oldest(tmp_path: Path) -> None:
    """Its result may be in the supervisor's socket when the supervisor is killed."""
    path = tmp_path / "ledger-0"
    ledger = Ledger(at(path), 3)
    for seq in range(3):
        slot = ledger.open(seq, 5)
        slot.marks.publish(seq, 100, seq)
        ledger.close(slot)
    assert set(contents(path)) == {0, 1, 2}
    ledger.open(3, 5)
    found = contents(path)
    assert set(found) == {1, 2, 3}
    # Nothing of the previous owner remains.
    assert found[3] == ([], [])
    assert found[2] == ([ItemState(2, 100, 2)], [])


def test_missing_ledger_is_empty(tmp_path: Path) -> None:
    assert list(read(at(tmp_path / "ledger-0"))) == []
    with pytest.raises(DestinationError):
        Ledger(open_home(tmp_path) / "missing/ledger-0", 1)


def test_truncated_and_foreign_ledgers(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    slot = Ledger(at(path), 2).open(1, 5)
    slot.marks.publish(0, 1, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 32])  # the second slot is cut off
    assert set(contents(path)) == {1}
    path.write_bytes(b"\xff" * len(whole))
    with pytest.raises(JournalError, match="move it away, then run the same command again"):
        list(read(at(path)))
    path.write_bytes(b"")
    assert contents(path) == {}


def narrowed(ledger: Ledger, seq: int, only: list[int]) -> Entries:
    """Open batch ``seq`` of 9 items, of which the others are published; narrow it as a worker does."""
    slot = ledger.open(seq, 9)
    assert isinstance(slot, Slot)
    for index in range(9):
        slot.marks.publish(index, 100, index) if index not in only else slot.marks.begin(index)
    entries = ledger.narrow(seq, slot, only)
    assert entries is not None
    for index in only:
        slot.marks.set(index, NO_CLAIM)
    ledger.close(slot)
    return entries


def test_narrowed_batch_has_the_states_of_both_its_places(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    ledger = Ledger(at(path), 1, entries=8)
    entries = narrowed(ledger, 4, [2, 7])
    assert ledger.vacant == 1
    others = [ItemState(index, 100, index) for index in (0, 1, 3, 4, 5, 6, 8)]
    assert contents(path) == {4: (others, [2, 7])}
    entries.publish(7, 5, 50)
    entries.set(2, Claim(OWNED, 8))
    assert contents(path) == {4: ([*others[:-1], ItemState(7, 5, 50), others[-1]], [])}
    # The slot is given to another batch: the journal has what it had.
    ledger.open(5, 9)
    assert contents(path) == {4: ([ItemState(7, 5, 50)], []), 5: ([], [])}
    assert claims(read_merged(at(path))[4][0]) == {2: Claim(OWNED, 8)}
    assert list(published(entries.packed())) == [ItemState(7, 5, 50)]


def test_entries_are_reused_when_two_leases_have_followed_the_outcome(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    ledger = Ledger(at(path), 2, entries=2)
    entries = narrowed(ledger, 0, [1, 2])
    entries.publish(1, 5, 50)
    ledger.close(entries)
    for seq in (1, 2):  # the first lease may answer what was requested before the outcome was sent
        slot = ledger.open(seq, 9)
        assert isinstance(slot, Slot)
        assert (ledger.narrow(seq, slot, [3, 4]) is not None) is (seq == 2)
        assert (ItemState(1, 5, 50) in contents(path).get(0, ([], []))[0]) is (seq == 1)
        ledger.close(slot)


def test_leased_items_have_entries_while_there_are_some(tmp_path: Path) -> None:
    ledger = Ledger(at(tmp_path / "ledger-0"), 1, entries=2)
    assert isinstance(ledger.open(0, 9, (1, 8)), Entries)
    assert ledger.vacant == 1
    assert isinstance(ledger.open(1, 9, (1,)), Slot)


def test_intents_of_entries(tmp_path: Path) -> None:
    entries = narrowed(Ledger(at(tmp_path / "ledger-0"), 1, entries=3), 0, [1, 2, 3])
    entries.intend(1, 7, 70)
    assert entries.in_flight() == [1, 2, 3]
    entries.publish_intents()
    assert list(published(entries.packed())) == [ItemState(1, 7, 70)]
    entries.intend(2, 8, 80)
    assert entries.drop_intents() == {2: 8}
    assert entries.in_flight() == [3]


def test_damaged_entries(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    narrowed(Ledger(at(path), 1, entries=3), 0, [1])
    content = bytearray(path.read_bytes())
    content[-32 * 3 :] = b"\xff" * (32 * 3)
    path.write_bytes(content)
    with pytest.raises(JournalError, match="move it away, then run the same command again"):
        list(read(at(path)))


def test_ledger_of_an_earlier_version(tmp_path: Path) -> None:
    """One without entries has no header, or one with the number of items of a slot."""
    path, other = tmp_path / "ledger-0", tmp_path / "ledger-1"
    for items in (1000, 40):
        slot = Ledger(at(other), 1, items).open(7, 10)
        slot.marks.publish(1, 100, 5)
        begin = b"" if items == 1000 else struct.pack("<QQ", (1 << 64) - 1, items)
        path.write_bytes(begin + other.read_bytes()[32:])
        assert contents(path) == {7: ([ItemState(1, 100, 5)], [])}
