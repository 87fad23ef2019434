"""Shards through the command line: what they hold, kills, further attempts, options."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from harness import Job, bytes_in, report_of, slow_but, stored
from pyarrow import parquet
from servers import Pause, Request, Server, Step, ok, status

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COUNT = 3000


def body_of(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest() * 3


def answer(request: Request) -> Sequence[Step]:
    return ok(body_of(request.target), "Content-Type: image/jpeg")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=answer) as made:
        yield made


def write_list(server: Server, path: Path, count: int) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["url", "caption"])
        writer.writerows([f"{server.url}/f/{number}.jpg", f"picture {number}"] for number in range(count))
    return path


def tar_samples(dest: Path) -> dict[str, tuple[str, str, bytes]]:
    """Return the samples of all tar shards by key: the shard, the name, and the content."""
    found: dict[str, tuple[str, str, bytes]] = {}
    for path in sorted(dest.glob("*.tar*")):
        with tarfile.open(path) as shard:
            members = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
        for name, content in members.items():
            if name.endswith(".json"):
                fields = json.loads(content)
                key = name.removesuffix(".json")
                assert fields["key"] == key
                assert key not in found, f"{key} is there twice"
                body = members[f"{key}.jpg"]
                assert fields["sha256"] == hashlib.sha256(body).hexdigest()
                found[key] = (path.name, fields["url"].partition("/f/")[2], body)
    return found


def parquet_samples(dest: Path) -> dict[str, tuple[str, str, bytes]]:
    found: dict[str, tuple[str, str, bytes]] = {}
    for path in sorted(dest.glob("*[0-9].parquet")):
        for row in parquet.read_table(path, columns=["key", "url", "bytes"]).to_pylist():
            assert row["key"] not in found, f"{row['key']} is there twice"
            found[row["key"]] = (path.name, row["url"].partition("/f/")[2], row["bytes"])
    return found


READ = {"tar": tar_samples, "parquet": parquet_samples}


def expected(count: int, shard_files: int, suffix: str = "tar") -> dict[str, tuple[str, str, bytes]]:
    return {
        f"{number // shard_files:05d}{number % shard_files:04d}": (
            f"{number // shard_files:05d}.{suffix}",
            f"{number}.jpg",
            body_of(f"/f/{number}.jpg"),
        )
        for number in range(count)
    }


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_every_item_is_in_the_shard_of_its_row(
    store: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = write_list(server, tmp_path / "list.csv", 250)
    dest = tmp_path / "dest"
    done = run_downloader(source, "-o", dest, "--store", store, "--shard-files", 100, "--json")
    assert done.returncode == 0, done.stderr
    assert report_of(done)["stored"] == 250
    assert READ[store](dest) == expected(250, 100, store)
    assert run_downloader("verify", dest).returncode == 0
    again = report_of(run_downloader(source, "-o", dest, "--store", store, "--shard-files", 100, "--json"))
    assert (again["requests"], again["exit_code"]) == (0, 0)


@pytest.mark.parametrize("store", ["tar", "files"])
def test_contents_that_come_in_pieces(store: str, run_downloader: Run, tmp_path: Path) -> None:
    """They are stored with the others of their window."""
    contents = {f"f{number}.bin": os.urandom(1000 + 397 * number) for number in range(60)}

    def in_pieces(request: Request) -> Sequence[Step]:
        whole = b"".join(step for step in ok(contents[request.target[5:]]) if isinstance(step, bytes))
        return [whole[:-700], Pause(0.01), whole[-700:]]

    with Server(files=dict.fromkeys(contents, in_pieces)) as server:
        dest = tmp_path / "dest"
        manifest = tmp_path / "manifest.jsonl"
        options = ("--store", store, "--workers", 1, "--pipeline", 8, "--manifest", manifest)
        done = run_downloader(server.url, "-o", dest, *options)
    assert done.returncode == 0, done.stderr
    if store == "files":
        assert {name: (dest / name).read_bytes() for name in contents} == contents
    else:
        with tarfile.open(dest / "00000.tar") as shard:
            members = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
        assert {name: members[name] for name in contents} == contents
    rows = map(json.loads, manifest.read_text().splitlines())
    assert {row["name"]: row["size"] for row in rows} == {k: len(v) for k, v in contents.items()}


@pytest.mark.parametrize("key", ["index", "name"])
def test_members_have_the_extension_of_the_path_or_of_the_media_type(
    run_downloader: Run, tmp_path: Path, key: str
) -> None:
    types = {
        "/c?v=1.2": "image/jpg",
        "/d": "Audio/MP3; x=y",
        "/e?x.y": "text/xml",
        "/f?q=a.gif": "x",
        "/": '"image/jpeg"',
        "/g/": "image/jfif",
        "/g/?v=1.html": "image/webp ; x=y",
        "/h/?token=s3cret": "image/gif",
    }
    targets = ["/a.jpg?w=300", "/b.PNG?v=1.2", "/x.tar.gz?z", *types]

    def typed(request: Request) -> Sequence[Step]:
        return ok(b"x", f"Content-Type: {types.get(request.target, 'text/plain')}")

    path = tmp_path / "urls.txt"
    with Server(default=typed) as server:
        path.write_text("".join(f"{server.url}{target}\n" for target in targets))
        lane = "auto" if key == "name" else "requests"
        argv = (path, "-o", tmp_path / "d", "--store", "tar", "--key", key, "--lane", lane)
        done = run_downloader(*argv)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "d" / "00000.tar") as shard:
        names = [name.partition(".") for name in shard.getnames() if not name.endswith(".json")]
    found = sorted(extension for _, _, extension in names)
    assert found == ["bin", "gif", "gz", *["jpg"] * 4, "mp3", "png", "webp", "xml"]
    assert run_downloader("verify", tmp_path / "d").returncode == 0


def test_member_keeps_its_column(server: Server, run_downloader: Run, tmp_path: Path) -> None:
    """--keep-columns need not say it again; other kinds of sources have no columns."""
    source = write_list(server, tmp_path / "list.csv", 2)
    argv = (source, "-o", tmp_path / "d", "--store", "tar", "--member", "txt=caption")
    done = run_downloader(*argv)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "d" / "00000.tar") as shard:
        assert shard.extractfile("000000001.txt").read() == b"picture 1"  # type: ignore[union-attr]
    # The same job, with the column named twice.
    assert run_downloader(*argv, "--keep-columns", "caption").returncode == 0
    refused = run_downloader(*argv[:-1], "txt=nothing", "-o", tmp_path / "e")
    assert (refused.returncode, "no column 'nothing'" in refused.stderr) == (2, True), refused.stderr
    other = run_downloader(server.url, "-o", tmp_path / "f", "--store", "tar", "--member", "txt=caption")
    assert (other.returncode, "--member is for lists" in other.stderr) == (2, True)


def test_columns_are_members_and_fields(server: Server, run_downloader: Run, tmp_path: Path) -> None:
    source = write_list(server, tmp_path / "list.csv", 3)
    dest = tmp_path / "dest"
    options = ("--keep-columns", "caption", "--member", "txt=caption")
    assert run_downloader(source, "-o", dest, "--store", "tar", *options).returncode == 0
    with tarfile.open(dest / "00000.tar") as shard:
        names = shard.getnames()
        text = shard.extractfile("000000001.txt")
        fields = shard.extractfile("000000001.json")
        assert text is not None
        assert fields is not None
        assert text.read() == b"picture 1"
        assert json.loads(fields.read())["caption"] == "picture 1"
    assert sorted(names) == sorted(f"00000000{n}.{e}" for n in range(3) for e in ("jpg", "json", "txt"))
    assert parquet.read_table(dest / "00000.parquet").column("caption").to_pylist() == [
        "picture 0",
        "picture 1",
        "picture 2",
    ]


def test_columns_are_given_in_one_option_or_in_several(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    (tmp_path / "list.csv").write_text(f"url,caption,label\n{server.url}/f/0.jpg,a text,3\n")
    options = ("--keep-columns", "caption", "--keep-columns", "label")
    options += ("--member", "txt=caption", "--member", "cls=label")
    done = run_downloader(tmp_path / "list.csv", "-o", tmp_path / "d", "--store", "tar", *options)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "d/00000.tar") as shard:
        found = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
    assert (found["000000000.txt"], found["000000000.cls"]) == (b"a text", b"3")
    fields = json.loads(found["000000000.json"])
    assert (fields["caption"], fields["label"]) == ("a text", "3")


@pytest.mark.parametrize("option", ["--key", "--sample-key"])
@pytest.mark.parametrize(("word", "keys"), [("name", {"0", "1"}), ("index", {"000000000", "000000001"})])
def test_key_of_samples_has_two_spellings(
    option: str, word: str, keys: set[str], server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = write_list(server, tmp_path / "list.csv", 2)
    (tmp_path / word).write_text("a file of that name is not a key of samples")
    argv = (source, "-o", tmp_path / "d", "--store", "tar", option, word)
    done = run_downloader(*argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert tar_samples(tmp_path / "d").keys() == keys
    # Both spellings are the same job.
    assert run_downloader(*argv[:-2], "--sample-key", word, cwd=tmp_path).returncode == 0


def test_names_are_keys_without_dots(run_downloader: Run, tmp_path: Path) -> None:
    names = ["a.b.jpg", "a.jpg", "a.png", "x.json", "no-extension", "ü.JPG", ".a.jpg", "n" * 200 + ".jpg"]
    with Server(files={name: ok(name.encode()) for name in names}) as server:
        dest = tmp_path / "dest"
        done = run_downloader(server.url, "-o", dest, "--store", "tar", "--reproducible")
    assert done.returncode == 0, done.stderr
    with tarfile.open(dest / "00000.tar") as shard:
        contents = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
    samples = {
        fields["name"]: fields["key"]
        for name, body in contents.items()
        if name.count(".") == 1 and name.endswith(".json")
        for fields in [json.loads(body)]
    }
    assert len(set(samples.values())) == len(names)
    assert samples["a.b.jpg"] == "a%2Eb"
    assert {samples["a.jpg"], samples["a.png"]} == {"a", "a%~2"}
    assert all("." not in key and len(key.encode()) <= 80 for key in samples.values())
    by_key = {key: name for name, key in samples.items()}
    for name, body in contents.items():
        key, _, extension = name.partition(".")
        if extension != "json":
            assert body == by_key[key].encode()
    assert contents["x.content.json"] == b"x.json"


def parts(dest: Path) -> int:
    """Return how many bytes the parts of unpublished shards have."""
    return bytes_in(dest.glob(".downloader/shards/*.part"))


@pytest.mark.parametrize(
    ("store", "victim"),
    slow_but([("tar", "supervisor"), ("parquet", "workers")], READ, ["supervisor", "workers"]),
)
def test_killed_and_resumed(
    store: str, victim: str, server: Server, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    source = write_list(server, tmp_path / "list.csv", COUNT)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", store, "--shard-files", 1000, "--workers", 2, "--json")
    kills = 3
    for kill in range(1, kills + 1):
        job = start(*argv)
        job.until(lambda sofar=kill * COUNT // 6: len(server.requests) > sofar and parts(dest))  # type: ignore[misc]
        if victim == "supervisor":
            job.kill(signal.SIGKILL)
            job.wait()
            job.alone()
            continue
        for pid in job.children()[1:]:
            os.kill(pid, signal.SIGKILL)
        assert job.wait() == 0, job.err
        break
    else:
        done = run_downloader(*argv)
        assert done.returncode == 0, done.stderr
    assert READ[store](dest) == expected(COUNT, 1000, store)
    # Two workers, at most 32 connections each, pipelined up to 64 deep for one server.
    assert len(server.requests) < COUNT * 2
    assert not list(dest.glob(".downloader/shards/*"))
    assert sorted(path.name for path in dest.glob("*.json")) == [
        *(f"0000{shard}_stats.json" for shard in range(3)),
        "shards.json",
        "sizes.json",
    ]


def test_status_of_a_killed_job_counts_what_its_parts_have(
    server: Server, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    source, dest = write_list(server, tmp_path / "list.csv", COUNT), tmp_path / "dest"
    argv = (source, "-o", dest, "--store", "tar", "--shard-files", COUNT, "--workers", 1, "--json")
    job = start(*argv)
    job.until(lambda: parts(dest) > 500_000)
    job.kill(signal.SIGKILL)
    job.wait()
    job.alone()
    told = json.loads(run_downloader("status", dest, "--json").stdout)
    assert told["stored"] + told["pending"] == told["listed"]
    assert told["bytes"] == told["stored"] * len(body_of(""))
    report = report_of(run_downloader(*argv))
    assert report["skipped"] == told["stored"] > 100
    told = json.loads(run_downloader("status", dest, "--json").stdout)
    assert (told["stored"], told["pending"]) == (COUNT, 0)


def test_failures_and_kills_move_nothing_to_another_shard(
    server: Server, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    server.routes["/f/7.jpg"] = status(404)
    source = write_list(server, tmp_path / "list.csv", COUNT)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", "tar", "--shard-files", 100, "--json")
    job = start(*argv, "--rate", 1000)
    job.until((dest / "00002.tar").exists)
    job.kill(signal.SIGKILL)
    job.wait()
    job.alone()
    assert not (dest / "00029.tar").exists(), "it was too late"
    # What has failed is tried again when the source is read.
    assert run_downloader(*argv).returncode == 1
    wanted = expected(COUNT, 100)
    del wanted["000000007"]
    assert tar_samples(dest) == wanted


def test_what_has_failed_goes_into_a_further_shard_with_its_own_keys(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    for number in (7, 150, 151):
        server.routes[f"/f/{number}.jpg"] = status(404)
    source = write_list(server, tmp_path / "list.csv", 250)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", "tar", "--shard-files", 100, "--json")
    assert run_downloader(*argv).returncode == 1
    row = parquet.read_table(dest / "00001.parquet").to_pylist()[50]
    assert (row["key"], row["error"]) == ("000010050", "http-404")
    before = stored(dest)
    for number in (7, 151):
        del server.routes[f"/f/{number}.jpg"]
    done = run_downloader(*argv, "--retry-failed")
    assert done.returncode == 1, done.stderr
    wanted = expected(250, 100)
    for number, shard in ((7, "00003"), (151, "00004")):
        key = f"{number // 100:05d}{number % 100:04d}"
        wanted[key] = (f"{shard}.tar", *wanted[key][1:])
    del wanted["000010050"]
    assert tar_samples(dest) == wanted
    assert before.items() - stored(dest).items() == {
        (name, before[name]) for name in ("shards.json", "sizes.json")
    }
    del server.routes["/f/150.jpg"]
    assert run_downloader(*argv).returncode == 0
    assert tar_samples(dest)["000010050"][0] == "00005.tar"
    assert run_downloader("verify", dest).returncode == 0


def test_reproducible_shards_are_the_same_whatever_was_killed(
    server: Server, start: Callable[..., Job], run_downloader: Run, tmp_path: Path
) -> None:
    source = write_list(server, tmp_path / "list.csv", COUNT)
    found = []
    for name in ("killed", "whole"):
        dest = tmp_path / name
        argv = (source, "-o", dest, "--store", "tar", "--shard-files", 1500, "--reproducible")
        if name == "killed":
            job = start(*argv)
            job.until(lambda: parts(tmp_path / "killed") > 100_000)
            job.kill(signal.SIGKILL)
            job.wait()
            job.alone()
        done = run_downloader(*argv)
        assert done.returncode == 0, done.stderr
        with tarfile.open(dest / "00000.tar") as shard:
            assert {member.mtime for member in shard} == {0}
            assert shard.getnames() == sorted(shard.getnames(), key=lambda each: each.partition(".")[0])
        found.append({path.name: path.read_bytes() for path in dest.glob("*.tar")})
    assert found[0] == found[1]


def test_damaged_shard_is_found_and_its_samples_stored_again(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = write_list(server, tmp_path / "list.csv", 20)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", "tar")
    assert run_downloader(*argv).returncode == 0
    with open(dest / "00000.tar", "r+b") as shard:
        shard.seek(512 + 10)
        shard.write(b"!")
    seen = run_downloader("verify", dest)
    assert seen.returncode == 1
    assert "damaged: 00000.tar: changed since it was published; the same command" in seen.stdout
    before = len(server.requests)
    done = run_downloader(*argv)
    assert done.returncode == 0, done.stderr
    assert len(server.requests) - before == 1, "the others are taken from the damaged shard"
    assert sorted(dest.glob("*.tar")) == [dest / "00000.tar"]
    assert run_downloader("verify", dest).returncode == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--store", "tar", "--layout", "hashed"), "--layout hashed is for --store files"),
        (("--store", "tar", "--member", "caption"), "is not EXT=COLUMN"),
        (("--store", "tar", "--shard-files", "0"), "is not a number from 1 to"),
        (("--store", "tar", "--member", "JSON=caption"), "json is the member with the metadata"),
        (("--store", "tar", "--member", "t=a", "--member", "T=b"), "t is given two columns, a and b"),
        (("--store", "parquet", "--shard-compression", "gz"), "is for --store tar"),
        (("--store", "parquet", "--digests", "crc32"), "--digests is for --store tar"),
        (("--store", "tar", "--key", "name", "--sample-key", "index"), "contradict each other; give one"),
        (("--store", "tar", "--key", "name", "--key", "k.pem", "--cert", "c.pem"), "--key is given twice"),
        (("--store", "tar", "--key", "name", "--cert", "c.pem"), "--cert c.pem cannot be read"),
        (("--store", "tar", "--key", "./name"), "--key needs --cert; a key of samples is index or name"),
        (
            ("--key", "name"),
            "is for --store tar or parquet; for a file of that name write --cert FILE --key ./name",
        ),
    ],
)
def test_impossible_options_are_refused(
    options: Sequence[str], text: str, run_downloader: Run, tmp_path: Path
) -> None:
    source = tmp_path / "list.csv"
    source.write_text("url,caption\nhttp://127.0.0.1:9/x,y\n")
    done = run_downloader(source, "-o", tmp_path / "dest", *options)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "dest").exists()


def test_other_options_for_the_same_shards_are_refused(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = write_list(server, tmp_path / "list.csv", 3)
    argv = (source, "-o", tmp_path / "dest", "--store", "tar", "--shard-files")
    assert run_downloader(*argv, 2).returncode == 0
    done = run_downloader(*argv, 3)
    assert done.returncode == 2
    assert "--shard-files 2" in done.stderr


@pytest.mark.parametrize("compression", ["gz", pytest.param("zst", marks=pytest.mark.slow)])
def test_of_a_compressed_shard_what_is_before_the_cut_is_not_fetched_again(
    compression: str, server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = write_list(server, tmp_path / "list.csv", 400)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", "tar", "--shard-compression", compression)
    assert run_downloader(*argv).returncode == 0
    shard = dest / f"00000.tar.{compression}"
    os.truncate(shard, shard.stat().st_size * 2 // 3)
    assert run_downloader("verify", dest).returncode == 1
    before = len(server.requests)
    assert run_downloader(*argv).returncode == 0
    assert 0 < len(server.requests) - before < 400
    assert run_downloader("verify", dest).returncode == 0
