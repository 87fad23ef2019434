"""The ledger: what a killed worker leaves."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from downloader.core.item_states import ItemState, published
from downloader.errors import DestinationError, JournalError
from downloader.files.directory import open_home
from downloader.storage.ledger import Ledger, read


def contents(path: Path) -> dict[int, tuple[list[ItemState], list[int]]]:
    return {
        seq: (list(published(marks.packed())), marks.in_flight())
        for seq, marks in read(open_home(path.parent) / path.name)
    }


def test_killed_worker_leaves_its_item_states(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    pid = os.fork()
    if not pid:
        slot = Ledger(open_home(path.parent) / path.name, 4).open(7, 10)
        slot.marks.begin(0)
        slot.marks.begin(1)
        slot.marks.publish(1, 100, 5)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert contents(path) == {7: ([ItemState(1, 100, 5)], [0])}


def test_ledger_slots_are_limited(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    ledger = Ledger(open_home(path.parent) / path.name, 3)
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
    ledger = Ledger(open_home(path.parent) / path.name, 3)
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
    assert list(read(open_home(tmp_path) / "ledger-0")) == []
    with pytest.raises(DestinationError):
        Ledger(open_home(tmp_path) / "missing/ledger-0", 1)


def test_truncated_and_foreign_ledgers(tmp_path: Path) -> None:
    path = tmp_path / "ledger-0"
    slot = Ledger(open_home(path.parent) / path.name, 2).open(1, 5)
    slot.marks.publish(0, 1, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 + 5])  # the second slot is cut off
    assert set(contents(path)) == {1}
    path.write_bytes(b"\xff" * len(whole))
    with pytest.raises(JournalError, match="--restart"):
        list(read(open_home(path.parent) / path.name))
    path.write_bytes(b"")
    assert contents(path) == {}
