"""``--digests crc32``: only the CRC-32 of samples is computed, and damage is still found."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from harness import slow_but
from pyarrow import parquet
from servers import Request, Server, Step, ok

Run = Callable[..., "subprocess.CompletedProcess[str]"]
FORMS = {
    "whole": ((), ["00000.tar", "00001.tar"]),
    "gz": (("--shard-compression", "gz"), ["00000.tar.gz", "00001.tar.gz"]),
    "cut": (("--shard-size", "40k"), ["00000-1.tar", "00000.tar", "00001-1.tar", "00001.tar"]),
    "sorted": (("--reproducible",), ["00000.tar", "00001.tar"]),
}
LARGE = 29  # streamed through a temporary file


def body_of(target: str) -> bytes:
    number = int(target.removeprefix("/f/").removesuffix(".jpg"))
    return hashlib.shake_128(target.encode()).digest(3_000_000 if number == LARGE else 100 + number)


def answer(request: Request) -> Sequence[Step]:
    return ok(body_of(request.target), "Content-Type: image/jpeg")


def write_list(directory: Path, server: Server, count: int) -> Path:
    path = directory / "list.txt"
    path.write_text("".join(f"{server.url}/f/{number}.jpg\n" for number in range(count)))
    return path


def fields_of(path: Path) -> dict[str, dict[str, object]]:
    """Return KEY.json of each sample of a shard, which must have the CRC-32 of the content."""
    found = {}
    with tarfile.open(path) as shard:
        members = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
    for name, content in members.items():
        if name.endswith(".json"):
            fields = json.loads(content)
            body = members[name.replace(".json", ".jpg")]
            assert body == body_of(f"/f/{fields['name']}")
            assert fields["crc32"] == zlib.crc32(body)
            found[fields["key"]] = fields
    return found


@pytest.mark.parametrize("form", slow_but([("whole",), ("cut",)], FORMS))
def test_no_digest_but_the_crc_is_computed(form: str, run_downloader: Run, tmp_path: Path) -> None:
    options, names = FORMS[form]
    dest = tmp_path / "dest"
    with Server(default=answer) as server:
        source = write_list(tmp_path, server, 30)
        argv = (source, "-o", dest, "--store", "tar", "--shard-files", 20, "--digests", "crc32", *options)
        assert run_downloader(*argv).returncode == 0
        assert sorted(path.name for path in dest.glob("*.tar*")) == names
        fields = {key: each for name in names for key, each in fields_of(dest / name).items()}
        assert {each["sha256"] for each in fields.values()} == {""}
        rows = [
            row
            for number in (0, 1)
            for row in parquet.read_table(dest / f"0000{number}.parquet").to_pylist()
        ]
        assert [(row["key"], row["sha256"], row["crc32"]) for row in rows] == [
            (key, "", each["crc32"]) for key, each in sorted(fields.items())
        ]
        assert len(rows) == 30
        stats = [json.loads((dest / f"0000{number}_stats.json").read_text()) for number in (0, 1)]
        assert {file["md5"] for each in stats for file in each["files"]} == {""}
        index = json.loads((dest / "shards.json").read_text())["shardlist"]
        assert [sorted(shard) for shard in index] == [["filesize", "nsamples", "url"]] * len(names)
        assert sum(shard["nsamples"] for shard in index) == 30
        assert run_downloader("verify", dest).returncode == 0


def test_damage_is_found_by_the_crc(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    with Server(default=answer) as server:
        source = write_list(tmp_path, server, 20)
        argv = (source, "-o", dest, "--store", "tar", "--digests", "crc32")
        assert run_downloader(*argv).returncode == 0
        with open(dest / "00000.tar", "r+b") as shard:
            shard.seek(512 + 10)
            shard.write(b"!")
        seen = run_downloader("verify", dest)
        assert (seen.returncode, "0 of 20 files" in seen.stdout) == (1, True)
        assert run_downloader(*argv).returncode == 0
        assert run_downloader("verify", dest).returncode == 0


def test_digests_of_a_job_cannot_change(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        source = write_list(tmp_path, server, 1)
        argv = (source, "-o", tmp_path / "dest", "--store", "tar")
        assert run_downloader(*argv, "--digests", "crc32").returncode == 0
        done = run_downloader(*argv)
    assert (done.returncode, "--digests crc32" in done.stderr) == (2, True)
