"""Shards in a bucket, of a real server: versitygw where it is installed, and moto's."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import os
import random
import shutil
import signal
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from bucket_server import KEY, SECRET, BucketServer, servers, set_credentials
from harness import DevServer, Job, slow_but
from refusing_bucket import Refusing
from servers import Request, Until, ok, status
from servers import Server as HttpServer
from shard_parts import Shards, examples, failed, publishing

from downloader.core.bucket_access import BucketAccess
from downloader.errors import DestinationError
from downloader.files.directory import open_home
from downloader.sinks.shards.indexes import write_indexes
from downloader.storage.verify import Verified, verify

pytest.importorskip("obstore")


server = servers()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


def in_bucket(server: BucketServer, prefix: str, home: Path, **options: Any) -> Shards:
    root = f"s3://shards/{prefix}"
    return Shards(home, **{"root": root, "access": BucketAccess(server.url, "us-east-1"), **options})


@pytest.mark.parametrize(
    "options", [{}, {"max_size": 90_000}, {"store": "parquet"}], ids=["tar", "cut", "parquet"]
)
def test_bucket_has_what_a_directory_would_have(
    options: dict[str, Any], server: BucketServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    prefix = f"a/{request.node.callspec.id}"
    samples, lost = examples(1, 30, 8000), [failed(1, 30)]
    with publishing(tmp_path / "directory", **options) as there:
        expected = there.publisher.publish(there.job(1, samples, lost))
        there.publisher.publish(there.job(2, [], [failed(2, 0)]))
        write_indexes(str(there.root), open_home(there.home), [1, 2], store="tar")
    shards = in_bucket(server, prefix, tmp_path / "home", **options)
    job = shards.job(1, samples, lost)
    assert shards.publisher.publish(job) == expected
    assert not os.path.exists(job.part)
    before = server.log.read_bytes()
    assert shards.publisher.publish(job) == expected
    assert server.log.read_bytes() == before
    shards.publisher.publish(shards.job(2, [], [failed(2, 0)]))
    shards.publisher.close()
    write_indexes(
        *(f"s3://shards/{prefix}", open_home(shards.home), [1, 2], BucketAccess(server.url, "us-east-1")),
        store="tar",
    )
    files = {path.name: path.read_bytes() for path in there.root.iterdir() if path.is_file()}
    assert server.objects(prefix) == files
    assert {name.partition("/")[2] for name in shards.names()} == {
        "stats/00001_stats.json",
        "stats/00002_stats.json",
        "shards.json",
        "sizes.json",
    }


def test_object_that_is_there_is_not_sent_again(server: BucketServer, tmp_path: Path) -> None:
    shards = in_bucket(server, "again", tmp_path)
    samples = examples(3, 30, 400_000)
    shards.publisher.publish(shards.job(3, samples))
    sent = server.puts("00003.tar")
    assert sent > 1  # in parts
    # As after a kill before the part was removed.
    (shards.home / "stats" / "00003_stats.json").unlink()
    answer = shards.publisher.publish(shards.job(3, samples))
    assert server.puts("00003.tar") == sent
    assert len(server.objects("again")["00003.tar"]) == answer.files[0].size
    # Another content is sent.
    (shards.home / "stats" / "00003_stats.json").unlink()
    shards.publisher.publish(shards.job(3, samples[:20]))
    assert server.puts("00003.tar") > sent
    shards.publisher.close()


@pytest.mark.parametrize(
    ("root", "change", "why"),
    [
        ("s3://missing/x", {}, "the bucket does not exist; create it, and run"),
        (
            "s3://shards/x",
            {"AWS_SECRET_ACCESS_KEY": "wrong"},
            "access is denied; check the credentials",
        ),
    ],
)
def test_refusal_is_one_sentence(
    root: str,
    change: dict[str, str],
    why: str,
    server: BucketServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if change and "moto" in request.node.name:
        pytest.skip("moto accepts every signature")
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    shards = in_bucket(server, "x", tmp_path, root=root)
    job = shards.job(1, examples(1, 2))
    with pytest.raises(DestinationError, match=rf"^cannot publish shard 00001 in {root}: {why}") as caught:
        shards.publisher.publish(job)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)
    # Nothing of its own is left, and the part is kept.
    assert shards.names() == {".downloader/part-1"}
    shards.publisher.close()
    (shards.home / "stats" / "00001_stats.json").write_text(
        json.dumps({"files": [{"name": "00001.tar", "md5": "", "samples": 1, "size": 1}]})
    )
    with pytest.raises(DestinationError, match=rf"^cannot write the indexes of {root}: {why}"):
        write_indexes(root, open_home(shards.home), [1], BucketAccess(server.url), store="tar")


def test_missing_credentials_are_named(
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without credentials, those of a machine at AWS are asked for, here of a server that refuses."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # for boto3, which asks first
    with HttpServer(files={"a": ok(b"a")}, default=status(403)) as machine:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", machine.url)
        argv = (machine.url, "-o", "s3://shards/x", "--journal", tmp_path / "j", "--store", "tar")
        done = run_downloader(*argv, "--endpoint-url", "http://127.0.0.1:9", "--workers", 1, "-q")
        assert not machine.count("/list")
        on_node = run_downloader(
            *(*argv, "--endpoint-url", "http://127.0.0.1:9", "-q"), env={"DOWNLOADER_NODE": "box/1"}
        )
    assert "found on node box/1; set AWS_ACCESS_KEY_ID" in on_node.stderr
    assert "in the environment of its `ray start`" in on_node.stderr
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "-o s3://shards/x: no credentials were found; set AWS_ACCESS_KEY" in line


def test_a_bucket_that_cannot_be_used_is_found_at_the_start(
    server: BucketServer,
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """Before anything is requested; one that is down is found there, too, and the same command resumes."""
    with HttpServer(files={"a": ok(b"a")}) as source:
        argv = (source.url, "--journal", tmp_path / "j", "--store", "tar", "--region", "us-east-1", "-q")
        wrong = run_downloader(*argv, "-o", "s3://missing/x", "--endpoint-url", server.url)
        assert (wrong.returncode, "the bucket does not exist" in wrong.stderr) == (2, True), wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1
        assert not source.requests
        right = run_downloader(*argv, "-o", "s3://shards/start", "--endpoint-url", server.url)
        assert right.returncode == 0, right.stderr
    assert set(server.objects("start")) >= {"00000.tar", "00000_stats.json"}


def test_keys_are_taken_from_a_profile(
    server: BucketServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3")
    (tmp_path / "credentials").write_text(
        f"[other]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "other")
    shards = in_bucket(server, "profile", tmp_path / "home")
    shards.publisher.publish(shards.job(1, examples(1, 2)))
    shards.publisher.close()
    assert set(server.objects("profile")) == {"00001.tar", "00001.parquet", "00001_stats.json"}


def test_run_into_a_bucket_is_killed_and_resumed(
    server: BucketServer,
    dev_server: Callable[..., DevServer],
    start: Callable[..., Job],
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    source = dev_server(files=2500, size="100", page=500)
    journal = tmp_path / "journal"
    argv = (source.url, "-o", "s3://shards/run", "--journal", journal, "--store", "tar")
    argv = (*argv, "--shard-files", 500, "--endpoint-url", server.url, "--region", "us-east-1", "--json")
    job = start(*argv, "--rate", 1000)
    job.until(lambda: list(journal.glob(".downloader/stats/*.json")))
    job.kill(signal.SIGKILL)
    job.wait()
    job.alone()
    done = run_downloader(*argv)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["destination"] == "s3://shards/run"
    names: list[str] = []
    for name, content in server.objects("run").items():
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as shard:
                names += [each for each in shard.getnames() if each.endswith(".json")]
    assert len(names) == len(set(names)) == 2500
    assert {"00004.parquet", "00004_stats.json", "shards.json", "sizes.json"} <= set(server.objects("run"))
    assert [path.name for path in journal.iterdir()] == [".downloader"]
    assert not list(journal.glob(".downloader/shards/*"))
    again = json.loads(run_downloader(*argv).stdout)
    assert (again["requests"], again["exit_code"]) == (0, 0)
    verify = ("verify", "s3://shards/run", "--journal", journal, *argv[-5:-1])
    assert run_downloader(*verify).stdout == "2,500 of 2,500 files agree with the journal\n"


def test_shard_of_another_run_with_this_prefix_is_not_replaced(
    server: BucketServer,
    start: Callable[..., Job],
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """Nothing locks a bucket. Both runs begin before there is a shard, each with a journal of its own."""
    asked, opened = threading.Event(), threading.Event()

    def held(request: Request) -> Any:
        asked.set()
        return [Until(opened), *ok(b"late")]

    with HttpServer(default=lambda request: ok(request.target.encode()), routes={"/held": held}) as files:

        def argv(which: str, *targets: str) -> tuple[Any, ...]:
            source = tmp_path / f"{which}.txt"
            source.write_text("".join(f"{files.url}/{target}\n" for target in targets))
            where = ("-o", "s3://shards/two", "--journal", tmp_path / which, "--store", "tar")
            return (source, *where, "--endpoint-url", server.url, "--region", "us-east-1")

        late = start(*argv("late", "held", "other"))
        assert asked.wait(30)
        first = run_downloader(*argv("first", "a", "b"))
        assert first.returncode == 0, first.stderr
        stored = server.objects("two")
        opened.set()
        assert late.wait() == 4
    assert "s3://shards/two has 00000" in late.err
    assert "of another job" in late.err
    assert server.objects("two") == stored


@pytest.mark.parametrize("form", slow_but([("tar-crc32",)], ["tar", "tar-crc32", "parquet"]))
def test_verify_finds_damage_in_a_bucket(
    form: str, server: BucketServer, run_downloader: Any, tmp_path: Path
) -> None:
    """A flipped bit in any object, one that is missing or another's; the same command repairs it."""
    import obstore

    prefix, journal = f"verified-{form}", tmp_path / "journal"
    there = ("--endpoint-url", server.url, "--region", "us-east-1")
    options = {"tar": (), "tar-crc32": ("--digests", "crc32"), "parquet": ("--store", "parquet")}[form]
    with HttpServer(default=lambda request: ok(request.target.encode() * 90)) as files:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{files.url}/f/{number}.jpg\n" for number in range(7)))
        argv = (source, "-o", f"s3://shards/{prefix}", "--journal", journal, "--shard-files", 4)
        argv = (*argv, *there, "--store", "tar", *options)
        assert run_downloader(*argv).returncode == 0
        store, whole = server.store(prefix), server.objects(prefix)

        def found() -> Verified:
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(journal, tmp_path / "copy")
            return verify(
                f"s3://shards/{prefix}", True, str(tmp_path / "copy"), BucketAccess(server.url, "us-east-1")
            )

        assert found().exit_code == 0
        missed = []
        for name, content in whole.items():
            bit = random.Random(name).randrange(len(content) * 8)
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            more = (content[:-1], whole["shards.json"][::-1], None) if name.startswith("00000.") else ()
            for damaged in (bytes(flipped), *more):
                obstore.delete(store, name) if damaged is None else obstore.put(store, name, damaged)
                missed += [name] if found().exit_code == 0 else []
                obstore.put(store, name, content)
        assert missed == []
        obstore.delete(store, f"00001.{form.partition('-')[0]}")
        assert found().exit_code == 1
        before = ("verify", f"s3://shards/{prefix}", "--journal", journal, *there)
        assert run_downloader(*before).returncode == 1
        assert run_downloader(*argv).returncode == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--store", "tar"), "--journal DIR"),
        (("--journal", "x"), "a bucket is for shards"),
        (("--store", "tar", "--journal", "s3://a/b"), "must be a local directory"),
        (("--store", "tar", "--journal", "x", "-o", "s3:///y"), "the bucket is missing"),
    ],
)
def test_buckets_that_cannot_be_used_are_refused(
    options: tuple[str, ...],
    text: str,
    run_downloader: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    done = run_downloader("http://127.0.0.1:9/", "-o", "s3://shards/x", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert not list(tmp_path.iterdir())


class WithoutConditions(Refusing):
    """In front of a store that knows no conditional requests, as some do not."""

    def do_PUT(self) -> None:
        if "If-None-Match" not in self.headers:
            return self.pass_on()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"<Error><Code>NotImplemented</Code></Error>"
        self.send_response(501)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_DELETE = Refusing.pass_on


class Outage(Refusing):
    """In front of a bucket: what is put under names that ``refused`` ends with is answered with 403."""

    refused: tuple[str, ...] = ()

    def do_PUT(self) -> None:
        if urlsplit(self.path).path.endswith(self.refused):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return self.refuse()
        return self.pass_on()

    do_GET = do_HEAD = do_POST = do_DELETE = Refusing.pass_on


@contextlib.contextmanager
def in_front(handler: type[Refusing], server: BucketServer) -> Iterator[str]:
    handler.behind = server.url
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{front.server_port}"
        front.shutdown()


@pytest.mark.parametrize("existing", ["replace", "keep"])
def test_store_without_conditional_requests(server: BucketServer, tmp_path: Path, existing: str) -> None:
    with in_front(WithoutConditions, server) as url:
        access, prefix = BucketAccess(url, "us-east-1"), f"plain-{existing}"
        shards = in_bucket(server, prefix, tmp_path / "a", access=access, existing=existing)
        assert shards.publisher.publish(shards.job(0, examples(0, 2))).replaced == 0
        shards.publisher.close()
        shards = in_bucket(server, prefix, tmp_path / "b", access=access, existing=existing)
        with pytest.raises(DestinationError, match="of another job"):
            shards.publisher.publish(shards.job(0, examples(0, 3)))
        shards.publisher.close()
    assert set(server.objects(prefix)) == {"00000.tar", "00000.parquet", "00000_stats.json"}


def test_shard_whose_files_were_put_by_attempts_long_ago_is_published(
    server: BucketServer, tmp_path: Path
) -> None:
    """A store refuses the last file, then all of them for a while: what is there is not another job's."""
    with in_front(Outage, server) as url:
        shards = in_bucket(server, "outage", tmp_path / "a", access=BucketAccess(url, "us-east-1"))
        for number, refused in enumerate([(".tar",), *[("",)] * 15, ()]):
            Outage.refused = refused
            # The stats of each attempt have other times.
            job = msgspec.structs.replace(shards.job(0, examples(0, 2)), ended=2000.0 + number)
            if refused:
                with pytest.raises(DestinationError, match="access is denied"):
                    shards.publisher.publish(job)
            else:
                assert shards.publisher.publish(job).replaced == 0
        shards.publisher.close()


class PutOnly(Refusing):
    """In front of a bucket: what lists, reads or looks at objects is answered with 403."""

    do_GET = do_HEAD = do_DELETE = Refusing.refuse
    do_PUT = do_POST = Refusing.pass_on


def test_credentials_that_may_only_put(server: BucketServer, run_downloader: Any, tmp_path: Path) -> None:
    """Nobody can be asked what is there; a run stores all the same, and so does one that repeats it."""
    handler = type("Handler", (PutOnly,), {"behind": server.url})
    bodies = {f"/f/{number}.jpg": bytes([number]) * 3_000_000 for number in range(5)}
    with (
        HttpServer(default=lambda request: ok(bodies[request.target])) as files,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as front,
    ):
        threading.Thread(target=front.serve_forever, daemon=True).start()
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{files.url}{target}\n" for target in bodies))
        for journal in ("one", "two"):
            argv = (source, "-o", "s3://shards/putonly", "--journal", tmp_path / journal, "--store", "tar")
            argv += ("--endpoint-url", f"http://127.0.0.1:{front.server_port}", "--region", "us-east-1")
            done = run_downloader(*argv, "--shard-files", 4)
            assert done.returncode == 0, done.stderr
        front.shutdown()
    names = {"00000.tar", "00000.parquet", "00000_stats.json", "00001.tar", "00001.parquet"}
    assert set(server.objects("putonly")) - {".downloader/check"} == names | {
        "00001_stats.json",
        "shards.json",
        "sizes.json",
    }


def test_object_of_somebody_else_is_kept_or_its_loss_is_told(server: BucketServer, tmp_path: Path) -> None:
    import obstore

    shards = in_bucket(server, "taken", tmp_path / "a", existing="fail")
    store = server.store("taken")
    obstore.put(store, "00002_stats.json", b"mine")
    with pytest.raises(DestinationError, match=r"has 00002_stats\.json, which is not of this job"):
        shards.publisher.publish(shards.job(2, examples(2, 3)))
    shards.publisher.close()
    assert server.objects("taken")["00002_stats.json"] == b"mine"
    shards = in_bucket(server, "taken", tmp_path / "b")
    answer = shards.publisher.publish(shards.job(2, examples(2, 3)))
    shards.publisher.close()
    assert answer.replaced >= 1
    assert server.objects("taken")["00002_stats.json"] != b"mine"
