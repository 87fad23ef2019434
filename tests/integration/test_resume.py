"""Resume with a source that is spelt otherwise, moved, grown, shorter, or another one."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sqlite3
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Request, Server, listing, ok, status

from downloader.storage.schema import row_sum

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE = ("--workers", "1", "--retries", "0", "--json")


def echo(request: Request) -> list[bytes]:
    """Respond with the requested name; 404 for ``missing…``."""
    name = request.target.rpartition("/")[2]
    return status(404) if name.startswith("missing") else ok(name.encode())  # type: ignore[return-value]


@pytest.fixture
def server() -> Iterator[Server]:
    pages = {"/p/list": listing(["a", "b"], "2"), "/p/list?next-marker=2": listing(["c", "missing"])}
    with Server(pages, default=echo) as made:  # type: ignore[arg-type]
        yield made


def stored(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.name != ".downloader"}


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    return report


# a file server


def test_server_identity_ignores_password_and_spelling(
    run_downloader: Run, tmp_path: Path, server: Server
) -> None:
    host = f"localhost:{server.port}"
    root = ("-o", tmp_path / "d", *ONE)
    assert run_downloader(f"http://me:SESAME1@{host}/p", *root).returncode == 1
    files = server.count("/p/get/")
    for source, *options in [
        (f"http://me:SESAME2@{host}/p",),
        (f"HTTP://LOCALHOST:{server.port}/p//", "--list-path", "/list", "--get-path", "get/"),
        (f"http://{host}", "--list-path", "p/list/", "--get-path", "/p/get"),
    ]:
        done = run_downloader(source, *root, *options)
        # Only the file that failed is requested again.
        assert (done.returncode, report_of(done)["resumed"]) == (1, True), done.stderr
        files += 1
        assert server.count("/p/get/") == files
    other = run_downloader(f"http://{host}/p", *root, "--get-path", "elsewhere")
    assert other.returncode == 2
    assert "holds a job of another source" in other.stderr
    assert "SESAME" not in other.stderr + other.stdout
    assert server.count("/p/get/") == files


def test_source_that_listed_nothing_does_not_own_the_destination(
    run_downloader: Run, tmp_path: Path, server: Server
) -> None:
    root = ("-o", tmp_path / "d", *ONE)
    wrong = run_downloader(f"{server.url}/x/missing", *root, "--layout", "hashed")
    assert (wrong.returncode, report_of(wrong)["listed"]) == (4, 0)
    (tmp_path / "empty.txt").write_text("# nothing yet\n")
    assert run_downloader(tmp_path / "empty.txt", *root).returncode == 0
    right = run_downloader(f"{server.url}/p", *root)
    assert (right.returncode, report_of(right)["stored"]) == (1, 3), right.stderr
    told = run_downloader("status", tmp_path / "d").stdout
    assert f"{server.url}/p" in told


def test_status_after_an_empty_list_is_of_the_next_source(
    run_downloader: Run, tmp_path: Path, server: Server
) -> None:
    (tmp_path / "empty.txt").touch()
    assert run_downloader(tmp_path / "empty.txt", "-o", tmp_path / "d").returncode == 0
    assert run_downloader("status", tmp_path / "d").returncode == 0
    assert run_downloader(f"{server.url}/missing", "-o", tmp_path / "d", *ONE).returncode == 4
    assert run_downloader("status", tmp_path / "d").returncode == 4


@pytest.mark.parametrize("kind", ["server", "urls"])
def test_journal_of_an_earlier_version_is_resumed(
    run_downloader: Run, tmp_path: Path, server: Server, kind: str
) -> None:
    urls = tmp_path / "l.txt"
    urls.write_text(f"{server.url}/a\n{server.url}/missing\n")
    source = f"{server.url}/p" if kind == "server" else str(urls)
    rest = "\0/list\0get" if kind == "server" else ""
    command = (source, "-o", tmp_path / "d", *ONE, "--list-path", "/list")
    assert run_downloader(*command).returncode == 1
    older = hashlib.sha256(f"{kind}\0{source}{rest}".encode()).hexdigest()
    write_digest(tmp_path / "d", older)
    done = run_downloader(*command)
    assert (done.returncode, report_of(done)["resumed"]) == (1, True), done.stderr
    write_digest(tmp_path / "d", hashlib.sha256(b"another").hexdigest())
    assert run_downloader(*command).returncode == (2 if kind == "server" else 1)


def write_digest(root: Path, digest: str) -> None:
    """Put ``digest`` into the journal, as an earlier version would have written it."""
    database = sqlite3.connect(root / ".downloader/journal.sqlite")
    with database:
        (text,) = database.execute("SELECT value FROM job WHERE key = 'job'").fetchone()
        text = json.dumps(json.loads(text) | {"source": digest})
        database.create_function("row_sum", -1, row_sum)
        database.execute("UPDATE job SET value = ?1, sum = row_sum(key, ?1) WHERE key = 'job'", (text,))
    database.close()


# a list of URLs


def test_list_moved_with_its_destination_is_resumed(
    run_downloader: Run, tmp_path: Path, server: Server
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    text = "".join(f"{server.url}/{name}\n" for name in ("a", "missing", "b"))
    (old / "l.txt").write_text(text)
    assert run_downloader(old / "l.txt", "-o", old / "d", *ONE).returncode == 1
    shutil.move(old, new)
    asked = server.count()
    for source in (new / "l.txt", "-"):
        done = run_downloader(source, "-o", new / "d", *ONE, input=text)
        assert (done.returncode, report_of(done)["resumed"]) == (1, True), done.stderr
        asked += 1
        assert server.count() == asked


def test_another_list_is_refused_before_anything_is_fetched(
    run_downloader: Run, tmp_path: Path, server: Server
) -> None:
    (tmp_path / "l.txt").write_text("".join(f"{server.url}/a{n}\n" for n in range(50)))
    assert run_downloader(tmp_path / "l.txt", "-o", tmp_path / "d", *ONE).returncode == 0
    asked, files = server.count(), stored(tmp_path / "d")
    (tmp_path / "other.txt").write_text("".join(f"{server.url}/b{n}\n" for n in range(60)))
    done = run_downloader(tmp_path / "other.txt", "-o", tmp_path / "d", *ONE)
    assert done.returncode == 4
    assert (
        "other.txt has changed before line 51, or is another list than this job began with" in done.stderr
    )
    for way in ("give the same list", "--relist", "--restart"):
        assert way in done.stderr
    assert "resume with" not in done.stdout  # the same command would be refused again
    assert (server.count(), stored(tmp_path / "d")) == (asked, files)


@pytest.mark.parametrize("fails", ["", "missing"])
def test_shortened_list_is_reported(
    run_downloader: Run, tmp_path: Path, server: Server, fails: str
) -> None:
    lines = [f"{server.url}/a{n}" for n in range(40)] + [f"{server.url}/{fails or 'b'}"]
    path = tmp_path / "l.txt"
    path.write_text("\n".join(lines) + "\n")
    assert run_downloader(path, "-o", tmp_path / "d", *ONE).returncode == bool(fails)
    for text in ("\n".join(lines[:30]) + "\n", "\n".join(lines[:30])):
        path.write_text(text)
        done = run_downloader(path, "-o", tmp_path / "d", *ONE)
        assert done.returncode == 4
        assert "is shorter than it was: this job has read 41 lines of it, and now it has 30;" in done.stderr
        assert "--relist" in done.stderr


@pytest.mark.parametrize("half", ["half", "missing-half", "nonsense"])
def test_partially_written_last_line_is_completed_by_the_next_run(
    run_downloader: Run, tmp_path: Path, server: Server, half: str
) -> None:
    path = tmp_path / "l.txt"
    command = (path, "-o", tmp_path / "d", *ONE)
    url = server.url[:7] if half == "nonsense" else f"{server.url}/{half.removesuffix('-half')}"
    path.write_text(f"{server.url}/a\n{url}")
    first = run_downloader(*command)
    assert (first.returncode, report_of(first)["listed"]) == (half != "half", 2)
    with path.open("a") as file:
        # The URL that was read was incomplete.
        file.write(f"{server.url[7:]}/whole\n" if half == "nonsense" else "/whole\n")
    for more in ((), (f"{server.url}/b\n{server.url}/c",), ("",)):
        with path.open("a") as file:
            file.writelines(more)
        done = run_downloader(*command)
        assert done.returncode == 0, done.stderr
    files = {"a", "whole", "b", "c"} | ({"half"} if half == "half" else set())
    assert stored(tmp_path / "d") == files
    assert report_of(done)["listed"] == len(files)
    verified = run_downloader("verify", tmp_path / "d")
    assert verified.returncode == 0, verified.stdout
    assert sum(request.target.endswith("/whole") for request in server.requests) == 1


def test_line_written_in_three_pieces(run_downloader: Run, tmp_path: Path, server: Server) -> None:
    path = tmp_path / "l.txt"
    asked = []
    for piece in (f"{server.url}/missing", "/missing2", "/third", "\r\n", f"# end\n{server.url}/z\n"):
        with path.open("a", newline="") as file:
            file.write(piece)
        done = run_downloader(path, "-o", tmp_path / "d", *ONE)
        asked.append((done.returncode, report_of(done)["listed"]))
    assert asked == [(1, 1), (1, 1), (0, 1), (0, 1), (0, 2)]
    assert stored(tmp_path / "d") == {"third", "z"}
    assert run_downloader("verify", tmp_path / "d").returncode == 0


def test_removed_file_of_a_partial_line_is_not_fetched_again(
    run_downloader: Run, tmp_path: Path, server: Server
) -> None:
    path, root = tmp_path / "l.txt", tmp_path / "d"
    for piece in (f"{server.url}/ha", "lf\n"):
        with path.open("a") as file:
            file.write(piece)
        assert run_downloader(path, "-o", root, *ONE).returncode == 0
    assert stored(root) == {"ha", "half"}
    for name in stored(root):
        (root / name).unlink()
    assert run_downloader("verify", root).returncode == 1
    done = run_downloader(path, "-o", root, *ONE)
    assert done.returncode == 0, done.stderr
    assert stored(root) == {"half"}
    assert run_downloader("verify", root).returncode == 0
    assert run_downloader(path, "-o", root, *ONE).returncode == 0


def test_partially_written_comment_is_skipped(run_downloader: Run, tmp_path: Path, server: Server) -> None:
    path = tmp_path / "l.txt"
    for piece, listed in ((f"{server.url}/a\n# a com", 1), ("ment\n  ", 1), (f"{server.url}/b", 2)):
        with path.open("a") as file:
            file.write(piece)
        done = run_downloader(path, "-o", tmp_path / "d", *ONE)
        assert (done.returncode, report_of(done)["listed"]) == (0, listed)
    assert stored(tmp_path / "d") == {"a", "b"}


# packed lists


def test_truncated_gz_yields_its_whole_lines(run_downloader: Run, tmp_path: Path, server: Server) -> None:
    lines = [f"{server.url}/n{number}\n" for number in range(1500)]
    whole = gzip.compress("".join(lines).encode())
    path = tmp_path / "l.txt.gz"
    path.write_bytes(whole[: len(whole) // 2])
    there = zlib.decompressobj(31).decompress(whole[: len(whole) // 2]).decode()
    done = run_downloader(path, "-o", tmp_path / "d", *ONE, "--pipeline", "off")
    assert done.returncode == 4
    assert "cannot be read after line " in done.stderr
    assert stored(tmp_path / "d") == {line.rpartition("/")[2] for line in there.split("\n")[:-1]}
    assert 100 < len(stored(tmp_path / "d")) < 1500
    asked = server.count()
    path.write_bytes(whole)
    assert run_downloader(path, "-o", tmp_path / "d", *ONE, "--pipeline", "off").returncode == 0
    assert server.count() == 1500
    assert asked < 1500


def test_empty_gz_is_refused(run_downloader: Run, tmp_path: Path) -> None:
    path = tmp_path / "l.txt.gz"
    path.touch()
    done = run_downloader(path, "-o", tmp_path / "d", *ONE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "l.txt.gz is empty, and so no gzip file" in done.stderr


@pytest.mark.parametrize("form", ["utf-16", "utf-16-le", "utf-16-be", "gz", "stdin"])
def test_a_list_in_utf_16(run_downloader: Run, tmp_path: Path, server: Server, form: str) -> None:
    text = "".join(f"{server.url}/{n}\r\n" for n in range(100)).encode(form if "utf" in form else "utf-16")
    path = tmp_path / ("l.txt.gz" if form == "gz" else "l.txt")
    path.write_bytes(gzip.compress(text) if form == "gz" else text)
    with path.open("rb") as stdin:
        source = "-" if form == "stdin" else path
        done = run_downloader(source, "-o", tmp_path / "d", *ONE, stdin=stdin)
    assert done.returncode == 2
    name = {"utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE"}.get(form, "UTF-16")
    read = f"gzip -dc {path} | " if form == "gz" else ""
    convert = f"{read}iconv -f {name} -t UTF-8"
    assert f"looks like {name}, and a list must be UTF-8; convert it with: {convert}" in done.stderr
    assert server.count() == 0


# what to do next


@pytest.mark.parametrize("also", [[], ["missing"]])
def test_list_errors_are_not_offered_for_retry(
    run_downloader: Run, tmp_path: Path, server: Server, also: list[str]
) -> None:
    path = tmp_path / "l.txt"
    lines = [f"{server.url}/{name}" for name in ("a", *also)]
    path.write_text("\n".join([*lines, "htp://h/b", f"{server.url}/" + "x" * 300]))
    done = run_downloader(path, "-o", tmp_path / "d", "--workers", 1, "--retries", 0)
    assert done.returncode == 1
    first, last = len(lines) + 1, len(lines) + 2
    assert f"correct the list (line {first}, line {last}), then: downloader {path} " in done.stdout
    assert done.stdout.endswith(" --relist\n")
    assert done.stdout.count("--retry-failed") == len(also)


def test_only_the_first_faulty_lines_are_shown(run_downloader: Run, tmp_path: Path) -> None:
    text = "nonsense\n" * 9
    done = run_downloader("-", "-o", tmp_path / "d", "--workers", 1, input=text)
    assert "correct the list (line 1, line 2, line 3, line 4, line 5, …), then: downloader -" in done.stdout


def test_server_name_that_cannot_be_stored(run_downloader: Run, tmp_path: Path) -> None:
    with Server(files={"x" * 300: ok()}) as server:
        done = run_downloader(server.url, "-o", tmp_path / "d", "--workers", 1)
    assert done.returncode == 1
    assert "downloader http" not in done.stdout
