"""The parser of the pipelined client, fed with responses that are right, wrong, cut anywhere and changed
anywhere. Whatever it accepts as a file must be one according to a strict parser of our own; where the bytes
were cut must not matter; nothing raises, and nothing grows without limit."""

from __future__ import annotations

import re
import tracemalloc
from itertools import cycle
from typing import Any, NamedTuple, cast

import pytest
from budget import bounded, rounds
from harm import cut_up, harmed
from hypothesis import event, example, given
from hypothesis import strategies as st

from downloader.core.content_check import check_length
from downloader.errors import DestinationError, FetchError
from downloader.http.pipelined.parser import MAX_HEAD, NeedsRequestsClient, ResponseParser
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.null import NullWriter

JOBS = 6
MOST = 300_000  # more than the largest body that is kept whole


class Kept(NullWriter):
    """A writer that keeps what it is given, up to the size that it may have."""

    def __init__(self, max_size: int) -> None:
        super().__init__()
        self.content = bytearray()
        self._max_size = max_size

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        super().write(chunk)
        check_length(self.size, self._max_size)
        self.content += chunk


class Connection:
    """The methods of a connection that a parser calls."""

    def __init__(self, max_size: int = 0) -> None:
        self.max_size = max_size

    def large(self, job: object, length: int) -> CheckedWriter:
        # The parser only writes to it or aborts it: checksums are for others to check.
        return cast(CheckedWriter, Kept(self.max_size))

    def proxied(self) -> None:
        pass


class End(NamedTuple):
    """The result of one job, comparable: "file" with its bytes, or the kind of failure."""

    kind: str
    body: bytes = b""


def end(body: Any) -> End:
    if isinstance(body, (bytes, bytearray)):
        return End("file", bytes(body))
    if isinstance(body, Kept):
        return End("file", bytes(body.content))
    assert isinstance(body, (FetchError, NeedsRequestsClient, DestinationError)), body
    return End(body.code if isinstance(body, FetchError) else type(body).__name__)


def drive(pieces: list[bytes], max_size: int = 0) -> list[End]:
    """Feed the parser as a pipeline does: while a response is expected and nothing is wrong."""
    parser = ResponseParser(Connection(max_size), {})
    jobs: list[Any] = list(range(JOBS))
    parser.outstanding.extend(jobs)
    for piece in pieces:
        if not piece:
            continue
        if not parser.outstanding or parser.problem or parser.surplus or parser.closing:
            break
        parser.feed(memoryview(piece))
        assert parser.progress >= 0
    held = list(parser.completed)
    assert [job for job, _ in held] == jobs[: len(held)]
    assert len(held) + len(parser.outstanding) == JOBS
    if parser.problem is not None:
        assert isinstance(parser.problem, (FetchError, NeedsRequestsClient))
    assert isinstance(parser.cut_error(), FetchError)
    parser.discard()
    return [end(body) for _, body in held]


# A parser of our own

LINE = rb"[^\r\n\0]*"
# The reason phrase is to be ignored, whatever it is (RFC 9112 §4).
STATUS = re.compile(rb"HTTP/(1\.[01]) ([0-9]{3})(?: [^\r\n]*)?\r\n")
FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(" + LINE + rb")\r\n")
CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;" + LINE + rb")?\r\n")


def reference(stream: bytes) -> list[bytes | None]:
    """Return for each response at the start of ``stream`` the body if it is a complete plain 200 with a
    length or in chunks, None for any other; stop where the rest is ambiguous."""
    found: list[bytes | None] = []
    at = 0
    # Empty lines before a response are skipped, as RFC 9112 §2.2 says for requests.
    while status := STATUS.match(stream, len(stream) - len(stream[at:].lstrip(b"\r\n"))):
        at = status.end()
        fields: dict[bytes, list[bytes]] = {}
        while field := FIELD.match(stream, at):
            fields.setdefault(field[1].lower(), []).append(field[2].strip(b" \t"))
            at = field.end()
        if stream[at : at + 2] != b"\r\n":
            break
        at += 2
        code = int(status[2])
        if code < 200 and code != 101:
            continue
        body, at = read_body(stream, at, fields, code)
        if at < 0:
            break
        plain = code == 200 and not fields.keys() & {b"content-encoding", b"set-cookie"}
        found.append(body if plain else None)
        connection = b",".join(fields.get(b"connection", [])).lower()
        if b"close" in connection or (status[1] == b"1.0" and b"keep-alive" not in connection):
            break
    return found


def read_body(
    stream: bytes, at: int, fields: dict[bytes, list[bytes]], code: int
) -> tuple[bytes | None, int]:
    """Return the body, and where the next response begins; -1 where that is unknown."""
    lengths, codings = fields.get(b"content-length", []), fields.get(b"transfer-encoding", [])
    if code in (204, 304):
        return None, at
    if codings:
        if lengths or [each.lower() for each in codings] != [b"chunked"]:
            return None, -1
        return read_chunks(stream, at)
    if len(lengths) != 1 or not re.fullmatch(rb"[0-9]+", lengths[0]):
        return None, -1
    stop = at + int(lengths[0])
    return (stream[at:stop], stop) if stop <= len(stream) else (None, -1)


def read_chunks(stream: bytes, at: int) -> tuple[bytes | None, int]:
    body = b""
    while size := CHUNK.match(stream, at):
        at, count = size.end(), int(size[1], 16)
        if not count:
            while field := FIELD.match(stream, at):
                at = field.end()
            return (body, at + 2) if stream[at : at + 2] == b"\r\n" else (None, -1)
        body += stream[at : at + count]
        if stream[at + count : at + count + 2] != b"\r\n":
            return None, -1
        at += count + 2
    return None, -1


# Responses

BODY = st.binary(max_size=40)


@st.composite
def plain(draw: st.DrawFn) -> bytes:
    body = draw(BODY)
    lines = [b"Content-Length: %d" % len(body), *draw(st.lists(OTHER, max_size=2))]
    return b"\r\n".join([b"HTTP/1.1 200 OK", *draw(st.permutations(lines)), b"", b""]) + body


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    pieces = [piece for piece in draw(st.lists(BODY, max_size=3)) if piece]
    text = b"".join(b"%x%b\r\n%b\r\n" % (len(p), draw(st.sampled_from([b"", b";a=b"])), p) for p in pieces)
    last = draw(st.sampled_from([b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"00\r\n\r\n"]))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + text + last


@st.composite
def odd(draw: st.DrawFn) -> bytes:
    """Draw any status, with fields that are valid or not, and any body."""
    code = draw(st.sampled_from([100, 101, 103, 199, 200, 200, 204, 206, 301, 304, 404, 503, 999]))
    lines = draw(st.lists(OTHER | LENGTHS, max_size=4))
    version = draw(st.sampled_from([b"1.1", b"1.0"]))
    return b"\r\n".join([b"HTTP/%b %d X" % (version, code), *lines, b"", b""]) + draw(BODY)


OTHER = st.sampled_from(
    [
        b"Server: x", b"Content-Type: text/html", b"Connection: close", b"Connection: keep-alive",
        b"Set-Cookie: a=b", b"Via: 1.1 x", b"Content-Encoding: gzip", b"Retry-After: 5",
        b"Upgrade: x", b"Empty:", b"Date: x, y",
    ]
)  # fmt: skip
LENGTHS = st.sampled_from(
    [
        b"Content-Length: 0", b"Content-Length: 5", b"content-length: 05", b"Content-Length: -1",
        b"Content-Length: +5", b"Content-Length: 5, 5", b"Content-Length: 99999999999999999999",
        b"Content-Length: abc", b"Content-Length:", b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity", b"Content-Length : 5",
        b" Content-Length: 5", b"Content-Length: 5 5",
    ]
)  # fmt: skip
INTERIM = st.sampled_from(
    [
        b"HTTP/1.%d %d X\r\n%b\r\n" % (minor, code, field)
        for minor in (1, 0)
        for code in (100, 102, 103, 199)
        for field in (b"Link: <x>\r\n", b"Connection: close\r\n")
    ]
)
ANSWERS = st.lists(
    st.one_of(plain(), plain(), chunked(), odd(), INTERIM, st.binary(max_size=20)), max_size=JOBS + 1
)
PUT = st.sampled_from([b"\r", b"\n", b"\0", b":", b" ", b"0", b"HTTP/1.1 200 OK\r\n"])
HARM = st.lists(st.tuples(st.floats(0, 1), PUT | st.binary(max_size=3), st.integers(0, 8)), max_size=2)
CUTS = st.lists(st.floats(0, 1), max_size=10)


@bounded(200)
@example([b"HTTP/1.1 200 O\0\r\nContent-Length: 0\r\n\r\n"], [], [])
@given(ANSWERS, HARM, CUTS)
def any_answers(answers: list[bytes], harm: list[tuple[float, bytes, int]], cuts: list[float]) -> None:
    stream = harmed(b"".join(answers), harm)
    whole = drive([stream])
    right = reference(stream)
    for number, each in enumerate(whole):
        if each.kind == "file":
            assert number < len(right), f"answer {number} is vouched for by nothing: {each}"
            assert each.body == right[number], f"answer {number}: {each}, {right[number]!r}"
    event(f"{sum(each.kind == 'file' for each in whole)} files")
    # The cut decides how much is read before an error is found, and nothing else.
    for pieces in (cut_up(stream, cuts), [bytes([byte]) for byte in stream]):
        other = drive(pieces)
        for one, two in zip(whole, other, strict=False):
            assert one == two, (one, two)


def test_any_responses() -> None:
    rounds(any_answers)


MOST_SMALL = 5000


@bounded(25)
@example(304_947, True, 304_946, [1])
@given(
    st.integers(0, 2 * MOST),
    st.booleans(),
    st.just(0) | st.integers(1, 2 * MOST),
    st.lists(st.integers(1, 200_000), min_size=1, max_size=12),
)
def any_size(size: int, in_chunks: bool, max_size: int, sizes: list[int]) -> None:
    """Check bodies around the size up to which they are kept whole, written piece by piece, and refused."""
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    if in_chunks:
        text = b"%x\r\n%b\r\n" % (size, body) if size else b""
        stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + text + b"0\r\n\r\n"
    else:
        stream = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body
    pieces, at, turn = [], 0, 0
    while at < len(stream):
        # The rest in larger ones: half a million of a byte each take minutes.
        step = sizes[turn % len(sizes)] if turn < MOST_SMALL else MOST
        pieces.append(stream[at : at + step])
        at, turn = at + len(pieces[-1]), turn + 1
    ends = drive(pieces, max_size)
    if max_size and size > max_size:
        # Refused as too large, or given up before its end.
        assert [each.kind for each in ends] in ([], ["too-large"])
    else:
        assert ends == [End("file", body)]


SIZE = st.integers(0, 90_000) | st.integers(250_000, MOST)


@bounded(40)
@given(
    st.lists(st.tuples(SIZE, st.booleans()), min_size=1, max_size=JOBS),
    st.lists(st.sampled_from([1, 100, 5000, 16384, 16385, 65536, 262144]), min_size=1, max_size=5),
    st.integers(1, 200_000),
)
def any_sizes_in_a_row(bodies: list[tuple[int, bool]], sizes: list[int], step: int) -> None:
    """Check that what follows a body that bypassed the parser is read correctly, wherever it was cut."""
    expected, stream = [], b""
    for number, (size, in_chunks) in enumerate(bodies):
        body = bytes([number]) * size
        expected.append(End("file", body))
        if in_chunks:
            text = b"%x\r\n%b\r\n" % (size, body) if size else b""
            stream += b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + text + b"0\r\n\r\n"
        else:
            stream += b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body
    pieces, at = [], 0
    for size in cycle([*sizes, step]):
        if at >= len(stream):
            break
        pieces.append(stream[at : at + size])
        at += size
    assert drive(pieces) == expected


def test_consecutive_bodies_of_any_size() -> None:
    rounds(any_sizes_in_a_row)


def test_body_of_any_size() -> None:
    rounds(any_size)


ENDLESS = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 404 No\r\n\r\n", b"",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)  # fmt: skip
UNIT = st.sampled_from(
    [b"a", b"X: y\r\n", b"1", b"HTTP/1.1 100 Continue\r\n\r\n", b"X: y\r\n z\r\n"]
) | st.binary(min_size=1, max_size=30)


@bounded(12)
@given(ENDLESS, UNIT, st.integers(700, 40_000))
def any_flood(start: bytes, unit: bytes, piece: int) -> None:
    """Check that an endless response is given up, or takes constant memory."""
    flooded(start, unit, piece)


def flooded(start: bytes, unit: bytes, piece: int) -> None:
    flood = start + unit * max(1_000_000 // len(unit), 1)
    parser = ResponseParser(Connection(), {})
    jobs: list[Any] = list(range(10**6))
    parser.outstanding.extend(jobs)
    tracemalloc.start()
    try:
        view = memoryview(flood)
        for at in range(0, len(flood), piece):
            parser.feed(view[at : at + piece])
            if parser.problem or parser.surplus or parser.closing:
                break
            for _, body in parser.completed:
                end(body)
            parser.completed.clear()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * (MAX_HEAD + piece)


def test_endless_response() -> None:
    rounds(any_flood)


@pytest.mark.parametrize("unit", [b"a", b"%d: y\r\n"])
def test_endless_trailers(unit: bytes) -> None:
    """Found by fuzzing: behind the last chunk nothing was counted."""
    many = b"".join(unit % number if b"%" in unit else unit for number in range(20_000))
    flooded(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", many, 16_000)


FLOODS = [b"X: %d\r\n" % n for n in range(30_000)]


@pytest.mark.parametrize(
    ("start", "flood"),
    [
        (b"", b"\r\n" * 20),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n" * 20_000),
        (b"", b"HTTP/1.1 103 Hints\r\n\r\n" * 9_000),
        (b"", b"HTTP/1.0 103 Hints\r\n\r\n" * 9_000),
        (b"HTTP/1.1 200 OK\r\n", b"".join(FLOODS)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 200_000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0" * 200_000),
        (b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 200_000),
        (b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"".join(FLOODS)),
        (b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 30_000),
        (b"HTTP/1.1 302 No\r\nContent-Length: 9\r\n\r\n", b""),
    ],
    ids=[
        *(
            "empty lines",
            "empty lines behind 100",
            "103",
            "103 as if the last",
            "head",
            "extension",
            "zeros",
        ),
        *("extension of 404", "trailers of 404", "chunks of 404", "none"),
    ],
)
@pytest.mark.parametrize("piece", [2, 22, 1000, 500_000])
def test_flood_is_given_up(start: bytes, flood: bytes, piece: int) -> None:
    """What brings no response on is bounded, wherever it stands, behind others too."""
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    parser = ResponseParser(Connection(), {})
    jobs: list[Any] = list(range(4))
    parser.outstanding.extend(jobs)
    parser.feed(memoryview(good))
    stream = memoryview(start + flood)
    for at in range(0, len(stream), piece):
        parser.feed(stream[at : at + piece])
        if parser.problem is not None:
            break
    refusal = parser.refusal
    assert [end(body) for _, body in parser.completed] == [End("file", b"abc")]
    if flood:
        status = start[9:12].decode()
        code = f"http-{status}" if status == "404" else "protocol"
        assert isinstance(parser.problem, FetchError)
        assert parser.problem.code == code
    else:
        assert parser.problem is None
        assert isinstance(refusal, NeedsRequestsClient)


SKIPPED = (
    *(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 100 Continue\r\nX: y\r\n\r\n"),
    *(b"HTTP/2.0 103 Hints\r\n\r\n", b"HTTP/1.1 199 What\r\nConnection: close\r\n\r\n"),
)


def test_final_response_follows_interim_ones_wherever_they_are_cut() -> None:
    """Also behind others, and the last one of a connection stays the last one."""
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
    for first in SKIPPED:
        for second in (b"", *SKIPPED):
            stream = first + second + good + second + first + last
            for cut in range(len(stream)):
                assert drive([stream[:cut], stream[cut:] + good]) == [End("file", b"abc")] * 2, (
                    stream,
                    cut,
                )


def test_large_read_that_ends_behind_a_head_is_no_endless_body() -> None:
    """Of many responses in one read, only the last one is not complete."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"3\r\nabc\r\n0\r\n\r\n"
    parser = ResponseParser(Connection(), {})
    jobs: list[Any] = list(range(3000))
    parser.outstanding.extend(jobs)
    parser.feed(memoryview(head))
    parser.feed(memoryview(body + (head + body) * 2998 + head))
    assert parser.problem is None
    parser.feed(memoryview(body))
    assert [end(each) for _, each in parser.completed] == [End("file", b"abc")] * len(jobs)


@pytest.mark.parametrize("first", [1000, 4096, 12_000])
def test_evenly_flushed_chunks_are_not_an_endless_body(first: int) -> None:
    """Each chunk arrives in two pieces, the first always as long: as a server flushes them."""
    parser = ResponseParser(Connection(), {})
    jobs: list[Any] = list(range(100))
    parser.outstanding.extend(jobs)
    for _ in jobs:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        parser.feed(memoryview(head + b"%x\r\n%b\r\n" % (first, b"a" * first)))
        parser.feed(memoryview(b"3\r\nabc\r\n0\r\n\r\n"))
        assert parser.problem is None
    assert [end(body) for _, body in parser.completed] == [End("file", b"a" * first + b"abc")] * len(jobs)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_reference_parser_accepts_correct_responses(cut: int) -> None:
    right = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    assert reference(right * 2) == [b"abc", b"abc"]
    assert drive(cut_up(right * JOBS, [cut / 60])) == [End("file", b"abc")] * JOBS
    assert reference(right[:-1]) == []
