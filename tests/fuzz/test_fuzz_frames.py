"""Bytes that are no frames, and frames that are no messages: refused, whatever they contain."""

from __future__ import annotations

import socket
from typing import get_args

import msgspec
from budget import bounded, rounds
from harm import cut_up, harmed
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.frames import MAX_FRAME, FrameError, Unpacker, pack
from downloader.messages import (
    Batch,
    BatchDone,
    Credit,
    Ended,
    Failure,
    FromChild,
    Heartbeat,
    HostCrowded,
    HostPause,
    Lease,
    Log,
    Narrowed,
    Ready,
    Returned,
    Stop,
    Tally,
)
from downloader.process.channel import Link

TALLY = Tally(3, 1, 1, 300, 0)
OUTCOME = (7, TALLY, 5, 4, 1, {"reset": 1}, {3: 4}, b"marks")
MESSAGES = (
    Batch(0, 3, b"cursor", b"names", b"origin", b"items"),
    BatchDone(*OUTCOME, [Failure(2, "name", "http://h/", "http-404", "", 1)]),
    Narrowed(*OUTCOME, [], Lease(7, 9, b"items", (2, 5), narrowed=True)),
    Returned(*OUTCOME),
    Credit(1),
    Ended(),
    Heartbeat(TALLY, 12, {1: 3}, {"the limit": 1}),
    HostPause("http://h:80", 1.5),
    HostCrowded("http://h:80", 60.0),
    Log("warning", "text"),
    Ready({"python": "3"}, "safe"),
    Stop(4, "text"),
)
KINDS = tuple(get_args(FromChild))

# Damage: where (a fraction of the length), which bytes are inserted, and how many old ones they replace.
HARM = st.lists(
    st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 12)), max_size=4
)  # fmt: skip
CUTS = st.lists(st.floats(0, 1), max_size=8)


def reference(stream: bytes) -> tuple[list[bytes], bool]:
    """Return the frames at the start of ``stream``, and whether the rest can never be one."""
    frames = []
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big")
        if size > MAX_FRAME:
            return frames, True
        if len(stream) < 4 + size:
            break
        frames.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return frames, False


@bounded(300)
@given(st.lists(st.binary(max_size=30), max_size=6), HARM, CUTS)
def any_bytes(payloads: list[bytes], harm: list[tuple[float, bytes, int]], cuts: list[float]) -> None:
    stream = harmed(b"".join(map(pack, payloads)), harm)
    expected, breaks = reference(stream)
    unpacker, found, broken = Unpacker(), [], False
    for piece in cut_up(stream, cuts):
        try:
            found += unpacker.feed(piece)
        except FrameError:
            broken = True
    assert broken == breaks
    # When a stream breaks, the frames that arrived in one piece with the break are lost.
    assert found == expected[: len(found)]
    assert breaks or found == expected


def test_any_bytes_as_frames() -> None:
    rounds(any_bytes)


@bounded(200)
@given(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=6), HARM, CUTS)
def any_messages(
    messages: list[FromChild], harm: list[tuple[float, bytes, int]], cuts: list[float]
) -> None:
    """Check the supervisor's end of a link, over a real socketpair: it returns the messages that it
    understood, and whether the link is usable; it never raises, and never resumes a link that it gave up.
    """
    whole = b"".join(pack(msgspec.msgpack.encode(message)) for message in messages)
    stream = harmed(whole, harm)
    ours, theirs = socket.socketpair()
    link, found, gave_up = Link(ours), [], False
    try:
        for piece in cut_up(stream, cuts):
            theirs.sendall(piece)
            received, is_open = link.receive()
            assert all(isinstance(message, KINDS) for message in received)
            assert not (gave_up and received)
            gave_up = gave_up or not is_open
            found += received
        if stream == whole:
            assert found == messages
            assert not gave_up
        assert len(found) <= len(stream)
    finally:
        link.close()
        theirs.close()


def test_any_bytes_as_messages() -> None:
    rounds(any_messages)


def test_invalid_utf8_text_is_refused() -> None:
    """Found by fuzzing: msgspec raises UnicodeDecodeError for it, which is not its own DecodeError."""
    ours, theirs = socket.socketpair()
    link = Link(ours)
    theirs.sendall(pack(msgspec.msgpack.encode(Log("warning", "text")).replace(b"text", b"te\xfft")))
    try:
        assert link.receive() == ([], False)
    finally:
        link.close()
        theirs.close()
