"""The plan of a job in a bucket, of a real server: its files, its lock, attempts at a slice, whole jobs."""

from __future__ import annotations

import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from bucket_server import KEY, SECRET, BucketServer, servers, set_credentials
from harness import ROOT, environment, run, serving, stored
from ray_nodes import Nodes, ray_nodes
from test_ray_engine import check, options, report

from downloader.cluster.driver import bucket_lock
from downloader.cluster.driver.bucket_lock import BucketLock, Owner
from downloader.cluster.node.task import PlanAt, SliceTask, run_slice
from downloader.cluster.plan import configs
from downloader.cluster.plan.bucket_files import BucketFiles
from downloader.cluster.plan.plan import Plan, PlanDirectory, Slice, SliceRecord
from downloader.config.config import Config
from downloader.core.bucket_access import BucketAccess
from downloader.errors import ConfigError, DestinationError, InUse
from downloader.messages import Item
from downloader.reporting.manifest_rows import read_rows
from downloader.sources.slice_file import write_items

pytest.importorskip("obstore")
REGION = "us-east-1"
# Owns the plan in argv[1], on the server argv[2], and says so; then it waits to be killed.
_OWNS = """
import sys
from downloader.cluster.plan.bucket_files import BucketFiles
from downloader.cluster.driver.bucket_lock import BucketLock
from downloader.core.bucket_access import BucketAccess
with BucketLock(BucketFiles(sys.argv[1], BucketAccess(sys.argv[2], "us-east-1")), print):
    print("owned", flush=True)
    sys.stdin.read()
"""


server = servers()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


_KEYS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "NO_PROXY": "127.0.0.1"}


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    return f"s3://shards/{request.node.originalname}"


def objects(server: BucketServer, root: str) -> dict[str, bytes]:
    return server.objects(f"{root.removeprefix('s3://shards/')}/.downloader")


def test_files_of_a_plan(server: BucketServer, root: str, tmp_path: Path) -> None:
    files = BucketFiles(root, BucketAccess(server.url, REGION))
    assert files.read("a/1.json") is None
    assert files.create("a/1.json", b"one")
    assert files.create("a/1.json", b"one")  # as after an answer that was lost
    assert not files.create("a/1.json", b"two")
    for number in range(2, 40):
        files.write(f"a/{number:02d}.json", b"%d" % number)
    files.write("a/02.jsonl", b"not this")
    assert files.names("a/02.") == ["a/02.json", "a/02.jsonl"]
    found = list(files.read_all("a", ".json"))
    assert found[0] == ("a/02.json", b"2")
    assert [name for name, _ in found] == sorted(name for name, _ in found)
    assert len(found) == 39
    writer = files.writer("large")
    writer.file.write(b"x" * (9 << 20))
    assert files.read("large") is None
    writer.publish()
    with files.open("large") as file:
        assert file.read() == b"x" * (9 << 20)
    assert Path(files.local("large", tmp_path)).stat().st_size == 9 << 20
    files.remove("large")
    files.remove("large")
    files.clear()
    assert files.names("a/") == []


def test_missing_bucket_is_one_sentence(server: BucketServer) -> None:
    with pytest.raises(DestinationError, match="the bucket does not exist; create it") as caught:
        PlanDirectory("s3://nothing/x", BucketAccess(server.url, REGION)).read()
    assert "\n" not in str(caught.value)


def test_store_that_ignores_conditions_is_refused() -> None:
    class Puts(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Puts) as there:
        thread = threading.Thread(target=there.serve_forever)
        thread.start()
        try:
            files = BucketFiles(
                "s3://shards/x", BucketAccess(f"http://127.0.0.1:{there.server_port}", REGION)
            )
            with pytest.raises(ConfigError, match="ignores conditions"):
                files.check("lock", b"me")
        finally:
            there.shutdown()
            thread.join()


def owner(root: str, server: BucketServer) -> subprocess.Popen[str]:
    """Start a process that owns the plan, and return it once it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNS, root, server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(**_KEYS),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "owned\n"
    return process


def test_one_owner_at_a_time(server: BucketServer, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_lock, "_LOOK_EVERY", 0.1)
    files = BucketFiles(root, BucketAccess(server.url, REGION))
    said: list[str] = []
    process = owner(root, server)
    try:
        # It is written again, after a while, by a process that lives.
        found = files.read_version("lock")
        assert found is not None
        alive = msgspec.json.decode(found[0], type=Owner)
        writes = threading.Timer(0.5, lambda: files.write("lock", msgspec.json.encode(alive) + b" "))
        writes.start()
        with pytest.raises(InUse, match=rf"in use by another run \(process {process.pid} on "):
            BucketLock(files, said.append).__enter__()
        writes.join()
        assert len(said) == 1
        # A process of this machine that was killed is known to have ended.
        process.kill()
        process.wait()
        with BucketLock(files, said.append) as lock:
            lock.check()
        # And one that has ended says so.
        with BucketLock(files, said.append):
            pass
        assert len(said) == 1
    finally:
        process.kill()
        process.communicate()


def test_owner_that_is_gone_is_taken_over(
    server: BucketServer, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_lock, "_LOOK_EVERY", 0.05)
    monkeypatch.setattr(bucket_lock, "STALE", 0.5)
    monkeypatch.setattr(bucket_lock, "BEAT", 0.1)
    files = BucketFiles(root, BucketAccess(server.url, REGION))
    elsewhere = Owner("token", "elsewhere", "another machine", 1)
    files.write("lock", msgspec.json.encode(elsewhere))
    with BucketLock(files, print) as lock:
        found = files.read_version("lock")
        assert found is not None
        # Now another takes it over, though this one is alive: it must end.
        files.write("lock", msgspec.json.encode(elsewhere))
        with pytest.raises(InUse, match="another has taken it over"):
            checked_for(20, lock)
    # What it leaves is the record of the other.
    assert files.read("lock") == msgspec.json.encode(elsewhere)


def checked_for(seconds: float, lock: BucketLock) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        lock.check()
        time.sleep(0.02)


def test_attempt_at_a_slice(server: BucketServer, root: str, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    dest.mkdir()
    directory = PlanDirectory(root, BucketAccess(server.url, REGION))
    with serving(files=100) as origin:
        config = Config(source=origin.url, output=str(dest), manifest=str(tmp_path / "m.jsonl"))
        plan = Plan("digest", origin.url, str(dest), 1000, 0, id="plan")
        directory.open(plan, restart=False)
        writer = directory.items_writer("00000000")
        names = [*(f"file-{number:010d}" for number in range(100)), "missing"]
        write_items(writer.file, msgspec.msgpack.encode([Item(name) for name in names]))
        writer.publish()
        slice_ = directory.add(Slice("00000000", 101, ended=True))
        assert slice_ is not None
        # Another driver that goes on for a moment has other items; it cannot replace these.
        other = PlanDirectory(root, BucketAccess(server.url, REGION))
        writer = other.items_writer("00000000")
        write_items(writer.file, msgspec.msgpack.encode([Item("other")]))
        writer.publish()
        assert other.add(Slice("00000000", 1, ended=True)) is None
        at = PlanAt(root, BucketAccess(server.url, REGION))
        task = SliceTask("00000000", "plan", at, str(tmp_path / "s"), 0.0, slice_.items)
        encoded = configs.for_slices(config, 1, 0, 0).encode()
        outcome = run_slice(task, encoded, None, "node")
        assert (outcome.how, outcome.reason) == ("done", "")
        gets = origin.stats()["gets"]
        assert gets >= 101
        assert run_slice(task, encoded, None, "node").how == "done"
        assert origin.stats()["gets"] == gets
    done = directory.done("00000000")
    assert isinstance(done, SliceRecord)
    assert (done.report.stored, done.report.failed, done.rows.count) == (100, 1, 100)
    assert [json.loads(line)["name"] for line in directory.failed_lines(done)] == ["missing"]
    with directory.files.open(f"manifest/{done.manifest}") as file:
        rows = [fields for some in read_rows(file, "") for _, fields in some]
    assert [fields[0] for fields in rows] == names[:-1]
    # What another attempt has left is removed, and nothing is left on the node's disk.
    directory.files.write("failures/00000000.late.jsonl", b"")
    directory.sweep(done)
    kept = {"plan.json", "slices/00000000.json", "done/00000000.json", slice_.items}
    kept |= {f"{kind}/{getattr(done, kind)}" for kind in ("failures", "manifest", "stored")}
    found = {name.removeprefix("cluster/") for name in objects(server, root)}
    late = {name for name in found if name.startswith("slices/00000000.") and name not in kept}
    assert len(late) == 1  # the items of the other driver
    assert found - late == kept
    assert not list((tmp_path / "s").rglob("*.sqlite"))
    for content in objects(server, root).values():
        assert SECRET.encode() not in content
        assert KEY.encode() not in content


@pytest.fixture(scope="module")
def bucket_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Return a cluster whose nodes have the credentials in their environment."""
    with ray_nodes(tmp_path_factory.mktemp("scratch"), **_KEYS) as made:
        yield made


@pytest.mark.slow
def test_job_with_its_plan_in_a_bucket(
    server: BucketServer, root: str, bucket_nodes: Nodes, tmp_path: Path
) -> None:
    dest, manifest = tmp_path / "d", tmp_path / "m.jsonl"
    there = ("--endpoint-url", server.url, "--region", REGION)
    with serving(files=4000, page=500, delay="1ms-2ms") as origin:
        argv = (origin.url, "--journal", root, *there, "--manifest", manifest, *options(dest, 250))
        # For longer than it takes until the second has seen the first write its record.
        first = bucket_nodes.job(*argv, "--rate", 80, env=_KEYS)
        try:
            first.until(lambda: "cluster/done/00000001.json" in objects(server, root))
            second = bucket_nodes.job(*argv, env=_KEYS)
            try:
                assert second.wait() == 2
                assert "is in use by another run" in second.err
            finally:
                second.close()
            first.kill(signal.SIGKILL)
            first.wait()
        finally:
            first.close()
        told = json.loads(run("status", root, *there, "--json", env=_KEYS).stdout)
        assert told["slices"]["done"] >= 2
        assert not told["complete"]
        last = bucket_nodes.job(*argv, env=_KEYS)
        try:
            found = report(last)
        finally:
            last.close()
        gets = origin.stats()["gets"]
        # What is done needs no request, and no cluster.
        nowhere = ("--engine", "ray", "--ray-address", "127.0.0.1:1")
        before = manifest.read_bytes()
        manifest.unlink()
        again = run(*argv, *nowhere, env=_KEYS)
        assert again.returncode == 0, again.stderr
        assert origin.stats()["gets"] == gets
    assert manifest.read_bytes() == before
    assert (found["listed"], found["failed"], found["resumed"]) == (4000, 0, True)
    assert found["stored"] + found["skipped"] == 4000
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert [row["name"] for row in rows] == sorted(stored(dest))
    check(dest, 4000)
    told = json.loads(run("status", root, *there, "--json", env=_KEYS).stdout)
    assert (told["complete"], told["stored"], told["pending"]) == (True, 4000, 0)
    for content in objects(server, root).values():
        assert SECRET.encode() not in content
