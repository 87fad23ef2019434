"""Lists whose last line is longer than the limit, and has no end yet, between one run and the next."""

from __future__ import annotations

import gzip
import importlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import report_of, stored
from servers import Server, ok

from downloader.core.extras import ZSTD

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE = ("--workers", "1", "--retries", "0")
KIB = 1 << 10


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=lambda request: ok(request.target.encode())) as made:  # type: ignore[arg-type]
        yield made


def _row(form: str, url: str) -> bytes:
    if form == "jsonl":
        return json.dumps({"url": url}).encode() + b"\n"
    if form == "bag":
        return f"{url} - data/{url.rpartition('/')[2]}\n".encode()
    return f"{url}{',x' if form == 'csv' else chr(9) + 'x' if form == 'tsv' else ''}\n".encode()


def zstd(text: bytes) -> bytes:
    """Return ``text`` in the format of zstd."""
    return bytes(importlib.import_module(ZSTD).compress(text))


HEAD = {"csv": b"url,a\n", "tsv": b"url\ta\n"}
LONGEST = {
    form: 64 * KIB if form in ("txt", "aria2", "bag") else KIB * KIB
    for form in ("txt", "csv", "tsv", "jsonl", "aria2", "bag")
}
# A comment or a row that is too long, without its last byte, and how the list names the format.
LONG = {
    "txt": b"# {url}/x",
    "aria2": b"# {url}/x",
    "bag": b"{url}/x - data/",
    "csv": b"{url}/x,",
    "tsv": b"{url}/x\t",
    "jsonl": b'{"url": "{url}/x", "a": "',
}
ENDS = {"jsonl": b'"}'}
PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstd}


@pytest.mark.parametrize(
    ("form", "more", "packed"),
    [
        *((form, 1, "") for form in sorted(LONGEST)),
        *(("txt", more, packed) for more in (-1, 0, 7000) for packed in ("", ".gz", ".zst")),
        *(("jsonl", more, packed) for more in (-1, 0) for packed in ("", ".gz")),
        *(("csv", 0, ""), ("bag", 0, ".gz"), ("aria2", -1, "")),
    ],
)
def test_last_line_that_is_too_long_and_grows_stays_one_line(
    run_downloader: Run, tmp_path: Path, server: Server, form: str, more: int, packed: str
) -> None:
    """It is no row, or a failed one, and what follows in it later is none either."""
    path, dest = tmp_path / f"{'fetch.txt' if form == 'bag' else 'l'}{packed}", tmp_path / "d"
    start = LONG[form].replace(b"{url}", server.url.encode())
    start += b"y" * (LONGEST[form] + more - len(start))
    if form == "txt" and more == 7000:
        start = start[:-1] + b"\r"  # its line end is CRLF, and half of it is there
    first = HEAD.get(form, b"") + b"".join(_row(form, f"{server.url}/n{at}") for at in range(3))
    steps = [
        start,
        f" {server.url}/rest".encode(),
        b"z" * (LONGEST[form] * 2),
        ENDS.get(form, b"") + b"\n" + _row(form, f"{server.url}/n3"),
        _row(form, f"{server.url}/n4"),
    ]
    if form == "txt" and more == 7000:
        steps = [start, b"\n" + _row(form, f"{server.url}/n3"), _row(form, f"{server.url}/n4")]
    text = first
    command = (
        path,
        "-o",
        dest,
        *ONE,
        "--json",
        "--source",
        "urls",
        "--list-format",
        "bagit" if form == "bag" else form,
    )
    for step in steps:
        text += step
        path.write_bytes(PACK[packed](text))
        done = run_downloader(*command)
        assert done.returncode in (0, 1), done.stderr
    report = report_of(done)
    is_row = not start.startswith(b"#")
    names = {name.rpartition("/")[2] for name in stored(dest)}
    assert names == {f"n{at}" for at in range(5)}
    assert report["listed"] == 5 + is_row, report
    assert not server.seen("/rest")
    assert not server.seen("/z")
    again = run_downloader(*command)
    assert report_of(again)["listed"] == 5 + is_row
