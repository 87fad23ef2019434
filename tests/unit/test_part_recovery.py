"""Parts of shards: what is whole is found after a kill, and everything else is removed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from zlib import crc32

import pytest

from downloader.files.directory import open_home
from downloader.process.long_work import PIECE
from downloader.sinks.shards.part import Part, Room, recover
from downloader.sinks.shards.samples import Sample, WholeSample, encode_sample
from downloader.sinks.shards.samples import samples as samples_of

BODIES = {f"key{number}": bytes([number]) * (number * 300) for number in range(5)}


def members(key: str, body: bytes, digests: str) -> tuple[bytes, bytes]:
    digest = hashlib.sha256(body).hexdigest() if digests == "sha256" else ""
    sample = Sample(key, f"{key}.jpg", "", "", 200, len(body), digest, crc32(body), "", "", "", 0.0)
    return encode_sample(sample, "jpg", b"", {}, 0)


def append(part: Part, key: str, body: bytes, digests: str = "sha256") -> None:
    before, after = members(key, body, digests)
    part.append(before, body, after)


@pytest.fixture(params=["sha256", "crc32"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    part = Part(open_home(tmp_path) / "00000.part")
    for key, body in BODIES.items():
        append(part, key, body, request.param)
    part.flush()
    part.close()
    return tmp_path / "00000.part"


def found(path: Path, expected: dict[str, tuple[int, int]] | None = None) -> dict[str, tuple[int, int]]:
    return {
        each.key: (each.size, each.crc)
        for each in recover(open_home(path.parent) / path.name, expected or {})
    }


def known(*keys: str) -> dict[str, tuple[int, int]]:
    return {key: (len(BODIES[key]), crc32(BODIES[key])) for key in keys}


def test_whole_samples_are_found(path: Path) -> None:
    size = path.stat().st_size
    assert found(path) == known(*BODIES)
    assert path.stat().st_size == size


def test_torn_tail_is_cut_wherever_it_is_torn(path: Path) -> None:
    whole = path.read_bytes()
    ends = [sample.end for sample in recover(open_home(path.parent) / path.name, {})]
    for cut in range(ends[2], ends[3], 37):
        path.write_bytes(whole[:cut])
        assert found(path) == known("key0", "key1", "key2")
        assert path.stat().st_size == ends[2]
        part = Part(open_home(path.parent) / path.name)
        append(part, "more", b"content")
        part.flush()
        part.close()
        assert found(path).keys() == {"key0", "key1", "key2", "more"}


@pytest.mark.parametrize("key", ["key1", "key3"])
def test_damaged_sample_is_taken_out(key: str, path: Path) -> None:
    whole = bytearray(path.read_bytes())
    at = whole.index(BODIES[key])
    whole[at] ^= 1
    path.write_bytes(whole)
    others = [each for each in BODIES if each != key]
    assert found(path) == known(*others)
    assert found(path) == known(*others)


def test_sample_that_is_not_what_the_ledger_says_is_taken_out(path: Path) -> None:
    assert found(path, {"key2": (5, 5)}) == known("key0", "key1", "key3", "key4")


def test_second_sample_of_a_key_is_taken_out(path: Path) -> None:
    part = Part(open_home(path.parent) / path.name)
    append(part, "key1", BODIES["key1"])
    append(part, "more", b"")
    part.flush()
    part.close()
    assert found(path).keys() == {*BODIES, "more"}
    assert path.read_bytes().count(b"key1.jpg\0") == 1


def test_what_was_not_flushed_is_not_there(path: Path) -> None:
    part = Part(open_home(path.parent) / path.name)
    append(part, "more", b"content")
    part.close()
    assert found(path) == known(*BODIES)


def room_for(part: Part, key: str, body: bytes, content: Path) -> Room:
    """Reserve room for a sample and copy its content, which others are appended behind."""
    before, after = members(key, body, "sha256")
    content.write_bytes(body)
    room = part.reserve(before, len(body), after)
    with open(content, "rb") as file:
        part.copy(room, file.fileno())
    return room


LARGE = os.urandom(PIECE + 100_000)


@pytest.mark.parametrize("suspended", [False, True])
def test_content_of_a_file_is_copied_while_others_are_appended(
    suspended: bool, path: Path, tmp_path: Path
) -> None:
    part = Part(open_home(path.parent) / path.name)
    if suspended:
        part.suspend()
    append(part, "ahead", b"1")
    room = room_for(part, "large", LARGE, tmp_path / "content")
    append(part, "behind", b"2")
    part.flush()
    others = {**known(*BODIES), "ahead": (1, crc32(b"1")), "behind": (1, crc32(b"2"))}
    assert {each.key for each in whole(path)} == others.keys()
    part.fill(room)
    part.mend()
    part.close()
    assert found(path) == {**others, "large": (len(LARGE), crc32(LARGE))}


@pytest.mark.parametrize("last", [False, True])
def test_room_that_is_given_up_is_gone_in_the_end(last: bool, path: Path, tmp_path: Path) -> None:
    size = path.stat().st_size
    part = Part(open_home(path.parent) / path.name)
    room = room_for(part, "large", LARGE, tmp_path / "content")
    if not last:
        append(part, "behind", b"2")
        part.flush()
    part.free(room)
    if last:
        assert path.stat().st_size == size
    append(part, "more", b"3")
    part.flush()
    part.mend()
    part.close()
    assert b".reserved" not in path.read_bytes()
    samples = whole(path)
    assert {each.key for each in samples} == {*BODIES, "more", *([] if last else ["behind"])}
    assert [each.start for each in samples] == [0, *(each.end for each in samples)][:-1]


def whole(path: Path) -> list[WholeSample]:
    with path.open("rb") as file:
        return list(samples_of(file))


def test_copy_is_lost_with_a_kill_and_nothing_else(path: Path, tmp_path: Path) -> None:
    part = Part(open_home(path.parent) / path.name)
    room_for(part, "large", LARGE, tmp_path / "content")
    append(part, "behind", b"2")
    part.flush()
    part.close()
    assert found(path) == {**known(*BODIES), "behind": (1, crc32(b"2"))}
    assert b".reserved" not in path.read_bytes()
