"""The publisher's real process: what it makes of parts, again and again, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import psutil
import pytest
from harness import slow_but
from pyarrow import parquet
from shard_parts import Example, Shards, example, examples, failed, publishing, write_part

from downloader.errors import DestinationError
from downloader.files.directory import open_home
from downloader.sinks.shards.indexes import write_indexes
from downloader.sinks.shards.jobs import PublishedShard, ShardJob

SUFFIX = {"none": "tar", "gz": "tar.gz", "zst": "tar.zst"}


def check_files(shards: Shards, published: PublishedShard) -> None:
    """Check that the answer is true of the files, and what the stats say."""
    for file in published.files:
        content = (shards.root / file.name).read_bytes()
        assert (hashlib.md5(content).hexdigest(), len(content)) == (file.md5, file.size)
    stats = shards.stats(published.number)["files"]
    assert stats == [
        {"name": f.name, "md5": f.md5, "samples": f.samples, "size": f.size} for f in published.files
    ]


def unpacked(shards: Shards, name: str) -> dict[str, bytes]:
    """Return the members of a tar; .zst is decompressed by us, since tarfile does so from 3.14 on."""
    path = shards.root / name
    if name.endswith(".zst"):
        import importlib

        from downloader.core.extras import ZSTD

        path.with_suffix("").write_bytes(importlib.import_module(ZSTD).decompress(path.read_bytes()))
        try:
            return shards.members(name.removesuffix(".zst"))
        finally:
            path.with_suffix("").unlink()
    return shards.members(name)


def files_of(samples: list[Example]) -> dict[str, bytes]:
    return {name: content for sample in samples for name, content in sample.files().items()}


def test_rows_of_a_part_with_more_metadata_than_is_kept_in_memory(tmp_path: Path) -> None:
    texts = [str(number) * (12 << 20) for number in range(4)]
    samples = [example(0, number, caption=text) for number, text in enumerate(texts)]
    with publishing(tmp_path / "d") as shards:
        published = shards.publisher.publish(shards.job(0, samples, []))
        check_files(shards, published)
        rows = parquet.read_table(shards.root / "00000.parquet").to_pylist()
        assert [row["caption"] for row in rows] == texts


@pytest.mark.parametrize("compression", SUFFIX)
@pytest.mark.parametrize("reproducible", [False, True])
def test_tar_has_every_member_and_a_row_for_every_item(
    tmp_path: Path, compression: str, reproducible: bool
) -> None:
    samples = examples(3, 40)
    lost = [failed(3, 40), failed(3, 41, "dns")]
    del samples[7]
    lost.append(failed(3, 7))
    with publishing(tmp_path / "d", compression=compression, reproducible=reproducible) as shards:
        published = shards.publisher.publish(shards.job(3, samples, lost))
        name = f"00003.{SUFFIX[compression]}"
        assert [file.name for file in published.files] == [name]
        check_files(shards, published)
        assert list(unpacked(shards, name).items()) == list(files_of(samples).items())
        assert shards.names() == {name, "00003.parquet", "00003_stats.json"}
        rows = parquet.read_table(shards.root / "00003.parquet").to_pylist()
        assert [row["key"] for row in rows] == [f"00003{index:04d}" for index in range(42)]
        by_key = {row["key"]: row for row in rows}
        for sample in samples:
            expected = {
                **sample.metadata(),
                "error": None,
                "error_message": None,
                "file": name,
                "member": f"{sample.key}.jpg",
            }
            assert by_key[sample.key] == expected
        found = {key: value for key, value in by_key["000030041"].items() if value is not None}
        assert found == {
            "key": "000030041",
            "name": "41.jpg",
            "url": "https://host.example/41.jpg",
            "error": "dns",
            "error_message": "not found",
        }
        stats = shards.stats(3)
        del stats["files"]
        assert stats == {
            "count": 42,
            "successes": 39,
            "failed_to_download": 3,
            "failed_to_resize": 0,
            "duration": 2.5,
            "start_time": 1000.0,
            "end_time": 1002.5,
            "status_dict": {"success": 39, "dns": 1, "http-404": 2},
            "shard": 3,
            "bytes": sum(len(sample.content) for sample in samples),
        }


def test_plain_part_is_renamed_with_two_blocks_behind_it(tmp_path: Path) -> None:
    with publishing(tmp_path) as shards:
        job = shards.job(0, examples(0, 5))
        before, inode = Path(job.part).read_bytes(), os.stat(job.part).st_ino
        shards.publisher.publish(job)
        assert (tmp_path / "00000.tar").read_bytes() == before + bytes(1024)
        assert (tmp_path / "00000.tar").stat().st_ino == inode


@pytest.mark.parametrize("compression", slow_but([("none",)], SUFFIX))
def test_reproducible_shard_does_not_depend_on_order_or_time(tmp_path: Path, compression: str) -> None:
    samples = examples(1, 30)
    contents = []
    for attempt in range(3):
        with publishing(tmp_path / str(attempt), compression=compression, reproducible=True) as shards:
            job = shards.job(1, samples)
            write_part(Path(job.part), random.Random(attempt).sample(samples, 30), times=1000 + attempt)
            (file,) = shards.publisher.publish(job).files
            contents.append((shards.root / file.name).read_bytes())
            if compression == "none":
                with tarfile.open(shards.root / file.name) as tar:
                    assert {info.mtime for info in tar} == {0}
    assert len(set(contents)) == 1


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_large_part_is_cut_between_samples(tmp_path: Path, store: str) -> None:
    samples = examples(2, 50, 3000)
    with publishing(tmp_path, store=store, max_size=40_000) as shards:
        published = shards.publisher.publish(shards.job(2, samples))
        check_files(shards, published)
        names = [file.name for file in published.files]
        assert names == [f"00002.{store}", *(f"00002-{i}.{store}" for i in range(1, len(names)))]
        assert len(names) > 3
        sidecar = "00002.parquet" if store == "tar" else "00002_items.parquet"
        rows = parquet.read_table(tmp_path / sidecar).to_pylist()
        assert sum(file.samples for file in published.files) == 50
        found: list[str] = []
        for file in published.files:
            if store == "tar":
                assert file.size <= 40_000
                members = shards.members(file.name)
                keys = [name.removesuffix(".json") for name in members if name.endswith(".json")]
                assert members == files_of([sample for sample in samples if sample.key in keys])
            else:
                keys = parquet.read_table(tmp_path / file.name)["key"].to_pylist()
            assert len(keys) == file.samples
            assert [row["key"] for row in rows if row["file"] == file.name] == keys
            found += keys
        assert found == [sample.key for sample in samples]
        assert shards.names() == {*names, sidecar, "00002_stats.json"}


def test_sample_larger_than_the_maximum_has_a_file_of_its_own(tmp_path: Path) -> None:
    samples = [example(0, 0, 10), example(0, 1, 100_000), example(0, 2, 10)]
    with publishing(tmp_path, max_size=20_000) as shards:
        published = shards.publisher.publish(shards.job(0, samples))
        assert [file.samples for file in published.files] == [1, 1, 1]
        check_files(shards, published)


def test_parquet_shard_has_content_and_kept_columns(tmp_path: Path) -> None:
    samples = examples(4, 25)
    with publishing(tmp_path, store="parquet") as shards:
        job = shards.job(4, samples, [failed(4, 25)])
        write_part(Path(job.part), random.Random(1).sample(samples, 25))
        check_files(shards, shards.publisher.publish(job))
        table = parquet.read_table(tmp_path / "00004.parquet")
        columns = ["key", "url", "status", "bytes", "content_type", "sha256", "name", "size"]
        assert table.column_names == [*columns, "caption", "width", "ratio"]
        expected = [{**sample.metadata(), "bytes": sample.content} for sample in samples]
        assert table.to_pylist() == [{name: row[name] for name in table.column_names} for row in expected]
        assert (
            parquet.read_metadata(tmp_path / "00004.parquet").row_group(0).column(3).compression == "ZSTD"
        )
        items = parquet.read_table(tmp_path / "00004_items.parquet")
        assert items["file"].to_pylist() == ["00004.parquet"] * 25 + [None]
        assert items["error"].to_pylist() == [None] * 25 + ["http-404"]
        assert shards.names() == {"00004.parquet", "00004_items.parquet", "00004_stats.json"}


def test_row_groups_have_64_megabytes_at_most(tmp_path: Path) -> None:
    samples = [example(0, index, 20 << 20) for index in range(7)]
    with publishing(tmp_path, store="parquet") as shards:
        shards.publisher.publish(shards.job(0, samples))
    file = parquet.ParquetFile(tmp_path / "00000.parquet")
    assert [file.metadata.row_group(index).num_rows for index in range(3)] == [3, 3, 1]
    assert [row for group in range(3) for row in file.read_row_group(group)["bytes"].to_pylist()] == [
        sample.content for sample in samples
    ]


def test_shard_of_failed_items_only_has_no_tar(tmp_path: Path) -> None:
    with publishing(tmp_path) as shards:
        job = shards.job(5, [], [failed(5, 0), failed(5, 1)])
        for _ in range(2):
            assert shards.publisher.publish(job) == PublishedShard(5, [])
            assert shards.names() == {"00005.parquet", "00005_stats.json"}
        table = parquet.read_table(tmp_path / "00005.parquet")
        assert table["error"].to_pylist() == ["http-404"] * 2
        assert shards.stats(5)["successes"] == 0


def test_items_are_json_lines_where_pyarrow_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.partition('.')[0] == 'pyarrow':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    samples = [example(0, 0, 10, tags=["a", 1], caption="c"), example(0, 1, 10)]
    with publishing(tmp_path / "d") as shards:
        shards.publisher.publish(shards.job(0, samples, [failed(0, 2)]))
        assert shards.names() == {"00000.tar", "00000.jsonl", "00000_stats.json"}
        lines = (shards.root / "00000.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
    assert [row["key"] for row in rows] == ["000000000", "000000001", "000000002"]
    assert [row["tags"] for row in rows] == [["a", 1], None, None]
    assert [row["error"] for row in rows] == [None, None, "http-404"]
    assert rows[0]["file"] == "00000.tar"
    assert len({tuple(row) for row in rows}) == 1


def written(shards: Shards) -> dict[str, tuple[int, int, int]]:
    """Return what changes with every file when it is written again."""
    found = {name: (shards.root / name).stat() for name in shards.names()}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


@pytest.mark.parametrize(
    "options", [{}, {"reproducible": True}, {"compression": "gz"}, {"store": "parquet"}]
)
def test_published_job_is_answered_from_the_stats(tmp_path: Path, options: dict[str, object]) -> None:
    with publishing(tmp_path, **options) as shards:
        job = shards.job(1, examples(1, 10), [failed(1, 10)])
        first = shards.publisher.publish(job)
        before = written(shards)
        assert not os.path.exists(job.part)
        assert shards.publisher.publish(job) == first
        assert written(shards) == before
        # A shard that was cut off is not published.
        (tmp_path / first.files[0].name).write_bytes(b"cut")
        with pytest.raises(
            DestinationError, match=r"shard 00001: .*missing, and its shard is not published"
        ):
            shards.publisher.publish(job)


def test_end_that_a_kill_cut_off_is_completed(tmp_path: Path) -> None:
    with publishing(tmp_path) as shards:
        for number, end in enumerate((0, 1, 511, 512, 700, 1024, 10240)):
            samples = examples(number, 3)
            job = shards.job(number, samples)
            with open(job.part, "ab") as file:
                file.write(bytes(end))
            (tmp_path / f".downloader-{number:05d}.parquet").write_bytes(b"left by the kill")
            (tmp_path / f"{number:05d}_stats.json").write_bytes(b"{")
            check_files(shards, shards.publisher.publish(job))
            assert shards.members(f"{number:05d}.tar") == files_of(samples)
            size = (tmp_path / f"{number:05d}.tar").stat().st_size
            assert (
                size == sum(512 + -(-len(data) // 512) * 512 for data in files_of(samples).values()) + 1024
            )
        assert not any(name.startswith(".downloader-") for name in shards.names())


def damage(content: bytes, kind: str) -> bytes:
    if kind == "cut in a member":
        return content[:-300]
    if kind == "cut between members":
        return content[: content.rindex(b".json\0", 0, -1) // 512 * 512]
    if kind == "no header":
        return content + b"x" * 512
    if kind == "twice":
        return content + content
    if kind == "metadata":
        return content.replace(b'"status": 200', b'"status": "2"')
    return content.replace(b'{"key"', b'["key"')


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("cut in a member", "ends in the middle of a member, at byte"),
        ("cut between members", r"the sample at byte \d+ has no .json"),
        ("no header", "no header at byte"),
        ("twice", "it has 8 samples, and 4 are expected"),
        ("metadata", "metadata that cannot be read"),
        ("json", "metadata that cannot be read"),
    ],
)
def test_damaged_part_is_refused_and_kept(tmp_path: Path, kind: str, why: str) -> None:
    with publishing(tmp_path) as shards:
        job = shards.job(6, examples(6, 4))
        content = damage(Path(job.part).read_bytes(), kind)
        Path(job.part).write_bytes(content)
        with pytest.raises(
            DestinationError, match=rf"^cannot publish shard 00006: .*part-6 is damaged: .*{why}"
        ):
            shards.publisher.publish(job)
        assert Path(job.part).read_bytes() == content
        assert shards.names() == {".downloader/part-6"}
        # The process goes on.
        shards.publisher.publish(shards.job(7, examples(7, 4)))


def test_key_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    samples = examples(0, 4)
    with publishing(tmp_path) as shards:
        job = shards.job(0, [*samples, samples[2]])
        with pytest.raises(DestinationError, match="the key 000000002 is in it twice"):
            shards.publisher.publish(job)


def test_name_that_is_taken_by_a_directory_stops_the_shard_and_leaves_nothing(tmp_path: Path) -> None:
    with publishing(tmp_path, reproducible=True) as shards:
        job = shards.job(1, examples(1, 4))
        (tmp_path / "00001.tar").mkdir()
        with pytest.raises(
            DestinationError, match=r"cannot publish shard 00001 in .* is a directory, not a file"
        ):
            shards.publisher.publish(job)
        assert not any(name.startswith(".downloader-") for name in shards.names())
        (tmp_path / "00001.tar").rmdir()
        check_files(shards, shards.publisher.publish(job))


def test_full_disk_stops_the_shard_and_leaves_its_part(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "x", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(mounted.stderr.decode().strip())
    samples = examples(2, 60, 8000)
    try:
        with publishing(disk, reproducible=True) as shards:
            job = shards.job(2, samples)
            with pytest.raises(
                DestinationError, match=r"in .*: no space left; free some, then run the same"
            ):
                shards.publisher.publish(job)
            assert shards.names() == {".downloader/part-2"}
            subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
            check_files(shards, shards.publisher.publish(job))
            assert shards.members("00002.tar") == files_of(samples)
    finally:
        subprocess.run(["umount", disk], check=True)


def test_part_on_another_file_system_is_copied(tmp_path: Path) -> None:
    place = Path("/dev/shm")
    if not place.is_dir() or place.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one file system only")
    samples = examples(0, 5)
    with tempfile.TemporaryDirectory(dir=place) as home:
        other = Path(home) / "part"
        write_part(other, samples)
        with publishing(tmp_path, home=home) as shards:
            check_files(shards, shards.publisher.publish(ShardJob(0, str(other), 5, [], 0.0, 1.0)))
            assert shards.members("00000.tar") == files_of(samples)
        assert not other.exists()


def test_indexes_list_what_is_published_in_order(tmp_path: Path) -> None:
    with publishing(tmp_path, max_size=30_000) as shards:
        write_indexes(str(tmp_path), open_home(shards.home), [], store="tar")
        assert shards.names() == set()
        expected = []
        for number, count in ((100_000, 3), (2, 30), (7, 0), (1, 2)):
            lost = [failed(number, count)]
            expected.append(
                shards.publisher.publish(shards.job(number, examples(number, count, 1000), lost))
            )
        (tmp_path / "00009_stats.json").write_text('{"of": "somebody else"}')
        shutil.copy(tmp_path / "00001_stats.json", tmp_path / "00001_stats.json.bak")
        unfinished = (tmp_path / "00001_stats.json").read_text().replace("00001.tar", "00008.tar")
        (tmp_path / "00008_stats.json").write_text(unfinished)
        write_indexes(str(tmp_path), open_home(shards.home), [7, 100_000, 1, 2], store="tar")
        assert not any(name.startswith(".downloader-") for name in shards.names())
    files = [file for shard in sorted(expected, key=lambda shard: shard.number) for file in shard.files]
    assert len(files) > 5
    index = json.loads((tmp_path / "shards.json").read_bytes())
    assert index == {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "shardlist": [
            {"url": f.name, "md5sum": f.md5, "nsamples": f.samples, "filesize": f.size} for f in files
        ],
    }
    sizes = json.loads((tmp_path / "sizes.json").read_bytes())
    assert list(sizes.items()) == [(file.name, file.samples) for file in files]


@pytest.mark.slow
def test_large_shard_takes_bounded_memory(tmp_path: Path) -> None:
    samples = [example(0, index, 4 << 20) for index in range(160)]
    for store in ("tar", "parquet"):
        with publishing(tmp_path / store, store=store, reproducible=True) as shards:
            shards.publisher.publish(shards.job(0, samples[:1]))
            job = shards.job(1, samples)
            shards.publisher.publish(job)
            (process,) = psutil.Process().children()
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10
            assert peak < 600, f"{peak} MiB for {store}, of a part of 640"
