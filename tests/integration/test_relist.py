"""--relist: a source that was read to its end is read again; stored files need no request."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import sqlite3
import struct
import subprocess
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from checker import agree
from harness import DevServer, Job, report_with, serving
from servers import Request, Server, Step, Until, listing, ok, status

from downloader.files.directory import open_home
from downloader.storage.journal import Journal
from downloader.storage.schema import DIGEST, DigestRow

ONE = ("--workers", 1, "--json")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_complete_job_reports_that_nothing_was_requested(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files={"a": ok(b"a")}) as server:
        first = run_downloader(server.url, "-o", dest)
        assert "complete since" not in first.stdout
        asked = len(server.requests)
        done = run_downloader(server.url, "-o", dest)
        assert done.returncode == 0
        assert "complete since 20" in done.stdout
        assert "--relist lists again" in done.stdout
        assert len(server.requests) == asked
        assert report_with(run_downloader(server.url, "-o", dest, *ONE))["complete_since"].startswith("20")


def test_a_list_that_grew_is_complete_since_then(run_downloader: Run, tmp_path: Path) -> None:
    dest, urls = tmp_path / "d", tmp_path / "urls.txt"

    def since() -> str:
        report = report_with(run_downloader(urls, "-o", dest, *ONE))
        assert report["requests"] == 0
        return str(report["complete_since"])

    with Server(files={"a": ok(b"a"), "b": ok(b"b")}) as server:
        urls.write_text(f"{server.url}/get/a\n")
        report_with(run_downloader(urls, "-o", dest, *ONE))
        first = since()
        while datetime.now(timezone.utc).isoformat(timespec="seconds") <= first:
            pass  # the time is shown in seconds
        assert since() == first
        urls.write_text(f"{server.url}/get/a\n{server.url}/get/b\n")
        report_with(run_downloader(urls, "-o", dest, *ONE))
        assert since() > first


@pytest.mark.parametrize("is_former", [False, True])
def test_first_digit_of_a_checksum_counts(is_former: bool, run_downloader: Run, tmp_path: Path) -> None:
    """Of a job of an earlier version, which has kept the last digits, the same list asks for nothing."""
    dest, source = tmp_path / "d", tmp_path / "l.csv"
    right = hashlib.sha256(b"a").hexdigest()
    wrong = f"{int(right[0], 16) ^ 1:x}{right[1:]}"
    with Server(files={"a": ok(b"a")}) as server:
        source.write_text(f"url,sha256\n{server.url}/get/a,{right}\n")
        argv = (source, "-o", dest, *ONE)
        report_with(run_downloader(*argv))
        if is_former:
            keep_last_digits(dest, f"sha256:{right}")
        assert report_with(run_downloader(*argv, "--relist"))["requests"] == 0
        source.write_text(f"url,sha256\n{server.url}/get/a,{wrong}\n")
        report = json.loads(run_downloader(*argv, "--relist").stdout)
        assert report["failed_by_error"] == {"checksum-mismatch": 1}


def keep_last_digits(dest: Path, checksum: str) -> None:
    """Make the journal of one item as an earlier version has left it."""
    with open_home(dest / ".downloader") as home, contextlib.closing(Journal(home)) as journal:
        (batch,) = journal.batches()
        digests = journal.digests(batch)
        assert digests is not None
        packed = struct.pack("=2I", digests[0].url, zlib.crc32(checksum[-60:].encode()))
        journal._rows.put(DIGEST, DigestRow(batch.seq, zlib.crc32(batch.names), packed))


def test_new_and_deleted_files_are_fetched(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files={name: ok(name.encode()) for name in "abcd"}) as server:
        report_with(run_downloader(server.url, "-o", dest, *ONE))
        (dest / "b").unlink()
        (dest / "c").write_bytes(b"changed by me")
        server.routes["/get/0"] = ok(b"new")
        server.routes["/list"] = listing(["0", *"abcd"])
        before = len(server.requests)
        report = report_with(run_downloader(server.url, "-o", dest, *ONE, "--relist"))
        assert (report["listed"], report["stored"], report["skipped"]) == (5, 3, 2)
        asked = {request.target for request in server.requests[before:]}
        assert asked == {"/list", "/get/0", "/get/b", "/get/c"}
        assert (dest / "c").read_bytes() == b"c"
        agree(dest, 0, report)
        # And the job becomes complete again.
        assert report_with(run_downloader(server.url, "-o", dest, *ONE))["requests"] == 0
        assert not list((dest / ".downloader").glob("known*"))


def test_limited_job_is_read_again_each_time(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files={name: ok(name.encode()) for name in "abcd"}) as server:
        report_with(run_downloader(server.url, "-o", dest, *ONE, "--limit", 3))
        for name in "ab":
            (dest / name).unlink()
            again = report_with(run_downloader(server.url, "-o", dest, *ONE, "--limit", 3, "--relist"))
            assert (again["stored"], again["skipped"]) == (1, 2)
            assert (dest / name).read_text() == name


def test_a_list_that_was_corrected(run_downloader: Run, tmp_path: Path) -> None:
    dest, urls = tmp_path / "d", tmp_path / "urls.txt"
    with Server(files={"a": ok(b"a"), "b": ok(b"b")}) as server:
        urls.write_text(f"{server.url}/get/a\nhtp://wrong/b\n")
        report = report_with(run_downloader(urls, "-o", dest, *ONE), 1)
        assert report["failed_by_error"] == {"bad-url": 1}
        urls.write_text(f"{server.url}/get/a\n{server.url}/get/b\n")
        report = report_with(run_downloader(urls, "-o", dest, *ONE, "--relist"))
        assert (report["stored"], report["skipped"], report["failed"]) == (1, 1, 0)
        assert server.count("/get/a") == 1
        agree(dest, 0, report)


def test_second_item_of_a_known_name_fails_as_taken(run_downloader: Run, tmp_path: Path) -> None:
    dest, urls = tmp_path / "d", tmp_path / "urls.txt"
    with Server(routes={"/x/a": ok(b"first"), "/y/a": ok(b"second")}) as server:
        urls.write_text(f"{server.url}/x/a\n")
        report_with(run_downloader(urls, "-o", dest, *ONE))
        urls.write_text(f"{server.url}/x/a\n{server.url}/y/a\n")
        report = report_with(run_downloader(urls, "-o", dest, *ONE, "--relist"), 1)
        assert (report["skipped"], report["failed_by_error"]) == (1, {"name-taken": 1})
        assert (dest / "a").read_bytes() == b"first"


def body_of(target: str) -> bytes:
    return b"shared" if target.startswith("/shared") else f"body of {target.partition('?')[0]}".encode()


def sha256_of(target: str) -> str:
    return hashlib.sha256(body_of(target)).hexdigest()


class Edited:
    """A list with columns, which is edited between two runs."""

    SIGNED = "/signed?part=2&X-Amz-Date={0}&X-Amz-Expires=6{0}&X-Amz-Signature={0}"
    FIRST = (
        ("same", "/same", "", sha256_of("/same")),
        ("signed", SIGNED.format(1), "", ""),
        ("url", "/url/1", "", ""),
        ("right", "/right", "", ""),
        ("wrong", "/wrong", "", ""),
        ("other", "/other", "", sha256_of("/other")),
        ("size", "/size", "", ""),
        ("small", "/small", "", ""),
        ("shared", "/shared/1", "", ""),
        ("shared", "/shared/2", "", ""),
        ("taken", "/taken/1", "", ""),
        ("taken", "/taken/2", "", ""),
        ("moved", "/A/moved", "", ""),
        ("moved-2", "/B/moved", "", ""),
    )
    SECOND = (
        ("moved", "/C/moved", "", ""),
        ("moved-2", "/A/moved", "", ""),
        ("moved-3", "/B/moved", "", ""),
        ("same", "/same", "", sha256_of("/same")),
        ("signed", SIGNED.format(2), "", ""),
        ("url", "/url/2", "", ""),
        ("right", "/right", str(len(body_of("/right"))), sha256_of("/right")),
        ("wrong", "/wrong", "", "0" * 64),
        ("other", "/other", "", "1" * 64),
        ("size", "/size", str(len(body_of("/size"))), ""),
        ("small", "/small", "1", ""),
        ("shared", "/shared/1", "", ""),
        ("shared", "/shared/2", "", ""),
        ("taken", "/taken/1", "", ""),
        ("taken", "/taken/2", "", ""),
    )

    def __init__(self, path: Path, server: Server) -> None:
        self.path = path
        self.server = server

    def write(self, rows: Sequence[tuple[str, str, str, str]]) -> None:
        lines = [f"{name},{self.server.url}{target},{size},{sha}" for name, target, size, sha in rows]
        self.path.write_text("\n".join(["name,url,size,sha256", *lines, ""]))


def every_target(request: Request) -> Sequence[Step]:
    return ok(body_of(request.target))


def test_what_is_known_belongs_to_a_row_not_to_a_name(run_downloader: Run, tmp_path: Path) -> None:
    """An edited list kept old bytes under new URLs, and with checksums that are not theirs: exit 0."""
    dest, manifest = tmp_path / "d", tmp_path / "m.jsonl"
    targets = {row[1] for row in (*Edited.FIRST, *Edited.SECOND)}
    with Server(routes=dict.fromkeys(targets, every_target)) as server:
        rows = Edited(tmp_path / "l.csv", server)
        argv = (rows.path, "-o", dest, *ONE, "--retries", 0, "--manifest", manifest)
        rows.write(Edited.FIRST)
        assert report_with(run_downloader(*argv), 1)["failed_by_error"] == {"name-taken": 1}
        taken = (dest / "taken").read_bytes()
        rows.write(Edited.SECOND)
        expected = {"checksum-mismatch": 2, "size-mismatch": 1, "name-taken": 1}
        for again in range(2):
            before = len(server.requests)
            report = report_with(run_downloader(*argv, "--relist"), 1)
            asked = {request.target for request in server.requests[before:]}
            assert report["failed_by_error"] == expected
            assert report["replaced"] == 0, "of its own"
            assert asked.isdisjoint({"/same", "/size", Edited.SIGNED.format(2), "/shared/1", "/shared/2"})
            assert ("/url/2" in asked) is not again, "what the second run has stored, the third has"
            assert (dest / "taken").read_bytes() == taken
            found = [json.loads(line) for line in manifest.read_text().splitlines()]
            for row in found:
                target = row["url"].removeprefix(server.url)
                assert (dest / row["name"]).read_bytes() == body_of(target), row
                assert row["status"] == 200, "with its record"
            assert {(row["name"], row["url"].removeprefix(server.url)) for row in found} >= {
                *(("moved", "/C/moved"), ("moved-2", "/A/moved"), ("moved-3", "/B/moved")),
                *(("shared", "/shared/1"), ("shared", "/shared/2"), ("url", "/url/2")),
            }


def test_edited_list_resumes_after_a_kill(
    start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    """Killed before it had listed anything again, a job took its own files for those of somebody else."""
    dest, asked, opened = tmp_path / "d", Event(), Event()

    def held(request: Request) -> Sequence[Step]:
        asked.set()
        return [Until(opened), *every_target(request)]

    targets = [f"/{part}/{number}" for part in "ab" for number in range(40)]
    with Server(routes=dict.fromkeys(targets, every_target)) as server:
        rows = Edited(tmp_path / "l.csv", server)
        argv = (rows.path, "-o", dest, *ONE, "--existing", "keep")
        rows.write([(str(number), f"/a/{number}", "", "") for number in range(40)])
        report_with(run_downloader(*argv))
        rows.write([(str(number), f"/{'ab'[number % 2]}/{number}", "", "") for number in range(40)])
        server.routes["/b/1"] = held
        job = start(*argv, "--relist")
        assert asked.wait(60)
        job.kill(signal.SIGKILL)
        job.wait()
        job.alone()
        opened.set()
        # As if it had been killed a moment earlier.
        with open_home(dest / ".downloader") as home, contextlib.closing(Journal(home)) as begun:
            begun.begin_anew()
        # With what it was replacing at that moment, which is known by the ledger only.
        for left in [*(dest / ".downloader").glob("ledger-*"), *dest.glob(".downloader-*")]:
            left.unlink()
        report = report_with(run_downloader(*argv, "--relist"))
        assert (report["stored"] + report["skipped"], report["failed"]) == (40, 0)
        assert not any(request.target == "/a/0" for request in server.requests[40:])
    for number in range(40):
        assert (dest / str(number)).read_bytes() == body_of(f"/{'ab'[number % 2]}/{number}")
    agree(dest, 0, report)


ALONE = (*ONE, "--pipeline", "off", "--retries", 0)


@pytest.mark.parametrize("existing", ["replace", "keep", "fail"])
def test_each_changed_row_is_fetched_once(existing: str, run_downloader: Run, tmp_path: Path) -> None:
    """Each was fetched, thrown away as name-taken, told as failed, and fetched again at the end.

    --existing decides about a file that was edited, and about no other.
    """
    dest, failures = tmp_path / "d", tmp_path / "f.jsonl"
    with Server() as server:
        rows = Edited(tmp_path / "l.csv", server)
        argv = (rows.path, "-o", dest, *ALONE, "-v", "--existing", existing, "--failures", failures)
        replaced = []

        def run(rows_of: Sequence[tuple[str, str, str, str]], *more: object, code: int = 0) -> list[str]:
            rows.write(rows_of)
            server.routes.update(dict.fromkeys((row[1] for row in rows_of), every_target))
            before = len(server.requests)
            done = run_downloader(*argv, *more)
            report = report_with(done, code)
            told = [line for line in done.stderr.splitlines() if "failed: " in line]
            assert len(told) == report["failed"] == len(failures.read_text().splitlines())
            replaced.append(report["replaced"])
            return sorted(request.target for request in server.requests[before:])

        same = [(f"same{number}", f"/same/{number}", "", "") for number in range(70)]
        shared = [("shared", "/shared/1", "", ""), ("shared", "/shared/2", "", "")]
        dup = ("dup", "/dup/old", "", "")
        old = [(f"new{number}", f"/old/{number}", "", "") for number in range(70)]
        run([*old, *same, *shared, dup, ("sum", "/sum", "", ""), ("local", "/local", "", "")])
        (dest / "local").write_text("edited here")
        (dest / "same1").unlink()
        # The file of "dup" stays that of the row which had stored it, wherever that is by now.
        new = [(f"new{number}", f"/new/{number}", "", "") for number in range(70)]
        late = [("sum", "/sum2", "", ""), ("local", "/local", "", ""), ("shared", "/shared/3", "", "")]
        edited = [("dup", "/dup/new", "", ""), *new, *same, *late, dup]
        local = ["/local"] if existing == "replace" else []  # what is kept is not requested
        targets = [row[1] for row in new] + ["/dup/new", "/sum2", *local, "/same/1", "/shared/3"]
        assert run(edited, "--relist", code=1) == sorted(targets)
        codes = [json.loads(line)["code"] for line in failures.read_text().splitlines()]
        assert sorted(codes) == [*(["file-exists"] if existing == "fail" else []), "name-taken"]
        for name, target, _, _ in (*new, *same, *late, dup):
            is_kept = name == "local" and existing != "replace"
            assert (dest / name).read_bytes() == (b"edited here" if is_kept else body_of(target)), name
        assert run_downloader("verify", dest).returncode == 0
        # What failed for a file of the user's is not known of any more: whose it is is found at the end.
        again = ["/dup/new", *(["/local"] if existing == "fail" else [])]
        assert run(edited, "--relist", code=1) == again
        assert replaced == [0, int(existing == "replace"), 0]


def test_changed_row_of_standard_input(run_downloader: Run, tmp_path: Path) -> None:
    """It cannot be read ahead: the owner of the name is known at its end, and the next run replaces it."""
    dest = tmp_path / "d"
    with Server(routes={"/old/a": ok(b"old"), "/new/a": ok(b"new")}) as server:
        argv = ("-", "-o", dest, *ALONE, "--existing", "keep")
        report_with(run_downloader(*argv, input=f"{server.url}/old/a\n"))
        text = f"{server.url}/new/a\n"
        done = run_downloader(*argv, "--relist", input=text)
        assert report_with(done, 1)["failed_by_error"] == {"name-taken": 1}
        assert "the same command fetches them" in done.stderr
        report = report_with(run_downloader(*argv, input=text))
        assert (report["stored"], report["replaced"], (dest / "a").read_bytes()) == (1, 0, b"new")


def test_interrupted_relist_of_changed_rows(
    start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    """It said that all rows which were not replaced yet had failed as name-taken, and status: complete."""
    dest, failures = tmp_path / "d", tmp_path / "f.jsonl"
    asked, opened = Event(), Event()

    def held(request: Request) -> Sequence[Step]:
        asked.set()
        return [Until(opened), *every_target(request)]

    with Server() as server:
        rows = Edited(tmp_path / "l.csv", server)
        argv = (rows.path, "-o", dest, *ALONE, "-v", "--connections", 1, "--failures", failures)
        for part in "ab":
            for number in range(60):
                server.routes[f"/{part}/{number}"] = every_target
        rows.write([(str(number), f"/a/{number}", "", "") for number in range(60)])
        report_with(run_downloader(*argv))
        rows.write([(str(number), f"/b/{number}", "", "") for number in range(60)])
        server.routes["/b/20"] = held
        job = start(*argv, "--relist")
        assert asked.wait(60)
        job.kill(signal.SIGINT)
        job.until(lambda: "finishing what is in flight" in job.err)
        opened.set()
        assert job.wait() == 130
        report = json.loads(job.out)
        stored = report["stored"]
        assert 20 <= stored < 60
        assert (report["complete"], report["failed"], report["failed_by_error"]) == (False, 0, {})
        assert failures.read_text() == ""
        assert "name-taken" not in job.err
        found = json.loads(run_downloader("status", dest, "--json").stdout)
        assert (found["complete"], found["failed"], found["stored"]) == (False, 0, stored)
        assert found["pending"] == found["listed"] - stored > 0
        verified = run_downloader("verify", dest)
        assert verified.returncode == 1
        assert f"{found['pending']} files are recorded as damaged or out of date" in verified.stdout
        before = len(server.requests)
        report = report_with(run_downloader(*argv))
        assert (report["stored"], report["skipped"], report["failed"]) == (60 - stored, stored, 0)
        assert len(server.requests) - before == 60 - stored
    for number in range(60):
        assert (dest / str(number)).read_bytes() == body_of(f"/b/{number}")
    agree(dest, 0, report)


def test_job_of_an_earlier_version_is_known_by_names(run_downloader: Run, tmp_path: Path) -> None:
    dest, urls = tmp_path / "d", tmp_path / "urls.txt"
    with Server(files={"a": ok(b"a"), "b": ok(b"b")}, routes={"/other/a": ok(b"c")}) as server:
        urls.write_text(f"{server.url}/get/a\n{server.url}/get/b\n")
        report_with(run_downloader(urls, "-o", dest, *ONE))
        urls.write_text(f"{server.url}/get/a\n{server.url}/get/b\n{server.url}/other/a\n")
        with contextlib.closing(sqlite3.connect(dest / ".downloader/journal.sqlite")) as journal, journal:
            journal.execute("DROP TABLE digest")
        for _ in range(2):  # the second time with the digests of the first
            report = report_with(run_downloader(urls, "-o", dest, *ONE, "--relist"), 1)
            assert (report["skipped"], report["requests"]) == (2, 1)
            assert report["failed_by_error"] == {"name-taken": 1}


@pytest.fixture(scope="module")
def large() -> Any:
    with serving(files=5000, page=100, delay="0-5ms") as server:
        yield server


@pytest.mark.parametrize("asked", [1, 20, 45])
def test_relist_resumes_after_a_kill(
    asked: int, large: DevServer, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "d"
    report_with(run_downloader(large.url, "-o", dest, *ONE))
    before = large.stats()
    for name in ("file-0000000010", "file-0000004990"):
        (dest / name).unlink()
    job = start(large.url, "-o", dest, *ONE, "--relist")
    large.until(lambda counters: counters["lists"] - before["lists"] >= asked)
    job.kill(signal.SIGKILL)
    job.wait()
    job.alone()
    report = report_with(run_downloader(large.url, "-o", dest, *ONE, "--relist"))
    assert report["listed"] == report["stored"] + report["skipped"] == 5000
    assert large.stats()["gets"] - before["gets"] <= 4  # two, and those in flight
    agree(dest, 0, report)
    assert not list((dest / ".downloader").glob("known*"))


def test_server_that_is_down_takes_nothing_back(run_downloader: Run, tmp_path: Path) -> None:
    """The journal was emptied before the first page was there: `status` had nothing stored."""
    dest = tmp_path / "d"
    with Server(files={name: ok(name.encode()) for name in "abc"}) as server:
        report_with(run_downloader(server.url, "-o", dest, *ONE))
        pages = server.routes["/list"]
        server.routes["/list"] = status(500)
        down = run_downloader(server.url, "-o", dest, *ONE, "--relist", "--retries", 0)
        report = report_with(down, 4)
        assert (report["listed"], report["stored"], report["skipped"]) == (3, 0, 3)
        assert run_downloader("status", dest).returncode == 0
        assert run_downloader("verify", dest).stdout.startswith("3 of 3 files agree")
        agree(dest, 0, report_with(run_downloader(server.url, "-o", dest, *ONE)))
        server.routes["/list"] = pages
        before = len(server.requests)
        report = report_with(run_downloader(server.url, "-o", dest, *ONE, "--relist"))
        assert (report["listed"], report["skipped"]) == (3, 3)
        assert {request.target for request in server.requests[before:]} == {"/list"}
        assert not list((dest / ".downloader").glob("known*"))
        # A source that is empty now is one, too.
        server.routes["/list"] = listing([])
        report = report_with(run_downloader(server.url, "-o", dest, *ONE, "--relist"))
        assert report["listed"] == 0
