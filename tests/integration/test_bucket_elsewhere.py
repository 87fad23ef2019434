"""A bucket that has none of the shards of a job is another one: nothing is stored or recorded there."""

from __future__ import annotations

import http.server
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from bucket_server import BucketServer, Stores, set_credentials, two_stores
from harness import Job
from refusing_bucket import Refusing
from servers import Server as HttpServer
from servers import ok
from shard_parts import Shards, examples

from downloader.core.bucket_access import BucketAccess
from downloader.errors import DestinationError
from downloader.sinks.shards.published_there import check_published
from downloader.sinks.shards.staging import OtherFile, StagedShard
from downloader.sinks.shards.staging_bucket import StagingBucket

obstore = pytest.importorskip("obstore")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
FILES = 12


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with two_stores(tmp_path_factory.mktemp("stores")) as stores:
        yield stores


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


class ListsNothing(Refusing):
    """In front of a bucket: what lists it is answered with a page that is no listing."""

    def do_GET(self) -> None:
        if "list-type" not in parse_qs(urlsplit(self.path).query):
            return self.pass_on()
        body = b"<html>captive portal</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = Refusing.pass_on


class HasAll(ListsNothing):
    """The same, and each object that it is asked for is there."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "27")
        self.end_headers()


class NoListing(Refusing):
    """In front of a bucket: who asks may look at objects, and list none."""

    do_GET = Refusing.refuse
    do_HEAD = do_PUT = do_POST = Refusing.pass_on


class PutOnly(Refusing):
    """In front of a bucket: who asks may put objects, and neither list nor look at any."""

    do_GET = do_HEAD = Refusing.refuse
    do_PUT = do_POST = Refusing.pass_on


class OnlyListing(Refusing):
    """In front of a bucket: who asks may list and put objects, and look at none."""

    do_HEAD = Refusing.refuse
    do_GET = do_PUT = do_POST = Refusing.pass_on


@contextmanager
def in_front(handler: type[Refusing], server: BucketServer) -> Iterator[str]:
    handler = type("Handler", (handler,), {"behind": server.url})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{front.server_port}"
        front.shutdown()


class Stored(NamedTuple):
    """A job of 12 files in shards of 4. ``argv``: its arguments, and ``verify``: those of verify."""

    prefix: str
    journal: Path
    source: Path

    def argv(self, url: str, store: str = "tar") -> tuple[Any, ...]:
        options = ("--store", store, "--shard-files", 4)
        return (self.source, *self.place("-o", url), *options, "--json")

    def verify(self, url: str) -> tuple[Any, ...]:
        return self.place("verify", url)

    def place(self, word: str, url: str) -> tuple[Any, ...]:
        there = ("--endpoint-url", url, "--region", "us-east-1")
        return (word, f"s3://shards/{self.prefix}", "--journal", self.journal, *there)


@contextmanager
def job(tmp_path: Path, prefix: str) -> Iterator[Stored]:
    with HttpServer(default=lambda request: ok(request.target.encode() * 90)) as files:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{files.url}/f/{number}.jpg\n" for number in range(FILES)))
        yield Stored(prefix, tmp_path / "j", source)


def refused(done: subprocess.CompletedProcess[str], prefix: str, url: str, which: str) -> None:
    assert done.returncode == 4, done.stdout + done.stderr
    (error,) = done.stderr.splitlines()
    assert error.startswith(f"downloader: error: s3://shards/{prefix} at {url} has {which} that this job")
    assert "give the bucket, the --endpoint-url" in error
    assert "--restart to begin anew" in error


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_finished_job_at_another_store(
    stores: Stores, run_downloader: Run, tmp_path: Path, store: str
) -> None:
    """A run, --retry-failed and ``verify`` refuse; at the store that has the shards all is as it was."""
    with job(tmp_path, f"done-{store}") as stored:
        argv, ours = stored.argv(stores.ours.url, store), stores.ours.objects
        assert run_downloader(*argv).returncode == 0
        before = ours(stored.prefix)
        other = stored.argv(stores.other.url, store)
        for command in (stored.verify(stores.other.url), other, (*other, "--retry-failed")):
            refused(run_downloader(*command, "-q"), stored.prefix, stores.other.url, "none of the 3 shards")
        assert stores.other.objects(stored.prefix) == {}
        found = run_downloader(*stored.verify(stores.ours.url))
        assert (found.returncode, found.stdout) == (0, "12 of 12 files agree with the journal\n")
        again = json.loads(run_downloader(*argv).stdout)
        assert (again["requests"], again["exit_code"]) == (0, 0)
        assert ours(stored.prefix) == before
        # Whoever has lost them begins anew.
        anew = json.loads(run_downloader(*other, "--restart").stdout)
        assert (anew["stored"], anew["exit_code"]) == (FILES, 0)


def test_killed_job_at_another_store(
    stores: Stores, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    with job(tmp_path, "killed") as stored:
        killed = start(*stored.argv(stores.ours.url), "--rate", 5, "--workers", 1)
        killed.until(lambda: list(stored.journal.glob(".downloader/stats/00001_*")))
        killed.kill(signal.SIGKILL)
        killed.wait()
        killed.alone()
        done = run_downloader(*stored.argv(stores.other.url), "-q")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "that this job has stored" in done.stderr
        assert stores.other.objects("killed") == {}
        assert run_downloader(*stored.argv(stores.ours.url)).returncode == 0
        assert {"00000.tar", "00001.tar", "00002.tar"} <= set(stores.ours.objects("killed"))


def test_records_that_cannot_be_read(stores: Stores, run_downloader: Run, tmp_path: Path) -> None:
    """The place is looked at all the same, and what cannot be read is no reason to go on there."""
    with job(tmp_path, "records") as stored:
        assert run_downloader(*stored.argv(stores.ours.url)).returncode == 0
        for record in (stored.journal / ".downloader" / "published").iterdir():
            record.unlink()
            record.symlink_to("/nowhere")
        url = stores.other.url
        for command in (stored.verify(url), stored.argv(url)):
            refused(run_downloader(*command, "-q"), stored.prefix, url, "none of the 3 shards")
        assert run_downloader(*stored.argv(stores.ours.url)).returncode == 0


def test_no_room_for_a_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that could not be looked at is not taken for the right one."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    shard = StagedShard(0, [], [OtherFile("00000_stats.json")])
    with pytest.raises(DestinationError, match=r"^no temporary directory can be made \(No such file"):
        check_published("s3://shards/x", BucketAccess(), [0], lambda number: (shard, ""))


def test_another_dataset_at_the_other_store(stores: Stores, run_downloader: Run, tmp_path: Path) -> None:
    """It has the names of the shards, and none of them."""
    with job(tmp_path, "same") as stored:
        assert run_downloader(*stored.argv(stores.ours.url)).returncode == 0
        access = BucketAccess(stores.other.url, "us-east-1")
        there = Shards(tmp_path / "x", root=f"s3://shards/{stored.prefix}", access=access)
        for number in range(3):
            there.publisher.publish(there.job(number, examples(number, 4)))
        there.publisher.close()
        before = stores.other.objects(stored.prefix)
        for command in (stored.verify(stores.other.url), stored.argv(stores.other.url)):
            done = run_downloader(*command, "-q")
            refused(done, stored.prefix, stores.other.url, "none of the 3 shards")
            assert re.search(r"\(its 00000\S+ is another job's\)", done.stderr)
        assert stores.other.objects(stored.prefix) == before
        assert run_downloader(*stored.verify(stores.ours.url)).returncode == 0


def test_page_that_is_no_listing(stores: Stores, run_downloader: Run, tmp_path: Path) -> None:
    """``verify`` believes none that lacks what is there, nor that of a store that has none of it."""
    with job(tmp_path, "portal") as stored:
        assert run_downloader(*stored.argv(stores.ours.url)).returncode == 0
        for handler, server in ((ListsNothing, stores.ours), (HasAll, stores.other)):
            with in_front(handler, server) as url:
                done = run_downloader(*stored.verify(url), "-q")
                assert done.returncode == 4, done.stdout + done.stderr
                assert "cannot be read: it is listed without 00000.tar, which it has" in done.stderr
        with in_front(ListsNothing, stores.other) as url:
            refused(run_downloader(*stored.verify(url)), "portal", url, "none of the 3 shards")
        found = run_downloader(*stored.verify(stores.ours.url))
        assert (found.returncode, found.stdout) == (0, "12 of 12 files agree with the journal\n")


@pytest.mark.parametrize("rights", [NoListing, OnlyListing, PutOnly])
def test_credentials_that_may_only_list_or_look(
    stores: Stores, run_downloader: Run, tmp_path: Path, rights: type[Refusing]
) -> None:
    with job(tmp_path, f"rights-{rights.__name__}") as stored:
        assert run_downloader(*stored.argv(stores.ours.url)).returncode == 0
        with in_front(rights, stores.ours) as url:
            again = json.loads(run_downloader(*stored.argv(url)).stdout)
            assert (again["requests"], again["exit_code"]) == (0, 0)
        if rights is PutOnly:
            return  # nobody is told
        with in_front(rights, stores.other) as url:
            refused(run_downloader(*stored.argv(url), "-q"), stored.prefix, url, "none of the 3 shards")


def test_what_is_left_of_many_shards_is_found(stores: Stores, run_downloader: Run, tmp_path: Path) -> None:
    """By a few requests. Of one that was removed with all of its files nothing is known."""
    server = stores.ours
    store = server.store("look")
    there = StagingBucket("s3://shards/look", str(tmp_path), BucketAccess(server.url, "us-east-1"))
    some = [(f"{number:05d}{suffix}", "") for number in (3, 50, 99) for suffix in ("_stats.json", ".tar")]
    obstore.put(store, "00001.tar", b"x")  # before the first of them
    obstore.put(store, "00100.tar", b"x")  # behind the last one
    obstore.put(store, "00004/x", b"x")
    obstore.put(store, "shards.json", b"x")
    assert there.look(some) == ("", "")
    before = len(server.log.read_text().splitlines())
    assert there.look(some) == ("", "")
    assert len(server.log.read_text().splitlines()) - before == len(some) + 1
    obstore.put(store, "00004.tar", b"x")
    assert there.look(some) == ("00004.tar", "")
    obstore.put(store, some[0][0], b"x")
    before = len(server.log.read_text().splitlines())
    assert there.look(some) == (some[0][0], "")
    assert len(server.log.read_text().splitlines()) - before == 1
    staged = [(f".downloader/attempts/a.b/{name}", "") for name, _ in some]
    assert there.look(staged) == ("", "")
    obstore.put(store, ".downloader/attempts/a.b/00007.tar", b"x")
    assert there.look(staged) == (".downloader/attempts/a.b/00007.tar", "")
    with pytest.raises(DestinationError, match="cannot be read: the bucket does not exist"):
        StagingBucket("s3://missing/x", str(tmp_path), BucketAccess(server.url, "us-east-1")).look(some)
