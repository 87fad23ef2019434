"""``--manifest`` of a job into a bucket, where nobody reads a shard: it says what a directory would say."""

from __future__ import annotations

import io
import json
import re
import subprocess
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from bucket_server import BucketServer, servers, set_credentials
from harness import Job, slow_but
from servers import HANG, Request, Step, ok, status
from servers import Server as HttpServer

from downloader.files.directory import open_home
from downloader.sinks.shards.reading import DigestingFile, read_parquet, read_tar
from downloader.sinks.shards.records import read_record, write_record

obstore = pytest.importorskip("obstore")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NAMES = [f"{number}.jpg" for number in range(7)]
FORMS = {
    "index": (),
    "name": ("--key", "name"),
    "gz": ("--shard-compression", "gz", "--shard-size", "2k"),  # each sample in a file of its own
    "zst": ("--shard-compression", "zst"),
    "parquet": ("--store", "parquet"),
}
# After these runs batch 0 has two further shards with samples, and one number without any.
DOWN = (["0.jpg", "1.jpg", "5.jpg"], ["1.jpg"], ["1.jpg"], [])

server = servers()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


def body(target: str) -> bytes:
    return target.encode() * 90


class Jobs:
    """The same job into a bucket, and into a directory: 7 files in shards of 4."""

    def __init__(
        self, server: BucketServer, prefix: str, options: Sequence[object], tmp_path: Path
    ) -> None:
        self.down: list[str] = []
        self.files = HttpServer(default=self._answer)
        self.source = tmp_path / "list.txt"
        self.journal = tmp_path / "journal"
        there = ("--endpoint-url", server.url, "--region", "us-east-1")
        self.common = ("--store", "tar", "--shard-files", 4, *options)
        self.in_bucket = ("-o", f"s3://shards/{prefix}", "--journal", self.journal, *there)
        self.in_directory = ("-o", tmp_path / "directory")
        self.manifest = tmp_path / "manifest.jsonl"

    def _answer(self, request: Request) -> Sequence[Step]:
        name = request.target.rpartition("/")[2]
        return status(404) if name in self.down else ok(body(request.target))

    def write_source(self) -> None:
        self.source.write_text("".join(f"{self.files.url}/f/{name}\n" for name in NAMES))

    def run(self, run_downloader: Run, place: Sequence[object], *more: object) -> str:
        """Run the job until everything is stored; return what the last run says."""
        self.write_source()
        for self.down in DOWN:
            done = run_downloader(self.source, *place, *self.common, *more)
            assert done.returncode == (1 if self.down else 0), done.stderr
        return done.stderr

    def rows(self, run_downloader: Run, place: Sequence[object]) -> tuple[list[tuple[str, ...]], str]:
        """Make the manifest; return name, shard and key of each row, and what is said."""
        done = run_downloader(self.source, *place, *self.common, "--manifest", self.manifest)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in self.manifest.read_text().splitlines()]
        return [(row["url"].rpartition("/")[2], row["shard"], row["key"]) for row in rows], done.stderr


def samples(objects: dict[str, bytes], options: Sequence[object]) -> dict[int, tuple[str, str]]:
    """Return shard and key of each sample in these shards, by the CRC-32 of its content."""
    found = {}
    for name, content in objects.items():
        match = re.fullmatch(r"([0-9]{5})(-[0-9]+)?\.(tar(\.gz|\.zst)?|parquet)", name)
        if match is None or (match[3] == "parquet") != ("parquet" in options):
            continue
        file = io.BytesIO(content)
        if match[3] == "parquet":
            seen = dict(read_parquet(file, vouched=False))
        else:
            seen = read_tar(DigestingFile(file), name, None).samples
        found.update({sample.crc: (match[1], key) for key, sample in seen.items()})
    return found


@pytest.mark.parametrize("form", slow_but([("index",), ("gz",)], FORMS))
def test_each_file_is_in_the_shard_that_the_manifest_names(
    form: str, server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """The shards of four runs are read here: a manifest in each names them, and so does a later one."""
    options, prefix = FORMS[form], f"manifest-{form}"
    jobs = Jobs(server, prefix, options, tmp_path)
    with jobs.files:
        said = jobs.run(run_downloader, jobs.in_bucket, "--manifest", jobs.manifest)
        assert "is not known" not in said
        at_once = [json.loads(line) for line in jobs.manifest.read_text().splitlines()]
        later, said = jobs.rows(run_downloader, jobs.in_bucket)
        jobs.run(run_downloader, jobs.in_directory)
        in_directory, _ = jobs.rows(run_downloader, jobs.in_directory)
    log = server.log.read_text(errors="replace")
    there = samples(server.objects(prefix), options)
    expected = [(name, *there[zlib.crc32(body(f"/f/{name}"))]) for name in NAMES]
    assert {shard for _, shard, _ in expected[:4]} > {"00000"}
    assert len({shard for _, shard, _ in expected}) == 5
    assert [(row["url"].rpartition("/")[2], row["shard"], row["key"]) for row in at_once] == expected
    assert (later, in_directory) == (expected, expected)
    assert "is not known" not in said
    assert f"GET /shards/{prefix}/00000.tar" not in log


def test_what_an_earlier_version_did_not_record_is_told(
    server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    """Of one such shard, what the others do not have is in it; of two of a batch, the keys are known."""
    jobs = Jobs(server, "manifest-earlier", (), tmp_path)
    with jobs.files:
        for place in (jobs.in_bucket, jobs.in_directory):
            jobs.run(run_downloader, place)
        expected, _ = jobs.rows(run_downloader, jobs.in_bucket)
        homes = [open_home(home / ".downloader") for home in (jobs.journal, tmp_path / "directory")]
        for shards in ([0], [1, 2, 3, 4, 5]):
            for home in homes:
                for shard in shards:
                    if (record := read_record(home, shard)) is not None:
                        write_record(home, shard, msgspec.structs.replace(record, stored=None))
            found, said = jobs.rows(run_downloader, jobs.in_bucket)
            if shards == [0]:
                assert (found, "is not known" in said) == (expected, False)
            assert jobs.rows(run_downloader, jobs.in_directory)[0] == expected
    assert found == [(name, None, key) for name, _, key in expected]
    assert "of 7 files the shard is not known: an earlier version has stored them" in said


def test_what_was_damaged_is_where_it_is_published_anew(
    server: BucketServer, run_downloader: Run, tmp_path: Path
) -> None:
    jobs = Jobs(server, "manifest-damaged", (), tmp_path)
    with jobs.files:
        jobs.run(run_downloader, jobs.in_bucket)
        expected, _ = jobs.rows(run_downloader, jobs.in_bucket)
        store = server.store("manifest-damaged")
        for name in ("00000.tar", "00002.tar"):
            obstore.delete(store, name)
        verify = ("verify", *jobs.in_bucket[1:])
        assert run_downloader(*verify).returncode == 1
        found, said = jobs.rows(run_downloader, jobs.in_bucket)
        # One shard of the batch has all that was damaged, and nothing says otherwise.
        there = samples(server.objects("manifest-damaged"), ())
    assert [shard for _, shard, _ in expected][:4] != [shard for _, shard, _ in found][:4]
    assert found == [(name, *there[zlib.crc32(body(f"/f/{name}"))]) for name in NAMES]
    assert "is not known" not in said


def test_a_killed_run_has_recorded_what_it_kept(
    server: BucketServer, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    """What a part has from before the kill is in the same shard as what is fetched behind it."""
    jobs = Jobs(server, "manifest-killed", (), tmp_path)
    jobs.down = ["0.jpg"]
    with jobs.files:
        jobs.files.routes["/f/2.jpg"] = [HANG]
        jobs.write_source()
        argv = (jobs.source, *jobs.in_bucket, *jobs.common, "--connections", 1)
        job = start(*argv)
        part = jobs.journal / ".downloader" / "shards" / "00000.part"
        job.until(lambda: part.exists() and part.stat().st_size and jobs.files.count("/f/2.jpg"))
        job.kill()
        job.wait()
        job.alone()
        del jobs.files.routes["/f/2.jpg"]
        assert run_downloader(*argv).returncode == 1
        jobs.down = []
        found, said = jobs.rows(run_downloader, jobs.in_bucket)
    assert [shard for _, shard, _ in found] == ["00002", *["00000"] * 3, *["00001"] * 3]
    assert (jobs.files.count("/f/1.jpg"), "is not known" in said) == (1, False)
