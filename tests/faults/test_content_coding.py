"""br and zstd are decoded with the checks of gzip; what nobody asked for is stored as sent, and counted."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pytest
from servers import CLOSE, Answer, Server, download, ok
from servers.rows import head

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

QUICK = ("--deadline", "20s", "--read-timeout", "10s", "--retries", "1", "--backoff", "50ms")
HELLO = b"".join(b"hello %d\n" % n for n in range(5000))
ZEROS = 300_000_000
Pack = Callable[[bytes], bytes]


def zstd_bomb() -> bytes:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 20})
    block = bytes(1_000_000)
    return b"".join(packer.compress(block) for _ in range(ZEROS // len(block))) + packer.flush()


def brotli_bomb() -> bytes:
    packer = brotli.Compressor(quality=5)
    block = bytes(1_000_000)
    return b"".join(packer.process(block) for _ in range(ZEROS // len(block))) + packer.finish()


CODINGS = {"br": (brotli.compress, brotli_bomb), "zstd": (zstd.compress, zstd_bomb)}


@pytest.mark.parametrize("coding", CODINGS)
def test_decoded_bodies_keep_all_checks(coding: str, tmp_path: Path) -> None:
    pack, bomb = CODINGS[coding]
    header = f"Content-Encoding: {coding}"
    packed, large = pack(HELLO), pack(HELLO * 15)
    middle = len(packed) // 2
    files: dict[str, Answer] = {
        "bomb": ok(bomb(), header),
        "good": ok(packed, header),
        "upper": ok(packed, f"content-encoding: {coding.upper()}"),
        "large": ok(large, header),
        "chunks": [
            head(header, "Transfer-Encoding: chunked"),
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large),
        ],
        "tiny": ok(pack(b"x"), header),
        "packed-nothing": ok(pack(b""), header),
        "nothing": ok(b"", header),
        "nothing-unsaid": [head(header, "Connection: close"), CLOSE],
        "one-byte": ok(packed[:1], header),
        "cut": ok(packed[:-1], header),
        "cut-early": ok(packed[:middle], header),
        "cut-unsaid": [head(header), packed[:-1], CLOSE],
        "damaged": ok(packed[:middle] + bytes(40) + packed[middle + 40 :], header),
        "not-packed": ok(HELLO, header),
        "garbage-behind": ok(packed + b"garbage behind", header),
        "other": ok(gzip.compress(HELLO), header),
        "twice": ok(pack(packed), f"Content-Encoding: {coding}, {coding}"),
        "over": ok(pack(HELLO * 30), header),
    }
    with Server(files=files) as server:
        options = (*QUICK, "--compressed", "--max-size", "1M", "--workers", "1")
        result = download(server.url, tmp_path / "d", *options)
        assert {r.header("Accept-Encoding") for r in server.requests} == {"gzip, deflate, br, zstd"}
        assert len(server.seen("/get/bomb")) == 1
    assert result.codes.pop("damaged") in ("protocol", "truncated")
    assert {name: code for name, code in result.codes.items() if name != "damaged"} == {
        "bomb": "too-large",
        "over": "too-large",
        "nothing-unsaid": "truncated",
        "one-byte": "truncated",
        "cut": "truncated",
        "cut-early": "truncated",
        "cut-unsaid": "truncated",
        "not-packed": "protocol",
        "garbage-behind": "protocol",
        "other": "protocol",
    }
    assert result.files == {
        **dict.fromkeys(("good", "upper", "twice"), HELLO),
        **dict.fromkeys(("large", "chunks"), HELLO * 15),
        **dict.fromkeys(("packed-nothing", "nothing"), b""),
        "tiny": b"x",
    }
    assert result.report["encoded"] == 0
    assert result.report["peak_rss_mb"]["worker"] < 120


def test_several_codings_of_one_body(tmp_path: Path) -> None:
    """An application packs, and the server in front of it once more; the last coding was applied last."""
    packed = gzip.compress(HELLO)
    both = gzip.compress(zlib.compress(HELLO * 15))
    files: dict[str, Answer] = {
        "twice": ok(gzip.compress(packed), "Content-Encoding: gzip, gzip"),
        "two-fields": ok(both, "Content-Encoding: deflate", "Content-Encoding: gzip"),
        "three": ok(
            brotli.compress(gzip.compress(zlib.compress(HELLO))), "Content-Encoding: deflate, gzip, br"
        ),
        "inner-cut": ok(gzip.compress(packed[:-1]), "Content-Encoding: gzip, gzip"),
        "outer-cut": ok(both[:-1], "Content-Encoding: deflate, gzip"),
        "once": ok(packed, "Content-Encoding: gzip, gzip"),
        "six": ok(packed, f"Content-Encoding: {', '.join(['gzip'] * 6)}"),
        "unknown": ok(packed, "Content-Encoding: compress, gzip"),
    }
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--compressed")
    assert result.codes == {
        **dict.fromkeys(("inner-cut", "outer-cut"), "truncated"),
        **dict.fromkeys(("once", "six", "unknown"), "protocol"),
    }
    assert result.files == {"twice": HELLO, "two-fields": HELLO * 15, "three": HELLO}


def test_zeros_behind_a_body_in_gzip(tmp_path: Path) -> None:
    """They are no member of it, wherever the blocks end; anything else is damage."""
    header, packed = "Content-Encoding: gzip", gzip.compress(HELLO)
    files: dict[str, Answer] = {
        "zeros": ok(packed + bytes(700_000), header),
        "blocks": [head(header, f"Content-Length: {len(packed) + 3}"), packed, *[b"\0"] * 3],
        "between": ok(packed + bytes(9) + gzip.compress(b"end"), header),
        "members": ok(packed + gzip.compress(b"end"), header),
        "one-byte-more": ok(packed + b"\x1f", header),
        "junk": ok(packed + b"junk", header),
    }
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--compressed")
    assert result.codes == {"one-byte-more": "truncated", "junk": "protocol"}
    both = dict.fromkeys(("between", "members"), HELLO + b"end")
    assert result.files == {**dict.fromkeys(("zeros", "blocks"), HELLO), **both}


def test_several_frames_of_zstd(tmp_path: Path) -> None:
    """They are one body, as several members of gzip are; a cut between them cannot be told from the end."""
    header = "Content-Encoding: zstd"
    frames = [zstd.compress(HELLO), zstd.compress(b""), zstd.compress(b"end")]
    files: dict[str, Answer] = {
        "frames": ok(b"".join(frames), header),
        "cut": ok(b"".join(frames)[:-1], header),
        "pieces": [head(header, f"Content-Length: {sum(map(len, frames))}"), *frames],
    }
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--compressed")
    assert result.codes == {"cut": "truncated"}
    assert result.files == dict.fromkeys(("frames", "pieces"), HELLO + b"end")


def test_zstd_with_a_window_that_no_server_may_use(tmp_path: Path) -> None:
    """More than 8 MiB (RFC 9659): each of the connections would take that much memory."""
    options: Any = {zstd.CompressionParameter.window_log: 25, zstd.CompressionParameter.checksum_flag: 1}
    packer = zstd.ZstdCompressor(options=options)
    body = packer.compress(bytes(40_000_000)) + packer.flush()
    with Server(files={"a": ok(body, "Content-Encoding: zstd")}) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--compressed")
    assert result.codes == {"a": "protocol"}


def test_codings_of_missing_packages_are_not_requested(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    hide = (
        "import sys\nsys.modules.update(dict.fromkeys(('brotli', 'backports.zstd', 'compression.zstd')))\n"
    )
    (tmp_path / "site" / "sitecustomize.py").write_text(hide)
    from servers.command import ROOT

    env = {"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"}
    files: dict[str, Answer] = {
        "br": ok(brotli.compress(b"x"), "Content-Encoding: br"),
        "gzip": ok(gzip.compress(b"hello"), "Content-Encoding: gzip"),
    }
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--compressed", env=env)
        assert {r.header("Accept-Encoding") for r in server.requests} == {"gzip, deflate"}
    assert result.codes == {"br": "protocol"}
    assert "pip install 'mass-downloader[compressed]'" in result.failures["br"]["detail"]
    assert result.files == {"gzip": b"hello"}


@pytest.mark.parametrize("lane", ["auto", pytest.param("requests", marks=pytest.mark.slow)])
def test_unrequested_codings_are_stored_as_sent_and_counted(lane: str, tmp_path: Path) -> None:
    files: dict[str, Answer] = {
        "gzip": ok(gzip.compress(b"a"), "Content-Encoding: gzip"),
        "br": ok(brotli.compress(b"a"), "Content-Encoding: br"),
        "odd": ok(b"odd", "Content-Encoding: odd"),
        "identity": ok(b"a", "Content-Encoding: identity"),
        "empty": ok(b"a", "Content-Encoding:"),
        "plain": ok(b"a"),
    }
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--lane", lane)
        assert {r.header("Accept-Encoding") for r in server.requests} == {"identity"}
        assert result.report["encoded"] == 3
        assert result.files["br"] == brotli.compress(b"a")
        # Nothing is new the second time.
        again = download(server.url, tmp_path / "d", *QUICK, "--lane", lane, "--restart")
        assert (again.report["skipped"], again.report["encoded"]) == (6, 0)
        # Whoever asks for a coding gets it, and is not told.
        asked = ("-H", "Accept-Encoding: gzip;q=1.0, br")
        own = download(server.url, tmp_path / "o", *QUICK, "--lane", lane, *asked)
        assert own.report["encoded"] == 1
    assert (result.exit, own.exit) == (0, 0)


@pytest.mark.parametrize("word", ["none", "UTF-8", "binary", "aws-chunked", "odd"])
def test_words_that_are_no_coding(word: str, tmp_path: Path) -> None:
    """The body is as it is, or in the coding beside them; what was asked for is still checked."""
    packed = gzip.compress(HELLO)
    files: dict[str, Answer] = {
        "alone": ok(HELLO, f"Content-Encoding: {word}"),
        "beside": ok(packed, f"Content-Encoding: {word},gzip"),
        "two-fields": ok(packed, "Content-Encoding: gzip", f"Content-Encoding: {word}"),
        "identity": ok(packed, "Content-Encoding: identity, gzip"),
        "cut": ok(packed[:-1], f"Content-Encoding: {word}, gzip"),
        "unrequested": ok(packed, f"Content-Encoding: {word}, compress"),
    }
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--compressed", "--workers", "1")
    assert result.codes == {"cut": "truncated", "unrequested": "protocol"}
    assert result.files == dict.fromkeys(("alone", "beside", "two-fields", "identity"), HELLO)
    assert result.report["encoded"] == 3


def test_the_text_report_says_so(run_downloader: Callable[..., Any], tmp_path: Path) -> None:
    with Server(files={"a": ok(zlib.compress(b"a"), "Content-Encoding: deflate"), "b": ok()}) as server:
        said = run_downloader(server.url, "-o", tmp_path / "d").stdout
    assert "1 of the stored are in a Content-Encoding that was not requested" in said
    with Server(files={"b": ok()}) as server:
        assert "Content-Encoding" not in run_downloader(server.url, "-o", tmp_path / "e").stdout
