"""The indexes of a dataset have what the job has published, whatever becomes of the stats beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness import slow_but
from servers import Server, ok

from downloader.files.directory import open_home
from downloader.sinks.shards.indexes import Compared, DamagedNote
from downloader.sinks.shards.records import read_record, write_record

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=lambda request: ok(request.target.encode())) as running:
        yield running


def begun(server: Server, run_downloader: Run, tmp_path: Path) -> tuple[Any, ...]:
    """Run the first three shards of a job of four; return its arguments."""
    source = tmp_path / "list.txt"
    source.write_text("".join(f"{server.url}/f/{number}.txt\n" for number in range(20)))
    argv = (source, "-o", tmp_path / "d", "--store", "tar", "--shard-files", 5, "--json")
    assert run_downloader(*argv, "--limit", 15).returncode == 0
    return argv


def listed(dest: Path) -> dict[str, int]:
    """Return the samples of each shard, which both indexes have alike."""
    index = json.loads((dest / "shards.json").read_bytes())["shardlist"]
    sizes: dict[str, int] = json.loads((dest / "sizes.json").read_bytes())
    assert sizes == {shard["url"]: shard["nsamples"] for shard in index}
    assert all((dest / shard["url"]).stat().st_size == shard["filesize"] for shard in index)
    return sizes


def test_stats_that_change_are_written_again_and_those_of_others_do_not_count(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    argv, dest = begun(server, run_downloader, tmp_path), tmp_path / "d"
    mine = {name: (dest / name).read_bytes() for name in ("00000_stats.json", "00001_stats.json")}
    (dest / "00000_stats.json").write_bytes(
        mine["00000_stats.json"].replace(b'"samples": 5', b'"samples": 7')
    )
    (dest / "00001_stats.json").write_bytes(b"\0garbage")
    (dest / "00002_stats.json").unlink()
    (dest / "00099_stats.json").write_bytes(mine["00000_stats.json"].replace(b"00000", b"00099"))
    shutil.copy(dest / "00000.tar", dest / "00099.tar")
    kept = run_downloader(*argv, "--existing", "keep")
    assert (kept.returncode, "has 00000_stats.json, which is not of this job" in kept.stderr) == (4, True)
    done = run_downloader(*argv)
    assert (done.returncode, json.loads(done.stdout)["replaced"]) == (0, 2), done.stderr
    assert listed(dest) == {f"0000{number}.tar": 5 for number in range(4)}
    assert {name: (dest / name).read_bytes() for name in mine} == mine
    found = run_downloader("verify", dest)
    assert (found.returncode, found.stdout) == (0, "20 of 20 files agree with the journal\n")
    # At the end of a job, too, once somebody has found it.
    (dest / "00001_stats.json").write_bytes(b"")
    assert run_downloader("verify", dest).returncode == 1
    assert run_downloader(*argv).returncode == 0
    assert (dest / "00001_stats.json").read_bytes() == mine["00001_stats.json"]


@pytest.mark.parametrize("record", slow_but([("lost",)], ["old", "lost"]))
def test_a_run_says_that_it_cannot_write_them_again(
    record: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    """The record is of an earlier version, without the stats; or a power cut has taken it."""
    argv, dest = begun(server, run_downloader, tmp_path), tmp_path / "d"
    with open_home(dest / ".downloader") as home:
        known = read_record(home, 1)
        assert known is not None
        write_record(home, 1, msgspec.structs.replace(known, stats=b""))
    if record == "lost":
        (dest / ".downloader" / "published" / "00001").unlink()
    (dest / "00001_stats.json").write_bytes(b"garbage")
    for _ in range(2):
        done = run_downloader(*argv)
        assert done.returncode == 4, done.stderr
        assert "00001_stats.json is not what was published, and cannot be written again" in done.stderr
    for path in dest.glob("00001*"):
        path.unlink()
    assert run_downloader("verify", dest).returncode == 1
    assert run_downloader(*argv).returncode == 0
    # Nothing says any more which files a shard has whose record is lost: its items come into another.
    numbers = (0, 1, 2, 3) if record == "old" else (0, 2, 3, 4)
    assert listed(dest) == {f"0000{number}.tar": 5 for number in numbers}
    assert run_downloader("verify", dest).returncode == 0


@pytest.mark.parametrize("content", [b"", b"{", b'{"lost": "1"}', b"\xff"])
def test_damaged_note_of_what_verify_has_found_is_not_taken_for_none(
    tmp_path: Path, content: bytes
) -> None:
    """Else the indexes would have shards that are lost."""
    with open_home(tmp_path / ".downloader", create=True) as home:
        assert Compared.read(home) == Compared()
        (home / "compared").write(content)
        with pytest.raises(DamagedNote, match="compared is damaged"):
            Compared.read(home)
        Compared([1]).note(home)
        assert Compared.read(home) == Compared([1])
