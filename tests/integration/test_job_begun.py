"""What a job began with, what a killed one has left in DEST, and who died at its end."""

from __future__ import annotations

import contextlib
import csv
import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import msgspec
import psutil
import pytest
from harness import Job
from servers import Request, Server, Step, Until, ok

from downloader.files.directory import open_home
from downloader.sinks.shards.options import parse_members
from downloader.storage.journal import Journal

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_kept_columns_of_a_manifest_stay_the_same(run_downloader: Run, tmp_path: Path) -> None:
    """Else rows of before had no value where the list has one. Without records they do not matter."""
    source, manifest = tmp_path / "l.csv", tmp_path / "m.csv"
    with Server(files={}, default=ok(b"x")) as server:
        rows = "".join(f"{server.url}/{n},{n},d{n}\n" for n in range(8))
        source.write_text("url,c,d\n" + rows)
        argv = (source, "-o", tmp_path / "d", "--manifest", manifest)
        assert run_downloader(*argv, "--keep-columns", "c", "--limit", 4).returncode == 0
        before = manifest.read_bytes()
        for other in ("d", "c,d"):
            done = run_downloader(*argv, "--keep-columns", other)
            assert (done.returncode, manifest.read_bytes()) == (2, before), done
            assert "was begun with --keep-columns c; give the same, or --restart" in done.stderr
            done = run_downloader(*argv[:3], "--keep-columns", other)
            assert (done.returncode, "was begun with --keep-columns c" in done.stderr) == (2, True), done
        # What a run without a manifest lists has its values all the same: they are read again.
        assert run_downloader(*argv[:3], "--limit", 6).returncode == 0
        assert run_downloader(*argv, "--keep-columns", "c").returncode == 0
        with manifest.open(newline="") as file:
            assert [row["c"] for row in csv.DictReader(file)] == [str(n) for n in range(8)]
        plain = (source, "-o", tmp_path / "plain", "--keep-columns")
        assert run_downloader(*plain, "c", "--limit", 4).returncode == 0
        assert run_downloader(*plain, "d").returncode == 0


@pytest.mark.parametrize("began", ["fail", "skip", "number"])
def test_what_is_done_with_duplicates_stays_the_same(
    began: str, run_downloader: Run, tmp_path: Path
) -> None:
    """In the middle of a job and at its end, unless the list is read again, or nobody knows what it was."""
    dest, source = tmp_path / "d", tmp_path / "l.csv"
    with Server(default=lambda request: ok(request.target.encode())) as server:
        rows = [f"{server.url}/{n},n{n % 3}.x" for n in range(5)]
        source.write_text("\n".join(["url,name", *rows]) + "\n")
        argv = (source, "-o", dest, "--json")
        given = (*argv, "--on-duplicate", began)
        assert run_downloader(*given, "--limit", 4).returncode == (1 if began == "fail" else 0)
        others = [each for each in ("fail", "skip", "number") if each != began]
        for _ in range(2):
            for other in others:
                done = run_downloader(*argv, "--on-duplicate", other)
                assert (done.returncode, f"was begun with --on-duplicate {began};" in done.stderr) == (
                    2,
                    True,
                )
                assert "--relist" in done.stderr
            run_downloader(*given)
        for other in [*others, began, "skip", "number"]:
            report = json.loads(run_downloader(*argv, "--on-duplicate", other, "--relist").stdout)
            assert (report["listed"], report["failed"]) == (5, 2 if other == "fail" else 0)
            again = json.loads(run_downloader(*argv, "--on-duplicate", other).stdout)
            assert (again["listed"], again["failed"]) == (5, report["failed"])
        assert (dest / "n1-2.x").read_bytes() == b"/4"


def test_duplicates_of_a_job_of_the_version_before(run_downloader: Run, tmp_path: Path) -> None:
    """It goes on with what is given, which stays from then on."""
    dest, source = tmp_path / "d", tmp_path / "l.txt"
    with Server(default=ok(b"x")) as server:
        source.write_text("".join(f"{server.url}/{n}/a\n" for n in range(4)))
        argv = (source, "-o", dest, "--on-duplicate")
        assert run_downloader(*argv, "number", "--limit", 2).returncode == 0
        with open_home(dest / ".downloader") as home, contextlib.closing(Journal(home)) as begun:
            job = begun.job()
            assert job is not None
            begun.begin(msgspec.structs.replace(job, duplicates=""))
        assert run_downloader(*argv, "number").returncode == 0
        assert {path.name for path in dest.iterdir()} >= {"a", "a-2", "a-3", "a-4"}
        assert run_downloader(*argv, "skip").returncode == 2


@pytest.mark.parametrize("name", ["__key__", "__url__", "__bad__", "__KEY__"])
def test_members_that_readers_keep_to_themselves(name: str, run_downloader: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="readers of WebDataset keep names between"):
        parse_members(f"{name}=caption")
    assert parse_members("_key=caption,key_=caption") == {"_key": "caption", "key_": "caption"}
    source = tmp_path / "l.csv"
    source.write_text("url,caption\nhttp://127.0.0.1:9/a,c\n")
    done = run_downloader(source, "-o", tmp_path / "d", "--store", "tar", "--member", f"{name}=caption")
    assert (done.returncode, (tmp_path / "d").exists()) == (2, False), done


@pytest.mark.parametrize("options", ["--unsafe-extensions", "--digests crc32", "--reproducible"])
def test_options_of_shards_that_differ_are_named(options: str, run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=ok(b"x")) as server:
        (tmp_path / "l.txt").write_text("".join(f"{server.url}/{n}.jpg\n" for n in range(4)))
        argv = (tmp_path / "l.txt", "-o", tmp_path / "d", "--store", "tar", "--shard-files", 2)
        assert run_downloader(*argv, "--limit", 2).returncode == 0
        done = run_downloader(*argv, *options.split())
        assert (done.returncode, options in done.stderr) == (2, True), done


def test_what_a_probe_of_names_has_left_is_removed(run_downloader: Run, tmp_path: Path) -> None:
    """By any further run; not if somebody has put something there."""
    dest = tmp_path / "d"
    probe = dest / ".downloader-names"
    with Server(files={"a": ok(b"A")}) as server:
        argv = (server.url, "-o", dest, "--layout", "mirror")
        assert run_downloader(*argv).returncode == 0
        assert not probe.exists()
        for left in ("", "name", "NAME", "host", "host:80"):
            (probe / left).mkdir(parents=True)
            assert run_downloader(*argv).returncode == 0
            assert not probe.exists()
        probe.mkdir()
        (probe / "mine").write_text("mine")
        assert run_downloader(*argv, "--relist").returncode == 0
        assert [path.name for path in dest.iterdir() if path.name.startswith(".downloader-")] == [
            probe.name
        ]
        assert (probe / "mine").read_text() == "mine"


def test_worker_that_dies_while_a_run_ends_has_died(start: Callable[..., Job], tmp_path: Path) -> None:
    over = Event()

    def answers(request: Request) -> Sequence[Step]:
        return [Until(over), *ok(b"b")] if request.target == "/get/b" else ok(b"a")

    with Server(files={"a": answers, "b": answers}) as server:
        job = start(server.url, "-o", tmp_path / "d", "--workers", 1, "--json")
        job.until(lambda: any(each.target == "/get/b" for each in list(server.requests)))
        children = psutil.Process(job.process.pid).children()
        job.kill(signal.SIGINT)
        job.until(lambda: "SIGINT" in job.err)
        for child in children:  # the feeder may have ended
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        assert job.wait() == 130, job.err
        over.set()
    assert json.loads(job.out)["worker_deaths"] == 1
