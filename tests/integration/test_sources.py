"""The sources through the command line: lists of URLs of every kind, servers with names of every kind."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from harness import Job, counted_with_peak, report_of, stored
from servers import Request, Server, listing, ok, status

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE = ("--workers", "1", "--retries", "0")


def echo(request: Request) -> list[bytes]:
    """Respond with the requested path."""
    return ok(unquote_to_bytes(request.target.rpartition("/")[2]))  # type: ignore[return-value]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=echo) as made:  # type: ignore[arg-type]
        yield made


# lists of URLs


@pytest.mark.parametrize("form", ["txt", "gz", "stdin", "upper"])
def test_list_with_comments_blank_lines_and_unusual_urls(
    run_downloader: Run, tmp_path: Path, server: Server, form: str
) -> None:
    url = server.url
    text = (
        f"\ufeff{url}/bom\r\n"
        "# a comment\r\n\r\n   \t\n"
        f"  {url}/indented \t\n"
        f"{url}/with space\n"
        f"{url}/caf\u00e9\n"
        f"{url.replace('http', 'HTTP')}/upper\n"
        f"http://user:pw@{url[7:]}/userinfo\n"
        f"{url}/twice\n{url}/twice\n"
        f"{url}/dir/query?a=1&b=2#fragment\n"
        f"{url}/\n"
        f"http://127.0.0.1.nip\u00e9.invalid/idn\n"
    ).encode()
    text += b"http://h/\xff\xfe\n" + b"x" * 200_000 + b"\n" + f"{url}/last".encode()
    names = {"txt": "l.txt", "gz": "l.txt.gz", "stdin": "l", "upper": "L.TXT"}
    path = tmp_path / names[form]
    path.write_bytes(gzip.compress(text) if form == "gz" else text)
    with path.open("rb") as stdin:
        source = "-" if form == "stdin" else path
        done = run_downloader(
            source, "-o", tmp_path / "d", *ONE, "--json", "--failures", tmp_path / "f", stdin=stdin
        )
    assert done.returncode == 1, done.stderr
    report = report_of(done)
    assert stored(tmp_path / "d") == {
        name: name.encode()
        for name in ("bom", "indented", "with space", "caf\u00e9", "upper", "userinfo", "twice", "last")
    } | {"query?a=1&b=2": b"query?a=1&b=2", "index.html": b""}
    failed = [json.loads(line) for line in (tmp_path / "f").read_text().splitlines()]
    assert {failure["name"]: failure["code"] for failure in failed} == {
        "idn": "dns",
        "line 15": "bad-url",
        "line 16": "bad-url",
    }
    assert all(len(failure["detail"]) < 200 for failure in failed)
    assert (report["listed"], report["stored"], report["skipped"]) == (14, 10, 1)
    assert server.seen("/userinfo")[0].header("Authorization") == "Basic dXNlcjpwdw=="
    assert server.seen("/with%20space")
    assert server.seen("/caf%C3%A9")


def test_items_are_fetched_while_the_list_producer_is_idle(
    start: Callable[..., Job], tmp_path: Path, server: Server
) -> None:
    job = start("-", "-o", tmp_path / "d", *ONE, "--json", stdin=subprocess.PIPE)
    pipe = job.process.stdin
    for number in range(3):
        # The next line comes only when the file of this one has been requested.
        pipe.write(f"{server.url}/{number}\n{server.url}/half".encode())
        pipe.flush()
        wait_until(lambda: bool(server.seen(f"/{number}")))  # noqa: B023
        assert not server.seen("/half")
        pipe.write(b"-of-a-line\n# comment\n")
        pipe.flush()
    pipe.close()
    assert job.wait(20) == 0, job.err
    report = json.loads(job.out)
    assert (report["stored"], report["skipped"], report["listed"]) == (4, 2, 6)
    assert job.err == ""


def wait_until(holds: Callable[[], bool], within: float = 30) -> None:
    give_up = time.monotonic() + within
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def begin_and_interrupt(start: Callable[..., Job], server: Server, path: Path, dest: Path) -> None:
    """Start a job over the list ``path`` and interrupt it when a file beyond the first 40 is requested."""
    stop = threading.Event()

    def hold(request: Request) -> list[bytes]:
        if int(request.target[2:] or 0) >= 40:
            stop.wait(30)
        return echo(request)

    server._default = hold  # type: ignore[assignment]
    job = start(path, "-o", dest, *ONE, "--connections", 1, "--json")
    wait_until(lambda: server.count("/n40") > 0)
    job.kill(2)
    stop.set()
    assert job.wait(30) == 130
    report = json.loads(job.out)
    assert not report["complete"]
    assert 40 <= report["stored"] < 2000


@pytest.mark.parametrize("packed", [False, True])
def test_resume_with_a_grown_list_and_a_changed_list(
    start: Callable[..., Job], run_downloader: Run, tmp_path: Path, server: Server, packed: bool
) -> None:
    path, dest = tmp_path / ("l.txt.gz" if packed else "l.txt"), tmp_path / "d"

    def write(lines: list[str]) -> None:
        data = "".join(lines).encode()
        path.write_bytes(gzip.compress(data) if packed else data)

    lines = [f"{server.url}/n{number}\n" for number in range(3000)]
    write(lines)
    begin_and_interrupt(start, server, path, dest)
    server._default = echo  # type: ignore[assignment]
    write([lines[0], lines[1].replace("n1", "m1"), *lines[2:]])
    changed = run_downloader(path, "-o", dest, *ONE, "--json")
    assert changed.returncode == 4
    assert "has changed before line " in changed.stderr
    assert not server.seen("/m1")
    write([*lines, f"{server.url}/n-new\n"])
    before = server.count("/n")
    grown = run_downloader(path, "-o", dest, *ONE, "--json")
    assert grown.returncode == 0, grown.stderr
    report = report_of(grown)
    assert report["resumed"]
    assert report["listed"] == 3001
    checks = 2 * 256  # requests that check the order of answers, at most
    assert server.count("/n") - before == report["requests"] <= report["stored"] + checks
    assert len(stored(dest)) == 3001
    done = server.count()
    again = run_downloader(path, "-o", dest, *ONE, "--json")
    assert report_of(again) | {"stored": 0, "skipped": 3001} == report_of(again)
    assert (again.returncode, server.count()) == (0, done)


def test_a_long_list_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    peaks = []
    for lines in (20_000, 200_000):
        path = tmp_path / "l.txt"
        path.write_text("".join(f"http://h/{number:060d}\n" for number in range(lines)))
        listed, peak = counted_with_peak(path)
        assert listed == lines
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 4096, peaks  # KiB


# file servers


@pytest.mark.parametrize("key", ["NextMarker", "NextFile"])
def test_both_marker_fields_are_read(run_downloader: Run, tmp_path: Path, key: str) -> None:
    routes = {
        "/p/list": listing(["a"], "x&y=z%+\u00e9", key),
        "/p/list?next-marker=x%26y%3Dz%25%2B%C3%A9": listing(["b"]),
    }
    with Server(routes, default=echo) as server:  # type: ignore[arg-type]
        done = run_downloader(f"{server.url}/p/", "-o", tmp_path / "d", *ONE)
        assert {request.target for request in server.requests} >= {"/p/get/a", "/p/get/b"}
    assert done.returncode == 0, done.stderr
    assert stored(tmp_path / "d") == {"a": b"a", "b": b"b"}


def test_list_and_get_paths(run_downloader: Run, tmp_path: Path) -> None:
    routes = {"/p/v1/index": listing(["a"]), "/p/raw/file/a": ok(b"A")}
    with Server(routes) as server:
        done = run_downloader(
            f"{server.url}/p",
            "-o",
            tmp_path / "d",
            *ONE,
            "--list-path",
            "/v1/index",
            "--get-path",
            "raw/file/",
        )
    assert done.returncode == 0, done.stderr
    assert stored(tmp_path / "d") == {"a": b"A"}


ODD = [
    "plain", "..", ".", "", "a/../../b", "/etc/passwd", "../" + "e" * 300, "nul\0",
    "\ud800", "x" * 255, "x" * 256, "y" * 4096, "new\nline", "\x1b[31mred", "a", "a/b", "A", "caf\u00e9",
    "cafe\u0301", "CON", "-rf", "%2e%2e%2f", "..%2f", "back\\slash", ".hidden", ".downloader",
    ".downloader/lock", ".downloader-0-1", "\u202eevil", "\u00fc" * 128, "\u00fc" * 127, "sp ace", "q?a=1",
    "#", "tab\t", "~", "a//b", "a/", "*", "COM1.txt", "trailing.", "{}", "\U0001f600", "|", "a\u2028b",
]  # fmt: skip


def flat_name(raw: str) -> str | None:
    """Return the stored name by the documented rule, in code of its own; None where there can be none."""
    out = ""
    for byte_or_char in raw:
        code = ord(byte_or_char)
        data = byte_or_char.encode("utf-8", "surrogatepass")
        unsafe = (
            code < 0x20 or 0x7F <= code <= 0x9F or byte_or_char in "%/\\" or 0xD800 <= code <= 0xDFFF
            or byte_or_char in "\u202e\u2028"
        )  # fmt: skip
        out += "".join(f"%{byte:02X}" for byte in data) if unsafe else byte_or_char
    if out in (".", "..") or out.startswith(".downloader"):
        out = "%2E" + out[1:]
    return out if 0 < len(out.encode()) <= 255 else None


def expected(layout: str, raw: str, host: str) -> str | None:
    name = flat_name(raw)
    if layout == "mirror":
        segments = [flat_name(part) if part else "%" for part in raw.split("/")]
        return None if None in segments or raw in (".", "..") else "/".join([host, "get", *segments])  # type: ignore[list-item]
    if layout == "hashed" and name:
        digest = hashlib.blake2b(name.encode(), digest_size=2).hexdigest()
        return f"{digest[:2]}/{digest[2:]}/{name}"
    return name


def odd_answer(request: Request) -> list[bytes]:
    return ok(b"of " + request.target.removeprefix("/get/").encode())  # type: ignore[return-value]


@pytest.mark.parametrize("layout", ["flat", "hashed", "mirror"])
def test_names_of_every_kind(run_downloader: Run, tmp_path: Path, layout: str) -> None:
    root = tmp_path / "outer" / "d"
    # Items without a file (the same command retries them) must stay as they are.
    with Server({"/list": listing(ODD)}, default=odd_answer) as server:  # type: ignore[arg-type]
        runs = [
            run_downloader(server.url, "-o", root, *ONE, "--layout", layout, "--json", "--connections", 1)
        ]
        asked = server.count("/get/")
        runs.append(run_downloader(server.url, "-o", root, *ONE, "--layout", layout, "--json"))
        runs.append(
            run_downloader(server.url, "-o", root, *ONE, "--layout", layout, "--retry-failed", "--json")
        )
        host = f"127.0.0.1:{server.port}"
        # "a" cannot be a file and a directory of a mirror; each later run requests the refused items once
        # more.
        assert server.count("/get/") - asked <= (2 * 4 if layout == "mirror" else 0)
    want = {place: raw for raw in ODD if (place := expected(layout, raw, host))}
    # Where one would be a directory of the other, the first item gets the name.
    taken = {
        place
        for place in want
        if any(place.startswith(f"{other}/") or other.startswith(f"{place}/") for other in want)
    }
    assert not taken or layout == "mirror"
    files = stored(root)
    assert set(files) - taken == set(want) - taken
    for place, content in files.items():
        assert unquote_to_bytes(content[3:]) == want[place].encode("utf-8", "surrogatepass")
    for done in runs:
        assert done.returncode == 1, done.stderr
        report = report_of(done)
        assert report["listed"] == len(ODD)
        assert set(report["failed_by_error"]) == {"bad-name"}
        assert report["failed"] == len(ODD) - len(files)
        assert "\x1b" not in done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"outer"}
    assert {path.name for path in (tmp_path / "outer").iterdir()} == {"d"}


@pytest.mark.parametrize("first", ["/a", "/a/b"])
def test_file_and_file_below_it_are_both_reported(
    run_downloader: Run, tmp_path: Path, server: Server, first: str
) -> None:
    (second,) = {"/a", "/a/b"} - {first}
    args = ("-", "-o", tmp_path / "d", *ONE, "--layout", "mirror", "--connections", 1)
    text = f"{server.url}{first}\n{server.url}{second}\n"
    done = run_downloader(*args, "--failures", tmp_path / "f", input=text)
    assert done.returncode == 1, done.stderr
    host = server.url.removeprefix("http://")
    failed = json.loads((tmp_path / "f").read_text())
    assert (failed["code"], failed["name"]) == ("bad-name", f"{host}{second}")
    assert failed["detail"] == (
        f"{host}/a is a file, so {host}/a/b cannot be stored below it; "
        "another -o with --layout hashed stores both"
        if first == "/a"
        else f"{host}/a is a directory, with {host}/a/b in it, so no file can be stored there; "
        "another -o with --layout hashed stores both"
    )
    assert failed["detail"] in done.stdout
    hashed = run_downloader(*args[:2], tmp_path / "h", *ONE, "--layout", "hashed", "--json", input=text)
    assert report_of(hashed)["stored"] == 2


@pytest.mark.parametrize("existing", ["replace", "keep", "fail"])
def test_obstructing_user_file_is_reported(run_downloader: Run, tmp_path: Path, existing: str) -> None:
    """What is said is true, whatever --existing says: what is no file is not kept, a directory stays."""
    root = tmp_path / "d"
    (root / "a").mkdir(parents=True)
    (root / "b").symlink_to("elsewhere")
    os.mkfifo(root / "c")
    with Server(files={"a": ok(b"x"), "b": ok(b"y"), "c": ok(b"z")}) as server:
        argv = (server.url, "-o", root, *ONE)
        done = run_downloader(*argv, "--existing", existing)
        assert done.returncode == 1
        assert "bad-name a is a directory, so no file can be stored there; move it away" in done.stdout
        advice = "not a regular file; move it away, or give --existing replace, which replaces it"
        for name in "bc" if existing != "replace" else "":
            assert f"file-exists {name}: {advice}" in done.stdout
        (root / "a").rmdir()
        assert run_downloader(*argv).returncode == 0
    assert [(root / name).read_bytes() for name in "abc"] == [b"x", b"y", b"z"]
    assert not (root / "b").is_symlink()


@pytest.mark.parametrize("layout", ["hashed", "mirror"])
def test_symlinked_directory_is_not_followed(run_downloader: Run, tmp_path: Path, layout: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "d"
    outside.mkdir()
    root.mkdir()
    with Server(files={name: ok(b"x") for name in ("a", "b", "c")}) as server:
        place = expected(layout, "a", f"127.0.0.1:{server.port}")
        assert place
        top = place.split("/")[0]
        (root / top).symlink_to(outside)
        done = run_downloader(server.url, "-o", root, *ONE, "--layout", layout, "--json")
    assert done.returncode == 1
    assert report_of(done)["failed_by_error"] == {"bad-name": 1 if layout == "hashed" else 3}
    assert list(outside.iterdir()) == []


def test_a_final_name_that_is_a_symlink(run_downloader: Run, tmp_path: Path) -> None:
    victim, root = tmp_path / "victim", tmp_path / "d"
    victim.write_bytes(b"precious")
    root.mkdir()
    (root / "a").symlink_to(victim)
    (root / "b").symlink_to("nowhere")
    with Server(files={"a": ok(b"x"), "b": ok(b"y")}) as server:
        done = run_downloader(server.url, "-o", root, *ONE)
    assert done.returncode == 0, done.stderr
    assert victim.read_bytes() == b"precious"
    assert not (root / "a").is_symlink()
    assert stored(root) == {"a": b"x", "b": b"y"}


def test_two_items_of_one_name(run_downloader: Run, tmp_path: Path) -> None:
    routes = {"/1/x": ok(b"one"), "/2/x": ok(b"two"), "/3/x": ok(b"one")}
    with Server(routes) as server:
        text = "".join(f"{server.url}{path}\n" for path in routes)
        args = ("-", "-o", tmp_path / "d", *ONE, "--connections", 1, "--json")
        first = run_downloader(*args, input=text)
        assert first.returncode == 1
        report = report_of(first)
        assert (report["stored"], report["skipped"], report["failed_by_error"]) == (1, 1, {"name-taken": 1})
        again = run_downloader(*args, input=text)
        assert report_of(again)["failed_by_error"] == {"name-taken": 1}
        mirrored = run_downloader(*args[:2], tmp_path / "m", *args[3:], "--layout", "mirror", input=text)
        assert report_of(mirrored)["stored"] == 3
    assert stored(tmp_path / "d") == {"x": b"one"}


def test_files_that_existed_before(run_downloader: Run, tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    (root / "same").write_bytes(b"S")
    (root / "other").write_bytes(b"before the job")
    (root / "not-listed").write_bytes(b"mine")
    same = (root / "same").stat()
    with Server(files={"same": ok(b"S"), "other": ok(b"O"), "new": ok(b"N")}) as server:
        done = run_downloader(server.url, "-o", root, *ONE, "--json")
    report = report_of(done)
    assert (done.returncode, report["stored"], report["skipped"]) == (0, 2, 1)
    assert stored(root) == {"same": b"S", "other": b"O", "new": b"N", "not-listed": b"mine"}
    assert (root / "same").stat().st_ino == same.st_ino


def test_limit_and_a_larger_limit(
    run_downloader: Run, tmp_path: Path, dev_server: Callable[..., Any]
) -> None:
    server = dev_server(files=300, page=100)
    reports = []
    for limit in (150, 150, 250, 0, 0):
        more = ["--limit", limit] if limit else []
        done = run_downloader(server.url, "-o", tmp_path / "d", *ONE, "--json", *more)
        assert (done.returncode, done.stderr) == (0, "")
        reports.append(report_of(done))
    assert [report["stored"] for report in reports] == [150, 0, 100, 50, 0]
    assert [report["listed"] for report in reports] == [150, 150, 250, 300, 300]
    assert [report["resumed"] for report in reports] == [False, True, True, True, True]
    assert server.stats()["gets"] == 300


@pytest.mark.parametrize("limit", [0, 12])
def test_dry_run(run_downloader: Run, tmp_path: Path, dev_server: Callable[..., Any], limit: int) -> None:
    server = dev_server(files=30, page=7)
    more = ["--limit", limit] if limit else []
    count = limit or 30
    # Without progress: on a busy machine the run is long enough for a progress line.
    done = run_downloader(server.url, "--dry-run", "--progress", "none", *more, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[:10] == [f"file-{number:010d}" for number in range(10)]
    assert lines[10:] == [f"… and {count - 10} more", f"{count} files"]
    record = json.loads(
        run_downloader(server.url, "--dry-run", "--json", *more, "-o", tmp_path / "d").stdout
    )
    assert (record["listed"], record["bad"], len(record["first"])) == (count, 0, 10)
    assert list(tmp_path.iterdir()) == []
    assert server.stats()["gets"] == 0


def test_dry_run_of_a_broken_source(run_downloader: Run, tmp_path: Path) -> None:
    with Server({"/list": status(404)}) as server:
        done = run_downloader(server.url, "--dry-run", "--progress", "none")
    assert done.returncode == 4
    assert "(http-404)" in done.stderr
    assert done.stderr.count("\n") == 1
    (tmp_path / "l.txt").write_text("http://h/a\nnonsense\n")
    assert (
        run_downloader(tmp_path / "l.txt", "--dry-run").stdout
        == "a\nline 2\n2 files, 1 of them cannot be fetched\n"
    )


def test_null_stores_nothing(run_downloader: Run, tmp_path: Path, dev_server: Callable[..., Any]) -> None:
    server = dev_server(files=50, size="0-3000")
    done = run_downloader(server.url, "-o", tmp_path / "d", "--store", "null", "--json", *ONE)
    report = report_of(done)
    assert (report["stored"], report["failed"]) == (50, 0)
    assert report["bytes"] > 0
    assert os.listdir(tmp_path / "d") == [".downloader"]
