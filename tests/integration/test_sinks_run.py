"""The sinks through the command line: layouts, resume in each, file systems without O_TMPFILE."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from harness import Job, bytes_in, slow_but
from servers import Answer, Request, Server, Until, ok, status

Run = Callable[..., "subprocess.CompletedProcess[str]"]

# Refuses O_TMPFILE as overlays and NFS do and, where NO_LINKS is set, hard links as FAT does; where LINKS
# is set, the disk is full after that many links.
PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/types.h>
static int refused(int flags) { return (flags & O_TMPFILE) == O_TMPFILE; }
#define OPENAT(name) \
int name(int at, const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    static int (*real)(int, const char *, int, ...); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    if (refused(flags)) { errno = EOPNOTSUPP; return -1; } \
    return real(at, path, flags, mode); \
}
OPENAT(openat)
OPENAT(openat64)
int linkat(int a, const char *from, int b, const char *to, int flags) {
    static int (*real)(int, const char *, int, const char *, int);
    if (!real) real = dlsym(RTLD_NEXT, "linkat");
    static int made;
    if (getenv("NO_LINKS")) { errno = EPERM; return -1; }
    if (getenv("LINKS") && made++ >= atoi(getenv("LINKS"))) { errno = ENOSPC; return -1; }
    return real(a, from, b, to, flags);
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


@pytest.mark.parametrize(
    ("layout", "no_links"), slow_but([("flat", ""), ("mirror", "1")], ("flat", "mirror"), ("", "1"))
)
def test_file_systems_without_o_tmpfile_or_links(
    run_downloader: Run, tmp_path: Path, preload: str, no_links: str, layout: str
) -> None:
    env = {"LD_PRELOAD": preload, **({"NO_LINKS": "1"} if no_links else {})}
    root = tmp_path / "d"
    root.mkdir()
    (root / "b").write_bytes(b"before")
    with Server(files={"a": ok(b"A"), "b": ok(b"B"), "d/e": ok(b"E")}) as server:
        args = (server.url, "-o", root, "--workers", 2, "--layout", layout, "--json")
        first, again = run_downloader(*args, env=env), run_downloader(*args, env=env)
        here = root if layout == "flat" else root / f"127.0.0.1:{server.port}" / "get"
    assert first.returncode == again.returncode == 0, first.stderr
    assert json.loads(first.stdout)["stored"] == json.loads(again.stdout)["skipped"] == 3
    assert (here / "a").read_bytes() == b"A"
    assert (here / "b").read_bytes() == b"B"
    assert (here / ("d%2Fe" if layout == "flat" else "d/e")).read_bytes() == b"E"
    assert not [path for path in root.rglob(".downloader-*")]


@pytest.mark.parametrize("killed", ["worker", "run", "run that is begun anew"])
def test_partial_file_of_a_killed_process_is_removed(
    start: Callable[..., Job], tmp_path: Path, preload: str, killed: str
) -> None:
    """Without O_TMPFILE it has a name, and its item may never be stored: the next answer is 404."""
    root, gate = tmp_path / "d", Event()
    env = {"LD_PRELOAD": preload}

    def answer(request: Request) -> Answer:
        if sum(each.target == request.target for each in server.requests) > 1:
            return status(404)
        (whole,) = ok(bytes(4 << 20))
        assert isinstance(whole, bytes)
        return [whole[:-1], Until(gate), whole[-1:]]

    with Server({"/large": answer}, default=lambda request: ok(b"small")) as server:
        (tmp_path / "l.txt").write_text(f"{server.url}/large\n{server.url}/small\n")
        argv = (tmp_path / "l.txt", "-o", root, "--workers", 1, "--pipeline", "off", "--json")
        job = start(*argv, env=env)
        job.until(lambda: bytes_in(root.glob(".downloader-*")))
        if killed == "worker":
            os.kill(writing(job, root), signal.SIGKILL)
        else:
            job.kill()
            job.alone()
            assert [*root.glob(".downloader-*")]
            job = start(*argv, *(["--restart"] * ("anew" in killed)), env=env)
        assert job.wait() == 1, job.err
        assert json.loads(job.out)["failed_by_error"] == {"http-404": 1}
        gate.set()
    assert sorted(path.name for path in root.iterdir()) == [".downloader", "small"]


def writing(job: Job, root: Path) -> int:
    """Return the process of ``job`` that has a temporary file below ``root`` open."""
    for pid in job.children():
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(each).startswith(f"{root}/.downloader-"):
                    return pid
    raise AssertionError("no process writes")


def test_full_disk_leaves_no_partial_large_files(run_downloader: Run, tmp_path: Path, preload: str) -> None:
    body = bytes(400_000)
    with Server(files={f"f{n}": ok(body) for n in range(400)}) as server:
        args = (server.url, "-o", tmp_path / "d", "--workers", 1, "--connections", 32)
        full = run_downloader(*args, env={"LD_PRELOAD": preload, "LINKS": "200"})
        assert full.returncode == 4, full.stderr
        assert "no space left" in full.stderr
        assert len(list((tmp_path / "d").glob("f*"))) == 200
        assert not list((tmp_path / "d").rglob(".downloader-*"))
        assert run_downloader(*args).returncode == 0
    assert len(list((tmp_path / "d").glob("f*"))) == 400


@pytest.mark.parametrize("layout", ["flat", "hashed", "mirror"])
def test_many_files_in_each_layout(
    run_downloader: Run, tmp_path: Path, dev_server: Callable[..., Any], layout: str
) -> None:
    server = dev_server(files=1000, size="0-300")
    root = tmp_path / "d"
    done = run_downloader(server.url, "-o", root, "--layout", layout, "--pipeline", "off", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = [path for path in root.rglob("file-*") if path.is_file()]
    assert len(found) == 1000
    assert json.loads(done.stdout)["bytes"] == sum(path.stat().st_size for path in found)
    assert run_downloader("verify", root).returncode == 0
    other = run_downloader(server.url, "-o", root, "--layout", "flat" if layout != "flat" else "hashed")
    assert other.returncode == 2
    assert f"--layout {layout}" in other.stderr
    assert server.stats()["gets"] == 1000


def test_restart_keeps_files_and_forgets_the_job(
    run_downloader: Run, tmp_path: Path, dev_server: Callable[..., Any]
) -> None:
    server, another = dev_server(files=20), dev_server(files=20, size=50)
    root = tmp_path / "d"
    run_downloader(server.url, "-o", root)
    refused = run_downloader(another.url, "-o", root)
    assert refused.returncode == 2
    assert server.url in refused.stderr
    same = json.loads(run_downloader(server.url, "-o", root, "--restart", "--json").stdout)
    assert (same["stored"], same["skipped"], same["resumed"]) == (0, 20, False)
    done = json.loads(run_downloader(another.url, "-o", root, "--restart", "--json").stdout)
    assert (done["stored"], done["skipped"], done["resumed"]) == (20, 0, False)
    assert {path.stat().st_size for path in root.glob("file-*")} == {50}


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_destination_that_may_not_be_written(run_downloader: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run_downloader("http://127.0.0.1:1", "-o", tmp_path / "d")
    assert done.returncode == 2
    assert "choose a directory you may write to" in done.stderr
