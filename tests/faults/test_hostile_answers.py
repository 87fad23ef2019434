"""Responses that are wrong, slow, cut or endless: each file ends as it must, and no other is affected.

One server, one run with all files at once; then one test for each.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from servers import CLOSE, Answer, Certificates, Forever, Pause, Result, Server, download, ok
from servers.rows import AT_ONCE, CASES, CHUNKED, HOPS, head

# Hundreds of requests, and handshakes, begin at once, and a busy machine is slow to answer them.
QUICK = ("--deadline", "6s", "--read-timeout", "2500ms", "--retries", "1", "--backoff", "50ms")


class Ran(NamedTuple):
    result: Result
    server: Server
    lane: str


@pytest.fixture(scope="module", params=["auto", "requests", "auto-tls", "requests-tls"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Each file is on a host of its own: none makes another lose the pipelined client."""
    place = tmp_path_factory.mktemp("answers")
    answers = {name: case.answer for name, case in CASES.items()}
    lane, _, tls = request.param.partition("-")
    certificates = Certificates(place)
    hosts = {name: f"127.0.1.{n}" for n, name in enumerate(CASES, 1)}
    context = certificates.context(hosts=hosts.values()) if tls else None
    with Server(HOPS, files=answers, host="0.0.0.0", tls=context) as server:
        # A slot for each: where some wait, slow requests are begun again (``core.preemption``).
        options = ("--workers", "2", "--connections", "224", "--lane", lane)
        options += QUICK
        options += ("--cacert", str(certificates.ca)) if tls else ()
        scheme, _, port = server.url.replace("//", "").split(":")
        urls = [f"{scheme}://{host}:{port}/get/{name}" for name, host in hosts.items()]
        yield Ran(download("-", place / "dest", *options, stdin="\n".join(urls)), server, lane)


@pytest.mark.parametrize("name", CASES)
def test_each_response_ends_with_the_expected_result(ran: Ran, name: str) -> None:
    case = CASES[name]
    if isinstance(case.ends, bytes):
        assert name not in ran.result.failures
        assert ran.result.files[name] == case.ends
    else:
        assert ran.result.codes.get(name) in case.ends.split(), ran.result.failures.get(name)
        assert name not in ran.result.files


@pytest.mark.parametrize("name", CASES)
def test_request_counts_are_as_expected(ran: Ran, name: str) -> None:
    seen, most = len(ran.server.seen(f"/get/{name}")), CASES[name].requests
    if ran.lane == "requests" or name in AT_ONCE:
        assert seen == most
    else:
        # What the pipelined client hands over is requested once more, in each attempt.
        assert most <= seen <= 2 * most


def test_the_report_adds_up(ran: Ran) -> None:
    stored = {name: case for name, case in CASES.items() if isinstance(case.ends, bytes)}
    report = ran.result.report
    assert ran.result.exit == 1
    assert report["complete"]
    assert (report["listed"], report["stored"]) == (len(CASES), len(stored))
    assert report["failed"] == len(CASES) - len(stored)
    assert report["unverified"] == sum(not case.verified for case in stored.values())
    assert report["requests"] == ran.server.count()
    assert (report["lanes"]["wire"] > len(CASES)) == (ran.lane == "auto")
    assert report["worker_deaths"] == 0


def test_destination_has_no_other_files(ran: Ran) -> None:
    assert set(ran.result.files) == {name for name, case in CASES.items() if isinstance(case.ends, bytes)}


def test_memory_is_bounded(ran: Ran) -> None:
    # About 45 MB without hostile responses.
    assert ran.result.report["peak_rss_mb"]["worker"] < 120


def test_details_are_about_the_response(ran: Ran) -> None:
    """None is what Python says of it."""
    details = {name: failure["detail"] for name, failure in ran.result.failures.items()}
    assert not [
        detail for detail in details.values() if "ValueError" in detail or "invalid literal" in detail
    ]
    lines = {name: detail for name, detail in details.items() if "status line is malformed" in detail}
    assert {"status-of-no-number", "status-without-blank", "status-line-in-small"} <= lines.keys()


def test_output_has_no_traceback(ran: Ran) -> None:
    assert "Traceback" not in ran.result.stderr


@pytest.mark.parametrize("code", [204, 304])
def test_bytes_after_a_response_without_body_are_not_stored(code: int, tmp_path: Path) -> None:
    """It is not taken for the next file: with one connection the next request would read it."""
    said = b"HTTP/1.1 %d No\r\n\r\n" % code
    with Server(files={"a": [said, Pause(0.3), *ok(b"wrong")], "b": ok(b"right")}) as server:
        options = (*QUICK, "--workers", "1", "--connections", "1")
        result = download(server.url, tmp_path / "d", *options)
    assert result.codes == {"a": "unexpected-status"}
    assert result.files == {"b": b"right"}


ZEROS = 300_000_000


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, 1, mtime=0)


def bomb() -> bytes:
    """Return a few hundred kB that inflate to ZEROS bytes."""
    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(bytes(1_000_000)) for _ in range(ZEROS // 1_000_000)]
    return b"".join([*parts, packer.flush()])


GZIP = "Content-Encoding: gzip"


def bare(body: bytes) -> bytes:
    """Return deflate without zlib's header and checksum, as some servers send it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def test_compressed_and_max_size(tmp_path: Path) -> None:
    packed = gzipped(b"hello" * 1000)
    files: dict[str, Answer] = {
        "bomb": ok(bomb(), GZIP),
        "good": ok(packed, GZIP),
        "deflated": ok(zlib.compress(b"hello"), "Content-Encoding: deflate"),
        "plain": ok(b"hello"),
        "bare": ok(bare(b"hello"), "Content-Encoding: deflate"),
        "bare-nothing": ok(bare(b""), "Content-Encoding: deflate"),
        "nothing": ok(b"", GZIP),
        "nothing-deflated": ok(b"", "Content-Encoding: deflate"),
        "nothing-in-chunks": [head(GZIP, "Transfer-Encoding: chunked"), b"0\r\n\r\n"],
        "nothing-unsaid": [head(GZIP, "Connection: close"), CLOSE],
        "bare-gzip": ok(bare(b"hello"), GZIP),
        "bare-cut": ok(bare(b"hello" * 1000)[:-3], "Content-Encoding: deflate"),
        "cut-at-once": ok(b"\x1f", GZIP),
        "cut": ok(packed[:-12], GZIP),
        "cut-unsaid": [head(GZIP), packed[:-12], CLOSE],
        "damaged": ok(packed[:15] + b"\xff\xff\xff" + packed[18:], GZIP),
        "unknown": ok(b"x", "Content-Encoding: compress"),
        "long": ok(b"x" * 2_000_000),
        "long-chunks": [CHUNKED, *[b"10000\r\n" + b"x" * 65536 + b"\r\n"] * 20, b"0\r\n\r\n"],
        "endless": [head("Connection: close"), Forever(b"x" * 65536)],
    }
    with Server(files=files) as server:
        result = download(
            server.url, tmp_path / "d", *QUICK, "--compressed", "--max-size", "1M", "--workers", "1"
        )
        asked = {r.header("Accept-Encoding") for r in server.requests}
        assert asked == {"gzip, deflate, br, zstd"}
        assert [len(server.seen(f"/get/{name}")) for name in ("bomb", "long", "endless")] == [1, 1, 1]
    assert result.codes == {
        "bomb": "too-large",
        "nothing-unsaid": "truncated",
        "bare-gzip": "protocol",
        "bare-cut": "truncated",
        "cut-at-once": "truncated",
        "cut": "truncated",
        "cut-unsaid": "truncated",
        "damaged": "protocol",
        "unknown": "protocol",
        "long": "too-large",
        "long-chunks": "too-large",
        "endless": "too-large",
    }
    empty = dict.fromkeys(("bare-nothing", "nothing", "nothing-deflated", "nothing-in-chunks"), b"")
    hello = dict.fromkeys(("deflated", "plain", "bare"), b"hello")
    assert result.files == {"good": b"hello" * 1000} | hello | empty
    assert result.report["peak_rss_mb"]["worker"] < 120


def test_unrequested_content_coding_is_not_decoded(tmp_path: Path) -> None:
    packed = gzipped(b"hello")
    with Server(files={"a": ok(packed, GZIP)}) as server:
        result = download(server.url, tmp_path / "d", *QUICK)
        assert {r.header("Accept-Encoding") for r in server.requests} == {"identity"}
    assert (result.exit, result.files) == (0, {"a": packed})
