"""The output of a run: the report in its forms, failures, progress, log lines."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import socket
import stat
import subprocess
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
from bounded_runs import Outside
from harness import Job, command, environment
from planting import plant
from servers import Nth, Server, listing, ok, status

from downloader.errors import DestinationError
from downloader.reporting import published_file
from downloader.reporting.published_file import publish

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE = ("--workers", "1")
CONTRACT = [
    *("version", "source", "destination", "complete", "listed", "stored", "skipped", "failed", "bytes"),
    *("seconds", "files_per_second", "requests", "retries", "attempts_by_error", "failed_by_error"),
    *("latency_ms", "lanes", "pipeline_depth", "connections_peak", "workers", "worker_deaths"),
    *("cpu_seconds", "peak_rss_mb", "resumed", "versions"),
]


def test_report_fields(run_downloader: Run, tmp_path: Path, dev_server: Callable[..., Any]) -> None:
    server = dev_server(files=120, size="10-500", page=50)
    args = (server.url, "-o", tmp_path / "d", *ONE, "--json", "--report", tmp_path / "r.json")
    first, again = run_downloader(*args), run_downloader(*args)
    for done, counts in ((first, (120, 120, 0)), (again, (120, 0, 120))):
        assert (done.returncode, done.stderr) == (0, "")
        report = json.loads(done.stdout)
        assert set(CONTRACT) <= set(report)
        assert (report["listed"], report["stored"], report["skipped"]) == counts
        assert report["complete"]
        assert report["failed"] == 0
        assert report["version"] == 1
    assert report["resumed"]
    assert report["requests"] == 0
    assert server.stats()["gets"] == 120
    assert server.stats()["lists"] == 3
    report = json.loads(first.stdout)
    assert report["requests"] >= 120
    # Shown however short the run was.
    assert 1 <= report["connections_peak"] <= 32
    assert report["bytes"] == sum(path.stat().st_size for path in (tmp_path / "d").glob("file-*"))
    assert set(report["latency_ms"]) == {"p50", "p90", "p99", "p999", "max"}
    assert set(report["lanes"]) == {"wire", "requests"}
    assert set(report["pipeline_depth"]) == {"median", "max", "stopped"}
    assert set(report["peak_rss_mb"]) == {"supervisor", "worker"}
    assert (report["source"], report["destination"]) == (server.url, str(tmp_path / "d"))
    assert not report["resumed"]
    assert json.loads((tmp_path / "r.json").read_text())["resumed"]


def test_failures(run_downloader: Run, tmp_path: Path) -> None:
    long = "n" * 250
    with Server({"/list": listing(["good", "flaky", "gone", "esc\x1b", long]), "/get/good": ok(b"x"),
                 "/get/flaky": Nth(status(500), ok(b"y"))}) as server:  # fmt: skip
        args = (server.url, "-o", tmp_path / "d", *ONE, "--backoff", "1ms", "--failures", tmp_path / "f")
        done = run_downloader(*args, "--json")
        asked = server.count()
        text = run_downloader(*args, "--retry-failed")
        assert server.count() - asked == 3
    report = json.loads(done.stdout)
    assert done.returncode == text.returncode == 1
    assert report["complete"]
    assert (report["listed"], report["stored"], report["skipped"], report["failed"]) == (5, 2, 0, 3)
    assert report["attempts_by_error"] == {"http-404": 3, "http-500": 1}
    assert report["failed_by_error"] == {"http-404": 3}
    assert report["retries"] == 1
    lines = [json.loads(line) for line in (tmp_path / "f").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["gone", "esc%1B", long]
    assert lines[0] == {
        "name": "gone", "url": f"{server.url}/get/gone", "code": "http-404", "detail": "", "attempts": 1,
    }  # fmt: skip
    for says in ("listed   5", "stored   0", "skipped  2", "failed   3", "gone: http-404", "404"):
        assert says in text.stdout
    assert text.stdout.endswith("--retry-failed\n")
    assert text.stdout.count("--retry-failed") == 1
    assert text.stderr == "downloader: error: 3 of 5 files failed\n"


def test_many_failures_are_counted_not_listed(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("nonsense\n" * 1500)
    done = run_downloader(tmp_path / "l.txt", "-o", tmp_path / "d", *ONE, "--failures", tmp_path / "f")
    assert done.returncode == 1
    assert "line 5: bad-url" in done.stdout
    assert "line 6:" not in done.stdout
    assert "… and 1,495 more; see --failures" in done.stdout
    assert (tmp_path / "f").read_text().count("\n") == 1500


def test_quiet_prints_errors_only(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files={"a": ok(b"a"), "b": Nth(status(404), ok(b"b"))}) as server:
        failing = run_downloader(server.url, "-o", dest, *ONE, "-q")
        assert (failing.returncode, failing.stdout) == (1, "")
        assert failing.stderr == "downloader: error: 1 of 2 files failed\n"
        again = run_downloader(server.url, "-o", dest, *ONE, "-q")
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
        as_json = run_downloader(server.url, "-o", dest, *ONE, "-q", "--json")
        assert json.loads(as_json.stdout)["complete"]
        listed = run_downloader(server.url, "--dry-run", "-q")
        assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "")
        listed = run_downloader(server.url, "--dry-run", "-q", "--json")
        assert json.loads(listed.stdout)["listed"] > 0
        assert listed.stderr == ""
    verified = run_downloader("verify", dest, "-q")
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    (dest / "a").write_bytes(b"x")
    verified = run_downloader("verify", dest, "-q")
    assert (verified.returncode, "damaged: a\n" in verified.stdout) == (1, True)


def test_quiet_and_verbose(run_downloader: Run, tmp_path: Path) -> None:
    counts = []
    for option in ("-q", "", "-v", "-vv"):
        with Server({"/list": Nth(status(503), listing([]))}) as server:
            args = [
                server.url,
                "-o",
                tmp_path / f"d{option}",
                *ONE,
                "--backoff",
                "1ms",
                *filter(None, [option]),
            ]
            done = run_downloader(*args)
            assert done.returncode == 0
            counts.append(done.stderr.count("\n"))
    assert counts[0] == 0
    assert counts[1] == 1
    assert counts == sorted(counts)
    assert (
        run_downloader("http://127.0.0.1:1", "-o", tmp_path / "e", "-q", "--retries", 0).stderr.count("\n")
        == 1
    )


@pytest.mark.parametrize(
    "args",
    [
        ["--layout", "x"],
        ["--retries", "1", "--backoff", "1ms"],
        ["--retries", "0", "-vv"],
        ["--retries", "0", "-q"],
        ["--cacert", "none"],
        ["--dry-run", "--retries", "0", "-vv"],
    ],
)
def test_every_line_of_a_json_log_is_json(run_downloader: Run, tmp_path: Path, args: list[str]) -> None:
    done = run_downloader("http://127.0.0.1:1", "-o", tmp_path / "d", "--log-json", *ONE, *args)
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode in (2, 4)
    assert records[-1]["level"] == "error"
    assert [record["level"] for record in records].count("error") == 1


def test_a_line_every_ten_seconds_where_there_is_no_terminal(
    run_downloader: Run, tmp_path: Path, start: Callable[..., Job]
) -> None:
    held = threading.Event()

    def hold(request: object) -> list[bytes]:
        held.wait(30)
        return ok()  # type: ignore[return-value]

    with Server({"/list": listing(["a", "b"]), "/get/a": ok(b"x"), "/get/b": hold}) as server:  # type: ignore[dict-item]
        job = start(server.url, "-o", tmp_path / "d", *ONE, "--progress", "auto")
        other = start(server.url, "-o", tmp_path / "e", *ONE, "--log-json")
        silent = start(server.url, "-o", tmp_path / "f", *ONE, "--progress", "none")
        job.until(lambda: "\n" in job.err and "\n" in other.err)
        held.set()
        assert [job.wait(20), other.wait(20), silent.wait(20)] == [0, 0, 0]
    # One line, or one more for each ten seconds that the other run took longer.
    assert re.fullmatch(r"(downloader: 1 of 2 files, 50%, .* files/s, .*/s, 0 failed, .* left\n)+", job.err)
    for record in map(json.loads, other.err.splitlines()):
        assert record["level"] == "progress"
        assert (record["settled"], record["listed"], record["failed"]) == (1, 2, 0)
    assert silent.err == ""


def on_a_terminal(
    *args: object, term: str = "xterm", seen: Callable[[bytes], object] = len
) -> tuple[int, str, str]:
    """Return exit code, standard output, and what a terminal of 100 columns got on standard error; call
    ``seen`` with the terminal's output so far."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*args), stdout=subprocess.PIPE, stderr=theirs, env=environment(TERM=term, COLUMNS="100")
    )
    os.close(theirs)
    screen = b""
    try:
        while wait([ours], 30):
            try:
                block = os.read(ours, 65536)
            except OSError:
                break
            if not block:
                break
            screen += block
            seen(screen)
        assert process.stdout
        output = process.stdout.read().decode()
        return process.wait(30), output, screen.decode()
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()
        os.close(ours)


@pytest.mark.parametrize("progress", ["auto", "bar", "plain", "none"])
def test_progress_on_a_terminal(tmp_path: Path, dev_server: Callable[..., Any], progress: str) -> None:
    server = dev_server(files=60, delay="200ms")
    code, output, screen = on_a_terminal(
        server.url, "-o", tmp_path / "d", *ONE, "--connections", 10, "--progress", progress, "--json"
    )
    assert code == 0, screen
    assert json.loads(output)["stored"] == 60
    if progress in ("plain", "none"):
        assert screen == ""
        return
    assert re.search(r"\d+%", screen)
    assert re.search(r"\d+/60", screen)
    assert "files/s" in screen
    assert "0 failed" in screen
    assert screen.count("\x1b[?25l") == screen.count("\x1b[?25h") == 1  # the cursor is shown again
    assert screen.rstrip().endswith("\x1b[2K")  # and the bar is removed


@pytest.mark.parametrize("progress", ["auto", "bar"])
def test_progress_lines_on_a_terminal_without_cursor_control(tmp_path: Path, progress: str) -> None:
    held = threading.Event()

    def hold(request: object) -> list[bytes]:
        held.wait(30)
        return ok()  # type: ignore[return-value]

    def seen(screen: bytes) -> None:
        if b"1 of 2 files" in screen:
            held.set()

    with Server({"/list": listing(["a", "b"]), "/get/a": ok(b"x"), "/get/b": hold}) as server:  # type: ignore[dict-item]
        code, _, screen = on_a_terminal(
            server.url, "-o", tmp_path / "d", *ONE, "--progress", progress, term="dumb", seen=seen
        )
    assert (code, held.is_set()) == (0, True)
    assert re.fullmatch(r"(downloader: 1 of 2 files, 50%, [^\x1b]* left\r\n)+", screen)


def test_log_lines_above_the_bar(tmp_path: Path) -> None:
    held = Nth(*[status(503)] * 4, listing(["a"]))
    with Server({"/list": held, "/get/a": ok()}) as server:
        path = "/a-long-prefix-of-more-than-a-hundred-columns" * 3
        server.routes = {f"{path}{key}": answer for key, answer in server.routes.items()}
        code, _, screen = on_a_terminal(
            f"{server.url}{path}", "-o", tmp_path / "d", *ONE, "--backoff", "500ms", "--progress", "bar"
        )
    assert code == 0, screen
    assert (
        len(re.findall(rf"downloader: \S+{path}/list: [^\r\n]*\(http-503\); again in [\d.]+ s", screen))
        == 4
    )


def test_existing_report_file_is_not_replaced(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    with (
        Server(files={"a": ok()}) as server,
        subprocess.Popen(["cat", "pipe"], cwd=tmp_path, stdout=-1) as cat,
    ):
        done = run_downloader(
            server.url, "-o", "d", *ONE, "--report", "link", "--failures", "pipe", cwd=tmp_path
        )
        assert cat.communicate()[0] == b""
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "real").read_text())["stored"] == 1
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "link", "pipe", "real"]


@pytest.mark.parametrize(
    ("planted", "named", "told"),
    [
        ("link", "d/m.jsonl", "d/m.jsonl is a symbolic link"),
        ("new-link", "d/m.jsonl", "d/m.jsonl is a symbolic link"),
        ("pipe", "d/m.jsonl", "d/m.jsonl is a named pipe"),
        ("directory-link", "alias/sub/m.jsonl", "d/sub is a symbolic link, not a directory"),
        ("link", "inner/m.jsonl", "d/sub/m.jsonl is a symbolic link"),
        ("link", "inner/../m.jsonl", "d/m.jsonl is a symbolic link"),
        ("link", "own.jsonl", "d/sub/m.jsonl is a symbolic link"),
    ],
)
def test_what_others_have_put_into_the_destination_is_not_written_through(
    run_downloader: Run, tmp_path: Path, planted: str, named: str, told: str
) -> None:
    """DEST may be of a group, or unpacked from an archive; links to DEST are the user's own."""
    outside = Outside(tmp_path / "outside")
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("d")
    (tmp_path / "inner").symlink_to("d/sub")
    (tmp_path / "own.jsonl").symlink_to("d/sub/m.jsonl")
    victim = "d/sub" if planted == "directory-link" else told.partition(" ")[0]
    with Server(files={"a": ok()}) as server:
        for option in ("--manifest", "--failures", "--report"):
            if (tmp_path / victim).is_symlink():
                (tmp_path / victim).unlink()
            assert plant(planted, tmp_path / victim, outside)
            done = run_downloader(server.url, "-o", "d", *ONE, option, named, cwd=tmp_path)
            assert done.returncode == 2, done
            assert f"{option}: {told}" in done.stderr
    assert outside.now() == outside.before
    assert not (tmp_path / "d" / "a").exists()  # found before the start


def test_link_in_a_directory_of_the_destination_that_is_mounted_elsewhere_is_not_followed(
    run_downloader: Run, tmp_path: Path
) -> None:
    outside = Outside(tmp_path / "outside")
    inner, elsewhere = tmp_path / "d" / "sub", tmp_path / "else where"
    inner.mkdir(parents=True)
    elsewhere.mkdir()
    assert plant("link", inner / "m.jsonl", outside)
    bind = ["mount", "--bind", inner, elsewhere]
    if os.geteuid() or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    try:
        done = run_downloader("http://h", "-o", "d", "--report", "else where/m.jsonl", cwd=tmp_path)
    finally:
        subprocess.run(["umount", elsewhere], check=True)
    assert (done.returncode, "d/sub/m.jsonl is a symbolic link" in done.stderr) == (2, True), done
    assert outside.now() == outside.before


def test_what_is_put_into_the_destination_while_the_run_is_at_work_is_not_written_through(
    tmp_path: Path,
) -> None:
    outside = Outside(tmp_path / "outside")
    target = tmp_path / "d" / "r.json"
    target.parent.mkdir()
    assert plant("link", target, outside)
    with pytest.raises(DestinationError, match=r"r\.json is a symbolic link"):
        publish(str(target), lambda file: file.write(b"new"), str(target.parent))
    assert outside.now() == outside.before
    assert os.listdir(target.parent) == ["r.json"]


@pytest.mark.parametrize(
    ("option", "named", "where"),
    [
        ("--report", "/dev/stdout", "> out"),
        ("--report", "/dev/fd/1", "> out"),
        ("--failures", "/proc/self/fd/7", "7> out"),
        ("--failures", "/dev/stderr", "2> out"),
        ("--manifest", "link.jsonl", ">> out"),
    ],
)
def test_descriptor_that_is_a_file_is_written_where_it_is(
    option: str, named: str, where: str, tmp_path: Path
) -> None:
    """As by all other programs, and not replaced: what the shell writes to it would be lost."""
    (tmp_path / "link.jsonl").symlink_to("/dev/stdout")
    with Server(files={"a": ok(), "gone": status(404)}) as server:
        line = shlex.join(command(server.url, "-o", "d", *ONE, "-q", "--progress", "none", option, named))
        number = where.partition(">")[0] or "1"
        script = f"{{ echo before >&{number}; {line}; echo after >&{number}; }} {where}"
        subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment(),
            timeout=60,
            check=True,
            capture_output=True,
        )
    first, *lines, last = (tmp_path / "out").read_text().splitlines()
    assert (first, last) == ("before", "after")
    told = [json.loads(line) for line in lines if line.startswith('{"')] or [json.loads("".join(lines))]
    assert (
        told[0].get("name", told[0].get("listed"))
        == {
            "--report": 2,
            "--failures": "gone",
            "--manifest": "a",
        }[option]
    )
    assert sorted(os.listdir(tmp_path)) == ["d", "link.jsonl", "out"]


@pytest.mark.parametrize(
    ("failures", "report", "where"),
    [
        ("/dev/stdout", "/dev/stderr", ""),
        ("/dev/stdout", "/dev/stderr", "2>&1 | cat"),
        ("/dev/stdout", "/dev/stderr", "> out 2>&1"),
        ("/dev/stdout", "/dev/stdout", "> out"),
        ("/dev/null", "/dev/null", ""),
    ],
)
def test_two_reports_may_go_to_one_terminal_or_pipe(
    failures: str, report: str, where: str, tmp_path: Path
) -> None:
    with Server(files={"a": ok(), "gone": status(404)}) as server:
        argv = command(
            server.url, "-o", "d", *ONE, "-q", "--robots", "--failures", failures, "--report", report
        )
        script = f"set -o pipefail; {shlex.join(argv)} {where}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment(),
            timeout=60,
            check=False,
            capture_output=True,
        )
    out = (tmp_path / "out").read_bytes() if "out" in where else b""
    said = done.stdout + done.stderr + out
    assert done.returncode == 1, said
    assert [said.count(b'"code":"http-404"'), said.count(b'"listed": 2')] == [int("null" not in report)] * 2


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("/dev/fd/77", "/dev/fd/77: no such descriptor is open"),
        ("/dev/fd/99999999999999999999", ": no such descriptor is open"),
        ("/dev/stdin", "/dev/stdin is not open for writing"),
        ("/proc/r.json", "no file can be made in /proc: "),
        ("x" * 256, "File name too long"),
        ("../loop", "Too many levels of symbolic links"),
        ("../socket", "is a socket"),
        ("/dev/tty", "No such device or address"),
        ("", "the name is empty"),
    ],
)
def test_report_that_cannot_be_written_is_found_before_the_start(
    named: str, told: str, run_downloader: Run, tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "cwd").mkdir()
    argv = ("http://h", "-o", "d", "--report", named)
    with open(os.devnull) as stdin, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        # Without a terminal, which /dev/tty would be.
        done = run_downloader(*argv, cwd=tmp_path / "cwd", stdin=stdin, start_new_session=True)
    assert done.returncode == 2, done
    assert f"--report: {named}" in done.stderr
    assert told in done.stderr
    assert os.listdir(tmp_path / "cwd") == []


@pytest.mark.parametrize(
    ("where", "options"),
    [
        (">&-", ["--json"]),
        (">&-", ["--json", "--dry-run"]),
        (">&-", ["--report", "/dev/stdout"]),
        ("2>&-", ["--failures", "/dev/fd/2"]),
    ],
)
def test_result_for_a_closed_descriptor_is_refused(where: str, options: list[str], tmp_path: Path) -> None:
    """Else the run says 0, and what it was asked for is nowhere."""
    line = shlex.join(command("http://h", "-o", str(tmp_path / "d"), *options))
    argv = ["bash", "-c", f"{line} {where}"]
    done = subprocess.run(argv, env=environment(), timeout=60, check=False, capture_output=True)
    assert done.returncode == 2, done
    assert os.listdir(tmp_path) == []


def test_report_in_a_directory_that_is_not_writable_is_found_before_the_start(
    run_downloader: Run, tmp_path: Path
) -> None:
    """Also one that is itself writable: it would be replaced."""
    target = tmp_path / "ro"
    target.mkdir()
    (target / "r.json").touch(0o666)
    bind = ["sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"', "sh", target]
    try:
        if os.geteuid():
            target.chmod(0o555)
        elif subprocess.run(bind, capture_output=True, check=False).returncode:
            pytest.skip("root that may not mount")
        for named in ("ro/r.json", "ro/new.json"):
            done = run_downloader("http://h", "-o", "d", "--report", named, cwd=tmp_path)
            assert done.returncode == 2, done
            assert f"--report: {named}: " in done.stderr
    finally:
        if os.geteuid():
            target.chmod(0o755)
        else:
            subprocess.run(["umount", target], capture_output=True, check=False)
    assert not (tmp_path / "d").exists()


def test_named_pipe_without_a_reader_is_an_error(run_downloader: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with Server(files={"a": ok()}) as server:
        done = run_downloader(server.url, "-o", "d", *ONE, "--failures", "pipe", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        4,
        "downloader: error: pipe cannot be written: nobody reads this named pipe\n",
    ), done


def test_named_pipe_whose_reader_stops_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(published_file, "_PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(DestinationError, match="pipe cannot be written: what reads this pipe takes"):
            publish(str(tmp_path / "pipe"), lambda file: file.write(bytes(1 << 20)))
    finally:
        os.close(reader)


def test_link_to_where_nothing_is_is_found_before_the_start(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "r.json").symlink_to("missing/r.json")
    with Server(files={"a": ok()}) as server:
        for _ in range(2):  # also with a journal
            done = run_downloader(server.url, "-o", "d", *ONE, "--report", "r.json", cwd=tmp_path)
            assert done.returncode == 2, done
            assert "r.json is a link into " in done.stderr
            run_downloader(server.url, "-o", "d", *ONE, cwd=tmp_path)


def test_report_is_written_when_the_failures_file_cannot_be(run_downloader: Run, tmp_path: Path) -> None:
    with Server(files={"a": ok(), "gone": status(404)}) as server:
        done = run_downloader(
            server.url, "-o", "d", *ONE, "--report", "r.json", "--failures", "/dev/full", cwd=tmp_path
        )
    told = json.loads((tmp_path / "r.json").read_text())
    assert done.returncode == told["exit_code"] == 4
    assert told["stopped_by"].startswith("/dev/full cannot be written: ")


def test_status_and_verify(run_downloader: Run, tmp_path: Path, dev_server: Callable[..., Any]) -> None:
    server = dev_server(files=40)
    root = tmp_path / "d"
    run_downloader(server.url, "-o", root, *ONE, "--limit", 30)
    partly = run_downloader("status", root, "--json")
    # The source has more items, which are not wanted.
    assert partly.returncode == 0
    said = json.loads(partly.stdout)
    assert (said["listed"], said["source_read"], said["complete"]) == (30, False, True)
    assert run_downloader(server.url, "-o", root, *ONE).returncode == 0
    whole = run_downloader("status", root)
    assert whole.returncode == 0
    assert f"{server.url} → {root}: complete" in whole.stdout
    assert run_downloader("verify", root).stdout == "40 of 40 files agree with the journal\n"
    (root / "file-0000000003").write_bytes(b"?" * 100)
    (root / "file-0000000004").unlink()
    damaged = run_downloader("verify", root)
    assert damaged.returncode == 1
    assert "damaged: file-0000000003\ndamaged: file-0000000004\n38 of 40" in damaged.stdout
    assert run_downloader("status", root).returncode == 1
    gets = server.stats()["gets"]
    mended = json.loads(run_downloader(server.url, "-o", root, *ONE, "--json").stdout)
    assert (mended["stored"], mended["skipped"], mended["failed"]) == (2, 38, 0)
    assert server.stats()["gets"] == gets + 2
    assert run_downloader("verify", root).returncode == 0


@pytest.mark.parametrize("where", ["| true", "2>&1 | true", "2>/dev/full", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_output_does_not_change_the_exit_code(where: str, tmp_path: Path) -> None:
    with Server(files={"a": ok(b"a"), "b": ok(b"b")}) as server:
        line = shlex.join(command(server.url, "-o", str(tmp_path / "d"), "-v"))
        script = f"{line} {where}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], env=environment(), timeout=60, check=False, capture_output=True
        )
    assert done.returncode == 0, done
    assert {path.name for path in (tmp_path / "d").iterdir()} == {".downloader", "a", "b"}


def test_failures_of_a_limited_run_are_retried(tmp_path: Path) -> None:
    """A user fetches the first files of a long list, repairs the server, and retries those that failed."""
    dest = str(tmp_path / "d")
    with Server(files={"a": ok(), "b": status(404), "c": ok()}) as server:
        limited = command(server.url, "-o", dest, "--limit", "2")
        assert subprocess.run(limited, check=False, timeout=60).returncode == 1
        server.routes["/get/b"] = ok()
        retry = command(server.url, "-o", dest, "--limit", "2", "--retry-failed")
        assert subprocess.run(retry, check=False, timeout=60).returncode == 0
        assert subprocess.run(command("status", dest), check=False, timeout=60).returncode == 0
        assert subprocess.run(command(server.url, "-o", dest), check=False, timeout=60).returncode == 0
        assert subprocess.run(command("status", dest), check=False, timeout=60).returncode == 0


def test_memory_excludes_the_parent_process(tmp_path: Path) -> None:
    # Large before its exec, like a shell or a program that forks; getrusage would count that memory.
    starter = "import os, sys; ballast = os.urandom(200 << 20); os.execv(sys.argv[1], sys.argv[1:])"
    with Server(files={"a": ok()}) as server:
        line = command(server.url, "-o", str(tmp_path / "d"), "--json")
        done = subprocess.run([line[0], "-c", starter, *line], check=True, timeout=60, capture_output=True)
    assert json.loads(done.stdout)["peak_rss_mb"]["supervisor"] < 60
