"""Shards into a bucket of a real S3 server; see the README in this directory."""

from __future__ import annotations

import io
import json
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bucket_server import set_credentials
from buckets import KEY, SECRET, Bucket, versitygw
from checker import Truth
from harness import Job, report_of, run, serving
from programs import Room, nginx

PART = 8 << 20


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch, KEY, SECRET)


def contents(bucket: Bucket, prefix: str) -> dict[str, bytes]:
    """Return the content of every sample by the name of its file, each of which is there once."""
    found: dict[str, bytes] = {}
    for name, (content, _) in bucket.objects(prefix).items():
        if not name.endswith(".tar"):
            continue
        with tarfile.open(fileobj=io.BytesIO(content)) as shard:
            members = {member.name: shard.extractfile(member) for member in shard}
            read = {member: file.read() for member, file in members.items() if file}
        for member, text in read.items():
            if member.endswith(".json"):
                fields = json.loads(text)
                body = next(
                    read[each] for each in read if each.startswith(f"{fields['key']}.") and each != member
                )
                assert fields["name"] not in found
                found[fields["name"]] = body
    return found


def test_shards_in_a_bucket(room: Room, truth: Truth, tmp_path: Path) -> None:
    expected = {truth.name(index): truth.content(truth.name(index)) for index in range(truth.files)}
    with nginx(room) as origin, versitygw(room) as bucket:
        argv = (origin.url, "-o", "s3://shards/run", "--store", "tar", "--reproducible", *bucket.options)
        done = run(*argv, "--journal", tmp_path / "first", "--shard-files", 1000, "--json")
        assert done.returncode == 0, done.stderr
        assert report_of(done)["stored"] == truth.files
        assert contents(bucket, "run") == expected
        objects = bucket.objects("run")
        assert {"00003.tar", "00003.parquet", "00003_stats.json", "shards.json", "sizes.json"} <= set(
            objects
        )
        for name, (content, answer) in objects.items():
            # The server has compared what it got with the checksum that was sent, and kept that.
            assert answer["ChecksumSHA256"], name
            assert answer["ContentLength"] == len(content)
        # The same shards from another journal: all are there already.
        sent = bucket.asked("PutObject", ".tar") + bucket.asked("UploadPart", ".tar")
        again = run(*argv, "--journal", tmp_path / "second", "--shard-files", 1000)
        assert again.returncode == 0, again.stderr
        assert bucket.asked("PutObject", ".tar") + bucket.asked("UploadPart", ".tar") == sent
        assert contents(bucket, "run") == expected


def test_large_shards_are_put_in_parts_and_survive_a_kill(
    room: Room, start: Callable[..., Job], tmp_path: Path
) -> None:
    truth = Truth(60, 1_000_000, 1_000_000)
    with serving(files=truth.files, size=1_000_000) as origin, versitygw(room) as bucket:
        argv = (origin.url, "-o", "s3://shards/run", "--journal", tmp_path / "j", "--store", "tar")
        argv = (*argv, "--shard-files", 20, "--workers", 1, *bucket.options)
        job = start(*argv)
        job.until(lambda: bucket.asked("UploadPart", "00000.tar"))
        job.kill(signal.SIGKILL)
        job.wait()
        job.alone()
        done = run(*argv)
        assert done.returncode == 0, done.stderr
        found = contents(bucket, "run")
        assert found == {
            truth.name(index): truth.content(truth.name(index)) for index in range(truth.files)
        }
        size = len(bucket.objects("run")["00002.tar"][0])
        assert bucket.asked("UploadPart", "00002.tar") == -(-size // PART)
        assert bucket.asked("CompleteMultipartUpload", "00002.tar") == 1
