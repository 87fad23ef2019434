"""What else is in the destination of shards, and what is written there at the end of a run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import report_of, stored
from servers import Server, ok, status

from downloader.sinks.shards.stats import IS_OURS

Run = Callable[..., "subprocess.CompletedProcess[str]"]
QUICK = ("--store", "tar", "--shard-files", 2, "--workers", 1, "--progress", "none", "--json")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server({"/2": status(404)}, default=lambda request: ok(request.target.encode())) as made:
        yield made


def write_list(server: Server, path: Path, count: int) -> Path:
    path.write_text("url\n" + "".join(f"{server.url}/{number}\n" for number in range(count)))
    return path


def test_shards_of_another_job_are_never_replaced(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "d"
    argv = (write_list(server, tmp_path / "l.csv", 2), "-o", dest, *QUICK)
    dest.mkdir()
    (dest / "00000.parquet").write_text("of somebody else")
    for _ in range(2):
        done = run_downloader(*argv)
        assert done.returncode == 2
        assert f"{dest} has 00000.parquet, which would be replaced" in done.stderr
        assert stored(dest) == {"00000.parquet": b"of somebody else"}
    (dest / "00000.parquet").unlink()
    (dest / "10000.jpg").write_text("no shard")
    assert report_of(run_downloader(*argv))["stored"] == 2
    before = stored(dest)
    refused = run_downloader(*argv, "--restart")
    assert refused.returncode == 2
    assert stored(dest) == before
    assert report_of(run_downloader(*argv))["requests"] == 0, "the journal is kept"
    # Without its shards the job can be forgotten, with all that is known of them.
    for path in dest.glob("[0s]*"):
        path.unlink()
    home = dest / ".downloader"
    (home / "stats").mkdir()
    for name in ("stats/00007_stats.json", "shards.json", "sizes.json", "publishing-00000.tar"):
        (home / name).write_text("of a bucket")
    assert report_of(run_downloader(*argv, "--restart"))["stored"] == 2
    assert not {"stats", "shards.json", "sizes.json", "publishing-00000.tar"} & {
        path.name for path in home.iterdir()
    }


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("00000.tar", True),
        ("00017-1.tar.zst", True),
        ("123456.tar.gz", True),
        ("00003_items.parquet", True),
        ("00003.jsonl", True),
        ("00003_stats.json", True),
        ("sizes.json", True),
        ("0000.tar", False),
        ("00000.jpg", False),
        ("00000.tar.bz2", False),
        (".downloader", False),
        ("a00000.tar", False),
        ("00000_stats.json.bak", False),
    ],
)
def test_names_of_a_dataset(name: str, is_one: bool) -> None:
    assert bool(IS_OURS(name)) is is_one


def test_indexes_are_written_when_they_lack_a_shard(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    dest, index = tmp_path / "d", tmp_path / "d/shards.json"
    files = ("--report", tmp_path / "r", "--failures", tmp_path / "f")
    argv = (write_list(server, tmp_path / "l.csv", 6), "-o", dest, *QUICK, *files)
    assert run_downloader(*argv, "--limit", 2).returncode == 0
    first = index.stat().st_ino
    assert run_downloader(*argv, "--limit", 2).returncode == 0
    assert index.stat().st_ino == first, "nothing was published since"
    index.unlink()
    index.mkdir()
    done = run_downloader(*argv)
    report = report_of(done)
    assert (done.returncode, report["exit_code"], report["failed"]) == (4, 4, 1)
    assert "cannot write the indexes of" in report["stopped_by"]
    assert json.loads((tmp_path / "r").read_text()) == report
    assert json.loads((tmp_path / "f").read_text())["code"] == "http-404"
    index.rmdir()
    assert run_downloader(*argv).returncode == 1
    listed = json.loads(index.read_text())["shardlist"]
    assert [shard["url"] for shard in listed] == ["00000.tar", "00001.tar", "00002.tar"]
