"""Buckets that do not answer for a while are waited for; what refuses for good ends a run at once."""

from __future__ import annotations

import io
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bucket_server import BucketServer, bucket_server, set_credentials
from faulty_bucket import Fault, Front, down, in_front
from harness import Job
from servers import Certificates, Server, ok
from shard_parts import Shards, examples

from downloader.cluster.driver import bucket_lock
from downloader.cluster.plan.bucket_files import BucketFiles
from downloader.core.bucket_access import BucketAccess
from downloader.errors import DestinationError, InUse
from downloader.sinks import bucket_patience, bucket_store
from downloader.sinks.bucket_patience import Patience
from downloader.sinks.bucket_store import BucketError
from downloader.sinks.shards.jobs import bucket_settings
from downloader.sinks.shards.places import open_published
from downloader.sinks.shards.publisher.bucket import Bucket

obstore = pytest.importorskip("obstore")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
REGION = ("--region", "us-east-1")
WAITS = "the bucket does not answer; waiting for it"
AT_ONCE = 12.0  # seconds; obstore asks again for up to four of them


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketServer]:
    with bucket_server("moto", tmp_path_factory.mktemp("moto")) as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


def slow_down(front: Front) -> bool:
    return front.say(503, "SlowDown")


def puts(front: Front) -> bool:
    return front.command == "PUT"


def nothing(front: Front) -> bool:
    return False


def is_shard(front: Front) -> bool:
    return ".tar" in front.path


class Late:
    """Whether a fault is on; a request that is told so waits until it is over."""

    def __init__(self, is_meant: Fault, seconds: float, times: int = 1) -> None:
        self.left = times
        self._is_meant, self._seconds = is_meant, seconds

    def __call__(self, front: Front) -> bool:
        if not self.left or not self._is_meant(front):
            return False
        self.left -= 1
        time.sleep(self._seconds)
        return front.drop()


@pytest.mark.parametrize("how", [slow_down, Front.drop], ids=["503", "dropped"])
def test_an_outage_in_the_midst_of_a_run_is_waited_for(
    how: Fault, server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """It is said once, of two workers, and everything is there afterwards."""
    prefix = f"midst-{how.__name__}"
    with (
        Server(default=lambda request: ok(request.target.encode())) as source,
        in_front(server.url, down(8, how, puts)) as (url, _),
    ):
        listed = tmp_path / "list.txt"
        listed.write_text("".join(f"{source.url}/{number}\n" for number in range(40)))
        argv = (listed, "-o", f"s3://shards/{prefix}", "--journal", tmp_path / "j", "--store", "tar")
        done = run_downloader(*argv, *REGION, "--shard-files", 10, "--endpoint-url", url, "--workers", 2)
        assert done.returncode == 0, done.stderr
    assert done.stderr.count(WAITS) == 1, done.stderr
    assert {name for name in server.objects(prefix) if name.endswith(".tar")} == {
        f"{number:05d}.tar" for number in range(4)
    }


def test_a_server_that_is_started_again_is_waited_for(
    server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """At the start, too: nobody listens for some seconds."""
    with in_front(server.url, nothing) as (url, _):
        pass
    port = int(url.rpartition(":")[2])
    began = threading.Event()

    def begin() -> None:
        import http.server

        time.sleep(7)
        handler = type(
            "Late", (Front,), {"behind": server.url, "fault": staticmethod(nothing), "asked": []}
        )
        listening.append(http.server.ThreadingHTTPServer(("127.0.0.1", port), handler))
        began.set()
        listening[0].serve_forever()

    listening: list[Any] = []
    thread = threading.Thread(target=begin)
    thread.start()
    try:
        with Server(files={"a": ok(b"a")}) as source:
            argv = (source.url, "-o", "s3://shards/late", "--journal", tmp_path / "j", "--store", "tar")
            done = run_downloader(*argv, *REGION, "--endpoint-url", url)
        assert began.is_set()
        assert done.returncode == 0, done.stderr
    finally:
        assert began.wait(20)
        listening[0].shutdown()
        listening[0].server_close()
        thread.join()


def test_ctrl_c_ends_a_run_that_waits(
    server: BucketServer, start: Callable[..., Job], tmp_path: Path
) -> None:
    with (
        Server(files={"a": ok(b"a")}) as source,
        in_front(server.url, down(600, slow_down, puts)) as (url, asked),
    ):
        argv = (source.url, "-o", "s3://shards/end", "--journal", tmp_path / "j", "--store", "tar")
        job = start(*argv, *REGION, "--endpoint-url", url)
        job.until(lambda: any(line.startswith("PUT") for line in asked))
        time.sleep(5)
        began = time.monotonic()
        job.kill(signal.SIGINT)
        assert job.wait() != 0
        assert time.monotonic() - began < AT_ONCE
        job.alone()


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (403, "InvalidAccessKeyId", "access is denied"),
        (404, "NoSuchBucket", "the bucket does not exist"),
        (400, "AuthorizationHeaderMalformed", "AuthorizationHeaderMalformed"),
        (301, "PermanentRedirect", ""),
    ],
)
def test_what_refuses_for_good_ends_a_run_at_once(
    status: int, code: str, text: str, server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """At the start, and in the midst of a run."""
    with (
        Server(files={"a": ok(b"a")}) as source,
        in_front(server.url, lambda front: front.say(status, code)) as (always, _),
        in_front(server.url, down(600, lambda front: front.say(status, code), puts)) as (later, _),
    ):
        for url in (always, later):
            argv = (
                source.url,
                "-o",
                f"s3://shards/no-{code}",
                "--journal",
                tmp_path / "j",
                "--store",
                "tar",
            )
            began = time.monotonic()
            done = run_downloader(*argv, *REGION, "--endpoint-url", url, "-q")
            assert done.returncode in (2, 4), done.stderr
            assert time.monotonic() - began < AT_ONCE
            assert text in done.stderr
            assert "waiting" not in done.stderr


def test_a_certificate_or_a_name_ends_a_run_at_once(
    run_downloader: Run, server: BucketServer, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    with (
        Server(files={"a": ok(b"a")}) as source,
        Server(tls=certificates.context()) as other,
    ):
        for url in (other.url, "http://no-such-host.invalid:9000"):
            argv = (source.url, "-o", "s3://shards/no", "--journal", tmp_path / "j", "--store", "tar", "-q")
            began = time.monotonic()
            done = run_downloader(*argv, *REGION, "--endpoint-url", url)
            assert time.monotonic() - began < AT_ONCE
            assert done.returncode in (2, 4), done.stderr
        # A publisher waits for nothing either, though it takes the bucket for one that has answered.
        shards = Shards(
            tmp_path / "shards", root="s3://shards/no", access=BucketAccess(other.url, "us-east-1")
        )
        began = time.monotonic()
        with pytest.raises(DestinationError, match="is not trusted"):
            shards.publisher.publish(shards.job(0, examples(0, 2)))
        assert time.monotonic() - began < AT_ONCE
        shards.publisher.close()


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage is waited for until its time is up; what is a mistake only before the first answer."""

    def fails(*kinds: str) -> None:
        nonlocal asked
        asked += 1
        error = BucketError("no")
        for kind in kinds:
            setattr(error, kind, True)
        raise error

    said: list[str] = []
    for first, kind, repeated in (
        (0.4, "passing", True),
        (None, "passing", True),
        (0.4, "doubtful", False),
        (None, "doubtful", True),
        (None, "lasting", False),
    ):
        asked = 0
        patience = Patience(first, 0.4, said.append)
        began = time.monotonic()
        with pytest.raises(BucketError):
            patience(lambda kind=kind: fails(kind))  # type: ignore[misc]
        assert (asked > 1) == repeated, (first, kind)
        assert time.monotonic() - began < 2
    assert len(said) == 3
    patience = Patience(0.4, 0.0)
    assert patience(lambda: 1) == 1
    asked = 0
    with pytest.raises(BucketError):
        patience(lambda: fails("passing"))
    assert asked == 1
    bucket_patience.end_waiting(True)
    try:
        with pytest.raises(BucketError):
            Patience()(lambda: fails("passing"))
    finally:
        bucket_patience.end_waiting(False)


def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an answer begin in a second, and in eight more for a part."""
    monkeypatch.setattr(bucket_store, "_ANSWER_WITHIN", 1)
    monkeypatch.setattr(bucket_store, "_SLOWEST_LINE", 1 << 20)
    monkeypatch.setattr(bucket_store, "_SLOWEST_STORE", 1 << 30)


def bucket(url: str, prefix: str, home: Path) -> Bucket:
    access = BucketAccess(url, "us-east-1")
    return Bucket(bucket_settings(f"s3://shards/{prefix}", str(home), access, 30.0), Patience())


@pytest.mark.parametrize("which", ["part", "file", "look"])
def test_a_request_that_hangs_is_sent_again(
    which: str, server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part, without the others; a whole file; and what sends nothing."""
    scaled(monkeypatch)
    content = b"large" * (4 << 20 if which == "part" else 1)
    (tmp_path / "file").write_bytes(content)
    meant: dict[str, Fault] = {
        "part": lambda front: "partNumber=2" in front.path,
        "file": puts,
        "look": lambda front: front.command in ("GET", "HEAD"),
    }
    with in_front(server.url, Late(meant[which], 15)) as (url, asked):
        there = bucket(url, f"hangs-{which}", tmp_path)
        began = time.monotonic()
        there.put(there.home / "file", "file", "")
        assert there.found("file") is not None
        assert time.monotonic() - began < 14
    assert server.objects(f"hangs-{which}")["file"] == content
    parts = [line.partition("partNumber=")[2][0] for line in asked if "partNumber=" in line]
    assert sorted(parts) == (["1", "2", "2", "3"] if which == "part" else [])


def test_a_slow_line_that_goes_on_is_no_fault(
    server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending a part takes longer than an answer may; so it does to read."""
    scaled(monkeypatch)

    def slowly(front: Front) -> bool:
        if front.command == "PUT":
            time.sleep(4)  # what is not read of 8 MiB does not fit into buffers
        return False

    (tmp_path / "file").write_bytes(b"0123456789" * 700_000)
    with in_front(server.url, slowly) as (url, asked):
        there = bucket(url, "slow", tmp_path)
        there.put(there.home / "file", "file", "")
    assert [line.split("?")[0] for line in asked] == ["PUT /shards/slow/file"]


def test_a_publisher_that_waits_is_left_alone(server: BucketServer, tmp_path: Path) -> None:
    """For longer than any limit of silence: it says that it lives."""
    hangs = Late(lambda front: front.command in ("GET", "HEAD"), 9)
    with in_front(server.url, hangs) as (url, asked):
        shards = Shards(
            tmp_path,
            root="s3://shards/alive",
            access=BucketAccess(url, "us-east-1"),
            stall_timeout=0.4,
        )
        began = time.monotonic()
        shards.publisher.publish(shards.job(0, examples(0, 2)))
        assert time.monotonic() - began > 8.5  # another one would not have waited
        shards.publisher.close()
    assert len([line for line in asked if line.endswith("00000.parquet") and "PUT" in line]) == 1
    assert asked.count(asked[0]) == 2


@pytest.mark.parametrize("length", [0, 7])
def test_a_range_that_is_short_is_an_error(
    length: int, server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """It is the store's, and no damage of a shard; it is asked for again once."""
    prefix = f"short-{length}"

    def short(front: Front) -> bool:
        if not ("Range" in front.headers and is_shard(front)):
            return False
        start, _, stop = front.headers["Range"].partition("=")[2].partition("-")
        whole = server.objects(prefix)["00000.tar"]
        front.send_response(206)
        front.send_header("Content-Range", f"bytes {start}-{min(int(stop), len(whole) - 1)}/{len(whole)}")
        front.send_header("Content-Length", str(length))
        front.send_header("ETag", '"x"')
        front.send_header("Last-Modified", "Mon, 30 Nov 2026 02:09:16 GMT")
        front.end_headers()
        front.wfile.write(whole[int(start) : int(start) + length])
        return True

    with Server(files={"a": ok(b"a" * 5000)}) as source, in_front(server.url, short) as (url, asked):
        argv = (f"s3://shards/{prefix}", "--journal", tmp_path / "j", *REGION, "--endpoint-url", url)
        done = run_downloader(source.url, "-o", *argv, "--store", "tar")
        assert done.returncode == 0, done.stderr
        del asked[:]
        checked = run_downloader("verify", *argv)
        assert checked.returncode == 4, checked.stderr
        assert f"00000.tar: the store has answered 2 times with {length} bytes where " in checked.stderr
        assert len([line for line in asked if ".tar" in line]) < 6


def test_an_outage_while_shards_are_read_is_waited_for(server: BucketServer) -> None:
    obstore.put(server.store("read"), "00000.tar", b"x" * 3000)
    with in_front(server.url, down(6, Front.drop, lambda front: "Range" in front.headers)) as (url, _):
        files = open_published("s3://shards/read", None, BucketAccess(url, "us-east-1"))
        with files.open("00000.tar") as file:
            assert file.read() == b"x" * 3000


def test_an_outage_of_the_bucket_of_a_plan_is_waited_for(server: BucketServer) -> None:
    """Of which each request is one that may be sent again."""
    late = [False]
    front = down(6, slow_down, lambda front: late[0])
    with in_front(server.url, front) as (url, _):
        files = BucketFiles("s3://shards/plan", BucketAccess(url, "us-east-1"))
        assert files.create("a/1", b"one")
        late[0] = True

        def content(name: str) -> bytes:
            with files.open(name) as file:
                return file.read()

        asks: list[Callable[[], object]] = [
            lambda: files.read("a/1"),
            lambda: files.create("a/2", b"two"),
            lambda: files.names("a/"),
            lambda: files.remove("a/3"),
            lambda: files.put("a/4", io.BytesIO(b"four")),
            lambda: content("a/1"),
        ]
        with ThreadPoolExecutor(len(asks)) as pool:
            found = list(pool.map(lambda ask: ask(), asks))
        assert (found[0], found[1], found[5]) == (b"one", True, b"one")
    assert set(server.objects("plan")) == {"a/1", "a/2", "a/4"}


def test_the_owner_of_a_plan_waits_for_its_bucket(
    server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does nothing meanwhile, and goes on if nobody has taken the plan over."""
    monkeypatch.setattr(bucket_lock, "BEAT", 0.1)
    monkeypatch.setattr(bucket_lock, "LOST", 1.0)
    late = [False]
    said: list[str] = []
    with in_front(server.url, down(4, slow_down, lambda front: late[0])) as (url, _):
        files = BucketFiles("s3://shards/owned", BucketAccess(url, "us-east-1"), waits=0)
        with bucket_lock.BucketLock(files, said.append) as lock:
            late[0] = True
            time.sleep(2)
            began = time.monotonic()
            lock.check()
            assert time.monotonic() - began > 1
            assert "does not answer; waiting" in said[0]
            # Not for ever.
            monkeypatch.setattr(bucket_lock, "RUN", 0.5)
            lock._beaten = time.monotonic() - 2
            monkeypatch.setattr(lock, "_write", lambda record: time.sleep(60))
            with pytest.raises(InUse, match="could not be written in time"):
                lock.check()
            lock._thread = threading.Thread()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "status"])
def test_a_bucket_that_is_down_at_the_start_is_told(
    command: str, server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    where = (*REGION, "--endpoint-url", "http://127.0.0.1:9")
    run = ("http://127.0.0.1:9/", "-o", "s3://shards/x", "--journal", tmp_path / "j", "--store", "tar")
    began = time.monotonic()
    done = run_downloader(*(run if command == "run" else ("status", "s3://shards/x")), *where)
    assert done.returncode == 4
    assert "the server cannot be reached" in done.stderr
    assert 10 < time.monotonic() - began < 45
