"""What the rows of a list say about their files: names, checksums, header fields, mirrors, columns."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import crc32c
import msgspec
import pytest
from harness import ROOT, Job, beside_files, command, environment, report_of, stored
from list_writer import write
from servers import RESET, Nth, Request, Server, Step, ok, redirect, status

from downloader.files.directory import open_home
from downloader.storage.journal import Journal

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE = ("--workers", "1", "--retries", "0", "--progress", "none", "--json")


def body_of(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest()


def answer(request: Request) -> Sequence[Step]:
    return ok(body_of(request.target))


def complete_report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the report of a run that must be complete."""
    report = report_of(done)
    assert report["complete"], done.stderr
    return report


def failures_of(path: Path) -> dict[str, tuple[str, str]]:
    found = map(json.loads, path.read_text().splitlines())
    return {failure["name"]: (failure["code"], failure["detail"]) for failure in found}


def everything_in(root: Path) -> bytes:
    """Return the bytes of all files of the journal."""
    return b"".join(path.read_bytes() for path in sorted((root / ".downloader").iterdir()))


# names

NAMES = {
    "a/b/c.jpg": "a/b/c.jpg",
    "../../etc/passwd": "%2E./%2E./etc/passwd",
    "/etc/passwd": "%/etc/passwd",
    "x/..": "x/%2E.",
    ".downloader/lock": "%2Edownloader/lock",
    "back\\slash": "back%5Cslash",
    "new\nline": "new%0Aline",
    "caf\u00e9/\u202e": "caf\u00e9/%E2%80%AE",
    "100%": "100%25",
    "e" * 255: "e" * 255,
    "": "20",
}


@pytest.mark.parametrize("name", ["l.csv", "l.jsonl", "l.parquet"])
def test_names_are_safe_paths(run_downloader: Run, tmp_path: Path, name: str) -> None:
    with Server(default=answer) as server:
        given = [*NAMES, "x/" + "e" * 256, "d/" * 3000 + "x"]
        rows = [{"url": f"{server.url}/{10 + at}", "name": each} for at, each in enumerate(given)]
        argv = (write(tmp_path / name, rows), "-o", tmp_path / "d", *ONE, "--failures", tmp_path / "f")
        done = run_downloader(*argv)
    assert done.returncode == 1, done.stderr
    assert stored(tmp_path / "d") == {
        place: body_of(f"/{10 + at}") for at, place in enumerate(NAMES.values())
    }
    assert {code for code, _ in failures_of(tmp_path / "f").values()} == {"bad-name"}
    assert set(path.name for path in tmp_path.iterdir()) == {name, "d", "f"}


def test_nul_in_a_name(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        rows = [{"url": f"{server.url}/1", "name": "a\0b/c"}]
        done = run_downloader(write(tmp_path / "l.jsonl", rows), "-o", tmp_path / "d", *ONE)
    assert done.returncode == 0, done.stderr
    assert stored(tmp_path / "d") == {"a%00b/c": body_of("/1")}


@pytest.mark.parametrize("how", ["fail", "skip", "number"])
def test_rows_of_one_name(run_downloader: Run, tmp_path: Path, how: str) -> None:
    with Server(default=answer) as server:
        names = ["a.tar", "a.tar", "d/a", "a.tar", "a-2.tar", "d/a", "b" * 255, "b" * 255]
        rows = [{"url": f"{server.url}/{at}", "name": name} for at, name in enumerate(names)]
        argv = (write(tmp_path / "l.csv", rows), "-o", tmp_path / "d", *ONE, "--on-duplicate", how)
        argv = (*argv, "--connections", 1)
        done = run_downloader(*argv)
        report = complete_report(done)
        again = complete_report(run_downloader(*argv))
        asked = len(server.requests)
    counts = (report["stored"], report["skipped"], report["failed_by_error"])
    firsts = {"a.tar": 0, "d/a": 2, "a-2.tar": 4, "b" * 255: 6}
    if how == "number":
        assert counts == (8, 0, {})
        firsts = {"a.tar": 0, "a-2.tar": 1, "d/a": 2, "a-3.tar": 3, "a-2-2.tar": 4, "d/a-2": 5}
        firsts |= {"b" * 255: 6, "b" * 253 + "-2": 7}
    elif how == "skip":
        assert counts == (4, 4, {})
    else:
        assert counts == (4, 0, {"name-taken": 4})
    assert stored(tmp_path / "d") == {name: body_of(f"/{at}") for name, at in firsts.items()}
    assert again["exit_code"] == int(how == "fail")
    assert again["skipped"] == (4 if how == "fail" else 8)
    assert how == "fail" or asked == counts[0]
    verified = run_downloader("verify", tmp_path / "d")
    assert verified.returncode == 0, verified.stderr
    assert f"{len(firsts)} of {len(firsts)} files agree" in verified.stdout


@pytest.mark.parametrize("how", ["skip", "number"])
def test_duplicates_are_the_same_however_often_a_job_is_killed(
    start: Callable[..., Job], run_downloader: Run, tmp_path: Path, how: str
) -> None:
    go, most = threading.Event(), [0]

    def held(request: Request) -> Sequence[Step]:
        if len(server.requests) > most[0]:
            go.wait(30)
        return answer(request)

    with Server(default=held) as server:
        rows = [{"url": f"{server.url}/{n}", "name": f"n{n % 97}.x"} for n in range(600)]
        argv = (write(tmp_path / "l.csv", rows), "-o", tmp_path / "d", *ONE, "--on-duplicate", how)
        for upto in (20, 50, 70):
            go.clear()
            most[0] = upto
            job = start(*argv, "--pipeline", "off")
            job.until(lambda: len(server.requests) > most[0])
            job.kill(signal.SIGKILL)
            job.wait()
            job.alone()
            go.set()
        most[0] = 10**9
        report = complete_report(run_downloader(*argv))
    assert report["failed"] == 0
    want = {}
    for n in range(600):
        rounds = n // 97 + 1
        if rounds == 1 or how == "number":
            want[f"n{n % 97}.x" if rounds == 1 else f"n{n % 97}-{rounds}.x"] = body_of(f"/{n}")
    assert stored(tmp_path / "d") == want
    assert report["listed"] == 600


@pytest.mark.parametrize("how", ["skip", "number"])
def test_descriptors_that_a_run_inherits(tmp_path: Path, how: str) -> None:
    """With the first, the descriptors of the supervisor's journal are not those that the feeder would have;
    with the last, all are above those that select() takes."""
    with Server(default=answer) as server:
        rows = [{"url": f"{server.url}/{n}", "name": f"n{n % 8}.x"} for n in range(16)]
        argv = command(write(tmp_path / "l.csv", rows), "-o", tmp_path / "d", *ONE, "--on-duplicate", how)
        for limit, count in ((6, 4), (10, 20), (16, 1_100)):
            done = subprocess.run(
                beside_files(count, *argv, "--limit", limit),
                cwd=ROOT,
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
    assert len(stored(tmp_path / "d")) == (16 if how == "number" else 8)


def test_batch_that_was_lost_takes_no_names(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        rows = [{"url": f"{server.url}/{n}", "name": f"n{n % 50}.x"} for n in range(100)]
        argv = (write(tmp_path / "l.csv", rows), "-o", tmp_path / "d", *ONE, "--on-duplicate", "number")
        assert run_downloader(*argv, "--limit", 40).returncode == 0
        home = tmp_path / "d/.downloader"
        journal = (home / "journal.sqlite").read_bytes()
        assert run_downloader(*argv).returncode == 0
        # As if the supervisor had been killed before it wrote the batches that the feeder had sent.
        (home / "journal.sqlite").write_bytes(journal)
        report = complete_report(run_downloader(*argv))
    assert (report["listed"], report["failed"]) == (100, 0)
    assert set(stored(tmp_path / "d")) == {f"n{n}{k}.x" for n in range(50) for k in ("", "-2")}


def test_names_are_those_of_the_journal_after_a_power_cut(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        rows = [{"url": f"{server.url}/{n}", "name": f"n{n % 30}.x"} for n in range(90)]
        argv = (write(tmp_path / "l.csv", rows), "-o", tmp_path / "d", *ONE, "--on-duplicate", "number")
        assert run_downloader(*argv, "--limit", 40).returncode == 0
        (tmp_path / "d/.downloader/names.sqlite").unlink()
        assert run_downloader(*argv).returncode == 0
    assert set(stored(tmp_path / "d")) == {f"n{n}{k}.x" for n in range(30) for k in ("", "-2", "-3")}


def test_numbers_are_before_the_extension_of_the_path(run_downloader: Run, tmp_path: Path) -> None:
    """And stay where they were in a job of an earlier version, which put them behind the query."""
    with Server(default=answer) as server:
        urls = [f"{server.url}/{n}/a.jpg?w=300" for n in range(4)]
        urls += [f"{server.url}/{n}/b?v=1.2" for n in range(2)]
        path = tmp_path / "l.txt"
        path.write_text("\n".join(urls))
        argv = (path, "-o", tmp_path / "new", *ONE, "--on-duplicate", "number")
        assert run_downloader(*argv).returncode == 0
        old = (path, "-o", tmp_path / "old", *ONE, "--on-duplicate", "number")
        assert run_downloader(*old, "--limit", 1).returncode == 0
        journal = Journal(open_home(tmp_path / "old/.downloader"))
        job = journal.job()
        assert job is not None
        journal.begin(msgspec.structs.replace(job, naming=1))
        journal.close()
        assert run_downloader(*old).returncode == 0
    assert set(stored(tmp_path / "new")) == {
        *("a.jpg?w=300", "a-2.jpg?w=300", "a-3.jpg?w=300", "a-4.jpg?w=300", "b?v=1.2", "b-2?v=1.2")
    }
    assert {"a.jpg?w=300-2", "a.jpg?w=300-4", "b?v=1-2.2"} < set(stored(tmp_path / "old"))


def test_a_job_of_the_version_before_goes_on_with_its_names(run_downloader: Run, tmp_path: Path) -> None:
    """What counts as a secret since then is left out of the names of new jobs only."""
    with Server(default=ok(b"x")) as server:
        path = tmp_path / "l.txt"
        path.write_text("".join(f"{server.url}/{n}.jpg?hmac=abc{n}\n" for n in range(3)))
        assert run_downloader(path, "-o", tmp_path / "new", *ONE).returncode == 0
        old = (path, "-o", tmp_path / "old", *ONE)
        assert run_downloader(*old, "--limit", 1).returncode == 0
        journal = Journal(open_home(tmp_path / "old/.downloader"))
        job = journal.job()
        assert job is not None
        journal.begin(msgspec.structs.replace(job, naming=3))
        journal.close()
        done = run_downloader(*old, "-v")
        assert done.returncode == 0
    assert not any("abc" in name for name in stored(tmp_path / "new"))
    assert {"1.jpg?hmac=abc1", "2.jpg?hmac=abc2"} < set(stored(tmp_path / "old"))
    assert "abc" not in done.stdout + done.stderr


# rows that cannot be fetched


@pytest.mark.parametrize("name", ["l.csv", "l.jsonl", "l.parquet"])
def test_rows_with_faults_are_failures(run_downloader: Run, tmp_path: Path, name: str) -> None:
    with Server(default=answer) as server:
        sha = hashlib.sha256(body_of("/0")).hexdigest()
        rows: list[dict[str, Any]] = [
            {"url": f"{server.url}/0", "size": "32", "sha256": sha.upper()},
            {"url": None, "size": "", "sha256": ""},
            {"url": "", "size": None, "sha256": None},
            {"url": "ftp://user:secret@h/x", "size": None, "sha256": None},
            {"url": f"{server.url}/4", "size": "many", "sha256": ""},
            {"url": f"{server.url}/5", "size": "-1", "sha256": ""},
            {"url": f"{server.url}/6", "size": "32.0", "sha256": "not hex"},
            {"url": f"{server.url}/7", "size": "32.0", "sha256": sha[:40]},
            {"url": f" {server.url}/8 ", "size": "32.0", "sha256": None},
        ]
        path = write(tmp_path / name, rows)
        done = run_downloader(path, "-o", tmp_path / "d", *ONE, "--failures", tmp_path / "f")
        text = run_downloader(path, "-o", tmp_path / "d", *ONE[:4])
        dry = run_downloader(path, "--dry-run")
    assert complete_report(done)["failed_by_error"] == {"bad-url": 3, "bad-row": 2, "bad-checksum": 2}
    assert stored(tmp_path / "d") == {"0": body_of("/0"), "8": body_of("/8")}
    unit, first = ("row", 1) if name == "l.parquet" else ("line", 2 if name == "l.csv" else 1)
    where = [f"{unit} {first + at}" for at in range(9)]
    failures = failures_of(tmp_path / "f")
    assert failures == {
        where[1]: ("bad-url", f"{where[1]} has no URL"),
        where[2]: ("bad-url", f"{where[2]} has no URL"),
        where[3]: ("bad-url", f"{where[3]} is not an http(s) URL: ftp://***@h/x"),
        where[4]: ("bad-row", f"{where[4]} has a size that is no number of bytes: many"),
        where[5]: ("bad-row", f"{where[5]} has a size that is no number of bytes: -1"),
        where[6]: ("bad-checksum", f"{where[6]} has a sha256 that is not 64 hexadecimal digits: not hex"),
        where[7]: (
            "bad-checksum",
            f"{where[7]} has a sha256 that is not 64 hexadecimal digits: {sha[:40]}",
        ),
    }
    assert f"correct the list ({where[1]}, {where[2]}" in text.stdout
    assert "--retry-failed" not in text.stdout
    assert "9 files, 7 of them cannot be fetched" in dry.stdout


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512", "crc32c"])
def test_sizes_and_checksums_are_verified_and_retried(
    run_downloader: Run, tmp_path: Path, algorithm: str
) -> None:
    def digest(path: str) -> str:
        data = body_of(path)
        return (
            f"{crc32c.crc32c(data):08x}"
            if algorithm == "crc32c"
            else hashlib.new(algorithm, data).hexdigest()
        )

    routes = {"/late": Nth(ok(b"wrong" * 6 + b"!!"), ok(body_of("/late")))}
    with Server(routes, default=answer) as server:
        rows = [
            {"url": f"{server.url}/good", "bytes": 32, "sum": digest("/good")},
            {"url": f"{server.url}/late", "bytes": 32, "sum": digest("/late")},
            {"url": f"{server.url}/bad", "bytes": 32, "sum": digest("/other")},
            {"url": f"{server.url}/short", "bytes": 33, "sum": digest("/short")},
        ]
        argv = (
            write(tmp_path / "l.csv", rows),
            "-o",
            tmp_path / "d",
            *ONE[:2],
            "--json",
            "--progress",
            "none",
        )
        named = ("--size-column", "bytes", "--checksum-column", f"{algorithm}=sum")
        done = run_downloader(*argv, *named, "--retries", 1, "--backoff", "1ms")
        asked = {path: server.count(path) for path in ("/good", "/late", "/bad", "/short")}
    assert complete_report(done)["failed_by_error"] == {"checksum-mismatch": 1, "size-mismatch": 1}
    assert asked == {"/good": 1, "/late": 2, "/bad": 2, "/short": 2}
    assert stored(tmp_path / "d") == {"good": body_of("/good"), "late": body_of("/late")}


def test_url_in_a_field_of_a_struct(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        lines = [
            f'{{"image": {{"url": "{server.url}/1", "w": NaN, "x": {{"y": -Infinity, "NaN": "NaN"}}}}}}',
            f'{{"image.url": "{server.url}/2", "image": {{"url": "{server.url}/no"}}, "s": NaN}}',
            '{"image": null}',
            '{"image": {"url": {}}}',
        ]
        (tmp_path / "l.jsonl").write_text("\n".join(lines))
        images = [{"url": f"{server.url}/{n}", "w": n} for n in (1, 2)]
        write(tmp_path / "l.parquet", [{"image": image} for image in [*images, None, {"url": "", "w": 0}]])
        for name in ("l.jsonl", "l.parquet"):
            argv = (tmp_path / name, "-o", tmp_path / name[2:], *ONE, "--url-column", "image.url")
            argv = (*argv, "--keep-columns", "all", "--manifest", tmp_path / "m.jsonl")
            done = run_downloader(*argv)
            assert complete_report(done)["failed_by_error"] == {"bad-url": 2}
            assert set(stored(tmp_path / name[2:])) == {"1", "2"}
            rows = map(json.loads, (tmp_path / "m.jsonl").read_text().splitlines())
            kept = {row["name"]: row["columns"]["image"] for row in rows}
            assert server.url not in json.dumps(kept), "the URL is kept redacted, and nowhere else"
            assert kept["1"]["w"] == (None if name == "l.jsonl" else 1)
        assert kept["2"] == {"w": 2}


def test_key_that_comes_late(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        lines = [json.dumps({"kind": "note", "text": "x" * 1000})] * 300
        (tmp_path / "l.jsonl").write_text("\n".join([*lines, json.dumps({"url": f"{server.url}/1"})]))
        done = run_downloader(tmp_path / "l.jsonl", "-o", tmp_path / "d", *ONE)
    assert complete_report(done)["failed_by_error"] == {"bad-url": 300}
    assert set(stored(tmp_path / "d")) == {"1"}


def test_lines_with_more_than_a_url_are_one_failure_each(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        u = server.url
        lines = [
            f"{u}/1 # a comment",
            f"{u}/2 {u}/2b",
            f"{u}/3\tcaption",
            f"  {u}/4  ",
            f"{u}/5#x",
            f"{u}/6\rx",
            f"{u}/seven of seven#1",
        ]
        (tmp_path / "l.txt").write_text("\n".join(lines))
        argv = (tmp_path / "l.txt", "-o", tmp_path / "d", *ONE, "--failures", tmp_path / "f")
        done = run_downloader(*argv)
    assert complete_report(done)["failed_by_error"] == {"bad-url": 4}
    found = failures_of(tmp_path / "f")
    assert list(found) == ["line 1", "line 2", "line 3", "line 6"]
    assert "line 1 has a comment behind the URL" in found["line 1"][1]
    for number, what in ((2, "another URL"), (3, "a tab"), (6, "a line end (CR)")):
        assert f"line {number} has {what} behind the URL" in found[f"line {number}"][1]
    assert sorted(stored(tmp_path / "d")) == ["4", "5", "seven of seven"]


def test_credentials_behind_a_url_are_nowhere(run_downloader: Run, tmp_path: Path) -> None:
    """Lines of pasted commands, and fields behind a URL: not in a name, a message or the journal."""
    secret = "Pa55w0rdXq7Zt9"
    behind = [
        *(f"Authorization: Bearer {secret}", f"Cookie: x={secret}", f"X-Auth-Token: {secret}"),
        *(f'-H "Authorization: {secret}"', f"--password {secret}", f"--http-password={secret}"),
        *(f"--user u:{secret}", f"-u u:{secret}"),
    ]
    with Server(default=status(404)) as server:
        u = server.url
        lines = [f"{u}/a {each}" for each in behind] + [f'{u}/a,{{"Authorization":"Bearer {secret}"}}']
        lines += [f"curl -u u:{secret} {u}/a", f"curl '{u}/a' -b 'name={secret}'", f"TOKEN {secret}"]
        lines += [f"wget --password {secret} {u}/a", f"machine x login u password {secret}"]
        lines += [f"{u}/Star Wars: a new -u cookie", f"{u}/the user--password: none"]
        (tmp_path / "l.txt").write_text("\n".join(lines))
        argv = (tmp_path / "l.txt", "-o", tmp_path / "d", *ONE, "--failures", tmp_path / "f", "-v")
        done = run_downloader(*argv)
    assert Counter(code for code, _ in failures_of(tmp_path / "f").values()) == {
        "bad-url": len(lines) - 2,
        "http-404": 2,
    }
    assert secret not in done.stdout + done.stderr
    for path in (tmp_path / "d").rglob("*"):
        assert secret not in path.name
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    assert secret not in (tmp_path / "f").read_text()


def test_lines_that_are_too_long_or_have_what_nobody_sees(run_downloader: Run, tmp_path: Path) -> None:
    def exact(request: Request) -> Sequence[Step]:
        return answer(request) if request.target[1:].isalnum() else status(404)

    with Server(default=exact) as server:
        u = server.url
        hidden, named = u.replace("127", "\u00a0127"), u.replace("127.0.0.1", "local\u200bhost")
        wide = "\u00e9" * 40_000  # fewer characters than a line may have bytes
        limit, mark, space = (
            "longer than 64 KiB, the limit",
            "U+FEFF (byte order mark)",
            "U+00A0 (no-break space)",
        )
        lines = {
            f"{u}/{'a' * 70_000}": ("bad-url", limit),
            f"{u}/{wide}": ("bad-url", limit),
            f" {u}/{wide}": ("bad-url", limit),
            f"{' ' * 70_000}{u}/x": ("bad-url", limit),
            f"#{'c' * 70_000}": None,
            f"{u}/{'a' * 200}{' ' * 60_000}": None,
            f"\ufeff{u}/1": ("bad-url", f"is not an http(s) URL, it begins with {mark}; remove that: "),
            f"\u00a0{u}/2": ("bad-url", f"is not an http(s) URL, it begins with {space}; remove that: "),
            f"{u}/3\u00a0": ("http-404", f"the server answered 404; the URL ends with {space}"),
            f"{u}/4\u200b": ("http-404", "404; the URL ends with U+200B (zero width space)"),
            f"{u}/5\u3000# a comment": ("bad-url", "has a comment behind the URL"),
            f"{u}/6\ufeff{u}/7": ("bad-url", "has another URL behind the URL"),  # joined with cat
            f"{hidden}/8": ("bad-url", f"; the URL contains {space}"),
            f"{named}/9": None,  # UTS 46 leaves it out
            f"{u}/\U0001f3f3\u200d\u26a7": ("http-404", ""),  # an emoji
            f"{u}/10\x7f": ("bad-url", "has a URL with a character that cannot be sent"),
            f"{u}/11,": ("http-404", "the server answered 404; the URL ends with a comma"),
            f'"{u}/12"': ("bad-url", "has quotes around the URL (jq -r writes none)"),
        }
        (tmp_path / "l.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        argv = ("-o", tmp_path / "d", *ONE, "--failures", tmp_path / "f")
        done = run_downloader(tmp_path / "l.txt", *argv)
        found = list(failures_of(tmp_path / "f").values())
        rows = [{"url": f"{u}/{'a' * 70_000}"}, {"url": f"\u00a0{u}/2"}]
        run_downloader(write(tmp_path / "l.csv", rows), "-o", tmp_path / "e", *argv[2:])
    assert complete_report(done)["stored"] == 2, done.stderr
    assert set(stored(tmp_path / "d")) == {"a" * 200, "9"}
    wanted = [each for each in lines.values() if each]
    assert [code for code, _ in found] == [code for code, _ in wanted]
    assert not [
        (says, told) for (_, says), (_, told) in zip(wanted, found, strict=True) if says not in told
    ]
    assert "200D" not in "".join(told for _, told in found)
    assert [told.partition(": ")[0] for _, told in failures_of(tmp_path / "f").values()] == [
        f"line 2 has a URL that is {limit}",
        f"line 3 is not an http(s) URL, it begins with {space}; remove that",
    ]


def test_captions_with_quotes_lose_no_row(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        captions = ["a", "b", "c", '"Untitled', "e", "f", '27" TV', "h", "i", "j"]
        lines = "".join(f"{server.url}/{n}\t{caption}\n" for n, caption in enumerate(captions, 1))
        (tmp_path / "l.tsv").write_text(lines)
        done = run_downloader(tmp_path / "l.tsv", "-o", tmp_path / "d", *ONE, "--no-header")
        assert (complete_report(done)["listed"], done.returncode) == (10, 1)
        assert "line 4: a quote that goes on into line 5, which looks like a row" in done.stderr
        assert len(stored(tmp_path / "d")) == 9
        other = run_downloader(
            tmp_path / "l.tsv", "-o", tmp_path / "d", *ONE, "--no-header", "--quote", "none"
        )
        assert other.returncode == 4, "rows mean something else"
        argv = (tmp_path / "l.tsv", "-o", tmp_path / "e", *ONE, "--no-header", "--quote", "none")
        text = run_downloader(*argv, "--keep-columns", "2", "--manifest", tmp_path / "m.jsonl")
        assert complete_report(text)["stored"] == 10
    rows = map(json.loads, (tmp_path / "m.jsonl").read_text().splitlines())
    assert [row["columns"]["2"] for row in rows] == captions


def test_list_as_other_programs_write_it(run_downloader: Run, tmp_path: Path) -> None:
    """With backslashes in front of quotes, in Windows-1252, with NA and NULL and 3.2e+01."""
    with Server(default=answer) as server:
        lines = [
            ('"a red TV, 27\\""', "NA", "bad-row"),
            ("plain", "3.2e+01", ""),
            ('"monitor, 24\\""', "NULL", "bad-row"),
            ('"a, b"', "\\N", ""),
            ("caf\u00e9", "32", "bad-row"),
            ("x", "NA", ""),
        ]
        rows = [f"{server.url}/{n},{caption},{size},\\N\n" for n, (caption, size, _) in enumerate(lines)]
        (tmp_path / "l.csv").write_bytes(f"url,caption,size,name\n{''.join(rows)}".encode("cp1252"))
        argv = (tmp_path / "l.csv", "-o", tmp_path / "d", *ONE, "--failures", tmp_path / "f")
        done = run_downloader(*argv)
    assert complete_report(done)["listed"] == len(lines)
    assert {int(line.split()[1]) - 2: code for line, (code, _) in failures_of(tmp_path / "f").items()} == {
        n: code for n, (_, _, code) in enumerate(lines) if code
    }
    assert sorted(stored(tmp_path / "d")) == ["1", "3", "5"]
    assert 'where \\" stands for a quote, convert the list with Python: ' in done.stderr
    assert f"convert it with: iconv -f WINDOWS-1252 -t UTF-8 < {tmp_path / 'l.csv'}" in done.stderr


# header fields


def test_header_fields_of_a_row_are_sent_and_stay_secret(run_downloader: Run, tmp_path: Path) -> None:
    def guarded(request: Request) -> Sequence[Step]:
        if request.target == "/moved":
            return redirect(f"{other.url}/elsewhere")
        if request.target == "/late" and server.count("/late") == 1:
            return [RESET]
        return answer(request) if request.header("X-Token") == "s3cret" + request.target else status(403)

    with Server(default=guarded) as server, Server(default=answer) as other:
        names = ["1", "2", "late", "moved", "none", "open"]
        rows = [
            {
                "url": f"{server.url}/{name}",
                "h": json.dumps({"X-Token": f"s3cret/{name}", "Accept": "x/y"}) if name != "none" else None,
            }
            for name in names
        ]
        argv = (write(tmp_path / "l.jsonl", rows), "-o", tmp_path / "d", *ONE[:2], "-vv", "--json")
        more = ("--header-column", "h", "--keep-columns", "all", "--retries", 1, "--backoff", "1ms")
        done = run_downloader(*argv, *more, "--failures", tmp_path / "f", "--report", tmp_path / "r")
        first = server.seen("/1")[0]
        assert (first.header("Accept"), first.header("User-Agent")[:4]) == ("x/y", "mass")
        (elsewhere,) = other.seen("/elsewhere")
        assert elsewhere.header("X-Token") is None, "the fields stay with the origin of the URL"
    assert complete_report(done)["failed_by_error"] == {"http-403": 1}
    assert set(stored(tmp_path / "d")) == {"1", "2", "late", "moved", "open"}
    journal = everything_in(tmp_path / "d")
    for text in (done.stdout, done.stderr, (tmp_path / "f").read_text(), (tmp_path / "r").read_text()):
        assert "s3cret" not in text
    assert b"s3cret" not in journal


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ('{"X": "s3cret\\r\\nHost: x"}', "the value of X has a line break or NUL in it"),
        ('{"X\\r\\nY": "s3cret"}', "what stands before the colon is not a header's name"),
        ('{"Host": "s3cret"}', "Host is decided by the downloader"),
        ('{"content-length": "5"}', "content-length is decided by the downloader"),
        ('{"Transfer-Encoding": "chunked"}', "Transfer-Encoding is decided by the downloader"),
        ('{"Range": "bytes=0-1"}', "Range is decided by the downloader"),
        ('{"A": "s3cret", "a": "2"}', "a is given twice"),
        ('{"A": 5}', "a value is not text"),
        ('{"A": "s3cret\u20ac"}', "the value of A is not Latin-1"),
        ('["s3cret"', "not a JSON object"),
        ("X: s3cret", "not a JSON object"),
    ],
)
def test_header_fields_that_are_refused(run_downloader: Run, tmp_path: Path, given: str, says: str) -> None:
    with Server(default=answer) as server:
        rows = [{"url": f"{server.url}/1", "h": given}, {"url": f"{server.url}/2", "h": ""}]
        argv = (write(tmp_path / "l.csv", rows), "-o", tmp_path / "d", *ONE, "--header-column", "h")
        done = run_downloader(*argv, "--failures", tmp_path / "f")
        assert not server.seen("/1")
    assert complete_report(done)["failed_by_error"] == {"bad-row": 1}
    failures = failures_of(tmp_path / "f")
    assert failures == {
        "line 2": (
            "bad-row",
            f"line 2 has header fields that cannot be sent: {failures['line 2'][1].partition(': ')[2]}",
        )
    }
    assert says in failures["line 2"][1]
    assert "s3cret" not in done.stdout + done.stderr + (tmp_path / "f").read_text()
    assert b"s3cret" not in everything_in(tmp_path / "d")


# mirrors


def test_mirrors_are_tried_in_turn(run_downloader: Run, tmp_path: Path) -> None:
    good = hashlib.sha1(body_of("/good")).hexdigest()
    routes = {
        "/busy": status(503),
        "/wrong": ok(b"x" * 32),
        "/cut": [b"HTTP/1.1 200 OK\r\nContent-Le", RESET],
    }
    with Server({"/404": status(404), **routes}, default=answer) as server:
        u = server.url
        entries = {
            "gone": f"{u}/404\t{u}/good",
            "refused": f"http://127.0.0.1:9/x\t{u}/good",
            "nowhere": f"http://no-such-host.invalid/x\t{u}/404\t{u}/good",
            "damaged": f"{u}/wrong\t{u}/good\n checksum=sha-1={good}",
            "cut": f"{u}/cut\t{u}/wrong\t{u}/good\n checksum=sha-1={good}",
            "unusable": f"http://[x\tftp://h/x\t{u}/good",
            "fails": f"{u}/404\t{u}/wrong\n checksum=sha-1={good}",
            "first": f"{u}/good\t{u}/404",
            "alone": f"{u}/404",
        }
        text = "".join(f"{urls}\n out={name}\n header=X-Key: k\n" for name, urls in entries.items())
        (tmp_path / "l").write_text(text)
        argv = (tmp_path / "l", "--list-format", "aria2", "-o", tmp_path / "d", *ONE)
        done = run_downloader(*argv, "--failures", tmp_path / "f", "--backoff", "1ms")
        assert all(request.header("X-Key") == "k" for request in server.requests)
    assert complete_report(done)["failed_by_error"] == {"http-404": 1, "checksum-mismatch": 1}
    assert set(stored(tmp_path / "d")) == set(entries) - {"fails", "alone"}
    assert set(stored(tmp_path / "d").values()) == {body_of("/good")}
    assert {name: code for name, (code, _) in failures_of(tmp_path / "f").items()} == {
        "fails": "checksum-mismatch",
        "alone": "http-404",
    }


def test_mirror_that_recovers_is_tried_again(run_downloader: Run, tmp_path: Path) -> None:
    routes = {"/a": Nth([RESET], ok(b"A")), "/b": Nth([RESET], [RESET], ok(b"B"))}
    with Server(routes) as server:
        (tmp_path / "l").write_text(f"{server.url}/a\t{server.url}/b\n out=x\n")
        argv = (tmp_path / "l", "--list-format", "aria2", "-o", tmp_path / "d", *ONE[:2], "--json")
        done = run_downloader(*argv, "--retries", 1, "--backoff", "1ms", "--progress", "none")
        assert [request.target for request in server.requests] == ["/a", "/b", "/a"]
    assert complete_report(done)["retries"] == 2
    assert stored(tmp_path / "d") == {"x": b"A"}


def test_mirror_that_is_gone_is_not_tried_again(run_downloader: Run, tmp_path: Path) -> None:
    with Server({"/gone": status(404), "/b": Nth([RESET], [RESET], ok(b"B"))}) as server:
        (tmp_path / "l").write_text(f"{server.url}/gone\t{server.url}/b\n out=x\n")
        argv = (tmp_path / "l", "--list-format", "aria2", "-o", tmp_path / "d", *ONE[:2], *ONE[4:])
        done = run_downloader(*argv, "--retries", 2, "--backoff", "1ms")
        assert [request.target for request in server.requests] == ["/gone", "/b", "/b", "/b"]
    assert complete_report(done)["stored"] == 1


def test_url_that_a_row_has_several_times_is_one(run_downloader: Run, tmp_path: Path) -> None:
    with Server({"/gone": status(404), "/b": status(500)}) as server:
        a, b = f"{server.url}/gone", f"{server.url}/b"
        (tmp_path / "l").write_text(f"{a}\t{a}\t {a}\n out=x\n{b}\t{b}\n out=y\n")
        argv = (tmp_path / "l", "--list-format", "aria2", "-o", tmp_path / "d", *ONE)
        done = run_downloader(*argv, "--retries", 0)
        assert sorted(request.target for request in server.requests) == ["/b", "/gone"]
    assert complete_report(done)["failed"] == 2


def test_failure_of_a_row_whose_urls_are_all_wrong_names_them(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "l").write_text("junk\tftp://u:secret@h/x\n out=x\n")
    argv = (tmp_path / "l", "--list-format", "aria2", "-o", tmp_path / "d", "--failures", tmp_path / "f")
    run_downloader(*argv)
    why = "line 1 has no http(s) URL among its 2: junk, ftp://***@h/x"
    assert failures_of(tmp_path / "f") == {"line 1": ("bad-url", why)}


def test_mirrors_of_a_dead_host(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        entries = [f"http://127.0.0.1:9/{n}\t{server.url}/{n}\n" for n in range(200)]
        (tmp_path / "l").write_text("".join(entries))
        argv = (tmp_path / "l", "--list-format", "aria2", "-o", tmp_path / "d", *ONE[:2], "--json")
        done = run_downloader(*argv, "--retries", 1, "--backoff", "1ms", "--connections", 4, *ONE[4:6])
    assert (complete_report(done)["stored"], done.returncode) == (200, 0)
    assert stored(tmp_path / "d") == {str(n): body_of(f"/{n}") for n in range(200)}


def test_mirror_whose_robots_txt_refuses(run_downloader: Run, tmp_path: Path) -> None:
    routes = {"/robots.txt": ok(b"User-agent: *\nDisallow: /private/\n")}
    with Server(routes, default=answer) as server, Server(routes, default=answer) as other:
        entries = [
            f"{server.url}/private/1\t{other.url}/1\n",
            f"{server.url}/gone\t{other.url}/private/2\n out=2\n",
        ]
        (tmp_path / "l").write_text("".join(entries))
        server.routes["/gone"] = status(404)
        argv = (tmp_path / "l", "--list-format", "aria2", "-o", tmp_path / "d", *ONE, "--robots")
        done = run_downloader(*argv)
        assert not server.seen("/private/1") + other.seen("/private/2")
    assert complete_report(done)["failed_by_error"] == {"robots": 1}
    assert stored(tmp_path / "d") == {"1": body_of("/1")}
