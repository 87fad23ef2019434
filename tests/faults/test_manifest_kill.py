"""A manifest after kills: a row for each file, none twice, and what it says is of the stored bytes.

The server never sends the same bytes twice. Each response has an ETag that is the SHA-256 of its body, so a
record of another attempt shows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from child_processes import site
from harness import AFTER_IMPORT, Job, stored
from servers import Certificates, Request, Server, Step, listing, ok

RUNS = int(os.environ.get("CHAOS", "5"))
FIRST = int(os.environ.get("CHAOS_SEED", "0"))
FILES = 1500


class Changing:
    """The responses of a server, which are counted."""

    def __init__(self) -> None:
        self.gets = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Sequence[Step]:
        with self._lock:
            self.gets += 1
            body = f"{request.target}, request {next(self._numbers):09}".encode()
        digest = hashlib.sha256(body).hexdigest()
        return ok(body, f'ETag: "{digest}"', f"X-Amz-Checksum-Sha256: {_base64(digest)}")


def _base64(digest: str) -> str:
    import base64

    return base64.b64encode(bytes.fromhex(digest)).decode()


def check(manifest: Path, dest: Path, count: int) -> None:
    """Compare the manifest with the files in ``dest``, of which there must be ``count``."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in manifest.read_text().splitlines()]
    files = stored(dest)
    assert len(files) == count
    assert sorted(row["name"] for row in rows) == sorted(files)
    for row in rows:
        body = files[row["name"]]
        digest = hashlib.sha256(body).hexdigest()
        assert (row["size"], row["hash"]) == (len(body), f"sha256:{digest}")
        assert row["etag"] == f'"{digest}"', f"{row['name']}: a record of other bytes, or none"
        assert row["status"] == 200
        assert row["url"].endswith(f"/get/{row['name']}")


def begin_again(rng: random.Random, job: Job, changing: Changing, until: int) -> None:
    """Kill processes of ``job`` at a random instant."""
    while changing.gets < until and job.process.poll() is None:
        threading.Event().wait(0.002)
    victims = [job.pid] if rng.random() < 0.6 else job.children()[1:]
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    assert job.wait() in (0, -signal.SIGKILL), job.err
    job.alone(20)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_kill_campaign_with_a_manifest(
    seed: int, certificates: Certificates, start: Callable[..., Job], tmp_path: Path
) -> None:
    rng, changing = random.Random(seed), Changing()
    dest, manifest = tmp_path / "dest", tmp_path / "m.jsonl"
    tls, lane = seed % 2 == 1, ("auto", "auto", "requests")[seed // 2 % 3]
    with Server(default=changing, record=False, tls=certificates.context() if tls else None) as server:
        server.routes["/list"] = listing([f"f{at:04}" for at in range(FILES)])
        argv = [server.url, "-o", dest, "--workers", 2, "--connections", rng.choice((2, 8))]
        argv += ["--manifest", manifest, "--hash", "sha256", "--checksums", "all", "--lane", lane]
        argv += ["--pipeline", rng.choice(("off", "4", "auto")), "--retries", 20, "--backoff", "10ms"]
        argv += ["--cacert", certificates.ca] if tls else []
        for _ in range(rng.randrange(1, 5)):
            begin_again(rng, start(*argv), changing, changing.gets + rng.randrange(FILES))
        last = start(*argv)
        assert last.wait() == 0, last.err
        assert "known" not in last.err
        check(manifest, dest, FILES)
        # A run that has nothing to do writes the same.
        before = manifest.read_bytes()
        assert start(*argv).wait() == 0
        assert manifest.read_bytes() == before
    assert not list(tmp_path.glob(".downloader-*")), "a manifest that was being written is left"


# The worker dies right after a file got its name, the supervisor while it writes the manifest.
AT_THE_NAME = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.sinks.directory"

    def change(module):
        real, names = module._link, []
        def link(*args, **options):
            real(*args, **options)
            names.append(1)
            if len(names) == 40:
                os.kill(os.getpid(), 9)
        module._link = sys.modules["downloader.sinks.files_writer"]._link = link
    """
)
IN_THE_MANIFEST = (
    AFTER_IMPORT
    + """
    MODULE = "downloader.reporting.manifest_formats"

    def change(module):
        real = module.writer_of
        def writer_of(*args):
            write = real(*args)
            return lambda file: (write(file), file.flush(), os.kill(os.getpid(), 9))
        module.writer_of = writer_of
    """
)


@pytest.mark.parametrize("lane", ["auto", "requests"])
def test_a_worker_that_dies_when_a_file_has_its_name(
    lane: str, start: Callable[..., Job], tmp_path: Path
) -> None:
    """The file is stored and not fetched again, so its record must be there already."""
    changing = Changing()
    dest, manifest = tmp_path / "dest", tmp_path / "m.jsonl"
    with Server(default=changing, record=False) as server:
        server.routes["/list"] = listing([f"f{at:04}" for at in range(100)])
        argv = (server.url, "-o", dest, "--workers", 1, "--manifest", manifest, "--hash", "sha256")
        argv += ("--lane", lane, "--connections", 2)
        job = start(*argv, env=site(tmp_path, AT_THE_NAME))
        assert job.wait() == 0, job.err
        assert "its files go to another" in job.err
        assert "known" not in job.err
    check(manifest, dest, 100)


def test_a_kill_while_the_manifest_is_written(start: Callable[..., Job], tmp_path: Path) -> None:
    """The manifest of the run before stays, and what was written of the new one is replaced."""
    changing = Changing()
    dest, manifest = tmp_path / "dest", tmp_path / "m.jsonl"
    manifest.write_text("before")
    with Server(default=changing, record=False) as server:
        server.routes["/list"] = listing([f"f{at:04}" for at in range(100)])
        argv = (server.url, "-o", dest, "--workers", 1, "--manifest", manifest, "--hash", "sha256")
        job = start(*argv, env=site(tmp_path, IN_THE_MANIFEST))
        assert job.wait() == -signal.SIGKILL, job.err
        assert manifest.read_text() == "before"
        last = start(*argv)
        assert last.wait() == 0, last.err
        assert changing.gets == 100
    check(manifest, dest, 100)
    assert not list(tmp_path.glob(".downloader-*"))
