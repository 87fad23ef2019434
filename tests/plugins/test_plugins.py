"""A package that the downloader does not know adds a source with an option and a sink that publishes per
batch. The tests install it, and use it as a user would."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest
from harness import Job
from servers import Request, Server, Step, ok, redirect, status

from downloader.messages import FileRecord

Run = Callable[..., subprocess.CompletedProcess[str]]
KEY = "the key"
PACKAGE = Path(__file__).with_name("package")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which the package is installed."""
    copy = tmp_path_factory.mktemp("source") / "package"
    shutil.copytree(PACKAGE, copy)
    place = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*pip, "--target", place, copy], check=True, timeout=100)
    return {"PYTHONPATH": str(place)}


def body_of(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest() * 4


def signed(request: Request) -> Sequence[Step]:
    """Respond with the file, where the signature is that of this URL."""
    url = f"http://{request.header('Host')}{request.target}"
    if request.header("X-Signature") != hashlib.sha256(f"{KEY} {url}".encode()).hexdigest():
        return status(403)
    return ok(body_of(request.target), f'ETag: "{request.target}"', "Content-Type: text/x-example")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=signed) as made:
        yield made


def catalog(server: Server, path: Path, count: int, **more: object) -> Path:
    rows = [
        {"name": f"n{number}", "url": f"{server.url}/f/{number}", "note": f"row {number}"}
        for number in range(count)
    ]
    for row in rows:
        row["sha256"] = hashlib.sha256(body_of(urlsplit(row["url"]).path)).hexdigest()
    rows[0] |= more
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def crates(dest: Path) -> tuple[dict[str, bytes], list[FileRecord]]:
    """Return every file in the crates, each of them once, and the records."""
    files: dict[str, bytes] = {}
    records: list[FileRecord] = []
    for path in dest.glob("crate-*.zip"):
        with zipfile.ZipFile(path) as crate:
            for name in crate.namelist():
                if name == "index.msgpack":
                    records += msgspec.msgpack.decode(crate.read(name), type=list[FileRecord])
                else:
                    assert name not in files, f"{name} is there twice"
                    files[name] = crate.read(name)
    assert not list(dest.glob(".crate-*")), "a crate that is not published is left"
    return files, records


def expected(count: int) -> dict[str, bytes]:
    return {f"n{number}": body_of(f"/f/{number}") for number in range(count)}


def test_the_help_has_the_source_the_sink_and_the_options(
    installed: dict[str, str], run_downloader: Run
) -> None:
    shown = run_downloader("--help", env=installed).stdout
    assert "--source server|urls|catalog" in shown
    assert "--store files|tar|parquet|null|local|crates" in shown
    assert "--catalog-key KEY" in shown
    assert "Signs each request of a catalog." in shown
    assert "catalog" not in run_downloader("--help").stdout


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_each_request_is_signed_and_each_file_is_in_a_crate(
    lane: str, installed: dict[str, str], server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = catalog(server, tmp_path / "x.catalog", 300)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", "crates", "--catalog-key", KEY, "--lane", lane, "--json")
    done = run_downloader(*argv, env=installed)
    assert done.returncode == 0, done.stderr
    files, records = crates(dest)
    assert files == expected(300)
    assert {each.name: each.columns for each in records} == {
        f"n{number}": msgspec.msgpack.encode({"note": f"row {number}"}) for number in range(300)
    }
    for each in records:
        assert each.response is not None
        assert each.response.etag == f'"/f/{each.name[1:]}"'
        assert each.response.content_type == "text/x-example"
        assert (each.response.status, each.url) == (200, f"{server.url}/f/{each.name[1:]}")
    report = json.loads(done.stdout)
    lanes = report["lanes"]  # of what is pipelined some files are requested again
    assert (lanes["wire"] >= 300, lanes["requests"]) == ((True, 0) if lane == "auto" else (False, 300))
    assert (report["stored"], report["bytes"]) == (300, 300 * 128)


@pytest.mark.parametrize("store", ["files", "null"])
def test_the_source_goes_with_each_sink(
    store: str, installed: dict[str, str], server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = catalog(server, tmp_path / "x.catalog", 50)
    done = run_downloader(
        source, "-o", tmp_path / "dest", "--store", store, "--catalog-key", KEY, env=installed
    )
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_bytes() for path in (tmp_path / "dest").glob("n*")}
    assert found == (expected(50) if store == "files" else {})


def test_the_sink_goes_with_each_source(
    installed: dict[str, str], run_downloader: Run, tmp_path: Path
) -> None:
    with Server(files={f"n{number}": ok(body_of(f"/f/{number}")) for number in range(50)}) as server:
        argv = (server.url, "-o", tmp_path / "dest", "--store", "crates")
        done = run_downloader(*argv, env=installed)
    assert done.returncode == 0, done.stderr
    assert crates(tmp_path / "dest")[0] == expected(50)


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_a_manifest_has_shard_and_key(
    lane: str, installed: dict[str, str], server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = catalog(server, tmp_path / "x.catalog", 50)
    dest, manifest = tmp_path / "dest", tmp_path / "m.jsonl"
    argv = (source, "-o", dest, "--store", "crates", "--catalog-key", KEY, "--lane", lane)
    done = run_downloader(*argv, "--manifest", manifest, "--hash", "md5", env=installed)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert {row["name"] for row in rows} == set(expected(50))
    hashes = {each.name: each.hash for each in crates(dest)[1]}
    for row in rows:
        digest = hashlib.md5(expected(50)[row["name"]]).hexdigest()
        assert row["hash"] == hashes[row["name"]] == f"md5:{digest}"
        assert row["etag"] == f'"/f/{row["name"][1:]}"'
        assert (row["key"], row["columns"]["note"]) == (row["name"], f"row {row['name'][1:]}")
        assert (dest / f"{row['shard']}.zip").exists()


def test_a_redirect_does_not_take_the_signature_along(
    installed: dict[str, str], server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    with Server(default=ok(body_of("/f/0"))) as other:
        server.routes["/f/0"] = redirect(f"{other.url}/moved")
        source = catalog(server, tmp_path / "x.catalog", 1)
        argv = (source, "-o", tmp_path / "dest", "--catalog-key", KEY)
        done = run_downloader(*argv, env=installed)
        assert done.returncode == 0, done.stderr
        assert [each.header("X-Signature") for each in other.requests] == [None]


@pytest.mark.parametrize("store", ["files", "crates"])
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"sha256": "0" * 64}, "checksum-mismatch"),
        ({"sha256": "what"}, "bad-checksum"),
        ({"size": 7}, "size-mismatch"),
        ({"url": "http://h:x/"}, "bad-url"),
    ],
)
def test_content_that_differs_from_the_catalog_is_not_stored(
    store: str,
    more: dict[str, object],
    code: str,
    installed: dict[str, str],
    server: Server,
    run_downloader: Run,
    tmp_path: Path,
) -> None:
    source = catalog(server, tmp_path / "x.catalog", 20, **more)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", store, "--catalog-key", KEY, "--retries", 1, "--backoff", "1ms")
    done = run_downloader(*argv, "--json", env=installed)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["failed_by_error"] == {code: 1}
    rest = {name: body for name, body in expected(20).items() if name != "n0"}
    found = (
        crates(dest)[0] if store == "crates" else {path.name: path.read_bytes() for path in dest.glob("n*")}
    )
    assert found == rest


class Begun(NamedTuple):
    """A run into crates. ``again``: run the same command to its end."""

    job: Job
    again: Callable[[], subprocess.CompletedProcess[str]]
    dest: Path


@pytest.fixture
def begin(
    installed: dict[str, str],
    server: Server,
    start: Callable[..., Job],
    run_downloader: Run,
    tmp_path: Path,
) -> Callable[..., Begun]:
    """Return a function: ``begin(*options)`` starts a run of 3,000 files, and waits for two crates."""

    def begun(*options: object) -> Begun:
        source = catalog(server, tmp_path / "x.catalog", 3000)
        dest = tmp_path / "dest"
        argv = (source, "-o", dest, "--store", "crates", "--catalog-key", KEY, *options)
        job = start(*argv, env=installed)
        job.until(lambda: len(list(dest.glob("crate-*.zip"))) >= 2)
        return Begun(job, lambda: run_downloader(*argv, env=installed), dest)

    return begun


@pytest.mark.parametrize("victim", ["supervisor", "workers"])
def test_killed_and_resumed(victim: str, begin: Callable[..., Begun], server: Server) -> None:
    job, again, dest = begin("--workers", 2)
    if victim == "supervisor":
        job.kill(signal.SIGKILL)
        assert job.wait() == -signal.SIGKILL
        job.alone()
        done = again()
        assert done.returncode == 0, done.stderr
    else:
        for pid in job.children()[1:]:
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        assert job.wait() == 0, job.err
    files, records = crates(dest)
    assert files == expected(3000)
    assert len(records) == 3000
    assert len(server.requests) < 2 * 3000, "what was published was fetched again"


def test_interrupted_and_resumed(begin: Callable[..., Begun]) -> None:
    job, again, dest = begin()
    job.kill(signal.SIGINT)
    assert job.wait() == 130, job.err
    done = again()
    assert done.returncode == 0, done.stderr
    assert crates(dest)[0] == expected(3000)


def test_failed_files_are_added_and_damaged_files_stored_again(
    installed: dict[str, str], server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    server.routes["/f/7"] = status(404)
    source = catalog(server, tmp_path / "x.catalog", 20)
    dest = tmp_path / "dest"
    argv = (source, "-o", dest, "--store", "crates", "--catalog-key", KEY)
    assert run_downloader(*argv, env=installed).returncode == 1
    del server.routes["/f/7"]
    assert run_downloader(*argv, "--retry-failed", env=installed).returncode == 0
    assert crates(dest)[0] == expected(20)
    assert run_downloader("verify", dest, env=installed).returncode == 0
    (dest / "crate-0-1.zip").unlink()
    seen = run_downloader("verify", dest, env=installed)
    assert (seen.returncode, seen.stdout.splitlines()[0]) == (1, "damaged: n7")
    assert run_downloader(*argv, env=installed).returncode == 0
    assert crates(dest)[0] == expected(20)
    assert json.loads(run_downloader("status", dest, "--json", env=installed).stdout)["store"] == "crates"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "a catalog needs --catalog-key"),
        (("--catalog-key", KEY, "--catalog-times", "x"), "invalid value for '--catalog-times'"),
        (("--catalog-key", KEY, "--store", "crate"), "did you mean crates?"),
        (("--catalog-key", KEY, "--source", "catalogs"), "did you mean catalog?"),
    ],
)
def test_impossible_combinations_are_refused(
    argv: tuple[str, ...],
    says: str,
    installed: dict[str, str],
    server: Server,
    run_downloader: Run,
    tmp_path: Path,
) -> None:
    source = catalog(server, tmp_path / "x.catalog", 1)
    done = run_downloader(source, "-o", tmp_path / "dest", *argv, env=installed)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_job_without_its_package_names_what_is_missing(
    installed: dict[str, str], server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    source = catalog(server, tmp_path / "x.catalog", 3)
    argv = (source, "-o", tmp_path / "dest", "--store", "crates", "--catalog-key", KEY)
    assert run_downloader(*argv, env=installed).returncode == 0
    for command in (("verify", tmp_path / "dest"), (source, "-o", tmp_path / "dest")):
        done = run_downloader(*command)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_package_that_cannot_be_loaded_is_named(
    installed: dict[str, str], run_downloader: Run, tmp_path: Path
) -> None:
    broken = shutil.copytree(installed["PYTHONPATH"], tmp_path / "broken")
    (broken / "example_catalog.py").write_text("import nothing_of_that_name\n")
    done = run_downloader("--help", env={"PYTHONPATH": str(broken)})
    assert done.returncode == 2, done.stderr
    assert "'catalog' (downloader.sources) of the installed package downloader-example" in done.stderr
    assert len(done.stderr.splitlines()) == 1
