"""Shards of slices in a bucket of a real server: names that are given by copies, kills in between, jobs."""

from __future__ import annotations

import io
import json
import multiprocessing
import signal
import tarfile
import textwrap
from pathlib import Path

import pytest
from bucket_server import KEY, SECRET, BucketServer, servers, set_credentials
from checker import Truth
from harness import AFTER_IMPORT, run, serving
from ray_nodes import ray_nodes
from servers import Server, ok
from slice_parts import ShardPlan, run_attempt
from test_ray_engine import done, options, report, wait_for_slices

from downloader.errors import DestinationError

pytest.importorskip("obstore")

# Each request to a bucket starts a process, which takes a second.
slow = pytest.mark.slow

_KEYS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "NO_PROXY": "127.0.0.1"}
# Kills the process that gives objects their final names: $KILL_AT of its copies and removals are done.
_KILLED = """
MODULE = "obstore"

def change(obstore):
    import signal
    left = [int(os.environ["KILL_AT"])]

    def counted(call):
        def counting(*args, **given):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return call(*args, **given)
        return counting

    if "serve_staging" in " ".join(sys.orig_argv):
        obstore.copy, obstore.delete = counted(obstore.copy), counted(obstore.delete)
"""


server = servers()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


def check_bucket(server: BucketServer, prefix: str, files: int, shard_files: int) -> None:
    """Find every file once, in the shard of its place, and nothing else."""
    truth = Truth(files)
    objects = server.objects(prefix)
    shards = -(-files // shard_files)
    due = {
        f"{number:05d}{suffix}"
        for number in range(shards)
        for suffix in (".tar", ".parquet", "_stats.json")
    }
    assert set(objects) == due | {"shards.json", "sizes.json"}
    for number in range(shards):
        with tarfile.open(fileobj=io.BytesIO(objects[f"{number:05d}.tar"])) as shard:
            found = {
                member.name.partition(".")[0]: shard.extractfile(member).read()  # type: ignore[union-attr]
                for member in shard
                if not member.name.endswith(".json")
            }
        names = [truth.name(index) for index in range(number * shard_files, files)][:shard_files]
        assert found == {name: truth.content(name) for name in names}
    listed = json.loads(objects["shards.json"])["shardlist"]
    assert [each["url"] for each in listed] == [f"{number:05d}.tar" for number in range(shards)]
    assert sum(each["nsamples"] for each in listed) == files


@slow
@pytest.mark.parametrize("at", [0, 1, 2, 7, 11, 12])
def test_kill_while_objects_get_their_names(
    server: BucketServer, tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is there, and the process that copies dies; the driver completes it."""
    prefix = f"kill-{at}"
    (tmp_path / "sitecustomize.py").write_text(_KILLED + textwrap.dedent(AFTER_IMPORT))
    with serving(files=120) as source:
        where = {"endpoint_url": server.url, "region": "us-east-1"}
        plan = ShardPlan(tmp_path / "d", source.url, 60, where, f"s3://shards/{prefix}")
        name = plan.add([Truth(120).name(index) for index in range(120)], ended=True)
        argv = (name, str(plan.dest), str(tmp_path / "s"), plan.slices, "here")
        with monkeypatch.context() as changed:
            changed.setenv("PYTHONPATH", str(tmp_path))
            changed.setenv("KILL_AT", str(at))
            process = multiprocessing.get_context("spawn").Process(target=run_attempt, args=argv)
            process.start()
            process.join(100)
        # Six objects are copied and removed.
        assert process.exitcode == (1 if at < 12 else 0)
        staged = [name for name in server.objects(prefix) if name.startswith(".downloader")]
        assert len(staged) == 6 - at // 2
        assert plan.done(name).shards
        plan.drive()
        assert source.stats()["gets"] == 120
    check_bucket(server, prefix, 120, 60)


@pytest.mark.parametrize("existing", ["replace", "keep"])
def test_objects_of_somebody_else(server: BucketServer, tmp_path: Path, existing: str) -> None:
    """One is of the size of the shard."""
    import obstore

    prefix, mine = f"taken-{existing}", {"00000.tar": b"x" * 5120, "00001_stats.json": b"mine"}
    store = server.store(prefix)
    with Server(default=lambda request: ok(b"x")) as source:
        where = {"endpoint_url": server.url, "region": "us-east-1"}
        plan = ShardPlan(tmp_path / "d", source.url, 2, where, f"s3://shards/{prefix}", existing)
        name = plan.add(["a", "b", "c", "d"], ended=True)
        for taken, content in mine.items():
            obstore.put(store, taken, content)
        if existing == "replace":
            assert plan.attempt(name, tmp_path / "s").replaced == 2
        else:
            for taken in mine:
                with pytest.raises(DestinationError, match=f"has {taken}, which is not of this job"):
                    plan.attempt(name, tmp_path / "s")
                with pytest.raises(DestinationError, match=f"has {taken}, which is not of this job"):
                    plan.drive()
                assert server.objects(prefix)[taken] == mine[taken]
                obstore.delete(store, taken)
        assert plan.drive() == 0
        assert len(source.requests) == 4
    found = server.objects(prefix)
    assert len(found["00000.tar"]) == len(mine["00000.tar"])
    assert not set(mine.values()) & set(found.values())
    assert not [name for name in found if name.startswith(".downloader")]


@slow
def test_what_lost_is_removed(server: BucketServer, tmp_path: Path) -> None:
    """Another attempt, which has published all of its shards, finds the record of the first."""
    # Slow, so that the second shard follows the first one by half a second.
    with serving(files=120, delay="50ms") as source:
        where = {"endpoint_url": server.url, "region": "us-east-1"}
        plan = ShardPlan(tmp_path / "d", source.url, 60, where, "s3://shards/lost")
        name = plan.add([Truth(120).name(index) for index in range(120)], ended=True)
        assert plan.attempt(name, tmp_path / "a").how == "done"
        record = plan.done(name)
        plan.directory.files.remove(f"done/{name}.json")
        before = {key: value for key, value in server.objects("lost").items() if key.endswith(".tar")}
        (tmp_path / "sitecustomize.py").write_text("")
        # The record appears while the other attempt is under way.
        publish = plan.directory.publish
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            argv = (name, str(plan.dest), str(tmp_path / "b"), plan.slices, "there")
            other = pool.apply_async(run_attempt, argv)
            while not [key for key in server.objects("lost") if key.startswith(".downloader")]:
                assert not other.ready()
            assert publish(record)
            assert other.get(60).how == "done"
        plan.drive()
    check_bucket(server, "lost", 120, 60)
    assert {key: value for key, value in server.objects("lost").items() if key.endswith(".tar")} == before


@slow
def test_job_whose_driver_is_killed(server: BucketServer, tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    journal = tmp_path / "j"
    with (
        serving(files=2000, page=500, delay="5ms-10ms") as source,
        ray_nodes(tmp_path / "scratch", **_KEYS) as nodes,
    ):
        argv = (
            source.url,
            "--store",
            "tar",
            "--shard-files",
            125,
            "--journal",
            journal,
            "--connections",
            8,
        )
        argv = (*argv, "--endpoint-url", server.url, "--region", "us-east-1")  # type: ignore[assignment]
        argv = (*argv, *options(Path("x"), 250)[2:], "-o", "s3://shards/job")  # type: ignore[assignment]
        job = nodes.job(*argv, env=_KEYS)
        try:
            wait_for_slices(job, journal, 2)
            job.kill(signal.SIGKILL)
            job.wait()
        finally:
            job.close()
        before = len(done(journal))
        again = nodes.job(*argv, env=_KEYS)
        try:
            found = report(again)
        finally:
            again.close()
        assert found["destination"] == "s3://shards/job"
        assert found["skipped"] >= before * 250
        assert found["stored"] + found["skipped"] == 2000
        assert source.stats()["gets"] <= 2000 + 2 * 250
    check_bucket(server, "job", 2000, 125)
    there = ("--endpoint-url", server.url, "--region", "us-east-1")
    seen = run("verify", "s3://shards/job", "--journal", journal, *there, env=_KEYS)
    assert (seen.returncode, seen.stdout) == (0, "2,000 of 2,000 files agree with the journal\n"), seen
