"""A slow disk holds no hub: other files go on, and no worker is killed for its silence."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from checker import ledgers
from harness import DevServer, Job
from hub_watch import MAX_HOLD, watching
from servers import HANG, Nth, Server, Until, ok, redirect
from slow_disk import compiled, slow

Start = Callable[..., Job]
Serve = Callable[..., DevServer]

RATE = 20e6
LARGE = 10 << 20
# One comes through the pipelined client, the other, for its redirect, through the requests client.
BODIES = {name: random.Random(name).randbytes(LARGE) for name in ("large", "moved")}
SMALL = {f"small{number:03d}": random.Random(number).randbytes(3000 + number) for number in range(200)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compiled(tmp_path_factory.mktemp("library"))
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture
def dest() -> Iterator[Path]:
    """Return a directory in memory where there is one, so that nothing but the slow disk is waited for.

    Nothing may hold a hub meanwhile, even waiting.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        root = Path(made)
        with watching(root / "watch", MAX_HOLD, max_wait=MAX_HOLD) as watched:
            yield root / "dest"
        assert not (told := watched.troubles() + watched.holds()), "\n".join(told)


@pytest.fixture
def server() -> Iterator[Server]:
    routes = {"/moved": redirect("/other"), "/other": ok(BODIES["moved"]), "/large": ok(BODIES["large"])}
    routes |= {f"/{name}": ok(body) for name, body in SMALL.items()}
    with Server(routes) as made:
        yield made


def listed(server: Server, folder: Path, *more: str) -> Path:
    """Return a list in which the large files come first, after ``more``."""
    path = folder / "list.csv"
    rows = [f"{server.url}/{name},{name}\n" for name in [*more, *BODIES, *SMALL]]
    path.write_text("".join(["url,name\n", *rows]))
    return path


def contents(shard: Path) -> list[bytes]:
    """Return the content of each sample, sorted."""
    with tarfile.open(shard) as tar:
        members = {each.name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]
    found = []
    for name, text in members.items():
        if name.endswith(".json"):
            key = name.removesuffix("json")
            (content,) = (body for each, body in members.items() if each.startswith(key) and each != name)
            assert json.loads(text)["sha256"] == hashlib.sha256(content).hexdigest()
            found.append(content)
    assert len(members) == 2 * len(found), sorted(members)
    return sorted(found)


def test_large_contents_are_copied_into_a_shard_while_others_are_appended(
    library: Path, server: Server, start: Start, dest: Path, tmp_path: Path
) -> None:
    """To copy one takes a second, and a kill in the middle of that costs what was in flight only."""
    part = dest / ".downloader" / "shards" / "00000.part"
    late = {f"late{number}": b"late %d" % number for number in range(20)}

    def text() -> bytes:
        return part.read_bytes() if part.exists() else b""

    both_are_copied = Event()
    server.routes |= {f"/{name}": [Until(both_are_copied), *ok(body)] for name, body in late.items()}
    source = listed(server, tmp_path, *late)
    argv = (source, "-o", dest, "--store", "tar", "--workers", 1, "--json")
    first = start(*argv, env=slow(library, dest, RATE))
    first.until(lambda: text().count(b".reserved\0") == len(BODIES))
    both_are_copied.set()
    first.until(lambda: text().count(b'"key":"0000') == len(SMALL) + len(late))
    assert text().count(b".reserved\0")
    first.kill(signal.SIGKILL)
    first.alone()
    before = len(server.requests)
    last = start(*argv, env=slow(library, dest, RATE))
    assert last.wait() == 0, last.err
    assert json.loads(last.out)["worker_deaths"] == 0
    assert contents(dest / "00000.tar") == sorted([*BODIES.values(), *SMALL.values(), *late.values()])
    assert {request.target for request in server.requests[before:]} <= {"/large", "/moved", "/other"}


def test_large_files_are_compared_while_others_are_stored(
    library: Path, server: Server, start: Start, dest: Path, tmp_path: Path
) -> None:
    """With files that were there before, and, after a kill, with those that were stored."""
    dest.mkdir()
    for name, body in BODIES.items():
        (dest / name).write_bytes(body)
    server.routes["/first"] = Nth([HANG], ok(b"first"))
    argv = (listed(server, tmp_path, "first"), "-o", dest, "--workers", 1, "--json")
    first = start(*argv, "--progress", "none", env=slow(library, dest, RATE))
    # A file hangs, so the first batch, of 32, stays open, and what it has is in the ledger only.
    first.until(lambda: [len(states.published) for seq, states in ledgers(dest) if not seq] == [31])
    first.kill(signal.SIGKILL)
    first.alone()
    before = len(server.requests)
    last = start(*argv, env=slow(library, dest, RATE))
    assert last.wait() == 0, last.err
    report = json.loads(last.out)
    assert (report["worker_deaths"], report["failed"]) == (0, 0)
    for name, body in [*BODIES.items(), *SMALL.items(), ("first", b"first")]:
        assert (dest / name).read_bytes() == body
    assert [request.target for request in server.requests[before:]] == ["/first"]


@pytest.mark.parametrize("store", ["files", "tar"])
def test_large_files_are_removed_while_others_are_stored(
    store: str, library: Path, server: Server, start: Start, dest: Path, tmp_path: Path
) -> None:
    """What has the wrong checksum, and what is replaced; to free their pages takes half a second each."""
    dest.mkdir()
    if store == "files":
        (dest / "large").write_bytes(BODIES["moved"])
    source = tmp_path / "list.csv"
    wrong = hashlib.sha256().hexdigest()
    rows = [f"{server.url}/moved,moved,{wrong}\n", *(f"{server.url}/{each},{each},\n" for each in SMALL)]
    source.write_text("".join(["url,name,sha256\n", f"{server.url}/large,large,\n", *rows]))
    argv = (source, "-o", dest, "--store", store, "--workers", 1, "--retries", 1, "--json")
    job = start(*argv, env=slow(library, dest, RATE))
    assert job.wait() == 1, job.err
    report = json.loads(job.out)
    assert (report["stored"], report["failed_by_error"]) == (len(SMALL) + 1, {"checksum-mismatch": 1}), (
        report
    )
    if store == "files":
        assert report["replaced"] == 1
        assert (dest / "large").read_bytes() == BODIES["large"]
        assert sorted(os.listdir(dest)) == sorted([".downloader", "large", *SMALL])


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_no_more_is_fetched_than_can_be_stored(
    lane: str, library: Path, start: Start, dest: Path, tmp_path: Path
) -> None:
    """Each content that waits for its copy has a temporary file open."""
    most, connections = 0, 4
    with Server(default=ok(bytes(3 << 19))) as server:
        (tmp_path / "list.txt").write_text("".join(f"{server.url}/{number}\n" for number in range(60)))
        options = ("--store", "tar", "--workers", 1, "--connections", connections, "--lane", lane, "--json")
        disk = slow(library, dest, RATE, copies_only=True)
        job = start(tmp_path / "list.txt", "-o", dest, *options, env=disk)
        while job.process.poll() is None:
            for child in job.children():
                most = max(most, temporary_files(child))
            time.sleep(0.01)  # there is no event for a file that is opened
    assert job.wait() == 0, job.err
    assert json.loads(job.out)["stored"] == 60
    assert 0 < most <= 2 * connections + 1


def temporary_files(pid: int) -> int:
    """Return how many files without a name the process has open."""
    count = 0
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                count += "/shards/#" in os.readlink(f"/proc/{pid}/fd/{name}")
    return count


CALLER = """
    import json, sys
    import downloader
    source, output = sys.argv[1:]
    config = downloader.Config(source=source, output=output, workers=1, connections=4, stall_timeout=8.0)
    report = downloader.download(config)
    print(json.dumps([report.exit_code, report.stored, report.failed, report.worker_deaths]))
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a mounted file system that ``fsfreeze`` can stop."""
    image, where = tmp_path / "image", tmp_path / "disk"
    where.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    for argv in (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, where]):
        if os.geteuid() or not shutil.which(argv[0]) or subprocess.run(argv, check=False).returncode:
            pytest.skip("no file system can be mounted here")
    yield where
    subprocess.run(["umount", where], check=True)


@pytest.mark.slow
@pytest.mark.may_hold(reason="a frozen file system holds whatever writes to it")
def test_a_worker_that_waits_for_its_disk_is_not_killed(disk: Path, dev_server: Serve) -> None:
    """Nobody can make the disk answer by that, and no file of it is to blame."""
    server = dev_server(files=3000, delay="0-20ms")
    job = Job(sys.executable, "-c", textwrap.dedent(CALLER), server.url, disk / "dest")
    try:
        server.until(lambda counters: counters["gets"] > 300)
        subprocess.run(["fsfreeze", "-f", disk], check=True)
        try:
            # Longer than stall_timeout; there is no event for "nothing happened".
            with pytest.raises(subprocess.TimeoutExpired):
                job.process.wait(12)
        finally:
            subprocess.run(["fsfreeze", "-u", disk], check=True)
        assert job.wait() == 0, job.err
        assert json.loads(job.out) == [0, 3000, 0, 0], job.err
        job.alone()
    finally:
        job.close()
