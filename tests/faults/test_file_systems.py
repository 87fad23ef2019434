"""Errors of the file system that concern one file, not the destination: the file fails, the rest is stored.

A preloaded library refuses what FAT, NTFS, network shares and protected directories refuse, with the errno
that each of them has for it; where NTFS can be mounted, it is tried on that. Errors of the whole disk are
tried on btrfs and ext4.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from harness import Job, environment
from servers import Answer, Request, Server, Until, ok

from downloader.core.file_errors import Step, code_of, is_unreadable
from downloader.core.ownership import Rules
from downloader.errors import DestinationError, FetchError, JournalError
from downloader.files.database import connect, translated
from downloader.files.directory import open_home
from downloader.messages import Item, Lease
from downloader.sinks.directory import FilesSink
from downloader.sinks.sink import Written
from downloader.storage.journal import Journal

Run = Callable[..., subprocess.CompletedProcess[str]]

# Refuses the names that have a character of REFUSED, or all of them if that is "", with the errno ERRNO.
# IN: only what is done in a directory that has this part in its path. Never what is done in .downloader.
PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static int refused(int at, const char *path) {
    char link[64], where[4096];
    const char *last = strrchr(path, '/');
    last = last ? last + 1 : path;
    if (!getenv("ERRNO") || strstr(path, ".downloader/") || path[0] == '/') return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t n = readlink(link, where, sizeof where - 1);
    where[n < 0 ? 0 : n] = 0;
    if (strstr(where, "/.downloader")) return 0;
    if (getenv("IN") && !strstr(where, getenv("IN"))) return 0;
    if (getenv("REFUSED") && !strpbrk(last, getenv("REFUSED"))) return 0;
    errno = atoi(getenv("ERRNO"));
    return 1;
}
#define OPENAT(name) \
int name(int at, const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    static int (*real)(int, const char *, int, ...); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    if ((flags & (O_CREAT | O_TMPFILE)) && at != AT_FDCWD && refused(at, path)) return -1; \
    return real(at, path, flags, mode); \
}
OPENAT(openat)
OPENAT(openat64)
int linkat(int a, const char *from, int b, const char *to, int flags) {
    static int (*real)(int, const char *, int, const char *, int);
    if (!real) real = dlsym(RTLD_NEXT, "linkat");
    return refused(b, to) ? -1 : real(a, from, b, to, flags);
}
int mkdirat(int at, const char *path, mode_t mode) {
    static int (*real)(int, const char *, mode_t);
    if (!real) real = dlsym(RTLD_NEXT, "mkdirat");
    return refused(at, path) ? -1 : real(at, path, mode);
}
int mkdir(const char *path, mode_t mode) {
    static int (*real)(const char *, mode_t);
    if (!real) real = dlsym(RTLD_NEXT, "mkdir");
    const char *last = strrchr(path, '/');
    return getenv("REFUSED") && refused(AT_FDCWD, last ? last + 1 : path) ? -1 : real(path, mode);
}
"""


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("preload")
    (directory / "p.c").write_text(PRELOAD)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "p.so", "p.c", "-ldl"], cwd=directory, check=True)
    return str(directory / "p.so")


def refusing(preload: str, number: int, characters: str | None = None, inside: str = "") -> dict[str, str]:
    """Return the environment in which names with any of ``characters`` are refused with ``number``."""
    found = {"LD_PRELOAD": preload, "ERRNO": str(number)}
    if characters is not None:
        found["REFUSED"] = characters
    if inside:
        found["IN"] = inside
    return found


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EINVAL, "bad-name"),
        (errno.ENOENT, "bad-name"),
        (errno.EPROTO, "bad-name"),
        (errno.EILSEQ, "bad-name"),
        (errno.ENAMETOOLONG, "bad-name"),
        (errno.EACCES, "not-writable"),
        (errno.EBUSY, "not-writable"),
        (errno.ETXTBSY, "not-writable"),
    ],
    ids=lambda each: errno.errorcode[each] if isinstance(each, int) else each,
)
def test_a_name_that_the_file_system_refuses_fails_alone(
    run_downloader: Run, tmp_path: Path, preload: str, number: int, code: str
) -> None:
    root = tmp_path / "d"
    with Server(files={name: ok(name.encode()) for name in ("a", "b?c", "d*", "e:f", "g")}) as server:
        argv = (server.url, "-o", root, "--workers", 1, "--json")
        done = run_downloader(*argv, env=refusing(preload, number, "?:*"))
        report = json.loads(done.stdout)
        assert (done.returncode, report["stored"], report["failed_by_error"]) == (1, 2, {code: 3}), done
        assert report["complete"] is True
        # Where the names are taken, as on another day with another mount option, the rest comes.
        again = json.loads(run_downloader(*argv).stdout)
    assert (again["stored"], again["failed"]) == (3, 0)
    assert (root / "b?c").read_bytes() == b"b?c"


def test_a_directory_that_may_not_be_written_fails_its_files_only(
    run_downloader: Run, tmp_path: Path, preload: str
) -> None:
    root = tmp_path / "d"
    with Server(files={name: ok(b"x") for name in ("a/1", "shut/2", "shut/3", "c/4")}) as server:
        done = run_downloader(
            *(server.url, "-o", root, "--layout", "mirror", "--workers", 1, "--json"),
            env=refusing(preload, errno.EACCES, inside="/shut"),
        )
    report = json.loads(done.stdout)
    assert (done.returncode, report["stored"]) == (1, 2), done
    assert report["failed_by_error"] == {"not-writable": 2}


@pytest.mark.parametrize("number", [errno.EACCES, errno.EINVAL, errno.EROFS, errno.ESTALE, errno.EIO])
def test_a_destination_that_takes_nothing_any_more_ends_the_run(
    run_downloader: Run, tmp_path: Path, preload: str, number: int
) -> None:
    """The same errno as for one file, for all: no million of files fails one after the other."""
    with Server(files={name: ok(b"x") for name in "abc"}) as server:
        argv = (server.url, "-o", tmp_path / "d", "--workers", 1, "--json")
        done = run_downloader(*argv, env=refusing(preload, number))
        report = json.loads(done.stdout)
        assert (done.returncode, report["failed"], report["complete"]) == (4, 0, False), done
        assert json.loads(run_downloader(*argv).stdout)["stored"] == 3


def test_every_errno_is_decided() -> None:
    """Also one that a later kernel adds: it is the destination's, which ends the run and can be resumed."""
    destinations = "ENOSPC EDQUOT EROFS EIO ESTALE ENODEV ENOTCONN EMFILE ENFILE ENOMEM ESHUTDOWN EUCLEAN"
    for step in Step:
        for name in destinations.split():
            assert code_of(getattr(errno, name), step) == "", name
        assert code_of(0, step) == code_of(9999, step) == ""
        for number in errno.errorcode:
            assert code_of(number, step) in ("", "bad-name", "not-writable", "too-large")
        assert code_of(errno.EFBIG, step) == "too-large"
    for name in (*destinations.split(), "EACCES", "EPERM", "EBUSY", "EOVERFLOW"):
        assert is_unreadable(OSError(getattr(errno, name), ""))
    for name in ("ENOENT", "ENOTDIR", "ELOOP", "ENXIO", "ENAMETOOLONG"):
        assert not is_unreadable(OSError(getattr(errno, name), ""))
    assert code_of(errno.EINVAL, Step.CONTENT) == ""  # no name of the item was given


@pytest.mark.parametrize("store", ["files", "tar"])
def test_a_file_larger_than_the_file_system_takes_fails_alone(
    run_downloader: Run, tmp_path: Path, store: str
) -> None:
    """More than 4 GiB on FAT, or than `ulimit -f`: EFBIG."""
    most = 8 << 20
    large = bytes(most + 100_000)
    with Server(files={"a": ok(b"A"), "large": ok(large), "z": ok(b"Z")}) as server:
        done = run_downloader(
            *(server.url, "-o", tmp_path / "d", "--store", store, "--workers", 1, "--json"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )
    report = json.loads(done.stdout)
    assert (done.returncode, report["stored"]) == (1, 2), done
    assert report["failed_by_error"] == {"too-large": 1}
    assert run_downloader("verify", tmp_path / "d").returncode == 0


@pytest.mark.parametrize(("store", "most"), [("files", 1 << 20), ("tar", 8 << 20)])
def test_advice_on_a_limit_of_the_size_of_files_fits_the_store(
    run_downloader: Run, tmp_path: Path, store: str, most: int
) -> None:
    """The tool's own files exceed it, or a shard whose samples do not."""
    with Server(files={f"{number}.bin": ok(bytes(100_000)) for number in range(100)}) as server:
        done = run_downloader(
            *(server.url, "-o", tmp_path / "d", "--store", store, "--workers", 1),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )
    assert (done.returncode, "`ulimit -f`" in done.stderr) == (4, True), done
    assert ("--shard-files" in done.stderr) == (store == "tar")


def test_a_directory_removed_while_running_is_made_again(run_downloader: Run, tmp_path: Path) -> None:
    """A worker holds directories open; a file of one that was removed is stored, not refused."""
    root = tmp_path / "d"

    def remove(request: Request) -> Answer:
        host = root / f"127.0.0.1:{server.port}"
        until((host / "get" / "h" / "1").exists)
        shutil.rmtree(host)
        return ok(b"2")

    with Server(files={"h/1": ok(b"1"), "h/2": remove}) as server:
        argv = (server.url, "-o", root, "--layout", "mirror", "--workers", 1)
        done = run_downloader(*argv, "--json")
        report = json.loads(done.stdout)
        assert (done.returncode, report["stored"]) == (0, 2), done.stdout
        assert (root / f"127.0.0.1:{server.port}" / "get" / "h" / "2").read_bytes() == b"2"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOENT, errno.EACCES], ids=errno.errorcode.get)
def test_ports_where_colons_are_refused(
    run_downloader: Run, tmp_path: Path, preload: str, number: int
) -> None:
    root, urls = tmp_path / "d", tmp_path / "urls.txt"
    with Server(files={"a": ok(b"A"), "b": ok(b"B")}) as server:
        port = server.port
        other = f"127.0.0.1%3A{port}"
        urls.write_text(f"{server.url}/get/a\n{server.url}/get/b\n")
        argv = (urls, "-o", root, "--layout", "mirror", "--json")
        env = refusing(preload, number, ":")
        first = run_downloader(*argv, "--limit", 1, env=env)
        assert (first.returncode, json.loads(first.stdout)["stored"]) == (0, 1), first
        # What was decided at the start stays, also where colons are taken.
        manifest = tmp_path / "m.jsonl"
        second = run_downloader(*argv, "--manifest", manifest)
        assert (second.returncode, json.loads(second.stdout)["stored"]) == (0, 1), second
    assert sorted(os.listdir(root / other / "get")) == ["a", "b"]
    assert [json.loads(line)["name"] for line in manifest.read_text().splitlines()] == [
        f"{other}/get/a",
        f"{other}/get/b",
    ]
    assert run_downloader("verify", root).returncode == 0


def until(holds: Callable[[], bool], within: float = 20.0) -> None:
    """Wait until ``holds`` returns True."""
    end = time.monotonic() + within
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)


# NTFS


@pytest.fixture(params=["case", "no case"])
def ntfs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Yield a mounted NTFS that refuses what Windows refuses; with "no case", names that differ in that
    only are one."""
    tool = {"case": "mount.ntfs-3g", "no case": "mount.lowntfs-3g"}[request.param]
    if os.geteuid() or not all(map(shutil.which, (tool, "mkfs.ntfs", "losetup"))):
        pytest.skip("needs root and ntfs-3g (apt-get install ntfs-3g)")
    image, place = tmp_path / "image", tmp_path / "ntfs"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ntfs", "-F", "-Q", "-q", image], check=True, capture_output=True)
    loop = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=False)
    if loop.returncode:
        pytest.skip(f"no loop device: {loop.stderr.strip()}")
    device = loop.stdout.strip()
    try:
        options = "windows_names" + (",ignore_case" if request.param == "no case" else "")
        mounted = subprocess.run(
            [tool, "-o", options, device, place], capture_output=True, text=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"NTFS cannot be mounted here: {mounted.stderr.strip()[:200]}")
        try:
            yield place
        finally:
            subprocess.run(["umount", place], check=True)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


REFUSED = ("b?c", "d*", "e:f", "trailing.", "trailing ", "CON", "aux", 'q"', "<", "p|q")


def test_names_on_ntfs(run_downloader: Run, tmp_path: Path, ntfs: Path) -> None:
    files = {name: ok(name.encode()) for name in ("a", *REFUSED, "Photo.JPG", "photo.jpg", "z")}
    folds = "no case" in os.environ.get("PYTEST_CURRENT_TEST", "")
    root = ntfs / "d"
    with Server(files=files) as server:
        argv = (server.url, "-o", root, "--json", "--failures", tmp_path / "f")
        for _ in range(2):
            done = run_downloader(*argv)
            report = json.loads(done.stdout)
            wanted = {"bad-name": len(REFUSED), **({"name-taken": 1} if folds else {})}
            assert (done.returncode, report["failed_by_error"]) == (1, wanted), done
    kept = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    assert (kept["a"], kept["z"]) == (b"a", b"z")
    # Two items of one name are never one over the other: the one that is stored has its own bytes. Where
    # the other had the name for a moment, its spelling stays.
    failed = {json.loads(line)["name"] for line in (tmp_path / "f").read_text().splitlines()}
    assert {body.decode() for body in kept.values()} == {*files} - failed
    assert all(body.decode().casefold() == name.casefold() for name, body in kept.items())
    assert run_downloader("verify", root).returncode == 0


def test_own_files_on_ntfs(run_downloader: Run, ntfs: Path) -> None:
    """The list, the report, the manifest and the failures are the run's, in whatever case."""
    folds = "no case" in os.environ.get("PYTEST_CURRENT_TEST", "")
    root = ntfs / "d"
    root.mkdir()
    names = ("List.txt", "Report.JSON", "M.csv", "FAILED.jsonl", "ok")
    with Server(routes={f"/{name}": ok(b"theirs") for name in names}) as server:
        lines = "".join(f"{server.url}/{name}\n" for name in names)
        (root / "list.txt").write_text(lines)
        own = (
            "--report",
            root / "report.json",
            "--manifest",
            root / "m.csv",
            "--failures",
            root / "failed.jsonl",
        )
        for _ in range(2):
            done = run_downloader(root / "list.txt", "-o", root, "--json", *own)
            report = json.loads(done.stdout)
            wanted = {"reserved": 4} if folds else {}
            assert (done.returncode, report["failed_by_error"]) == (int(folds), wanted), done
            assert (root / "list.txt").read_text() == lines
            assert json.loads((root / "report.json").read_text())["listed"] == 5
    assert run_downloader("verify", root).returncode == 0


@pytest.mark.parametrize("store", ["files", "tar", "parquet"])
def test_file_system_whose_daemon_dies(
    start: Callable[..., Job], tmp_path: Path, ntfs: Path, store: str
) -> None:
    """It is the destination's failure, whatever the processes were doing with their descriptors.

    It may have lost what it had not written, like a disk that was pulled out, so the job is not resumed."""
    root = ntfs / "d"
    go = threading.Event()

    def answer(request: Request) -> list[Any]:
        if len(server.requests) > 30:
            go.wait(30)
        return ok(request.target.encode() * 2_000)

    def serves(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return str(ntfs) in process.cmdline()
        return False

    with Server(default=answer) as server:
        path = tmp_path / "l.txt"
        path.write_text("".join(f"{server.url}/{n}\n" for n in range(60)))
        argv = (path, "-o", root, "--store", store, "--json", *(("--shard-files", 10) * (store != "files")))
        job = start(*argv, "--connections", 4)
        job.until(lambda: len(server.requests) > 30)
        (daemon,) = filter(serves, psutil.process_iter())
        daemon.kill()
        psutil.wait_procs([daemon], 20)
        go.set()
        assert (job.wait(), "process failed" in job.err, job.err.count("\n")) == (4, False, 1), job.err


def test_mirror_on_ntfs(run_downloader: Run, ntfs: Path) -> None:
    root = ntfs / "d"
    with Server(files={"a": ok(b"A"), "b": ok(b"B")}) as server:
        argv = (server.url, "-o", root, "--layout", "mirror", "--json")
        done = run_downloader(*argv)
        assert (done.returncode, json.loads(done.stdout)["stored"]) == (0, 2), done
        assert (root / f"127.0.0.1%3A{server.port}" / "get" / "a").read_bytes() == b"A"
        assert json.loads(run_downloader(*argv).stdout)["skipped"] == 2
    assert run_downloader("verify", root).returncode == 0


def test_a_name_in_another_case_leads_to_no_file_of_the_downloader(
    run_downloader: Run, tmp_path: Path, ntfs: Path
) -> None:
    """Another job has its files below DEST. One that began with other rules for names has them still."""
    root, path = ntfs / "d", tmp_path / "l.csv"
    names = {"SUB/.DownLoader/journal.sqlite": "/a", "SUB/.DOWNLOADER/name-key": "/b", "sub/x": "/c"}
    with Server(
        files={"p": ok(b"p")}, routes={target: ok(b"theirs") for target in ["/a", "/b", "/c"]}
    ) as server:
        first = (server.url, "-o", root / "sub", "--json")
        assert run_downloader(*first).returncode == 0
        own = {each.name: each.read_bytes() for each in (root / "sub/.downloader").iterdir()}
        path.write_text("url,name\n" + "".join(f"{server.url}{names[name]},{name}\n" for name in names))
        done = run_downloader(path, "-o", root, "--json")
        assert (done.returncode, json.loads(done.stdout)["stored"]) == (0, 3), done
        assert {each.name: each.read_bytes() for each in (root / "sub/.downloader").iterdir()} == own
        assert run_downloader("verify", root).returncode == 0
        assert run_downloader("verify", root / "sub").returncode == 0
        assert run_downloader(*first).returncode == 0
    if "no case" in os.environ.get("PYTEST_CURRENT_TEST", ""):
        sink = FilesSink(root, "flat", Rules())
        try:
            for name in names:
                if name != "sub/x":
                    with pytest.raises(FetchError, match="the downloader's own files"):
                        sink.begin(Lease(0, 1, b"")).open(Item(name), 0)
        finally:
            sink.close()


# disks that are full, or fail


@contextlib.contextmanager
def disk(place: Path, kind: str, size: int) -> Iterator[None]:
    """Mount a new file system of ``size`` bytes at ``place`` in the block."""
    if os.geteuid() or not shutil.which(f"mkfs.{kind}"):
        pytest.skip(f"needs root and mkfs.{kind}")
    image = place.with_suffix(".image")
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(size)
    subprocess.run([f"mkfs.{kind}", "-q", image], check=True, capture_output=True)
    mount = ["mount", "-o", "loop", image, place]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"{kind} cannot be mounted here: {mounted.stderr.strip()[:200]}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextlib.contextmanager
def half_way(gate: threading.Event) -> Iterator[Server]:
    """Serve 200 files, of which the last 100 come when ``gate`` is set."""
    files: dict[str, Answer] = {f"{n:03d}": ok(b"%d" % n * 100) for n in range(200)}
    files |= {name: [Until(gate), *files[name]] for name in list(files)[100:]}
    with Server(files=files) as server:
        try:
            yield server
        finally:
            gate.set()


def stored_in(root: Path) -> int:
    return sum(path.is_file() for path in root.iterdir()) if root.exists() else 0


def fill(place: Path) -> None:
    """Leave no room on the disk, and nothing in memory that is not on it."""
    for size in (1 << 16, 1 << 12):
        with contextlib.suppress(OSError), (place / f"filler-{size}").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(size))
    subprocess.run(["sync", "-f", place], check=True)


@pytest.mark.parametrize("recording", [False, True], ids=["ledger", "spool"])
def test_full_disk_that_copies_on_write(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path, recording: bool
) -> None:
    """Allocated pages of mapped files are refused there, by SIGBUS: those of ledgers, spools and SQLite."""
    place, gate = tmp_path / "disk", threading.Event()
    root = place / "d"
    with disk(place, "btrfs", 128 << 20), half_way(gate) as server:
        argv = (server.url, "-o", root, "--workers", 2, "--pipeline", "off", "--json", "--connections", 200)
        argv = (*argv, "--per-host", 200, *(("--manifest", tmp_path / "m.csv") if recording else ()))
        job = start(*argv)
        job.until(lambda: stored_in(root) == 100)
        status = json.loads(run_downloader("status", root, "--json").stdout)
        assert (status["listed"], status["stored"]) == (200, 100)
        fill(place)
        gate.set()
        assert job.wait() == 4, job.err
        report = json.loads(job.out)
        assert report["failed"] == 0, report
        assert "no space left" in report["stopped_by"]
        assert job.err.count("\n") == 1, job.err
        assert "no space left" in job.err
        again = run_downloader(*argv)  # the disk may have taken back some room by now
        assert again.returncode in (0, 4), again
        assert again.returncode == 0 or "no space left" in again.stderr
        status = json.loads(run_downloader("status", root, "--json").stdout)
        assert status["stored"] >= report["stored"] >= 100
        verified = run_downloader("verify", root)
        assert verified.returncode == 0, verified
        for filler in place.glob("filler-*"):
            filler.unlink()
        last = run_downloader(*argv)
        assert last.returncode == 0, last
        assert stored_in(root) == 200
        assert run_downloader("verify", root).stdout.startswith("200 of 200 files agree")


def test_refused_page_ends_the_run_and_blames_no_file(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """A worker that has died of SIGBUS is not replaced: the next would die with the same files."""
    gate, root = threading.Event(), tmp_path / "d"
    with half_way(gate) as server:
        argv = (server.url, "-o", root, "--workers", 2, "--pipeline", "off", "--json")
        job = start(*argv)
        job.until(lambda: stored_in(root) == 100)
        workers = job.children()[1:]
        for worker in workers:
            os.kill(worker, signal.SIGBUS)
        assert job.wait(20) == 4, job.err
        report = json.loads(job.out)
        assert (report["stored"], report["failed"], report["worker_deaths"]) == (100, 0, 2)
        assert job.err.count("\n") == 1, job.err
        assert "no space left, or the disk fails" in job.err
        gate.set()
        last = json.loads(run_downloader(*argv).stdout)
        assert (last["stored"], last["failed"]) == (100, 0)


@pytest.mark.parametrize("killed", ["supervisor", "nobody"])
def test_status_while_a_log_is_not_checkpointed(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path, killed: str
) -> None:
    """Where nothing may be mapped, a journal that is being written is read from a copy."""
    place, gate = tmp_path / "disk", threading.Event()
    root = place / "d"
    with disk(place, "btrfs", 128 << 20), half_way(gate) as server:
        job = start(server.url, "-o", root, "--workers", 1, "--pipeline", "off")
        job.until(lambda: stored_in(root) == 100)
        assert not list(root.glob(".downloader/*-shm"))
        if killed == "supervisor":
            job.kill()
            job.alone()
            fill(place)
            verified = run_downloader("verify", root)
            assert (verified.returncode, verified.stdout.splitlines()[0]) == (
                0,
                "100 of 100 files agree with the journal",
            )
        for _ in range(2):
            status = json.loads(run_downloader("status", root, "--json").stdout)
            assert (status["listed"], status["stored"]) == (200, 100)


GOING_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, which is XFS_IOC_GOINGDOWN


def shut_down(place: Path) -> None:
    """Let the file system refuse everything with EIO, as XFS does where its log cannot be written."""
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, GOING_DOWN, b"\2\0\0\0")
    except OSError as error:
        pytest.skip(f"ext4 cannot be shut down here: {error}")
    finally:
        os.close(fd)


def test_error_of_the_disk_is_no_damage(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """SQLite calls a file malformed that cannot be read; nobody is told to begin anew for that."""
    place, gate = tmp_path / "disk", threading.Event()
    root = place / "d"
    with disk(place, "ext4", 64 << 20), half_way(gate) as server:
        job = start(server.url, "-o", root, "--workers", 2, "--pipeline", "off")
        job.until(lambda: stored_in(root) == 100)
        with open_home(root / ".downloader") as home, contextlib.closing(Journal(home)) as journal:
            shut_down(place)
            with pytest.raises(JournalError, match="Input/output error: the disk fails"):
                for _ in journal.batches():
                    pass
        gate.set()
        assert job.wait() == 4, job.err
        told = job.err
        for command in ("status", "verify"):
            done = run_downloader(command, root)
            assert done.returncode == 4, done
            told += done.stderr
        assert told.count("Input/output error") == 3, told
        assert "--restart" not in told
        assert "no journal" not in told


def test_nobody_is_told_to_begin_anew_where_the_disk_fails_under_a_database(tmp_path: Path) -> None:
    """What it has is as it was, once the disk is mended."""
    place = tmp_path / "disk"
    schema = "CREATE TABLE name (name TEXT);"
    with (
        disk(place, "ext4", 64 << 20),
        open_home(place / "home", create=True) as home,
        contextlib.closing(connect(home / "names.sqlite", schema, create=True)) as connection,
    ):
        connection.executescript(schema)
        shut_down(place)
        with pytest.raises(JournalError) as told, translated(home / "names.sqlite"):
            connection.execute("INSERT INTO name VALUES ('a')")
    assert "Input/output error: the disk fails" in str(told.value)
    assert str(told.value).count("again") == 1
    assert "--restart" not in str(told.value)


@pytest.mark.parametrize("store", ["files", "tar", "parquet"])
def test_verify_takes_a_disk_that_fails_for_no_damage(
    run_downloader: Run, tmp_path: Path, store: str
) -> None:
    """The journal is on another one. Once the disk is back nothing is fetched again."""
    place, journal = tmp_path / "disk", tmp_path / "j"
    files = {f"{n:03d}": ok(b"%d" % n * 100) for n in range(30)}
    with disk(place, "ext4", 64 << 20), Server(files=files) as server:
        argv = (server.url, "-o", place / "d", "--journal", journal, "--store", store, "--json")
        assert run_downloader(*argv).returncode == 0
        asked = len(server.requests)
        sink = FilesSink(place / "d", "flat", Rules())
        written = Written(0, 0, "000", 100, zlib.crc32(b"0" * 100))
        assert sink.verify(written) is (store == "files")
        subprocess.run(["sync", "-f", place], check=True)
        shut_down(place)
        for _ in range(2):
            done = run_downloader("verify", place / "d", "--journal", journal)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1), done
            assert "cannot be read: Input/output error: the disk fails" in done.stderr
        if store == "files":  # a run verifies what was stored when it was killed: neither is that lost
            with pytest.raises(DestinationError, match="Input/output error"):
                sink.verify(written)
        sink.close()
        # Another process may have the old mount still, so it stays as it is.
        subprocess.run(["umount", "-l", place], check=True)
        mended = shutil.copy(place.with_suffix(".image"), tmp_path / "mended")
        subprocess.run(["mount", "-o", "loop", mended, place], check=True)
        assert run_downloader("verify", place / "d", "--journal", journal).returncode == 0
        assert json.loads(run_downloader(*argv).stdout)["requests"] <= 1, "a listing"
        assert len(server.requests) <= asked + 1


NOBODY = 65534


def verify_as_nobody(dest: Path, journal: Path) -> subprocess.CompletedProcess[str]:
    """Run ``verify`` as a user whom permissions stop; it imports everything before it becomes that."""
    script = (
        "import os, sys, downloader.cli.main, downloader.core.naming, downloader.sinks.shards.comparing;"
        "import downloader.reporting.report, downloader.storage.verify;"
        "import downloader.cluster.driver.plan_home, downloader.sinks.exchanged;"
        "import downloader.sinks.shards.inspecting;"
        "from downloader.sinks.registry import sink_kind; sink_kind('files'), sink_kind('tar');"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY});"
        "sys.exit(downloader.cli.main.main(sys.argv[1:]))"
    )
    argv = [sys.executable, "-c", script, "verify", str(dest), "--journal", str(journal)]
    return subprocess.run(
        argv, cwd="/", env=environment(), capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("store", "shut", "mode"),
    [
        ("files", ".", 0o644),
        ("files", ".", 0o000),
        ("files", "127.0.0.1*/get/h", 0o000),
        ("files", "127.0.0.1*/get/h", 0o644),
        ("files", "127.0.0.1*/get/h/1?", 0o000),
        ("tar", ".", 0o644),
        ("tar", "00001.tar", 0o000),
        ("tar", "00001_stats.json", 0o000),
        ("tar", "shards.json", 0o000),
    ],
)
def test_verify_takes_what_may_not_be_read_for_no_damage(
    run_downloader: Run, tmp_path: Path, store: str, shut: str, mode: int
) -> None:
    """It is said, with the path and what to do; nothing is recorded, and nothing requested again."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    for path in (tmp_path, *tmp_path.parents):
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    dest, journal = tmp_path / "d", tmp_path / "j"
    options = ("--layout", "mirror") if store == "files" else ("--store", store, "--shard-files", 10)
    with Server(files={f"h/{n}": ok(b"%d" % n) for n in range(30)}) as server:
        argv = (server.url, "-o", dest, "--journal", journal, *options, "--json")
        assert run_downloader(*argv).returncode == 0
        for path in (tmp_path, *tmp_path.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        assert verify_as_nobody(dest, journal).returncode == 0
        modes = {path: path.stat().st_mode for path in ([dest] if shut == "." else dest.glob(shut))}
        assert modes
        for path in modes:
            path.chmod(mode)
        for _ in range(2):
            done = verify_as_nobody(dest, journal)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (4, "", 1), done
            assert f" {dest}" in done.stderr
            assert "cannot be read: Permission denied; run the command as a user who may" in done.stderr
        for path, before in modes.items():
            path.chmod(before)
        done = verify_as_nobody(dest, journal)
        assert (done.returncode, done.stdout) == (0, "30 of 30 files agree with the journal\n"), done
        for path in (tmp_path, *tmp_path.rglob("*")):
            os.chown(path, 0, 0)
        report = json.loads(run_downloader(*argv).stdout)
        assert (report["skipped"], report["requests"]) == (30, 0)


@contextlib.contextmanager
def bound(disk: Path, place: Path) -> Iterator[None]:
    """Mount the directory ``disk`` at ``place`` in the block."""
    mount = ["mount", "--bind", disk, place]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("below", [[], ["NOT-MOUNTED"], [".keep", "lost+found/.keep"]], ids="-".join)
@pytest.mark.parametrize("store", ["files", "tar"])
def test_destination_whose_disk_is_not_mounted(
    run_downloader: Run, tmp_path: Path, store: str, below: list[str]
) -> None:
    """Its mount point is no DEST of which all is lost, whatever is ``below`` it.

    One that is emptied, copied or made anew is.
    """
    place, there, journal = tmp_path / "mnt", tmp_path / "disk", tmp_path / "j"
    place.mkdir()
    there.mkdir()
    for name in below:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).touch()
    before = sorted(place.rglob("*"))
    with Server(files={f"{n:03d}": ok(b"%d" % n) for n in range(30)}) as server:
        argv = (server.url, "-o", place, "--journal", journal, "--store", store, "--json")
        check = ("verify", place, "--journal", journal)
        with bound(there, place):
            assert json.loads(run_downloader(*argv, "--limit", 20).stdout)["stored"] == 20
            assert run_downloader(*check).returncode == 0
        for command in (check, argv, check):
            done = run_downloader(*command)
            assert (done.returncode, sorted(place.rglob("*"))) == (4, before), done
            state = "lacks files of this job" if below else "is empty"
            assert f"{place} {state}, and is as it was before this job began" in done.stderr
        with bound(there, place):
            assert run_downloader(*check).returncode == 0
            assert json.loads(run_downloader(*argv).stdout)["skipped"] == 20
            assert run_downloader(*check).returncode == 0
        # Moved, copied: another inode and other times of the directory. Then emptied, then made anew.
        shutil.rmtree(place)
        shutil.copytree(there, place)
        assert run_downloader(*check).returncode == 0
        shutil.rmtree(place)
        place.mkdir()
        done = run_downloader(*check)
        assert (done.returncode, "0 of 30 files agree" in done.stdout) == (1, True), done
        assert json.loads(run_downloader(*argv).stdout)["stored"] == 30
        for path in place.iterdir():
            path.unlink()
        assert run_downloader(*check).returncode == 1


def test_destination_whose_files_were_all_kept_is_the_right_one(
    run_downloader: Run, tmp_path: Path
) -> None:
    """The job has changed nothing in it."""
    dest, journal = tmp_path / "d", tmp_path / "j"
    dest.mkdir()
    source = tmp_path / "list.txt"
    with Server(files={f"{n}": ok(b"%d" % n) for n in range(30)}) as server:
        source.write_text("".join(f"{server.url}/get/{n}\n" for n in range(30)))
        for n in range(30):
            (dest / f"{n}").write_bytes(b"%d" % n)
        argv = (source, "-o", dest, "--journal", journal, "--existing", "keep", "--json")
        for _ in range(2):
            done = run_downloader(*argv)
            assert (done.returncode, json.loads(done.stdout)["skipped"]) == (0, 30), done
        assert run_downloader("verify", dest, "--journal", journal).returncode == 0


def test_destination_of_a_killed_run_that_is_not_there(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """What only the ledger of a worker has as stored is not lost in silence, either."""
    dest, journal, away = tmp_path / "d", tmp_path / "j", tmp_path / "away"
    gate = threading.Event()
    files = {f"{n}": ok(b"%d" % n) for n in range(30)} | {"slow": [Until(gate), *ok(b"slow")]}
    with Server(files=files) as server:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/get/{n}\n" for n in [*range(30), "slow"]))
        argv = (source, "-o", dest, "--journal", journal, "--json")
        job = start(*argv)
        job.until(lambda: len(list(dest.glob("*"))) == 30)
        os.killpg(job.process.pid, signal.SIGKILL)
        job.wait()
        dest.rename(away)
        gate.set()
        done = run_downloader(*argv)
        assert (done.returncode, "is not there, and this job has stored files" in done.stderr) == (4, True)
        assert not dest.exists()
        away.rename(dest)
        report = json.loads(run_downloader(*argv).stdout)
        assert report["stored"] + report["skipped"] == 31


@pytest.mark.parametrize("emptied", [False, True])
def test_job_of_a_version_that_did_not_record_when_it_began(
    emptied: bool, run_downloader: Run, tmp_path: Path
) -> None:
    """A DEST that was emptied before the first run of this version is the right one."""
    dest, journal, aside = tmp_path / "d", tmp_path / "j", tmp_path / "aside"
    with Server(files={"a": ok(b"A"), "b": ok(b"B")}) as server:
        source = tmp_path / "list.txt"  # with one, no run looks whether DEST folds names, which changes it
        source.write_text(f"{server.url}/get/a\n{server.url}/get/b\n")
        argv = (source, "-o", dest, "--journal", journal)
        assert run_downloader(*argv).returncode == 0
        with open_home(journal / ".downloader") as home, contextlib.closing(Journal(home)) as begun:
            job = begun.job()
            assert job is not None
            assert job.began_ns
            begun.begin(msgspec.structs.replace(job, began_ns=0))
        if emptied:
            for path in dest.iterdir():
                path.unlink()
        else:
            aside.mkdir()  # the place of a disk, which this DEST is on
        assert run_downloader(*argv).returncode == 0
        check = ("verify", dest, "--journal", journal)
        if emptied:
            assert run_downloader(*check).returncode == 1
            assert run_downloader(*argv).returncode == 0
            assert run_downloader(*check).returncode == 0
        else:
            with bound(aside, dest):
                done = run_downloader(*check)
                assert (done.returncode, "is as it was before this job began" in done.stderr) == (4, True)


def test_lost_disk_can_be_told_to_be_lost(run_downloader: Run, tmp_path: Path) -> None:
    """By what the message says."""
    place, there, journal = tmp_path / "mnt", tmp_path / "disk", tmp_path / "j"
    place.mkdir()
    there.mkdir()
    with Server(files={"a": ok(b"A")}) as server:
        argv = (server.url, "-o", place, "--journal", journal)
        with bound(there, place):
            assert run_downloader(*argv).returncode == 0
        done = run_downloader("verify", place, "--journal", journal)
        command = done.stderr.partition("`")[2].partition("`")[0]
        subprocess.run(command, shell=True, check=True)
        assert run_downloader("verify", place, "--journal", journal).returncode == 1
        assert run_downloader(*argv).returncode == 0
        assert (place / "a").read_bytes() == b"A"


def test_file_system_that_has_turned_read_only_is_only_reported_on(
    run_downloader: Run, tmp_path: Path
) -> None:
    """It may not be mounted so: access() and statvfs() say that it can be written."""
    place = tmp_path / "disk"
    root = place / "d"
    with disk(place, "ext4", 64 << 20), Server(files={"a": ok(b"x"), "b": ok(b"y")}) as server:
        assert run_downloader(server.url, "-o", root).returncode == 0
        subprocess.run(["sync", "-f", place], check=True)
        (root / "b").write_bytes(b"z")
        aborted = ["mount", "-o", "remount,abort", place]
        assert subprocess.run(aborted, capture_output=True, check=False).returncode == 0
        done = run_downloader("verify", root)
        assert done.returncode == 1, done
        assert "the file system is read-only or full" in done.stdout
        assert run_downloader("status", root).returncode == 0


@pytest.mark.parametrize("command", ["status", "verify"])
def test_home_that_cannot_be_opened_is_not_called_absent(
    run_downloader: Run, tmp_path: Path, command: str
) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    done = run_downloader(command, tmp_path / "a")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done
    assert "Too many levels of symbolic links" in done.stderr
    (tmp_path / "c").mkdir()
    done = run_downloader(command, tmp_path / "c")
    assert done.returncode == 2, done
    assert "has no journal" in done.stderr
