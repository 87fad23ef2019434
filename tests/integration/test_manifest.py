"""--manifest and --hash: a row for each stored file, over all runs of a job."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import blake3
import pyarrow.parquet
import pytest
from checker import Truth
from harness import DevServer, report_of, stored
from servers import Server, listing, ok, redirect, status

Run = Callable[..., subprocess.CompletedProcess[str]]
OWN = ["name", "url", "final_url", "status", "size", "hash", "etag", "last_modified"]
OWN += ["content_type", "fetched_at", "shard", "key"]
MODIFIED = "Mon, 23 Nov 2026 10:00:00 GMT"
LANES = pytest.mark.parametrize("lane", ["auto", "requests"])
NOT_KNOWN = dict.fromkeys(("final_url", "status", "etag", "last_modified", "content_type", "fetched_at"))


def rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of a manifest in JSON lines, by name; none may be there twice."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["name"] for row in found}) == len(found)
    return {row["name"]: row for row in found}


def answers(count: int) -> dict[str, Any]:
    return {
        f"f{at}": ok(
            b"body %d" % at, f'ETag: "e{at}"', f"Last-Modified: {MODIFIED}", "content-type: text/x-a"
        )
        for at in range(count)
    }


@LANES
@pytest.mark.parametrize("large", [False, True])
def test_what_the_response_says(lane: str, large: bool, run_downloader: Run, tmp_path: Path) -> None:
    body = b"x" * (3_000_000 if large else 3)
    manifest = tmp_path / "m.jsonl"
    with Server(
        files={"f": ok(body, 'ETag: "1"', f"last-modified: {MODIFIED}", "Content-Type: a/b")}
    ) as server:
        argv = (server.url, "-o", tmp_path / "d", "--lane", lane, "--hash", "sha1", "--workers", 1)
        done = run_downloader(*argv, "--manifest", manifest)
        assert done.returncode == 0, done.stderr
        url = f"{server.url}/get/f"
    row = rows(manifest)["f"]
    assert list(row) == [*OWN, "columns"]
    fetched = datetime.fromisoformat(row.pop("fetched_at"))
    assert abs(fetched.timestamp() - manifest.stat().st_mtime) < 60
    assert row == {
        **{"name": "f", "url": url, "final_url": url, "status": 200, "size": len(body)},
        **{"hash": f"sha1:{hashlib.sha1(body).hexdigest()}", "etag": '"1"', "last_modified": MODIFIED},
        **{"content_type": "a/b", "shard": None, "key": None, "columns": {}},
    }
    assert done.stderr.count("\n") == 0 or "known" not in done.stderr


def test_the_url_after_redirects_and_no_secret(run_downloader: Run, tmp_path: Path) -> None:
    source = tmp_path / "l.txt"
    with Server() as server:
        server.routes |= {
            "/a": redirect("/b?token=SECRET"),
            "/b?token=SECRET": ok(b"b"),
            "/c?sig=SECRET&x=1": ok(b"c"),
        }
        source.write_text(f"{server.url}/a\n{server.url}/c?sig=SECRET&x=1\n")
        argv = (source, "-o", tmp_path / "d", "--manifest", tmp_path / "m.jsonl")
        assert run_downloader(*argv).returncode == 0
    found = {(row["url"], row["final_url"]) for row in rows(tmp_path / "m.jsonl").values()}
    cut = f"{server.url}/c?sig=***&x=1"
    assert found == {(f"{server.url}/a", f"{server.url}/b?token=***"), (cut, cut)}
    for path in [tmp_path / "m.jsonl", *(tmp_path / "d" / ".downloader").iterdir()]:
        assert b"SECRET" not in path.read_bytes(), path


@pytest.mark.parametrize("layout", ["flat", "hashed"])
def test_sha256sum_accepts_the_sums(
    layout: str, run_downloader: Run, dev_server: Callable[..., DevServer], tmp_path: Path
) -> None:
    server = dev_server(files=1500, size="0-3000")
    dest = tmp_path / "d"
    argv = (server.url, "-o", dest, "--layout", layout, "--manifest", dest / "SHA256SUMS", "--json")
    report = report_of(run_downloader(*argv))
    assert report["stored"] == 1500
    done = subprocess.run(
        ["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=dest, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1500


def test_names_that_would_break_a_line_of_the_sums(tmp_path: Path) -> None:
    from downloader.reporting.manifest_formats import Row, writer_of

    names = ["a\nb", "a\\b", "a\rb", " a ", "ä", "*a"]
    made = []
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
        digest = hashlib.sha256(name.encode()).hexdigest()
        made.append(Row(name, *[None] * 3, 1, f"sha256:{digest}", *[None] * 6, {}))
    with open(tmp_path / "SHA256SUMS", "wb") as file:
        writer_of("SHA256SUMS", "flat", [made])(file)
    command = ["sha256sum", "--strict", "-c", "SHA256SUMS"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(": OK\n") == len(names)


@pytest.mark.parametrize("algorithm", ["md5", "sha512", "blake3", "crc32", "crc32c"])
def test_each_algorithm(algorithm: str, run_downloader: Run, tmp_path: Path) -> None:
    import crc32c

    body = b"x" * 1000
    expected = {
        "blake3": blake3.blake3(body).hexdigest(),
        "crc32": f"{zlib.crc32(body):08x}",
        "crc32c": f"{crc32c.crc32c(body):08x}",
    }
    expected |= {name: hashlib.new(name, body).hexdigest() for name in ("md5", "sha512")}
    argv = ("-o", tmp_path / "d", "--hash", algorithm, "--manifest", tmp_path / "m.jsonl")
    with Server(files={"f": ok(body)}) as server:
        assert run_downloader(server.url, *argv).returncode == 0
    assert rows(tmp_path / "m.jsonl")["f"]["hash"] == f"{algorithm}:{expected[algorithm]}"


@pytest.fixture
def table(tmp_path: Path) -> Callable[[Server], Path]:
    """Return a function that writes a list with columns of several types, and gives its path."""

    def write(server: Server) -> Path:
        server.routes |= {f"/{at}": ok(b"%d" % at) for at in range(3)}
        made = [
            {"url": f"{server.url}/{at}", "caption": f'a, "{at}"\n', "n": at, "x": at / 2, "size": 1}
            for at in range(3)
        ]
        made[1] |= {"caption": None, "more": {"deep": [1]}}
        path = tmp_path / "list.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in made))
        return path

    return write


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("killed", [False, True])
def test_kept_columns(
    form: str, killed: bool, table: Callable[[Server], Path], run_downloader: Run, tmp_path: Path
) -> None:
    """Also where the records are lost: the list is read again."""
    manifest = tmp_path / f"m.{form}"
    with Server() as server:
        source = table(server)
        argv = (source, "-o", tmp_path / "d", "--keep-columns", "all")
        done = run_downloader(*argv, *([] if killed else ["--manifest", manifest]))
        assert done.returncode == 0, done.stderr
    if killed:
        assert run_downloader(*argv, "--manifest", manifest).returncode == 0
    if form == "jsonl":
        found = rows(manifest)
        assert [row["columns"]["caption"] for row in found.values()] == ['a, "0"\n', None, 'a, "2"\n']
        assert found["1"]["columns"]["more"] == {"deep": [1]}
        assert [row["url"] for row in found.values()] == [f"{server.url}/{at}" for at in range(3)]
        assert [row["status"] for row in found.values()] == [None if killed else 200] * 3
    elif form == "csv":
        with open(manifest, newline="") as file:
            lines = list(csv.DictReader(file))
        assert [line["caption"] for line in lines] == ['a, "0"\n', "", 'a, "2"\n']
        assert [line["more"] for line in lines] == ["", '{"deep":[1]}', ""]
        assert [(line["size"], line["columns.size"]) for line in lines] == [("1", "1")] * 3
        assert list(lines[0])[: len(OWN)] == OWN
    else:
        read = pyarrow.parquet.read_table(manifest)
        assert read.column_names[: len(OWN)] == OWN
        assert read["caption"].to_pylist() == ['a, "0"\n', None, 'a, "2"\n']
        assert (read["n"].to_pylist(), read["x"].to_pylist()) == ([0, 1, 2], [0.0, 0.5, 1.0])
        assert read["more"].to_pylist() == [None, '{"deep":[1]}', None]
        assert read["status"].to_pylist() == [None if killed else 200] * 3


def test_a_later_run_says_what_is_not_known(run_downloader: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    with Server(files=answers(30)) as server:
        argv = (server.url, "-o", tmp_path / "d")
        assert run_downloader(*argv).returncode == 0
        before = len(server.requests)
        done = run_downloader(*argv, "--manifest", manifest, "--hash", "sha256")
        assert done.returncode == 0
        assert len(server.requests) == before
    assert "of 30 files only name, size and what the source says are known" in done.stderr
    for name, row in rows(manifest).items():
        body = (tmp_path / "d" / name).read_bytes()
        assert row["hash"] == f"sha256:{hashlib.sha256(body).hexdigest()}"
        assert (row["size"], row["url"]) == (len(body), f"{server.url}/get/{name}")
        assert {column: row[column] for column in NOT_KNOWN} == NOT_KNOWN


def test_hash_alone_keeps_what_a_later_manifest_needs(run_downloader: Run, tmp_path: Path) -> None:
    with Server(files=answers(30)) as server:
        argv = (server.url, "-o", tmp_path / "d")
        assert run_downloader(*argv, "--hash", "sha256").returncode == 0
        done = run_downloader(*argv, "--manifest", tmp_path / "m.jsonl")
    assert done.returncode == 0
    assert "known" not in done.stderr
    assert {name: row["etag"] for name, row in rows(tmp_path / "m.jsonl").items()} == {
        f"f{at}": f'"e{at}"' for at in range(30)
    }
    assert all(row["hash"].startswith("sha256:") for row in rows(tmp_path / "m.jsonl").values())


def test_a_file_that_is_gone_has_no_line_in_the_sums(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files=answers(5)) as server:
        assert run_downloader(server.url, "-o", dest).returncode == 0
        (dest / "f1").unlink()
        (dest / "f2").write_bytes(b"other")
        done = run_downloader(server.url, "-o", dest, "--manifest", dest / "SHA256SUMS")
    assert done.returncode == 0
    assert "2 files have no sha256, so no line" in done.stderr
    assert sorted(line.split()[1] for line in (dest / "SHA256SUMS").read_text().splitlines()) == [
        *("f0", "f3", "f4")
    ]


def with_crc(data: bytes, crc: int) -> bytes:
    """Return ``data`` and four bytes more, which give it ``crc``."""
    base = zlib.crc32(data + bytes(4))
    basis: dict[int, tuple[int, int]] = {}  # what each bit of the four changes, as a triangular matrix

    def reduce(value: int, bits: int) -> tuple[int, int]:
        while value and (found := basis.get(value.bit_length())):
            value, bits = value ^ found[0], bits ^ found[1]
        return value, bits

    for bit in (1 << at for at in range(32)):
        value, bits = reduce(zlib.crc32(data + bit.to_bytes(4, "little")) ^ base, bit)
        basis[value.bit_length()] = (value, bits)
    made = data + reduce(crc ^ base, 0)[1].to_bytes(4, "little")
    assert zlib.crc32(made) == crc
    return made


@pytest.mark.parametrize("first", [(), ("--hash", "md5")])
def test_sums_never_state_what_contradicts_the_list(
    first: tuple[str, ...], run_downloader: Run, tmp_path: Path
) -> None:
    """A change made on purpose may keep size and CRC-32."""
    dest, bodies = tmp_path / "d", {f"f{at}": b"body of %d" % at for at in range(3)}
    with Server({f"/{name}": ok(body) for name, body in bodies.items()}) as server:
        lines = [f"{server.url}/{name},{hashlib.sha256(body).hexdigest()}" for name, body in bodies.items()]
        (tmp_path / "l.csv").write_text("\n".join(["url,sha256", *lines]) + "\n")
        assert run_downloader(tmp_path / "l.csv", "-o", dest, *first).returncode == 0
        forged = with_crc(b"evil".ljust(len(bodies["f1"]) - 4), zlib.crc32(bodies["f1"]))
        (dest / "f1").write_bytes(forged)
        argv = (tmp_path / "l.csv", "-o", dest, "--hash", "sha256", "--manifest", dest / "SHA256SUMS")
        done = run_downloader(*argv)
    assert "1 files have no sha256, so no line" in done.stderr
    assert hashlib.sha256(forged).hexdigest() not in (dest / "SHA256SUMS").read_text()


def test_failed_files_and_their_retry(run_downloader: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "m.jsonl"
    with Server(files=answers(30)) as server:
        argv = (server.url, "-o", tmp_path / "d", "--manifest", manifest)
        good, server.routes["/get/f7"] = server.routes["/get/f7"], status(404)
        assert run_downloader(*argv).returncode == 1
        assert set(rows(manifest)) == {f"f{at}" for at in range(30)} - {"f7"}
        server.routes["/get/f7"] = good
        assert run_downloader(*argv, "--retry-failed").returncode == 0
    assert rows(manifest)["f7"]["etag"] == '"e7"'
    assert len(rows(manifest)) == 30


def test_a_source_that_is_read_again(run_downloader: Run, tmp_path: Path) -> None:
    """What is unchanged keeps its row, though it is in another batch; what changed gets another."""
    manifest, dest = tmp_path / "m.jsonl", tmp_path / "d"
    with Server(files=answers(300)) as server:
        argv = (server.url, "-o", dest, "--manifest", manifest)
        assert run_downloader(*argv).returncode == 0
        before = rows(manifest)
        (dest / "f5").unlink()
        server.routes |= {
            "/get/f5": ok(b"changed", 'ETag: "changed"'),
            **{f"/get/a{at}": ok(b"new", f'ETag: "n{at}"') for at in range(100)},
        }
        names = [f"a{at}" for at in range(100)] + [f"f{at}" for at in range(300) if at != 6]
        server.routes["/list"] = listing(names)
        for _ in range(2):
            done = run_downloader(*argv, "--relist")
            assert done.returncode == 0, done.stderr
            assert "known" not in done.stderr
            after = rows(manifest)
            assert set(after) == set(names)
            assert after["f5"]["etag"] == '"changed"'
            assert all(after[f"a{at}"]["etag"] == f'"n{at}"' for at in range(100))
            assert all(after[name] == before[name] for name in before if name not in ("f5", "f6"))
        assert not list((dest / ".downloader").glob("records-0*")), "spools grow with each --relist"
        assert run_downloader(server.url, "-o", dest, "--restart").returncode == 0
        assert not list((dest / ".downloader").glob("records-*"))
        assert run_downloader(*argv).returncode == 0
        assert {row["status"] for row in rows(manifest).values()} == {None}


def test_files_that_were_there_before(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    dest.mkdir()
    (dest / "f1").write_bytes(b"mine")
    argv = ("--existing", "keep", "--manifest", tmp_path / "m.jsonl", "--hash", "sha256")
    with Server(files=answers(3)) as server:
        assert run_downloader(server.url, "-o", dest, *argv).returncode == 0
        found = rows(tmp_path / "m.jsonl")
        # One that is larger by now is not read, which might take hours.
        os.truncate(dest / "f0", 10 << 40)
        assert run_downloader(server.url, "-o", dest, *argv[:-1], "sha512").returncode == 0
    assert {name: row["status"] for name, row in found.items()} == {"f0": 200, "f1": None, "f2": 200}
    assert (found["f1"]["size"], found["f1"]["etag"]) == (4, None)
    assert found["f1"]["hash"] == f"sha256:{hashlib.sha256(b'mine').hexdigest()}"
    again = rows(tmp_path / "m.jsonl")
    assert again["f0"]["hash"] is None
    assert again["f1"]["hash"] == f"sha512:{hashlib.sha512(b'mine').hexdigest()}"


def test_the_name_of_the_manifest_is_reserved(run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "d"
    with Server(files={"m.csv": ok(b"x"), "f": ok(b"y")}) as server:
        done = run_downloader(server.url, "-o", dest, "--manifest", dest / "m.csv", "--json")
        assert report_of(done)["failed_by_error"] == {"reserved": 1}
        assert (dest / "m.csv").read_text().startswith("name,url,")
        assert run_downloader(server.url, "-o", tmp_path / "e").returncode == 0
        again = run_downloader(server.url, "-o", tmp_path / "e", "--manifest", tmp_path / "e" / "m.csv")
    assert again.returncode == 2
    assert "--manifest: m.csv is a file that was downloaded here" in again.stderr
    assert stored(tmp_path / "e")["m.csv"] == b"x"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--manifest", "m.txt"], "must end in .jsonl, .csv or .parquet, or be SHA256SUMS"),
        (["--manifest", "no/m.csv"], "does not exist"),
        (["--manifest", "SHA256SUMS", "--hash", "md5"], "SHA256SUMS has SHA-256"),
        (["--manifest", "SHA256SUMS", "--store", "null"], "is for files in DEST"),
        (["--manifest", "m.jsonl", "--dry-run"], "--dry-run fetches nothing"),
        (["--manifest", "m.jsonl", "--failures", "m.jsonl"], "give each its own"),
        (["--hash", "sha257"], "did you mean sha2"),
        (["--checksums", "some"], "is not one of off, list, all"),
    ],
)
def test_what_cannot_be_is_refused(argv: list[str], says: str, run_downloader: Run, tmp_path: Path) -> None:
    done = run_downloader("http://h", "-o", "d", *argv, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert says in done.stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("failing", [False, True])
def test_a_manifest_that_cannot_be_written(failing: bool, run_downloader: Run, tmp_path: Path) -> None:
    """A script that goes on after 1, as some files failed, would read the manifest of last night."""
    with Server(files={**answers(3), **({"gone": status(404)} if failing else {})}) as server:
        (tmp_path / "full.jsonl").symlink_to("/dev/full")
        done = run_downloader(server.url, "-o", tmp_path / "d", "--manifest", tmp_path / "full.jsonl")
    assert done.returncode == 4
    assert "full.jsonl cannot be written: No space left on device" in done.stderr
    assert len(stored(tmp_path / "d")) == 3


def test_to_a_pipe_and_with_store_null(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").symlink_to("/dev/stdout")
    truth = Truth(5)
    with Server(files={truth.name(at): ok(b"x") for at in range(5)}) as server:
        argv = (server.url, "-o", tmp_path / "d", "--store", "null", "--hash", "md5")
        done = run_downloader(*argv, "--manifest", tmp_path / "out.jsonl", "--report", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {line["hash"] for line in lines} == {f"md5:{hashlib.md5(b'x').hexdigest()}"}
    assert len(lines) == 5


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_that_have_too_many_columns_together_lose_nothing(
    run_downloader: Run, tmp_path: Path, suffix: str
) -> None:
    """Those at the beginning of the list have few. A manifest in JSON Lines has all, for no request."""
    with Server(default=lambda request: ok(b"x")) as server:  # type: ignore[arg-type]
        rows = [{"url": f"{server.url}/a{n}", "pad": "x" * 10_000} for n in range(40)]
        wide = [{"url": f"{server.url}/b{n}", **{f"c{n}.{at}": 1 for at in range(600)}} for n in range(2)]
        path = tmp_path / "l.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *wide]))
        argv = (path, "-o", tmp_path / "d", "--keep-columns", "all", "--workers", 1)
        said = run_downloader(*argv, "--manifest", tmp_path / f"m.{suffix}")
        assert (said.returncode, "nothing is lost" in said.stderr) == (4, True), said.stderr
        before = server.count()
        assert run_downloader(*argv, "--manifest", tmp_path / "m.jsonl").returncode == 0
        assert server.count() == before
    found = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert len(found) == 42
    assert sum("c1.599" in json.dumps(row) for row in found) == 1
