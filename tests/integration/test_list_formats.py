"""Lists of every format through the command line: fetched, killed and resumed, and refused."""

from __future__ import annotations

import bz2
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import Job, command, counted_with_peak, environment, report_of, stored
from list_writer import SUFFIXED, TEXT, text, write
from servers import Request, Server, Step, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE = ("--workers", "1", "--retries", "0", "--progress", "none", "--json")
COUNT = 700


def body_of(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest()


class Files(Server):
    """A server whose files are made from their paths; beyond ``most`` requests it waits for ``go``."""

    def __init__(self) -> None:
        self.most = 10**9
        self.go = threading.Event()
        super().__init__(default=self.respond)

    def respond(self, request: Request) -> Sequence[Step]:
        if len(self.requests) > self.most:
            self.go.wait(30)
        return ok(body_of(request.target))


@pytest.fixture
def server() -> Iterator[Files]:
    with Files() as made:
        try:
            yield made
        finally:
            made.go.set()


def rows_of(server: Server, count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "url": f"{server.url}/x/{number}",
            "name": f"d{number % 3}/n{number}",
            "size": 32,
            "note": f'"{number}",\n',
        }
        for number in range(first, first + count)
    ]


def files_of(rows: list[dict[str, Any]], *, names: bool = True) -> dict[str, bytes]:
    return {
        row["name"] if names else row["url"].rpartition("/")[2]: body_of(
            "/x/" + row["url"].rpartition("/")[2]
        )
        for row in rows
    }


def make(tmp_path: Path, name: str, rows: list[dict[str, Any]]) -> list[object]:
    """Write ``rows`` as ``name`` says; return SOURCE and the options that it needs."""
    if name in ("aria2", "bagit"):
        return [write(tmp_path / "list", rows, name), "--list-format", name]
    if name in ("directory", "pattern"):
        parts = ["a.csv", "b.jsonl.gz", "c.parquet", "d.tsv.zst", "e.arrow"]
        (tmp_path / "lists").mkdir(exist_ok=True)
        each = -(-len(rows) // len(parts))
        for index, part in enumerate(parts):
            write(tmp_path / "lists" / part, rows[index * each : (index + 1) * each])
        return [tmp_path / "lists" if name == "directory" else f"{tmp_path}/lists/[a-f].*"]
    return [write(tmp_path / name, rows)]


FORMS = [*SUFFIXED, "aria2", "bagit", "directory", "pattern"]
QUICK = {"l.csv", "l.jsonl.zst", "l.parquet", "directory"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in FORMS]
)
def test_killed_job_is_finished(
    start: Callable[..., Job], run_downloader: Run, tmp_path: Path, server: Files, name: str
) -> None:
    rows = rows_of(server, COUNT)
    argv = (
        *make(tmp_path, name, rows),
        "-o",
        tmp_path / "d",
        *ONE,
        "--connections",
        2,
        "--pipeline",
        "off",
    )
    server.most = 300
    job = start(*argv)
    job.until(lambda: len(server.requests) > server.most)
    job.kill(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    job.alone()
    server.most = 10**9
    server.go.set()
    before = len(server.requests)
    done = run_downloader(*argv)
    assert done.returncode == 0, done.stderr
    report = report_of(done)
    assert (report["listed"], report["failed"], report["resumed"]) == (COUNT, 0, True)
    assert len(server.requests) - before <= COUNT - 300 + 4, "what was stored is not requested again"
    assert stored(tmp_path / "d") == files_of(rows, names=".txt" not in name)
    again = report_of(run_downloader(*argv))
    assert (again["requests"], again["skipped"], again["exit_code"]) == (0, COUNT, 0)


@pytest.mark.parametrize("form", TEXT)
def test_every_text_format_on_standard_input(
    run_downloader: Run, tmp_path: Path, server: Files, form: str
) -> None:
    rows = rows_of(server, 40)
    argv = ("-", "-o", tmp_path / "d", *ONE, *([] if form == "txt" else ["--list-format", form]))
    for limit in (10, 0):
        limited = ["--limit", limit] if limit else []
        done = run_downloader(*argv, *limited, input=text(form, rows))
        assert done.returncode == 0, done.stderr
        assert report_of(done)["listed"] == (limit or 40)
    assert stored(tmp_path / "d") == files_of(rows, names=form != "txt")
    assert len(server.requests) == 40


@pytest.mark.parametrize("name", ["directory", pytest.param("pattern", marks=pytest.mark.slow)])
def test_files_before_the_cursor_must_stay(
    run_downloader: Run, tmp_path: Path, server: Files, name: str
) -> None:
    rows = rows_of(server, 50)
    argv = (*make(tmp_path, name, rows), "-o", tmp_path / "d", *ONE)
    lists = tmp_path / "lists"
    first = run_downloader(*argv, "--limit", 25)  # in the third file
    assert first.returncode == 0, first.stderr
    shutil.copytree(lists, tmp_path / "kept")

    def refused(says: str) -> None:
        before = len(server.requests)
        done = run_downloader(*argv)
        assert (done.returncode, len(server.requests)) == (4, before), done.stderr
        assert says in done.stderr
        assert "--relist" in done.stderr
        shutil.rmtree(lists)
        shutil.copytree(tmp_path / "kept", lists)

    write(lists / "b.csv", rows)
    refused("has read up to file 3, c.parquet, and now that is b.jsonl.gz: a file is new or missing")
    (lists / "a.csv").unlink()
    refused("has read up to file 3, c.parquet, and now that is d.tsv.zst: a file is new or missing")
    write(lists / "a.csv", [{**rows[0], "size": 31}, *rows[1:10]])
    refused("one of the 2 files before c.parquet has changed since this job read it")
    write(lists / "c.parquet", rows[20:29])
    refused("c.parquet has changed since this job read its first 5 rows")
    more = rows_of(server, 5, first=50)
    write(lists / "f.jsonl", more)  # behind all others: the list has grown
    done = run_downloader(*argv)
    assert done.returncode == 0, done.stderr
    assert stored(tmp_path / "d") == files_of(rows + more)


@pytest.mark.parametrize("name", ["l.csv", "l.jsonl.gz", "l.tsv.zst", "l.parquet", "l.feather"])
def test_changed_list_is_refused_with_its_row(
    run_downloader: Run, tmp_path: Path, server: Files, name: str
) -> None:
    rows = rows_of(server, 60)
    argv = (write(tmp_path / name, rows), "-o", tmp_path / "d", *ONE)
    assert run_downloader(*argv, "--limit", 40).returncode == 0
    write(tmp_path / name, [rows[0], {**rows[1], "url": f"{server.url}/other"}, *rows[2:]])
    done = run_downloader(*argv)
    assert done.returncode == 4
    assert f"{name} has changed " in done.stderr
    assert ("first 40 rows" if name in ("l.parquet", "l.feather") else "before line ") in done.stderr
    assert not server.seen("/other")
    relisted = run_downloader(*argv, "--relist")
    # The item whose URL has changed has its name still, with the bytes of the other URL.
    assert report_of(relisted)["listed"] == 60
    options = run_downloader(*argv, "--name-column", "note")
    assert options.returncode == 4
    assert "begun with other options" in options.stderr


TAR = ("--store", "tar", "--member")


@pytest.mark.parametrize(
    ("name", "content", "more", "says"),
    [
        ("l.csv", "URL,b\nu,1\n", [], "(--url-column), it has URL, b; did you mean --url-column URL?"),
        ("l.csv", "my url,b\nu,1\n", [], "it has my url, b; did you mean --url-column 'my url'?"),
        ("l.tsv", "url\tb\n", ["--keep-columns", "b,c"], "no column 'c' (--keep-columns), it has url, b"),
        ("l.jsonl", '{"href": "u"}\n', [], "no column 'url' (--url-column), it has href"),
        ("l.txt", "http://h/1\n", ["--url-column", "x"], "is for lists with columns, not for txt"),
        ("l.txt", "http://h/1\n", [*TAR, "txt=caption"], "--member is for lists with columns, not for txt"),
        ("l.txt", b"\x1f\x8b...\n", [], "unpack it with gzip -dc or name it .gz"),
        ("l.txt", "http://h/1\n", ["--no-header"], "--no-header is for lists in csv and tsv"),
        ("l.csv", "url\n", ["--checksum-column", "sha3=x"], "'sha3' is not one of md5, sha1"),
        ("l.csv", "url\n", ["--list-format", "xls"], "'xls' is not one of txt, csv, tsv"),
        ("l.csv", "url\n", ["--on-duplicate", "x"], "'x' is not one of fail, skip, number"),
        ("l.csv", "url\n", ["--name-column", "x", "--layout", "mirror"], "both name the files"),
        ("l.parquet", "PAR1", ["--list-format", "csv"], "is no text"),
        ("list", "url\n", [], "its suffix names no format; add --list-format txt|csv"),
        ("l.csv", "\ufeffurl\n".encode("utf-16-le"), [], "looks like UTF-16"),
        ("none*.csv", None, [], "no file matches it"),
        ("empty", None, [], "there is no list in this directory"),
        ("l.csv", "url,a\nhttp://h/1,2\n", ["--header-column", "h"], "no column 'h' (--header-column)"),
        ("l.csv", "url,a,a\nhttp://h/1,2,3\n", ["--keep-columns", "all"], "has 2 columns 'a'"),
        ("l.csv", "gr\u00f6\u00dfe,a\n1,2\n".encode("latin-1"), [], "header, line 1, is not valid UTF-8"),
        ("l.csv", 'url,"a\nhttp://h/1,2\n', [], "the header, line 1, has a quote that is not closed"),
        ("l.csv", "url,a\rb\nhttp://h/1,2\n", [], "the header, line 1, has a carriage return"),
        ("l.csv", "url,a\rhttp://h/1,2\r", [], "has CR alone as the end of its lines"),
        ("l.txt", "http://h/1\rhttp://h/2\r", [], "convert it with: tr '\\r' '\\n' < "),
        ("l.jsonl", '{"url": "u"}\r{"url": "v"}', [], "has CR alone as the end of its"),
        ("l.jsonl", '{"k": "url"}\n' * 30_000, [], "no column 'url' (--url-column), it has k"),
        ("l.jsonl", '{"a": {"b": 1}}\n', ["--url-column", "a.c"], "no column 'a.c' (--url-column)"),
        ("l.txt", "http://h/1\n", ["--quote", "none"], "--quote is for lists in csv and tsv"),
        ("l.csv", "url,b\nu,1\n", ["--member", "txt=b"], "--member is for --store tar or parquet, and not"),
        ("l.csv", "url\nu\n", ["--shard-compression", "gz"], "--shard-compression is for --store tar or"),
        ("l.csv", "url,bc\nu,1\n", [*TAR, "txt=b"], "no column 'b' (--member), it has url, bc; did you"),
        ("l.csv", "url,b\nu,1\n", [*TAR, "json=b"], "json is the member with the metadata of the sample"),
        ("l.txt.gz", "http://h/1\n", [], "l.txt.gz cannot be read after line 0: Not a gzipped file"),
        ("l.csv.gz", gzip.compress(b"url\nhttp://h/1\n", mtime=0)[:12], [], "after line 0: Compressed"),
        ("l.jsonl.gz", "", [], "is empty, and so no gzip file; write it again"),
        ("l.txt.zst", "http://h/1\n", [], "l.txt.zst cannot be read after line 0: Unable to decompress"),
        ("l.parquet", "http://h/1\n", [], "is no complete Parquet file: Parquet magic bytes not found"),
        ("l.parquet", "", [], "is no complete Parquet file"),
        ("l.arrow", "", [], "is no complete Arrow IPC file or stream"),
        ("l.txt.xz", "", [], "lists in .xz are not read, only in .gz and .zst; unpack it with: xz -dc "),
        ("l.csv", lzma.compress(b"url\n"), [], "l.csv is xz, and a list of this format is text; unpack"),
        ("l.csv", '"url";"a"\n"u";"1"\n', [], "closing quote; its delimiter seems to be a semicolon; conv"),
        ("l.tsv", "url,a\nu,1\n", [], "seems to be a comma; add --list-format csv"),
        ("l.tsv", 'url\t"a"b, c\nu\t1\n', [], "text behind a closing quote; where quotes are text, --"),
        ("l.csv", "http://h/1,a\n", [], "that is no header: --no-header names columns 1, 2"),
        ("l.jsonl", '{"url": "u"}\n', ["--url-column", "a.url"], "did you mean --url-column url?"),
        ("l.txt", gzip.compress(b"http://h/1\n", mtime=0), [], "l.txt is gzip, and a list of this"),
        ("l.jsonl", "url,c\nu,1\n", [], "and a list has one a line; if it is csv, add --list-format csv"),
        ("l.json", '{"url": "u"}\n', [], "if it has one JSON object a line, add --list-format jsonl"),
        ("l.csv", "PAR1", [], "l.csv is Parquet, and a list of this format is text; name it .parquet"),
        ("l.tsv", "url\tSHA-256\nu\t1\n", [], "--checksum-column sha256=SHA-256 uses it, --checksums off"),
        ("l.jsonl", '{"url": "u", "Size": 1}\n', [], "its column 'Size' would not be used"),
        ("l.bz2", bz2.compress(b"url\n"), ["--list-format", "csv"], "lists in .bz2 are not read"),
    ],
)  # fmt: skip
def test_usage_errors(
    run_downloader: Run, tmp_path: Path, name: str, content: str | bytes | None, more: list[str], says: str
) -> None:
    (tmp_path / "empty").mkdir()
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run_downloader(tmp_path / name, "-o", tmp_path / "d", *ONE, *more)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("/dev/stdin", "; give - in its place"),
        ("/dev/fd/0", "; give - in its place"),
        (
            "/dev/fd/{fd}",
            "; give - in its place, and have the list on standard input: COMMAND | downloader -",
        ),
    ],
)
@pytest.mark.parametrize("form", [(), ("--list-format", "txt")])
def test_descriptor_as_a_list_is_told_to_be_standard_input(
    source: str, says: str, form: tuple[str, ...], tmp_path: Path
) -> None:
    """As a shell has `<(COMMAND)`."""
    reads, writes = os.pipe()
    with open(reads, "rb") as pipe, open(writes, "wb"):
        argv = [*command(source.format(fd=pipe.fileno()), "-o", tmp_path / "d"), *form]
        done = subprocess.run(
            argv,
            stdin=pipe,
            pass_fds=[reads],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
    assert (done.returncode, done.stderr.rstrip().endswith(says)) == (2, True), done.stderr


@pytest.mark.parametrize("source", ["/dev/stdin", "/proc/self/fd/0", "/dev/fd/{fd}", "link.txt"])
def test_descriptor_that_is_a_file_is_told_to_be_standard_input(source: str, tmp_path: Path) -> None:
    """The process that reads the list has others: it ended with 4, and did so for ever."""
    (tmp_path / "base.txt").write_text("http://127.0.0.1:9/a\n")
    (tmp_path / "link.txt").symlink_to("/dev/./stdin")
    with open(tmp_path / "base.txt", "rb") as file:
        done = subprocess.run(
            command(source.format(fd=file.fileno()), "-o", "d", "--list-format", "txt"),
            stdin=file,
            pass_fds=[file.fileno()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert "is not a file of its own, which is read again on resume; give - in its place" in done.stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("begins", "says"),
    [
        (b"\x1f\x8b", "; unpack it with gzip -dc or store it in a file .gz"),
        (b"PAR1", "; store it in a file .parquet, and name that"),
    ],
)
def test_standard_input_that_is_no_text(begins: bytes, says: str, tmp_path: Path) -> None:
    """It has no name that could be changed."""
    argv = [*command("-", "-o", tmp_path / "d")]
    done = subprocess.run(
        argv, input=begins + b"...\n", capture_output=True, env=environment(), check=False
    )
    assert done.returncode == 2
    assert says in done.stderr.decode()


def test_url_of_every_object_is_deeper(run_downloader: Run, tmp_path: Path, server: Files) -> None:
    """The key is in every line, as that of an inner object. The job that was refused can be begun after."""
    path, argv = tmp_path / "l.jsonl", ("-o", tmp_path / "d", *ONE)
    rows = [{"id": n, "image": {"size": 1, "url": f"{server.url}/{n}"}} for n in range(9_000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    says = "no column 'url' (--url-column), it has id, image.size, image.url; did you mean"
    for source, text_of in ((path, None), ("-", path.read_text())):
        done = run_downloader(source, *argv, "--list-format", "jsonl", input=text_of)
        assert (done.returncode, server.requests) == (2, []), done.stderr
        assert f"{says} --url-column image.url?" in done.stderr
    done = run_downloader(path, *argv, "--limit", 20, "--url-column", "image.url")
    assert (done.returncode, len(stored(tmp_path / "d"))) == (0, 20), done.stderr
    with path.open("a") as file:
        file.write(json.dumps({"url": f"{server.url}/late"}) + "\n")
    done = run_downloader(path, "-o", tmp_path / "e", *ONE, "--limit", 1)
    assert done.returncode == 1, "one line has the key"


def test_delimiters_of_spreadsheets(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path, server: Files
) -> None:
    """Excel writes semicolons where the comma is decimal; a first line ``sep=`` says so, and no other."""
    rows = "".join(f'"{server.url}/{n}";"a, ""b"" {n}"\r\n' for n in range(30))
    named, plain = tmp_path / "named.csv", tmp_path / "plain.csv"
    named.write_text(f'\ufeffsep=;\r\n"url";caption\r\n{rows}')
    plain.write_text(f"\ufeffurl;caption\r\n{rows}")
    for limit in (10, 100):
        manifest = tmp_path / "m.jsonl"
        keep = ("--keep-columns", "caption", "--manifest", manifest, "--limit", limit)
        done = run_downloader(named, "-o", tmp_path / "d", *ONE, *keep)
        assert done.returncode == 0, done.stderr
    captions = [json.loads(line)["columns"]["caption"] for line in manifest.read_text().splitlines()]
    assert captions == [f'a, "b" {n}' for n in range(30)]
    # The first line of a pipe may come alone.
    job = start("-", "-o", tmp_path / "f", *ONE, "--list-format", "csv", stdin=subprocess.PIPE)
    with job.process.stdin as pipe:
        first, rest = named.read_bytes().split(b"\n", 1)
        os.write(pipe.fileno(), first + b"\n")
        job.until(lambda: not any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))))
        os.write(pipe.fileno(), rest)
    assert (job.wait(), len(stored(tmp_path / "f"))) == (0, 30), job.err
    converts(run_downloader, plain, 30)
    # As Excel saves it in western Europe; the first letter that tells may be far from the beginning.
    for codec, letters in (("cp1252", "é€"), ("latin-1", "é\x81")):
        plain.write_bytes(
            (f"url;caption\r\n{rows}" + f"{rows}" * 120 + f"{server.url}/x;{letters}\r\n").encode(codec)
        )
        assert letters in converts(run_downloader, plain, 31)


def converts(run_downloader: Run, plain: Path, files: int) -> str:
    """Carry out the command of the message; return the list that it makes, which has so many ``files``."""
    tmp_path = plain.parent
    refused = run_downloader(plain, "-o", tmp_path / "e", *ONE)
    assert refused.returncode == 2
    said, _, command = refused.stderr.partition("; convert it with: ")
    assert said.endswith("it has url;caption; its delimiter seems to be a semicolon"), refused.stderr
    command = command.replace("python3", sys.executable, 1).strip()
    converted = subprocess.run(["sh", "-c", f"{command} > new.csv"], cwd=tmp_path, check=False, timeout=20)
    assert converted.returncode == 0
    done = run_downloader(tmp_path / "new.csv", "-o", tmp_path / "e", *ONE, "--relist")
    assert (done.returncode, len(stored(tmp_path / "e"))) == (0, files), done.stderr
    shutil.rmtree(tmp_path / "e")
    return (tmp_path / "new.csv").read_text("utf-8")


@pytest.mark.parametrize(
    "second",
    [
        b"URL,note\nhttp://h/1,x\n",
        b"u,note\n",
        "url,note\nhttp://h/1,x\n".encode("utf-16"),
        b"url,note\rx,y\r",
        gzip.compress(b"url,note\nhttp://h/1,x\n", mtime=0),
    ],
)
def test_every_file_is_checked_before_the_first_is_fetched(
    run_downloader: Run, tmp_path: Path, server: Files, second: bytes
) -> None:
    (tmp_path / "lists").mkdir()
    write(tmp_path / "lists/a.csv", rows_of(server, 50))
    (tmp_path / "lists/b.csv").write_bytes(second)
    for source in (tmp_path / "lists", f"{tmp_path}/lists/*.csv"):
        done = run_downloader(source, "-o", tmp_path / "d", *ONE)
        assert done.returncode == 2, done.stderr
        assert "lists/b.csv " in done.stderr
    assert not server.requests


def test_file_that_is_wrong_only_later_breaks_the_source_off(
    start: Callable[..., Job], tmp_path: Path, server: Files
) -> None:
    """By then files are stored, so the code is not that of a run that was never started."""
    rows = rows_of(server, 4_000)
    (tmp_path / "lists").mkdir()
    write(tmp_path / "lists/a.csv", rows)
    write(tmp_path / "lists/b.csv", rows[:1])
    server.most = 50
    job = start(tmp_path / "lists", "-o", tmp_path / "d", *ONE, "--connections", 2)
    job.until(lambda: len(server.requests) > server.most)
    (tmp_path / "lists/b.csv").write_text("href\nhttp://h/1\n")
    server.most = 10**9
    server.go.set()
    assert job.wait() == 4, job.err
    assert "b.csv has no column 'url'" in job.err
    assert len(stored(tmp_path / "d")) == 4_000


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("l.parquet", "pyarrow", "parquet"),
        ("l.arrow", "pyarrow", "parquet"),
        ("l.csv.zst", "backports", "zstd"),
        ("l.csv", "crc32c", "crc32c"),
    ],
)
def test_missing_package_is_named_with_its_command(
    run_downloader: Run, tmp_path: Path, name: str, package: str, extra: str
) -> None:
    write(tmp_path / name, [{"url": "http://h/1", "crc32c": "00000000"}])
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None")
    done = run_downloader(
        tmp_path / name, "-o", tmp_path / "d", *ONE, env={"PYTHONPATH": str(tmp_path / "site")}
    )
    assert done.returncode == 2, done.stderr
    assert f"pip install 'mass-downloader[{extra}]'" in done.stderr


@pytest.mark.parametrize("name", ["l.parquet", "l.arrow", "l.jsonl.gz", "l.csv.zst"])
def test_list_that_is_cut_off_ends_the_run(
    run_downloader: Run, tmp_path: Path, server: Files, name: str
) -> None:
    path = write(tmp_path / name, rows_of(server, 5000))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    done = run_downloader(path, "-o", tmp_path / "d", *ONE)
    # Nothing can be read of those whose end says where all is, or which are one block.
    assert (done.returncode, bool(server.requests)) == ((4, True) if name.endswith(".gz") else (2, False))
    assert name in done.stderr
    assert "is no complete" in done.stderr or "cannot be read after line" in done.stderr
    assert "write it again" in done.stderr


def test_file_of_several_that_cannot_be_read(run_downloader: Run, tmp_path: Path, server: Files) -> None:
    """Before the start it is a usage error; of a job that has begun, the source breaks off."""
    lists = tmp_path / "lists"
    lists.mkdir()
    write(lists / "a.csv", rows_of(server, 50))
    (lists / "b.txt.gz").write_bytes(b"<html>")
    argv = (lists, "-o", tmp_path / "d", *ONE)
    done = run_downloader(*argv)
    assert (done.returncode, server.requests) == (2, []), done.stderr
    assert "b.txt.gz cannot be read after line 0: Not a gzipped file" in done.stderr
    (lists / "b.txt.gz").unlink()
    assert run_downloader(*argv, "--limit", 40).returncode == 0
    (lists / "b.txt.gz").write_bytes(b"<html>")
    assert run_downloader(*argv).returncode == 4
    assert len(stored(tmp_path / "d")) == 50


@pytest.mark.parametrize("name", ["l.csv.gz", "l.jsonl.gz"])
def test_end_that_is_cut_off_close_to_the_beginning(
    run_downloader: Run, tmp_path: Path, server: Files, name: str
) -> None:
    """The columns are known from the lines before it."""
    path = write(tmp_path / name, rows_of(server, 50))
    data = path.read_bytes()
    path.write_bytes(data[:-12])
    done = run_downloader(path, "-o", tmp_path / "d", *ONE)
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert "cannot be read after line " in line


def test_something_else_behind_compressed_data(run_downloader: Run, tmp_path: Path, server: Files) -> None:
    """It was "not a gzipped file", of which 50 rows had been fetched."""
    path = write(tmp_path / "l.csv.gz", rows_of(server, 50))
    path.write_bytes(path.read_bytes() + b"junk\n")
    done = run_downloader(path, "-o", tmp_path / "d", *ONE)
    assert done.returncode == 4
    assert "something else follows the compressed data; write it again" in done.stderr
    assert len(stored(tmp_path / "d")) == 50


@pytest.mark.parametrize("name", ["l.csv", "l.parquet"])
def test_a_long_list_takes_no_more_memory_than_a_short_one(tmp_path: Path, name: str) -> None:
    peaks = []
    for count in (20_000, 200_000):
        rows = [{"url": f"http://h/{number:060d}", "name": f"n{number}"} for number in range(count)]
        listed, peak = counted_with_peak(write(tmp_path / name, rows))
        assert listed == count
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 16_384, peaks  # KiB


def test_another_list_in_the_place_of_the_first_is_told(
    run_downloader: Run, tmp_path: Path, server: Files
) -> None:
    """Also where its header ends behind the first batch, which is to be fetched again, or it is of another
    format: that was "requested again out of order", or a child that failed."""
    server.routes["/none"] = [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]
    rows = [{"url": f"{server.url}/none", "c": "x"}, {"url": f"{server.url}/a", "c": "y"}]
    wider = [{**row, "width": "1", "a longer header": "2"} for row in rows]
    files = {
        "l.csv": write(tmp_path / "l.csv", rows),
        "wide.csv": write(tmp_path / "wide.csv", wider),
        "sep.csv": tmp_path / "sep.csv",
        "l.txt": write(tmp_path / "l.txt", rows),
        "l.parquet": write(tmp_path / "l.parquet", rows),
    }
    files["sep.csv"].write_bytes(b"sep=,\r\n" + files["l.csv"].read_bytes())
    for first, others in {
        "l.csv": ("wide.csv", "sep.csv", "l.txt", "l.parquet"),
        "l.txt": ("l.csv",),
        "l.parquet": ("l.csv",),
    }.items():
        dest = tmp_path / f"d-{first}"
        assert run_downloader(files[first], "-o", dest, *ONE).returncode == 1
        for other in others:
            done = run_downloader(files[other], "-o", dest, *ONE)
            assert done.returncode == 4, (first, other, done.stderr)
            told = "has changed before line", "is shorter than it was", "a list of another format"
            assert any(words in done.stderr for words in told), (first, other, done.stderr)
            assert "--relist to read it from its start" in done.stderr


def test_lists_of_no_json_lines_say_why(run_downloader: Run, tmp_path: Path) -> None:
    row = json.dumps({"url": "http://127.0.0.1:9/a"})
    forms = {
        f"{row},\n{row},\n": "a list has one a line: remove the commas behind them",
        f"\x1e{row}\n\x1e{row}\n": "a line: remove the record separators (0x1e) in front of them",
        json.dumps(json.loads(row), indent=2): "and a list has one a line",
        "http://127.0.0.1:9/a\n": "a line; if it is txt, add --list-format txt",
    }
    for content, why in forms.items():
        (tmp_path / "l.jsonl").write_text(content)
        done = run_downloader("l.jsonl", "-o", "d", *ONE, "--dry-run", cwd=tmp_path)
        assert done.returncode == 2
        (said,) = done.stderr.splitlines()
        assert "l.jsonl: its first lines are no JSON objects" in said
        assert said.endswith(why)
    assert not (tmp_path / "d").exists()


def test_json_arrays_are_told_with_the_command_that_converts_them(
    run_downloader: Run, tmp_path: Path, server: Files
) -> None:
    """They had "no column 'url', it has none", or each line but the last one was a bad row."""
    rows = [{"url": f"{server.url}/{name}", "c": "ä"} for name in "ab"]
    lines = ",\n".join(map(json.dumps, rows))
    forms = {
        "one-line.jsonl": json.dumps(rows).encode(),
        "a-line-each.jsonl": f"[{lines}\n]\n".encode(),
        "indented.json": b"\xef\xbb\xbf\n" + json.dumps(rows, indent=2, ensure_ascii=False).encode(),
        "packed.ndjson.gz": gzip.compress(json.dumps(rows, indent="\t").encode(), mtime=0),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        done = run_downloader(name, "-o", "d", *ONE, "--dry-run", cwd=tmp_path)
        assert done.returncode == 2, name
        assert f"{name} is a JSON array, and a list has one JSON object a line; convert" in done.stderr
        command = done.stderr.strip().rpartition("convert it with: ")[2].partition(" > ")[0]
        made = subprocess.run(["sh", "-c", f"{command} > made.jsonl"], cwd=tmp_path, check=True)
        assert made.returncode == 0
        listed = list(map(json.loads, (tmp_path / "made.jsonl").read_text().splitlines()))
        assert listed == rows, name
    # One row that is an array is a fault of that row.
    (tmp_path / "l.jsonl").write_text("[1]\n" + json.dumps(rows[0]) + "\n")
    done = run_downloader("l.jsonl", "-o", "d", *ONE, "--dry-run", cwd=tmp_path)
    assert json.loads(done.stdout)["bad"] == 1
    # What no list of text can begin with is recognized, whatever its name is.
    for name in ("blob", "l.arrow"):
        shutil.copy(write(tmp_path / "l.parquet", rows), tmp_path / name)
        done = run_downloader(name, "-o", f"d-{name}", *ONE, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert stored(tmp_path / "d-blob").keys() == {"a", "b"}
