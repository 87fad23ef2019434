"""``--existing`` for shards: a file of somebody else under the name of one is not replaced in silence."""

from __future__ import annotations

import json
import signal
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from harness import Job
from servers import Answer, Request, Server, Until, ok, status

from downloader.files.directory import open_directory

Run = Callable[..., "subprocess.CompletedProcess[str]"]
MINE = b"the only copy of something"
TAKEN = ["00001.parquet", "00001.tar", "00001_stats.json", "shards.json", "sizes.json"]


def begun(server: Server, run_downloader: Run, tmp_path: Path, *more: object) -> tuple[object, ...]:
    """Run the first half of a job, put files under the names of the second; return its arguments."""
    source = tmp_path / "list.txt"
    source.write_text("".join(f"{server.url}/f/{number}.jpg\n" for number in range(10)))
    argv = (source, "-o", tmp_path / "d", "--store", "tar", "--shard-files", 5, "--json", *more)
    assert run_downloader(*argv, "--limit", 5).returncode == 0
    for name in TAKEN:
        (tmp_path / "d" / name).write_bytes(MINE)
    return argv


def test_replaced_files_are_counted_and_told(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=lambda request: ok(b"x")) as server:
        argv = begun(server, run_downloader, tmp_path)
        done = run_downloader(*argv)
        assert (done.returncode, json.loads(done.stdout)["replaced"]) == (0, len(TAKEN))
        assert run_downloader("verify", tmp_path / "d").returncode == 0
        again = run_downloader(*argv[:-1])
        assert (again.returncode, "replaced files" in again.stdout) == (0, False), again.stdout
        (tmp_path / "other").mkdir()
        told = run_downloader(*begun(server, run_downloader, tmp_path / "other")[:-1])
    assert f"{len(TAKEN)} of the stored replaced files that were there before" in told.stdout


@pytest.mark.parametrize("existing", ["keep", "fail"])
def test_files_are_kept_and_the_run_goes_on_once_they_are_moved(
    existing: str, run_downloader: Run, tmp_path: Path
) -> None:
    with Server(default=lambda request: ok(b"x")) as server:
        argv = begun(server, run_downloader, tmp_path, "--existing", existing)
        # One after the other is in the way.
        for _ in TAKEN:
            done = run_downloader(*argv)
            assert done.returncode == 4, done.stderr
            (named,) = [name for name in TAKEN if f"has {name}, which is not of this job" in done.stderr]
            assert (tmp_path / "d" / named).read_bytes() == MINE
            (tmp_path / "d" / named).rename(tmp_path / f"{named}.moved")
        done = run_downloader(*argv)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["replaced"] == 0
        assert len(server.requests) == 10
    with tarfile.open(tmp_path / "d" / "00001.tar") as shard:
        assert len(shard.getnames()) == 10
    assert run_downloader("verify", tmp_path / "d").returncode == 0


@pytest.mark.parametrize("existing", ["replace", "keep"])
@pytest.mark.parametrize("first", ["interrupted", "without samples"])
def test_indexes_of_the_user_where_the_job_has_written_none_yet(
    first: str, existing: str, run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """A run ends before the first shard is published, or with one of which every item has failed."""
    source, dest, gate = tmp_path / "list.txt", tmp_path / "d", Event()
    waits = first == "interrupted"

    def answer(request: Request) -> Answer:
        number = int(request.target.strip("/"))
        return (
            [Until(gate), *ok(b"x")]
            if waits and number == 4
            else ok(b"x")
            if waits or number > 4
            else status(404)
        )

    with Server(default=answer) as server:
        source.write_text("".join(f"{server.url}/{number}\n" for number in range(10)))
        argv = (source, "-o", dest, "--store", "tar", "--shard-files", 5, "--json", "--existing", existing)
        if waits:
            job = start(*argv)
            job.until(lambda: len(server.requests) >= 5)
            job.kill(signal.SIGINT)
            job.until(lambda: "SIGINT" in job.err)
            job.kill(signal.SIGINT)
            assert job.wait() == 130, job.err
            gate.set()
        else:
            assert run_downloader(*argv, "--limit", 5).returncode == 1
        for name in ("shards.json", "sizes.json"):
            (dest / name).write_bytes(MINE)
        done = run_downloader(*argv)
    if existing == "replace":
        assert (done.returncode, json.loads(done.stdout)["replaced"]) == (int(not waits), 2), done
    else:
        assert (done.returncode, "has shards.json, which is not of this job" in done.stderr) == (4, True)
        assert {(dest / name).read_bytes() for name in ("shards.json", "sizes.json")} == {MINE}


def test_a_name_that_is_taken_at_the_last_moment_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "taken").write_bytes(MINE)
    with open_directory(tmp_path) as directory:
        with pytest.raises(FileExistsError):
            (directory / "new").move_new(directory / "taken")
        (directory / "new").move_new(directory / "free")
    assert (tmp_path / "taken").read_bytes() == MINE
    assert (tmp_path / "free").read_bytes() == b"new"
