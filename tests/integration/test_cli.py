"""The command line: help, bad input, exit codes. All through a real process."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Job, command, environment
from servers import RESET, Certificates, Server, Tls, listing, ok, status

from downloader.process import isolation

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOW = ("--retries", "0", "--workers", "1")
SECRET = "s3cr3t-Tok3n"


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line on standard error."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    if lines[0].startswith("{"):
        record = json.loads(lines[0])
        assert record["level"] == "error"
        return str(record["message"])
    assert lines[0].startswith("downloader: error: ")
    return lines[0].removeprefix("downloader: error: ")


def test_help_loads_nothing_heavy(run_downloader: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "downloader", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    # importlib.metadata, which finds the sources and sinks of installed packages, brings email and socket.
    heavy = {"gevent", "requests", "ssl", "urllib3", "asyncio", "sqlite3", "rich", "msgspec"}
    assert not loaded & heavy
    assert "downloader.cli.main" in loaded
    assert run_downloader("-h").stdout == run_downloader().stdout == done.stdout


@pytest.mark.parametrize("command", ["downloader", "downloader status", "diagnostics check"])
def test_help_does_not_depend_on_optimization(command: str) -> None:
    """PYTHONOPTIMIZE=2 leaves out docstrings."""

    def text(**changed: str) -> str:
        line = [sys.executable, "-m", *command.split(), "--help"]
        return subprocess.run(
            line, env=os.environ | changed, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    assert text(PYTHONOPTIMIZE="2") == text()


def test_help_is_readable(run_downloader: Run) -> None:
    text = run_downloader("--help").stdout
    assert text.startswith("Usage: downloader SOURCE -o DEST [options]")
    assert max(map(len, text.splitlines())) <= 80
    for word in (
        "--layout flat|hashed|mirror",
        "downloader demo",
        "130",
        "-H 'Name: value'",
        "--connections N|auto",
    ):
        assert word in text
    documented = (Path(__file__).parents[2] / "downloader" / "cli" / "main.py").read_text()
    for option in re.findall(r'option\(\s*"(?:-o", ")?(--?[a-zA-Z-]+)', documented.split("def status")[0]):
        assert option in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["http://127.0.0.1:1"], "-o DEST is missing"),
        (["-o", "d"], "argument 'SOURCE'"),
        (["http://127.0.0.1:1", "-o", "d", "--worker", "3"], "--workers"),
        (["http://127.0.0.1:1", "-o", "d", "--conections", "3"], "--connections"),
        (["http://127.0.0.1:1", "-o", "d", "--layout", "miror"], "did you mean mirror?"),
        (["http://127.0.0.1:1", "-o", "d", "--progress", "plian"], "did you mean plain?"),
        (["http://127.0.0.1:1", "-o", "d", "--source", "url"], "did you mean urls?"),
        (["http://127.0.0.1:1", "-o", "d", "--rate", "0"], "'0' is not a number above 0"),
        (["http://127.0.0.1:1", "-o", "d", "--rate", "nan"], "'nan' is not a number above 0"),
        (["http://127.0.0.1:1", "-o", "d", "--workers", "0"], "from 1 to 1,024"),
        (["http://127.0.0.1:1", "-o", "d", "--connections", "1e3"], "is not a whole number"),
        (["http://127.0.0.1:1", "-o", "d", "--max-size", "10q"], "'10q' is not a size"),
        (["http://127.0.0.1:1", "-o", "d", "--max-size", "0"], "for no limit leave the option out"),
        (["http://127.0.0.1:1", "-o", "d", "--max-size", "0.5"], "'0.5' is less than a byte"),
        (["http://127.0.0.1:1", "-o", "d", "--min-speed", "0.5"], "'0.5' is less than a byte"),
        (["http://127.0.0.1:1", "-o", "d", "--limit", "0"], "from 1 to"),
        (["http://127.0.0.1:1", "-o", "d", "--per-host", "0"], "from 1 to"),
        (["http://127.0.0.1:1", "-o", "d", "-H", "Host: a", "-H", "host: b"], "Host is given twice"),
        (["http://127.0.0.1:1", "-o", "d", "--deadline", "soon"], "'soon' is not a time"),
        (["http://127.0.0.1:1", "-o", "d", "--deadline", "0"], "--deadline must be more than 0"),
        (["http://127.0.0.1:1", "-o", "d", "--read-timeout", "9999999h"], "--read-timeout must be"),
        (["http://127.0.0.1:1", "-o", "d", "--limit", "-1"], "'-1' is not a whole number"),
        (["http://127.0.0.1:1", "-o", "d", "-H", f"Bearer {SECRET}"], "write -H 'Name: value'"),
        (["http://127.0.0.1:1", "-o", "d", "-H", f"X-A: {SECRET}\r\nB: c"], "has a line break or NUL"),
        (["http://127.0.0.1:1", "-o", "d", "-H", f"X A: {SECRET}"], "not a header's name"),
        (["http://127.0.0.1:1", "-o", "d", "-H", f"X-A: {SECRET}\u2013"], "not Latin-1"),
        (["http://127.0.0.1:1", "-o", "d", "--proxy", "socks5://h:1"], "SOCKS is not supported"),
        (["http://127.0.0.1:1", "-o", "d", "--proxy", "ftp://h:1"], "not the URL of an HTTP proxy"),
        (
            ["http://127.0.0.1:1", "-o", "d", "--cacert", "nope.pem"],
            "--cacert nope.pem cannot be read (No such file or directory)",
        ),
        (["http://127.0.0.1:1", "-o", "d", "--cacert", "binary.txt"], "not in PEM format"),
        (["http://127.0.0.1:1", "-o", "d", "--cacert", "/dev/zero"], "it has more than 64 MiB"),
        (["http://127.0.0.1:1", "-o", "d", "--cert", "/dev/zero"], "it has more than 64 MiB"),
        (
            ["http://127.0.0.1:1", "-o", "d", "--cert", "a.pem", "--key", "my-key"],
            "--key my-key cannot be read",
        ),
        (["http://127.0.0.1:1", "-o", "d", "--cacert", "a", "--insecure"], "give one of the two"),
        (["http://127.0.0.1:1", "-o", "d", "--key", "a"], "--key needs --cert"),
        (["http://127.0.0.1:1", "-o", "d", "--report", "no/r.json"], "no does not exist"),
        (["http://127.0.0.1:1", "-o", "d", "--failures", "no/r.json"], "no does not exist"),
        (["http://127.0.0.1:1", "-o", "d", "--report", "folder"], "folder is a directory"),
        (["http://127.0.0.1:1", "-o", "d", "--report", "r", "--failures", "r"], "are one file"),
        (["http://127.0.0.1:1", "--dry-run", "--report", "r"], "--dry-run fetches nothing"),
        (["http://127.0.0.1:1", "-o", "d", "--log-json", "--progress", "bar"], "give one of the two"),
        (["http://127.0.0.1:1", "-o", "d", "--restart", "--retry-failed"], "--restart forgets"),
        (["http://127.0.0.1:1", "-o", "s3://b/p", "--engine", "ray"], "a bucket is for shards"),
        (["http://127.0.0.1:1", "-o", "s3://b/p", "--engine", "ray", "--store", "tar"], "--journal DIR"),
        (["http://127.0.0.1:1/?a=b", "-o", "d"], "has no query or fragment"),
        (["http://127.0.0.1:1/p?", "-o", "d"], "has no query or fragment"),
        (["http://127.0.0.1:1", "-o", "d", "--list-path", "list#x"], "--list-path has a fragment"),
        (["http://127.0.0.1:1", "-o", "d", "--get-path", "get#x"], "--get-path has a fragment"),
        (["http://127.0.0.1:1", "-o", "d", "--get-path", "get?f="], "--get-path has a query"),
        (["http://127.0.0.1:1", "-o", "d", "--list-path", "l?next-marker=2"], "which names the pages"),
        (["http://", "-o", "d"], "not a URL"),
        (["http://127.0.0.1:99999", "-o", "d"], "not a URL"),
        (["binary.txt/x.txt", "-o", "d"], "Not a directory"),
        (["nowhere.txt", "-o", "d"], "nowhere.txt: No such file"),
        (["folder.txt", "-o", "d"], "there is no list in this directory"),
        (["pipe.txt", "-o", "d"], "not a regular file"),
        (["folder", "-o", "d"], "there is no list in this directory"),
        (["nothing", "-o", "d"], "neither the URL of a file server"),
        (["dmeo"], "did you mean demo?"),
        (["http://127.0.0.1:1", "-o", "binary.txt"], "binary.txt is a file, not a directory"),
        (["http://127.0.0.1:1", "-o", "binary.txt/sub"], "binary.txt is a file, not a directory"),
        (
            ["http://127.0.0.1:1", "-o", "d", "--auth-file", "open.netrc"],
            "can be read by others; chmod 600",
        ),
        (["http://127.0.0.1:1", "-o", "d", "--auth-file", "folder"], "folder is a directory"),
        (["http://127.0.0.1:1", "-o", "d", "--auth-file", "closed.netrc"], "a line user:password"),
        (["http://127.0.0.1:1", "-o", "d", "--auth-file", "utf-16"], "save it as UTF-8"),
        (["http://127.0.0.1:1", "-o", "d", "--netrc"], "can be read by others; chmod 600"),
        (["status", "d"], "has no journal"),
        (["verify", "d"], "has no journal"),
        (["serve", "--size", "9-1"], "is not a range"),
    ],
)
def test_usage_errors(run_downloader: Run, tmp_path: Path, args: list[str], says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "binary.txt").write_bytes(b"\x00\xff")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "utf-16").write_text(f"me:{SECRET}\n", encoding="utf-16")
    (tmp_path / "utf-16").chmod(0o600)
    (tmp_path / "a.pem").write_bytes(b"-----BEGIN CERTIFICATE-----")
    for name, mode in (("open.netrc", 0o644), ("closed.netrc", 0o600)):
        (tmp_path / name).write_text(f"machine h login u password {SECRET}\n")
        (tmp_path / name).chmod(mode)
    done = run_downloader(*args, cwd=tmp_path, env={"NETRC": "open.netrc"}, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert says in complaint(done)
    assert SECRET not in done.stderr
    assert not done.stdout
    assert not (tmp_path / "d").exists()  # nothing was begun


def test_netrc_that_cannot_be_read_keeps_its_password(run_downloader: Run, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine h login u pass {SECRET}\n")
    netrc.chmod(0o600)
    done = run_downloader("http://127.0.0.1:1", "-o", tmp_path / "d", "--netrc", env={"NETRC": str(netrc)})
    assert done.returncode == 2
    assert "not in the format of netrc" in complaint(done)
    assert SECRET not in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        *(["http://h", "--source", kind] for kind in ("s3", "index")),
        *([source] for source in ("s3://bucket/p", "index+http://h/", "s3://bucket/a.csv")),
    ],
)
def test_unimplemented_options_are_refused(run_downloader: Run, tmp_path: Path, args: list[str]) -> None:
    done = run_downloader(*args, "-o", "d", cwd=tmp_path)
    assert done.returncode == 2
    assert complaint(done).endswith("not available in this version")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("verbose", [[], ["-vv"]])
def test_unreachable_server(run_downloader: Run, tmp_path: Path, verbose: list[str]) -> None:
    done = run_downloader("http://127.0.0.1:1/x", "-o", tmp_path / "d", *NOW, *verbose)
    assert done.returncode == 4
    assert ("Traceback" in done.stderr) == bool(verbose)
    assert done.stderr.splitlines()[-1].startswith(
        "downloader: error: the listing failed: http://127.0.0.1:1/x/list: Connection refused"
    )
    assert verbose or complaint(done)
    assert "resume with: downloader http://127.0.0.1:1/x" in done.stdout


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (status(404), "(http-404); is this a file server, and is --list-path right? "),
        (ok(b"<html>"), "is not valid JSON: "),
        (ok(b"[]"), 'has no list "FileNames"; is this a file server, '),
        (status(403), "; give credentials with --auth-file, --netrc or -H "),
    ],
)
def test_source_is_no_server_but_a_file(
    run_downloader: Run, tmp_path: Path, page: list[bytes], says: str
) -> None:
    with Server({"/a.jpg": ok(b"A")}, default=page) as server:
        done = run_downloader(f"{server.url}/a.jpg", "-o", tmp_path / "d", *NOW)
    assert done.returncode == 4
    assert says in complaint(done)
    assert "(to fetch one URL: echo URL | downloader - -o DEST)" in complaint(done)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (ok(b'{"FileNames": ["c"'), "is not valid JSON"),
        (ok(b"<html>"), "is not valid JSON"),
        (ok(b'{"names": []}'), 'has no list "FileNames"'),
        (ok(b'{"FileNames": [3]}'), "a name that is not a string"),
        (listing(["c"], "m1"), "runs in a circle"),
        (ok(b'{"FileNames": [], "NextMarker": 5}'), "a marker that is not a string"),
        (status(500), "(http-500)"),
        ([RESET], "(reset)"),
    ],
)
def test_third_page_is_bad(run_downloader: Run, tmp_path: Path, page: list[bytes], says: str) -> None:
    routes = {
        "/list": listing(["a"], "m1"),
        "/list?next-marker=m1": listing(["b"], "m 2&%"),
        "/list?next-marker=m%202%26%25": page,
        "/get/a": ok(b"A"),
        "/get/b": ok(b"B"),
        "/get/c": ok(b"C"),
    }
    with Server(routes) as server:
        done = run_downloader(server.url, "-o", tmp_path / "d", *NOW, "--json")
    assert done.returncode == 4
    text = complaint(done)
    assert says in text
    assert "page 3 of the listing" in text or "next-marker=m%202%26%25" in text
    assert "echo URL" not in text
    report = json.loads(done.stdout)
    assert not report["complete"]
    assert report["stopped_by"] == text
    assert (tmp_path / "d" / "b").read_bytes() == b"B"  # what was listed is fetched


def test_listing_without_end(run_downloader: Run, tmp_path: Path) -> None:
    def page(request: object) -> list[bytes]:
        marker = request.target.rpartition("=")[2]  # type: ignore[attr-defined]
        return listing([], f"{int(marker) + 1 if marker.isdigit() else 0}")  # type: ignore[return-value]

    with Server({"/list": page}) as server:  # type: ignore[dict-item]
        done = run_downloader(server.url, "-o", tmp_path / "d", *NOW)
        assert server.count() < 1100
    assert done.returncode == 4
    assert "seems to have no end" in complaint(done)


TRUST = {
    Tls.UNKNOWN_CA: "--cacert",
    Tls.WRONG_HOST: "a name that its certificate has",
    Tls.EXPIRED: "a new one",
}


@pytest.mark.parametrize("kind", TRUST)
def test_untrusted_certificate(run_downloader: Run, tmp_path: Path, kind: Tls) -> None:
    certificates = Certificates(tmp_path)
    with Server(files={"a": ok()}, tls=certificates.context(kind)) as server:
        done = run_downloader(server.url, "-o", tmp_path / "d", "--cacert", certificates.ca, "--workers", 1)
        assert not server.requests
    assert done.returncode == 4
    said = complaint(done)
    assert [advice in said for advice in TRUST.values()] == [each is kind for each in TRUST]


def test_three_bad_lines_of_ten(run_downloader: Run, tmp_path: Path) -> None:
    with Server({f"/{n}": ok(b"%d" % n) for n in range(7)}) as server:
        urls = [f"{server.url}/{n}" for n in range(7)]
        lines = [*urls[:2], "not a url", *urls[2:4], f"ftp://u:{SECRET}@h/x", *urls[4:], "http://h:port/"]
        (tmp_path / "list.txt").write_text("\n".join(lines))
        done = run_downloader(
            "list.txt", "-o", "d", *NOW, "--failures", "f.jsonl", "--report", "r.json", cwd=tmp_path
        )
    assert done.returncode == 1
    assert complaint(done) == "3 of 10 files failed"
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["listed"], report["stored"], report["failed"]) == (10, 7, 3)
    assert report["failed_by_error"] == {"bad-url": 3}
    failed = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines()]
    assert [failure["name"] for failure in failed] == ["line 3", "line 6", "line 10"]
    assert all(line in done.stdout for line in ("line 3:", "line 6:", "line 10:"))
    assert SECRET not in done.stdout + (tmp_path / "f.jsonl").read_text()
    assert {path.name for path in (tmp_path / "d").iterdir()} == {".downloader", *map(str, range(7))}


@pytest.mark.parametrize("name", ["empty.txt", "comments.txt", "empty.txt.gz"])
def test_empty_list(run_downloader: Run, tmp_path: Path, name: str) -> None:
    content = b"# nothing\n\n \n" if name == "comments.txt" else b""
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    done = run_downloader(tmp_path / name, "-o", tmp_path / "d", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (report["listed"], report["complete"]) == (0, True)


def test_binary_garbage_as_a_list(run_downloader: Run, tmp_path: Path) -> None:
    garbage = (
        zlib.compress(os.urandom(1 << 16))
        + b"\n\x00\xff\xfe\n"
        + "http://\ud800".encode("utf-16", "surrogatepass")
    )
    (tmp_path / "list.txt").write_bytes(garbage)
    done = run_downloader(tmp_path / "list.txt", "-o", tmp_path / "d", *NOW, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["failed"] == report["listed"] > 100
    assert set(report["failed_by_error"]) == {"bad-url"}


def test_names_that_are_too_long_are_cut_where_nothing_is_kept(run_downloader: Run, tmp_path: Path) -> None:
    """A URL of 7 kB; two that differ at their ends are two files."""
    long = "x" * 7000
    with Server({f"/{long}{end}": ok() for end in "ab"}) as server:
        (tmp_path / "l.txt").write_text("".join(f"{server.url}/{long}{end}\n" for end in "ab"))
        done = run_downloader(
            *(tmp_path / "l.txt", "-o", tmp_path / "d", *NOW, "--store", "null", "--json"),
        )
    assert (done.returncode, json.loads(done.stdout)["stored"]) == (0, 2), done


@pytest.mark.parametrize("cut", [False, True])
def test_invalid_gz(run_downloader: Run, tmp_path: Path, cut: bool) -> None:
    with Server({"/a": ok()}) as server:
        lines = b"".join(b"%s/a?%d\n" % (server.url.encode(), n) for n in range(6000))
        (tmp_path / "list.txt.gz").write_bytes(gzip.compress(lines)[:-500] if cut else lines)
        done = run_downloader(tmp_path / "list.txt.gz", "-o", tmp_path / "d", *NOW, "--store", "null")
    assert done.returncode == (4 if cut else 2)  # nothing of the other can be read
    match = re.search(r"cannot be read after line (\d+): ", complaint(done))
    assert match
    assert (int(match[1]) > 1000) == cut


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_dry_run_leaves_nothing(start: Callable[..., Job], number: signal.Signals) -> None:
    job = start("-", "--dry-run", stdin=subprocess.PIPE)
    with job.process.stdin:
        job.until(job.children)
        job.kill(number)
        assert job.wait(20) == 130
        assert job.err == "downloader: error: interrupted\n"
        job.alone()


INTERRUPTED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == os.environ["MODULE"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    ("module", "argv"),
    [
        ("downloader.process.isolation", [sys.executable, "-m", "downloader", "--version"]),
        ("click", [sys.executable, "-m", "downloader", "--version"]),
        ("downloader.process.isolation", [sys.executable, "-m", "diagnostics", "--help"]),
        ("diagnostics.cli", [sys.executable, "-m", "diagnostics", "--help"]),
        ("colorsys", isolation.child("colorsys:rgb_to_hls")[0]),
    ],
)
def test_interrupt_while_modules_are_imported(module: str, argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED)
    env = environment(MODULE=module, PYTHONPATH=str(tmp_path))
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_output_that_cannot_be_written_or_encoded(run_downloader: Run, tmp_path: Path) -> None:
    name = b"caf\xe9\x1b.txt"
    with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
        pass
    args = [sys.executable, "-m", "downloader", name, "-o", b"d\xe9"]
    env = environment(PYTHONIOENCODING="ascii")
    done = subprocess.run(args, cwd=tmp_path, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"complete" in done.stdout
    assert b"\x1b" not in done.stdout
    again = subprocess.run([*args, "--json"], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert json.loads(again.stdout)["resumed"]
    with open("/dev/full", "wb") as full:
        lost = subprocess.run(args, cwd=tmp_path, env=env, stdout=full, stderr=subprocess.PIPE, check=False)
    assert lost.returncode == 4
    assert lost.stderr.startswith(b"downloader: error: standard output cannot be written")
    assert lost.stderr.count(b"\n") == 1


@pytest.mark.parametrize("args", ["", "-h", "--help", "--version", "serve --help", "serve"])
def test_requested_output_cannot_be_written(args: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(*args.split()), env=environment(), stdout=full, stderr=-1, timeout=60, check=False
        )
    assert done.returncode == 4
    assert done.stderr == b"downloader: error: standard output cannot be written: No space left on device\n"


def test_closed_standard_input(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -m downloader - -o d <&-'],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "standard input is closed" in complaint(done)


def test_current_directory_that_was_removed(tmp_path: Path) -> None:
    with Server(files={"a": ok(b"a")}) as server:
        (tmp_path / "u.txt").write_text(f"{server.url}/get/a\n")
        (tmp_path / "gone").mkdir()
        line = 'cd gone && rmdir ../gone && exec "$@"'
        for output, code in (("x", 2), (str(tmp_path / "x"), 0)):
            argv = ["sh", "-c", line, "sh", *command(str(tmp_path / "u.txt"), "-o", output)]
            (tmp_path / "gone").mkdir(exist_ok=True)
            done = subprocess.run(
                argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
            )
            assert done.returncode == code, done.stderr
            assert code == 0 or "the current directory cannot be found" in complaint(done)


@pytest.mark.parametrize("name", ["all_proxy", "ALL_PROXY", "https_proxy"])
def test_a_variable_that_has_no_http_proxy_is_named(name: str, run_downloader: Run, tmp_path: Path) -> None:
    argv = ("http://127.0.0.1:1", "-o", tmp_path / "d", "--proxy", "env")
    done = run_downloader(*argv, env={name: f"socks5://me:{SECRET}@127.0.0.1:1080"})
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"--proxy env: the variable {name}: socks5://" in line
    assert "SOCKS is not supported; give an HTTP proxy" in line
    assert SECRET not in line
