"""System calls that fail: at the nth call (strace), within a file, for lack of inodes or memory; a clock
that jumps, a sync that fails. In every case the next run continues and the result is right."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checker import HOME, Truth, check
from harness import ROOT, DevServer, Job, command, serving

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Job]
TRUTH = Truth(400, 100, 3000)


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=TRUTH.files, size="100-3000", page=60) as server:
        yield server


@pytest.fixture(scope="module")
def strace(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the argv of an ``strace`` that can inject faults; skip with the reason where there is none."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace)")
    log = tmp_path_factory.mktemp("strace") / "log"
    found = ["strace", "-f", "-qq", "-o", str(log)]
    tried = [*found, "-e", "trace=getcwd", "-e", "inject=getcwd:error=EIO", "pwd"]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    if "EIO" not in (log.read_text() if log.exists() else ""):
        pytest.skip(f"strace cannot inject here: {done.stderr.strip()}")
    return found


# Call, error, and the range from which its number is drawn; `+`: from then on every call.
INJECTED = [
    ("write", "ENOSPC", 20, 200, "+"),
    ("write", "EIO", 20, 200, ""),
    ("linkat", "ENOSPC", 1, 150, "+"),
    ("linkat", "EIO", 1, 150, "+"),
    ("linkat", "EDQUOT", 1, 150, "+"),
    ("pwrite64", "ENOSPC", 1, 60, "+"),
    ("pwrite64", "EIO", 1, 60, ""),
    ("fdatasync", "EIO", 1, 3, "+"),
    ("openat", "EMFILE", 900, 1200, "+"),
    ("openat", "ENFILE", 900, 1200, ""),
    ("fallocate", "ENOSPC", 1, 2, ""),
    ("unlink", "EIO", 1, 5, "+"),
    ("mmap", "ENOMEM", 400, 700, "+"),
    ("mmap", "ENOMEM", 500, 516, "+"),  # within gevent, with most versions
]


@pytest.mark.starved(reason="each nth call of a process fails, whoever makes it")
@pytest.mark.parametrize(
    ("call", "error", "least", "most", "on"),
    INJECTED,
    ids=[f"{c[0]}-{c[1]}{c[4]}-{c[2]}" for c in INJECTED],
)
def test_the_nth_call_fails(
    call: str,
    error: str,
    least: int,
    most: int,
    on: str,
    strace: list[str],
    server: DevServer,
    run_downloader: Run,
    tmp_path: Path,
) -> None:
    """In every process of the run, at its own nth call; the number is drawn anew each time, and printed."""
    number = random.randrange(least, most)
    dest = tmp_path / "dest"
    argv = [server.url, "-o", dest, "--workers", 2, "--connections", 8, "--read-timeout", "5s"]
    inject = f"inject={call}:error={error}:when={number}{on}"
    job = Job(*strace, "-e", f"trace={call}", "-e", inject, *command(*argv))
    try:
        code = job.wait(90)
        print(f"{inject}: exit code {code}; {job.err.strip()[-300:]}")  # noqa: T201
        # 2 and 3: it could not begin. Every code is one that is documented.
        assert code in (0, 1, 2, 3, 4), job.out + job.err
        if code == 0:
            check(dest, TRUTH)
        job.alone()
    finally:
        job.close()
    if dest.exists():
        check(dest, TRUTH, interrupted=True)
    last = run_downloader(*argv)
    assert last.returncode == 0, last.stdout + last.stderr
    check(dest, TRUTH)


def test_a_sync_that_fails_is_final(
    strace: list[str], server: DevServer, run_downloader: Run, tmp_path: Path
) -> None:
    """The kernel reports it once; afterwards unwritten data looks as if it were stored, so it is written
    again."""
    dest = tmp_path / "dest"
    argv = [server.url, "-o", dest, "--workers", 1, "--connections", 4, "--fsync"]
    inject = ["-e", "trace=syncfs", "-e", "inject=syncfs:error=EIO:when=3"]
    job = Job(*strace, *inject, *command(*argv))
    try:
        assert job.wait(90) == 4, job.out + job.err
        assert "cannot be synced (Input/output error)" in job.err
        job.alone()
    finally:
        job.close()
    done, unsynced = journal_of(dest)
    assert unsynced
    assert done < TRUTH.files
    before = {path.name: path.stat().st_ino for path in dest.iterdir() if path.is_file()}
    assert len(before) > done
    last = run_downloader(*argv)
    assert last.returncode == 0, last.stdout + last.stderr
    check(dest, TRUTH)
    kept = sum((dest / name).stat().st_ino == inode for name, inode in before.items())
    # Only what had been synced is unchanged.
    assert kept == done
    assert not journal_of(dest)[1]


def journal_of(dest: Path) -> tuple[int, bool]:
    """Return how many files the journal counts as stored, and whether it records a failed sync."""
    database = sqlite3.connect(dest / HOME / "journal.sqlite")
    try:
        stored = database.execute("SELECT coalesce(sum(stored), 0) FROM batch WHERE done = 1").fetchone()[0]
        return stored, bool(
            database.execute("SELECT 1 FROM job WHERE key = 'unsynced' AND value = '1'").fetchone()
        )
    finally:
        database.close()


def test_the_order_is_publish_sync_journal(strace: list[str], server: DevServer, tmp_path: Path) -> None:
    """As the kernel sees it: no row of a batch is written before every file of it is synced."""
    log = tmp_path / "calls"
    argv = [server.url, "-o", tmp_path / "dest", "--workers", 1, "--fsync"]
    tool = [*strace[:-1], str(log), "-e", "trace=linkat,syncfs,fdatasync"]
    job = Job(*tool, *command(*argv))
    try:
        assert job.wait(90) == 0, job.err
    finally:
        job.close()
    calls = [line.split("(")[0].split()[-1] for line in log.read_text().splitlines() if "(" in line]
    first, last = calls.index("linkat"), len(calls) - 1 - calls[::-1].index("linkat")
    assert calls.count("linkat") == TRUTH.files
    # One for the start, at least one for what was stored; the last stored files are covered, too.
    assert "syncfs" in calls[last:]
    assert 2 <= calls.count("syncfs") <= 2 + TRUTH.files // 10
    assert "syncfs" in calls[:first]


@contextlib.contextmanager
def tmpfs(path: Path, options: str) -> Iterator[None]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    tried = subprocess.run(mount, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"{' '.join(mount)}: {tried.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_no_inodes_left(server: DevServer, run_downloader: Run, tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    with tmpfs(mount, "size=64m,nr_inodes=250"):
        argv = (server.url, "-o", mount / "dest", "--workers", 1)
        full = run_downloader(*argv)
        assert full.returncode == 4, full.stdout + full.stderr
        assert "no space left" in full.stderr
        assert "Traceback" not in full.stderr
        check(mount / "dest", TRUTH, interrupted=True, beside=())
        subprocess.run(["mount", "-o", "remount,nr_inodes=2000", str(mount)], check=True)
        last = run_downloader(*argv)
        assert last.returncode == 0, last.stderr
        check(mount / "dest", TRUTH, beside=())


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a mounted ext4 and its device; it turns read-only after an error, as distributions set it."""
    if os.geteuid() or not all(map(shutil.which, ("mkfs.ext4", "losetup"))):
        pytest.skip("needs root, mkfs.ext4 and losetup")
    image, place = tmp_path / "image", tmp_path / "ext4"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
    loop = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=False)
    if loop.returncode:
        pytest.skip(f"no loop device: {loop.stderr.strip()}")
    device = loop.stdout.strip()
    try:
        mount_ext4(device, place)
        try:
            yield place, device
        finally:
            subprocess.run(["umount", place], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


def mount_ext4(device: str, place: Path) -> None:
    subprocess.run(["mount", "-o", "errors=remount-ro", device, place], check=True, capture_output=True)


@pytest.mark.parametrize("store", ["files", "tar"])
def test_a_file_system_that_turns_read_only_by_itself(
    store: str,
    ext4: tuple[Path, str],
    dev_server: Callable[..., DevServer],
    start: Start,
    run_downloader: Run,
) -> None:
    """It says so, whatever it was doing; what was stored is kept, and the rest comes once it is mended."""
    place, device = ext4
    trigger = Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error")
    if not trigger.exists():
        pytest.skip("this kernel cannot be asked for an error of ext4")
    server = dev_server(files=6000, size=100, page=300)
    options = ["--workers", 1, *(["--store", "tar", "--shard-files", 200] if store == "tar" else [])]
    argv = (server.url, "-o", place / "dest", *options)
    job = start(*argv, "--rate", 1000)
    server.until(lambda counters: counters["gets"] > 1000)
    trigger.write_text("1")
    assert job.wait() == 4, job.err
    job.alone()
    assert "the file system is read-only; make it writable, then run the same command again" in job.err
    assert "defect" not in job.err
    assert "Traceback" not in job.err
    assert "not complete" in run_downloader("status", place / "dest").stdout
    again = run_downloader(*argv)
    assert again.returncode == 2
    assert "Read-only file system" in again.stderr
    subprocess.run(["umount", place], check=True)
    mount_ext4(device, place)
    last = run_downloader(*argv, "--json")
    assert last.returncode == 0, last.stderr
    # What has its name when the file system fails need not be on the disk.
    assert json.loads(last.stdout)["stored"] == 6000
    assert run_downloader("verify", place / "dest").returncode == 0


SHORT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
/* As a quota or a signal makes them: a third of what was to be written to a file, at most. */
ssize_t write(int fd, const void *from, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    struct stat found;
    if (!real) real = dlsym(RTLD_NEXT, "write");
    if (count > 3 && !fstat(fd, &found) && S_ISREG(found.st_mode)) count = count / 3;
    return real(fd, from, count);
}
"""


def test_short_writes(server: DevServer, run_downloader: Run, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "short.c").write_text(SHORT)
    library = tmp_path / "short.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "short.c", "-ldl"], check=True)
    done = run_downloader(server.url, "-o", tmp_path / "dest", env={"LD_PRELOAD": str(library)})
    assert done.returncode == 0, done.stderr
    check(tmp_path / "dest", TRUTH)


def test_worker_out_of_memory(
    dev_server: Callable[..., DevServer], start: Start, run_downloader: Run, tmp_path: Path
) -> None:
    """RLIMIT_AS, set during the run: the run reports it and ends, or another worker takes over."""
    truth = Truth(3000, 20_000, 60_000)
    server = dev_server(files=truth.files, size="20000-60000", delay="0-20ms", page=200)
    argv = (server.url, "-o", tmp_path / "dest", "--workers", 1, "--read-timeout", "5s")
    job = start(*argv)
    server.until(lambda counters: counters["gets"] > 200)
    worker = job.children()[1]
    used = int(Path(f"/proc/{worker}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(worker, resource.RLIMIT_AS, (used // 2, used // 2))
    code = job.wait()
    job.alone()
    if code:
        assert code == 4, job.err
        assert "a child process found no memory" in job.err
        check(tmp_path / "dest", truth, interrupted=True)
        assert run_downloader(*argv).returncode == 0
    check(tmp_path / "dest", truth)


# A clock that jumps

REALTIME = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime", "clock_gettime"}
# Where the time of day is read, and why: the date in a Retry-After.
MAY_ASK = {
    "downloader/storage/destination.py": {
        "now"
    },  # when a job became complete: shown to the user, nothing depends on it
    "downloader/http/requests_client.py": {"time"},
    "downloader/http/exceptions.py": {"time"},
    # Whether the clock was set back since a job began: if so, DEST is not compared with that time.
    "downloader/storage/places.py": {"time_ns"},
    # When a cookie expires, as http.cookiejar has it: seconds since the epoch.
    "downloader/http/cookies.py": {"time"},
    # When a file was fetched: a record, nothing depends on it.
    "downloader/http/pipelined/observing_parser.py": {"time"},
    # When a shard was begun and finished: in its stats.
    "downloader/sinks/shards/batch.py": {"time"},
    # How old the lock of a plan in a bucket is, for `status`: nothing is done because of it.
    "downloader/cluster/plan/bucket_files.py": {"now"},
}


def test_time_of_day_is_read_only_where_a_jump_is_harmless() -> None:
    """All other waits and measurements use the monotonic clock."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "downloader").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ""
            if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
                for alias in node.names:
                    if alias.name in REALTIME:
                        found.setdefault(str(path.relative_to(ROOT)), set()).add(alias.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = node.attr if node.value.id in ("time", "datetime", "date") else ""
            if name in REALTIME:
                found.setdefault(str(path.relative_to(ROOT)), set()).add(name)
    assert found == MAY_ASK


@pytest.mark.may_hold(reason="each look at a clock reads a file there")
@pytest.mark.parametrize("jump", ["+10d", "-10d"])
def test_clock_jumps(jump: str, dev_server: Callable[..., DevServer], tmp_path: Path) -> None:
    """By ten days, during the run: no deadline expires, no backoff takes ten days, no child counts as
    stuck."""
    library = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
    if library is None:
        pytest.skip("libfaketime is not installed (apt-get install libfaketime)")
    clock = tmp_path / "clock"
    clock.write_text("+0d\n")
    fake = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    truth = Truth(2000)
    server = dev_server(files=truth.files, delay="0-30ms", page=100, drop_rate=0.01, seed=1)
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", 2, "--deadline", "20s", "--connections", 8, "--json")
    job = Job(*command(*argv), env=fake)
    try:
        server.until(lambda counters: counters["gets"] > 500)
        clock.write_text(f"{jump}\n")
        assert job.wait() == 0, job.err
        report = json.loads(job.out)
        assert (report["stored"], report["worker_deaths"]) == (truth.files, 0)
        assert "timeout" not in report["attempts_by_error"]
        check(dest, truth)
    finally:
        job.close()
