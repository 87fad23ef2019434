"""Spools of records: frames come back as they were written, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from downloader.core.file_records import Frame, Record, pack, packed, records, sum_of, unpack
from downloader.files.directory import open_home
from downloader.storage.record_spool import (
    SpoolWriter,
    frames,
    next_run,
    read_frame,
    remove,
    spool_path,
    spools,
)

NAMES = [f"name {at}" for at in range(20)]


def written(path: Path, payloads: list[tuple[int, bytes]], *, close: bool = True) -> SpoolWriter:
    spool = SpoolWriter(open_home(path.parent) / path.name)
    for seq, payload in payloads:
        spool.write(seq, payload)
    if close:
        spool.close()
    return spool


def read(path: Path) -> list[tuple[int, bytes | None]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return [
            (seq, read_frame(fd, seq, at, length))
            for seq, at, length in frames(open_home(path.parent) / path.name)
        ]
    finally:
        os.close(fd)


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("size", [1, 300, 70_000, 3_000_000])
def test_frames_come_back(size: int, close: bool, tmp_path: Path) -> None:
    """Also those of a process that is killed, which closes nothing."""
    payloads = [(seq << 33, bytes([seq + 1]) * (size + seq)) for seq in range(40 if size < 10**6 else 3)]
    path = tmp_path / "records-000000-0000"
    written(path, payloads, close=close)
    assert read(path) == payloads
    total = sum(len(payload) + 16 for _, payload in payloads)
    assert path.stat().st_size == total if close else total <= path.stat().st_size <= 2 * total + (1 << 20)


def test_a_spool_without_frames_is_not_created(tmp_path: Path) -> None:
    written(tmp_path / "records-000000-0000", [])
    assert not list(tmp_path.iterdir())


def test_what_is_cut_or_changed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "records-000000-0000"
    payloads = [(3, b"first"), (4, b"second"), (5, b"third")]
    written(path, payloads)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size] + bytes(size % 3))
        good = [each for each in read(path) if each[1] is not None]
        assert good == payloads[: len(good)]
        assert len(good) == sum(size >= end for end in (21, 43, 64)), "a whole frame is lost"
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        good = [each for each in read(path) if each[1] is not None]
        assert set(good) < set(payloads)


def test_later_runs_and_workers_come_later(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    assert next_run(home) == 0
    places = [(0, 0), (0, 2), (0, 10_000), (9, 0), (10, 0), (1_000_000, 1)]
    for run, worker in reversed(places):
        written(Path(spool_path(home, run, worker)), [(0, b"x")])
    (tmp_path / "records-known.sqlite").touch()
    assert [str(each) for each in spools(home)] == [str(spool_path(home, *place)) for place in places]
    assert next_run(home) == 1_000_001
    remove(home)
    assert spools(home) == []


def frame(indices: list[int], **more: object) -> Frame:
    values: dict[str, object] = {
        "indices": packed("I", indices),
        "names": sum_of([NAMES[at] for at in indices]),
        "sizes": packed("Q", [100 + at for at in indices]),
        "crcs": packed("I", [at for at in indices]),
        "fetched": [7],
        "statuses": [200],
        "etags": [f"e{at}" for at in indices],
        "modified": [""],
        "kinds": ["text/plain"],
    }
    return Frame(**{**values, **more})  # type: ignore[arg-type]


STATES, CRCS = [102 + at for at in range(20)], list(range(20))


@pytest.mark.parametrize("count", [1, 2, 20])
def test_records_come_back(count: int) -> None:
    made = frame(
        list(range(count)),
        algorithm="md5",
        hashes=[bytes([at]) for at in range(count)],
        finals={0: "http://h/there"},
        urls=[f"http://h/{at}" for at in range(count)],
        columns=[b"x"],
    )
    found = records(unpack(pack(made)), NAMES, STATES, CRCS)
    assert found == {
        at: Record(
            f"http://h/{at}",
            "" if at else "http://h/there",
            200,
            f"e{at}",
            "",
            "text/plain",
            7,
            f"md5:{at:02x}",
            b"x",
        )
        for at in range(count)
    }


@pytest.mark.parametrize("wrong", ["size", "crc", "not stored", "in flight"])
def test_a_record_is_used_for_the_bytes_that_are_stored(wrong: str) -> None:
    """The file was fetched again, and is another one."""
    states, crcs = list(STATES), list(CRCS)
    if wrong == "crc":
        crcs[1] += 1
    else:
        states[1] = {"size": states[1] + 1, "not stored": 0, "in flight": -3 - 101}[wrong]
    assert list(records(frame([0, 1, 2]), NAMES, states, crcs)) == [0, 2]


def test_a_frame_of_another_listing_is_not_used() -> None:
    """After a power cut, or another list, the batch has other items."""
    assert records(frame([0, 1]), [*NAMES[:1], "another", *NAMES[2:]], STATES, CRCS) == {}
    assert records(frame([0, 1]), NAMES[:1], STATES[:1], CRCS[:1]) == {}
