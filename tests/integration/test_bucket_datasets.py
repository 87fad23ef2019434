"""A dataset in a bucket: no other job overwrites it, and its indexes say what is there."""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from bucket_server import BucketServer, servers, set_credentials
from refusing_bucket import Refusing
from servers import Request, Step, ok, status
from servers import Server as HttpServer

from downloader.core.bucket_access import BucketAccess
from downloader.sinks.shards.staging_bucket import StagingBucket

obstore = pytest.importorskip("obstore")

Run = Callable[..., "subprocess.CompletedProcess[str]"]

server = servers()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


@contextmanager
def job(
    server: BucketServer, prefix: str, tmp_path: Path, down: Collection[str] = ()
) -> Iterator[Callable[..., tuple[object, ...]]]:
    """Yield a function that gives the arguments of a job of 8 files in shards of 4, with a journal.

    Those that are ``down`` are not found.
    """

    def answer(request: Request) -> Sequence[Step]:
        return status(404) if request.target in down else ok(request.target.encode() * 90)

    with HttpServer(default=answer) as files:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{files.url}/f/{number}.jpg\n" for number in range(8)))

        def arguments(journal: str, *more: object) -> tuple[object, ...]:
            there = ("--endpoint-url", server.url, "--region", "us-east-1")
            place = (source, "-o", f"s3://shards/{prefix}", "--journal", tmp_path / journal)
            return (*place, "--store", "tar", "--shard-files", 4, *there, *more)

        yield arguments


def test_a_job_begins_only_where_no_other_dataset_is(
    server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """With another journal, or none any more, and --restart: nothing changes, and no journal is made."""
    with job(server, "others", tmp_path) as arguments:
        done = run_downloader(*arguments("one"), "--limit", 4)
        assert done.returncode == 0, done.stderr
        before = server.objects("others")
        for how in (("two",), ("one", "--restart")):
            other = run_downloader(*arguments(*how), "-q")
            assert other.returncode == 2, other.stderr
            assert "s3://shards/others has 00000.parquet, which would be replaced" in other.stderr
            assert "or choose another -o" in other.stderr
            assert server.objects("others") == before
        assert not (tmp_path / "two").exists()


def test_what_may_be_a_dataset(server: BucketServer, tmp_path: Path) -> None:
    store = server.store("look")
    there = StagingBucket("s3://shards/look", str(tmp_path), BucketAccess(server.url, "us-east-1"))
    assert there.dataset() == ""
    others = ["!a", ".downloader/check", "000/00000.tar", "0001.tar", "readme.txt", "z/00000.tar"]
    others += [f"00000/{number}.jpg" for number in range(1001)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: obstore.put(store, name, b"x"), others))
    assert there.dataset() == ""
    for name in ("00000-1.tar.zst", "00007.parquet", "123456_stats.json", "shards.json", "sizes.json"):
        obstore.put(store, name, b"x")
        assert there.dataset() == name
        obstore.delete(store, name)


class NoListing(Refusing):
    """In front of a bucket: a listing is answered with 403, and a look at an object is not."""

    do_GET = Refusing.refuse
    do_HEAD = do_PUT = do_POST = Refusing.pass_on


def test_names_are_looked_at_where_listing_is_denied(server: BucketServer, tmp_path: Path) -> None:
    obstore.put(server.store("unlisted"), "00000_stats.json", b"x")
    handler = type("Handler", (NoListing,), {"behind": server.url})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        for prefix, found in (("unlisted", "00000_stats.json"), ("nothing", "")):
            url = f"http://127.0.0.1:{front.server_port}"
            there = StagingBucket(f"s3://shards/{prefix}", str(tmp_path), BucketAccess(url, "us-east-1"))
            assert there.dataset() == found
        front.shutdown()


def test_a_lost_or_damaged_shard_is_published_anew(
    server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """Under its own number, once ``verify`` has found it; stats that changed are put again, too.

    Of two of one batch the first takes all.
    """
    store, down = server.store("lost"), {"/f/7.jpg"}

    def listed() -> list[str]:
        content = server.objects("lost")
        index = [shard["url"] for shard in json.loads(content["shards.json"])["shardlist"]]
        assert index == list(json.loads(content["sizes.json"]))
        return index

    with job(server, "lost", tmp_path, down) as arguments:
        argv = arguments("j")
        there = argv[argv.index("--journal") : argv.index("--store")] + argv[-4:]

        def verified(expected: int) -> str:
            found = run_downloader("verify", "s3://shards/lost", *there)
            assert found.returncode == expected, found.stdout + found.stderr
            return str(found.stdout)

        def run() -> None:
            done = run_downloader(*argv)
            assert done.returncode == 0, done.stderr

        assert run_downloader(*argv).returncode == 1
        down.clear()
        run()
        assert listed() == ["00000.tar", "00001.tar", "00002.tar"]
        whole = server.objects("lost")
        for name in ("00001.tar", *(name for name in whole if name.startswith("00002"))):
            obstore.delete(store, name)
        obstore.put(store, "00000_stats.json", b"garbage")
        assert "00000_stats.json: changed" in verified(1)
        run()
        assert listed() == ["00000.tar", "00001.tar"]
        assert server.objects("lost")["00000_stats.json"] == whole["00000_stats.json"]
        assert verified(0) == "8 of 8 files agree with the journal\n"
        run()
        assert listed() == ["00000.tar", "00001.tar"]
        damaged = bytearray(whole["00000.tar"])
        damaged[3] ^= 1
        obstore.put(store, "00000.tar", bytes(damaged))
        for _ in range(2):
            assert "00000.tar: changed since it was published; the same command" in verified(1)
        run()
        assert listed() == ["00000.tar", "00001.tar"]
        assert verified(0) == "8 of 8 files agree with the journal\n"
        # Indexes are named until they are put again, whatever else is.
        for content in (b"garbage", None):
            for name in ("shards.json", "sizes.json"):
                if content:
                    obstore.put(store, name, content)
                else:
                    obstore.delete(store, name)
                for _ in range(2):
                    assert f"damaged: {name}: " in verified(1)
            obstore.put(store, "00000_stats.json", b"garbage")
            assert {f"damaged: {name}: " in verified(1) for name in ("shards.json", "sizes.json")} == {True}
            run()
            assert verified(0) == "8 of 8 files agree with the journal\n"
            assert listed() == ["00000.tar", "00001.tar"]
