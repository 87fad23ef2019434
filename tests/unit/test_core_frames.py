"""Frames: what is encoded is decoded unchanged, however the stream is cut."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.frames import MAX_FRAME, FrameError, Unpacker, pack

PAYLOADS = st.lists(st.binary(max_size=40), max_size=12)


@given(PAYLOADS, st.lists(st.floats(0, 1)), st.sampled_from([bytes, bytearray, memoryview]))
def test_frames_survive_any_chunking(payloads: list[bytes], cuts: list[int], kind: type) -> None:
    stream = b"".join(map(pack, payloads))
    edges = [0, *sorted(int(cut * len(stream)) for cut in cuts), len(stream)]
    unpacker = Unpacker()
    out = []
    for start, stop in pairwise(edges):
        out += unpacker.feed(kind(stream[start:stop]))
    assert out == payloads


@pytest.mark.parametrize("size", range(1, 60))
def test_pieces_of_one_size(size: int) -> None:
    payloads = [b"", b"a", b"bc" * 9, b"", bytes(50), b"end"] * 3
    stream = b"".join(map(pack, payloads))
    unpacker = Unpacker()
    out = []
    for start in range(0, len(stream), size):
        out += unpacker.feed(stream[start : start + size])
    assert out == payloads


@given(PAYLOADS)
def test_frames_byte_by_byte(payloads: list[bytes]) -> None:
    unpacker = Unpacker()
    out = []
    for byte in b"".join(map(pack, payloads)):
        out += unpacker.feed(bytes([byte]))
    assert out == payloads


def test_decoded_frames_share_no_memory() -> None:
    buffer = bytearray(pack(b"abc") + pack(b"defg")[:5])
    unpacker = Unpacker()
    out = unpacker.feed(memoryview(buffer))
    buffer[:] = b"\xff" * len(buffer)
    assert out == [b"abc"]
    assert unpacker.feed(b"efg") == [b"defg"]
    assert all(type(payload) is bytes for payload in out)


def test_oversized_frame_is_refused_permanently() -> None:
    for before, last in (
        (b"", b"\xff\xff\xff\xff"),
        (b"\x04\x00\x00", b"\x01"),
        (b"", pack(b"a") + b"HTTP"),
    ):
        unpacker = Unpacker()
        assert unpacker.feed(before) == []
        with pytest.raises(FrameError, match="longer than"):
            unpacker.feed(last)
        with pytest.raises(FrameError):
            unpacker.feed(pack(b"fine"))


def test_longest_frame_is_accepted() -> None:
    payload = bytes(MAX_FRAME)
    frame = pack(payload)
    unpacker = Unpacker()
    assert unpacker.feed(frame[:-1]) == []
    assert unpacker.feed(frame[-1:]) == [payload]
    with pytest.raises(FrameError):
        pack(payload + b"x")


def test_decoding_is_linear_and_bounded() -> None:
    frame = pack(bytes(200_000))
    unpacker = Unpacker()
    started = time.process_time()
    out = [size for byte in frame for size in map(len, unpacker.feed(bytes([byte])))]
    for _ in range(50):
        out += map(len, unpacker.feed(frame))
    assert out == [200_000] * 51
    assert time.process_time() - started < 5
    assert len(unpacker._buffer) == 0
