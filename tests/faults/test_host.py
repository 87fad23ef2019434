"""Faults of the host: disks that are full, gone, read-only; few descriptors; damaged journals."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import Truth, check
from harness import DevServer, Job, environment, serving, slow_but
from harness import command as python_m
from servers import HANG, Server, ok

Run = Callable[..., subprocess.CompletedProcess[str]]
Serve = Callable[..., DevServer]
Start = Callable[..., Job]
TRUTH = Truth(300, 100, 2000)
EACH_ONCE = ("--pipeline", "off")  # else some files are requested again, to compare


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=TRUTH.files, size="100-2000", page=70) as server:
        yield server


@pytest.fixture
def stored(server: DevServer, run_downloader: Run, tmp_path: Path) -> Path:
    """Return a destination with everything stored."""
    dest = tmp_path / "dest"
    assert run_downloader(server.url, "-o", dest).returncode == 0
    check(dest, TRUTH)
    return dest


@contextlib.contextmanager
def done_and_undone(do: list[str], undo: list[str]) -> Iterator[None]:
    """Run ``do`` as root, and ``undo`` at the end; skip the test where it is not permitted."""
    tried = subprocess.run(do, capture_output=True, text=True, check=False) if shutil.which(do[0]) else None
    if tried is None or tried.returncode:
        pytest.skip(f"{' '.join(do)}: {tried.stderr.strip() if tried else 'no such command'}")
    try:
        yield
    finally:
        subprocess.run(undo, check=True)


def tmpfs(path: Path, size: str) -> contextlib.AbstractContextManager[None]:
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    return done_and_undone(mount, ["umount", "-l", str(path)])


def one_line(text: str, word: str) -> str:
    """Return the only line of ``text`` that has ``word`` in it."""
    lines = [line for line in text.splitlines() if word in line]
    assert len(lines) == 1, text
    return lines[0]


def test_full_disk_in_the_middle_of_a_shard(dev_server: Serve, run_downloader: Run, tmp_path: Path) -> None:
    server = dev_server(files=3000, size="100", page=100)
    mount = tmp_path / "disk"
    with tmpfs(mount, "24m"):
        ballast = mount / "ballast"
        ballast.write_bytes(bytes(os.statvfs(mount).f_bavail * 4096 - 4_000_000))
        argv = (server.url, "-o", mount / "dest", "--store", "tar", "--shard-files", 1500, "--workers", 2)
        full = run_downloader(*argv)
        assert full.returncode == 4, full.stdout + full.stderr
        assert one_line(full.stderr, "no space left")
        assert list(mount.glob("dest/.downloader/shards/*.part"))
        ballast.unlink()
        before = server.stats()["gets"]
        last = run_downloader(*argv, "--json")
        assert last.returncode == 0, last.stdout + last.stderr
        report = json.loads(last.stdout)
        assert (report["listed"], report["failed"]) == (3000, 0)
        assert server.stats()["gets"] - before < 3000, "what was whole in the parts was fetched again"
        assert run_downloader("verify", mount / "dest").returncode == 0


def reports_on_full_disk(run_downloader: Run, dest: Path, mount: Path, reported: int) -> None:
    """`status` and `verify` tell what was ``reported``, with no byte left, and change nothing."""
    with contextlib.suppress(OSError), (mount / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    status = json.loads(run_downloader("status", dest, "--json").stdout)
    assert status["stored"] == reported
    files = [path for path in dest.iterdir() if path.is_file()]
    assert len(files) >= reported
    assert run_downloader("verify", dest).stdout.startswith(f"{reported} of {reported} files agree")
    if reported:
        damaged = next(path for path in sorted(files) if path.stat().st_size > 2000)
        content = damaged.read_bytes()
        with damaged.open("r+b") as file:  # no new block
            file.write(b"x")
        done = run_downloader("verify", dest)
        assert done.returncode == 1, done.stderr
        assert f"damaged: {damaged.name}" in done.stdout
        assert "file system is read-only or full" in done.stdout
        with damaged.open("r+b") as file:
            file.write(content)
    (mount / "filler").unlink()


@pytest.mark.parametrize("room", slow_but([(2_000_000,)], (900_000, 2_000_000, 2_600_000)))
def test_full_disk(room: int, dev_server: Serve, run_downloader: Run, tmp_path: Path) -> None:
    """The disk is full before the first file, among the files, or when the journal must grow."""
    truth = Truth(600, 2000, 9000)
    server = dev_server(files=truth.files, size="2000-9000", page=100)
    mount = tmp_path / "disk"
    with tmpfs(mount, "8m"):
        ballast = mount / "ballast"
        free = os.statvfs(mount).f_bavail * 4096
        ballast.write_bytes(bytes(free - room))
        dest = mount / "dest"
        argv = (server.url, "-o", dest, "--workers", 2)
        full = run_downloader(*argv, "--json")
        assert full.returncode == 4, full.stdout + full.stderr
        assert "Traceback" not in full.stderr
        line = one_line(full.stderr, "space")
        assert len(line) < 400
        checked = check(dest, truth, interrupted=True, beside={"ballast"})
        reports_on_full_disk(run_downloader, dest, mount, json.loads(full.stdout)["stored"])
        again = run_downloader(*argv)
        assert again.returncode == 4, "there is still no room"
        check(dest, truth, interrupted=True, beside={"ballast"})
        ballast.unlink()
        before = server.stats()["gets"]
        last = run_downloader(*argv, *EACH_ONCE, "--json")
        assert last.returncode == 0, last.stdout + last.stderr
        checked = check(dest, truth, beside=())
        # What was published before the disk was full is not fetched again.
        assert server.stats()["gets"] - before == json.loads(last.stdout)["stored"]
        assert checked.stored == truth.files


def test_destination_that_is_a_file(server: DevServer, run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "dest").write_text("mine")
    for dest in (tmp_path / "dest", tmp_path / "dest/below/it"):
        done = run_downloader(server.url, "-o", dest)
        assert done.returncode == 2
        assert "is a file, not a directory" in one_line(done.stderr, "error")
    assert (tmp_path / "dest").read_text() == "mine"


# Where no directory can be made, and what is said of it; relative ones are in an own directory.
UNFIT = {
    "/proc/x": "nothing can be made in /proc; choose another directory",
    "/proc/x/y": "nothing can be made in /proc; choose another directory",
    "/proc": "nothing can be made in /proc; choose another directory",
    "/sys/x": "Operation not permitted; choose a directory you may write to",
    "/dev/null": "/dev/null is a file, not a directory",
    "file/x/y": "file is a file, not a directory",
    "dangling": "dangling is a symbolic link to nowhere, which is not there",
    "dangling/x": "dangling is a symbolic link to nowhere, which is not there",
    "loop": "loop is a symbolic link to itself",
    "loop/x": "loop is a symbolic link to itself",
    "new/" + "n" * 300: "longer than the file system takes; choose a shorter path",
    "new/" + "n/" * 2500: "longer than the file system takes; choose a shorter path",
    "ro": "Read-only file system; choose another directory",
    "ro/x/y": "Read-only file system; choose another directory",
    "": "-o DEST is missing",
}


@pytest.mark.parametrize("dest", UNFIT, ids=lambda each: each[:12] or "empty")
@pytest.mark.parametrize("option", ["-o", "--journal", "-o beside --journal"])
def test_what_cannot_be_a_directory_is_refused(
    option: str, dest: str, run_downloader: Run, tmp_path: Path
) -> None:
    """One line says what stands in the way; nothing was started, and nothing is left behind."""
    if option == "--journal" and not dest:
        pytest.skip("that is no journal")
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "list.txt").write_text("http://127.0.0.1:9/x\n")
    with tmpfs(tmp_path / "ro", "1m"):
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "ro"], check=True)
        before = sorted(tmp_path.iterdir())
        argv = ("-o", "there", "--store", "tar", "--journal", dest)
        if option != "--journal":
            argv = ("-o", dest, *(("--journal", "new/j") if "beside" in option else ()))
        done = run_downloader("list.txt", *argv, "--retries", 0, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert UNFIT[dest] in one_line(done.stderr, "error")
        assert sorted(tmp_path.iterdir()) == before


def by_nobody(folder: Path, dest: Path) -> subprocess.CompletedProcess[str]:
    """Fetch a list in ``folder`` to ``dest`` as a user without rights, who may read all on the way."""
    for directory in (folder, *folder.parents[:-2]):
        directory.chmod(directory.stat().st_mode | 0o055)
    (folder / "list.txt").write_text("http://127.0.0.1:9/x\n")
    drop = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    argv = [*drop, *python_m(folder / "list.txt", "-o", dest)]
    return subprocess.run(
        argv, env=environment(), cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """A user without rights is told so, and nothing is made on the way."""
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    for dest in (mine, mine / "x", tmp_path / "new/x"):
        done = by_nobody(tmp_path, dest)
        assert done.returncode == 2, done.stderr
        assert "Permission denied; choose a directory you may write to" in one_line(done.stderr, "error")
    assert list(mine.iterdir()) == []
    assert not (tmp_path / "new").exists()


def test_a_destination_for_all_with_the_home_of_another_user(tmp_path: Path) -> None:
    """A directory of a group: what refuses is named, and the remedy that helps."""
    dest = tmp_path / "d"
    for directory in (dest, dest / ".downloader"):
        directory.mkdir()
    dest.chmod(0o777)
    (dest / ".downloader").chmod(0o700)
    os.chown(dest / ".downloader", 65533, 65533)
    done = by_nobody(tmp_path, dest)
    assert done.returncode == 2, done.stderr
    says = (
        f"{dest / '.downloader'}: Permission denied; it may be another user's: give another directory with"
    )
    assert says in one_line(done.stderr, "error")


@pytest.mark.parametrize("kind", ["mount", "immutable", "home"])
def test_read_only_destination(kind: str, server: DevServer, run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    dest.mkdir()
    if kind == "home":
        assert run_downloader(server.url, "-o", dest).returncode == 0
    target = str(dest / ".downloader" if kind == "home" else dest)
    bind = ["sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"', "sh", target]
    made = (
        done_and_undone(bind, ["umount", target])
        if kind == "mount"
        else done_and_undone(["chattr", "+i", target], ["chattr", "-i", target])
    )
    with made:
        done = run_downloader(server.url, "-o", dest)
        assert done.returncode == 2, done.stdout + done.stderr
        assert str(dest) in one_line(done.stderr, "error")
    if kind != "home":
        assert not list(dest.iterdir())


def test_destination_removed_while_running(dev_server: Serve, start: Start, tmp_path: Path) -> None:
    truth = Truth(3000)
    server = dev_server(files=truth.files, delay="0-20ms", page=100)
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, "--workers", 2)
    job = start(*argv)
    server.until(lambda counters: counters["gets"] > 500)
    # Stopped, so that the removal is not a race with the files that come.
    processes = [job.pid, *job.children()]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    while dest.exists():
        shutil.rmtree(dest, ignore_errors=True)
    for pid in processes:
        os.kill(pid, signal.SIGCONT)
    assert job.wait(30) == 4, job.out + job.err
    # For a file without a name in a directory that is gone, ext4 reports EPERM.
    assert re.search("was removed|cannot store .*: Operation not permitted", job.err)
    assert "Traceback" not in job.err
    job.alone()
    assert not dest.exists()
    last = start(*argv)
    assert last.wait() == 0, last.err
    check(dest, truth)


@pytest.mark.parametrize(
    ("preflight", "how"),
    slow_but([("auto", "script"), ("probe", "python -m")], ("auto", "probe"), ("python -m", "script")),
)
def test_the_current_directory_was_removed(
    how: str, preflight: str, server: DevServer, tmp_path: Path
) -> None:
    """With an absolute -o no current directory is needed."""
    script = tmp_path / "downloader"
    script.write_text("import sys\nfrom downloader.__main__ import main\nsys.exit(main())\n")
    gone, dest, report = (tmp_path / name for name in ("gone", "dest", "report.json"))
    gone.mkdir()
    argv = [sys.executable, script] if how == "script" else python_m()
    argv += [server.url, "-o", dest, "--report", report, "--preflight", preflight]
    done = subprocess.run(
        ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", gone, *argv],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, "complete" in done.stdout) == (0, True), done.stderr
    check(dest, TRUTH)
    assert json.loads(report.read_text())["destination"] == str(dest)


def test_few_descriptors(dev_server: Serve, run_downloader: Run, tmp_path: Path) -> None:
    """The run continues with the descriptors that it has, or reports which limit is too low; the same
    command resumes."""
    truth = Truth(2000)
    server = dev_server(files=truth.files, delay="0-50ms")
    argv = (server.url, "-o", tmp_path / "dest", "--workers", 1, "--connections", 200)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    done = run_downloader(*argv, preexec_fn=limited)
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert done.returncode == 4
        assert "ulimit -n" in done.stdout + done.stderr
        check(tmp_path / "dest", truth, interrupted=True)
        assert run_downloader(*argv).returncode == 0
    check(tmp_path / "dest", truth)


# Journals


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"this is not a database" * 1000, marks=pytest.mark.slow),
        lambda content: content[: len(content) // 3],
        pytest.param(lambda content: content[:5000], marks=pytest.mark.slow),
        lambda content: content[:4096] + b"\xff" * (len(content) - 4096),
    ],
    ids=["garbage", "truncated", "torn", "overwritten"],
)
def test_damaged_journal(
    damage: Callable[[bytes], bytes], server: DevServer, run_downloader: Run, stored: Path
) -> None:
    """Two kinds are slow: tests/fuzz/test_fuzz_journal.py has thousands, without the command line."""
    journal = stored / ".downloader/journal.sqlite"
    journal.write_bytes(damage(journal.read_bytes()))
    for command in ((server.url, "-o", stored), ("verify", stored), ("status", stored)):
        done = run_downloader(*command)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "--restart" in one_line(done.stderr, "error")
        assert "Traceback" not in done.stderr
    before = server.stats()["gets"]
    last = run_downloader(server.url, "-o", stored, "--restart", *EACH_ONCE, "--json")
    assert last.returncode == 0, last.stderr
    # Files that are in no journal are fetched again and compared.
    assert json.loads(last.stdout)["skipped"] == TRUTH.files == server.stats()["gets"] - before
    check(stored, TRUTH)


def test_empty_journal_is_a_new_job(server: DevServer, run_downloader: Run, stored: Path) -> None:
    (stored / ".downloader/journal.sqlite").write_bytes(b"")
    assert run_downloader(server.url, "-o", stored).returncode == 0
    check(stored, TRUTH)


def test_journal_of_another_source(dev_server: Serve, run_downloader: Run, stored: Path) -> None:
    other = dev_server(files=10)
    done = run_downloader(other.url, "-o", stored)
    assert done.returncode == 2
    assert "another source" in one_line(done.stderr, "error")
    check(stored, TRUTH)
    done = run_downloader(other.url, "-o", stored, "--restart")
    # The first ten exist, from another server, with other bytes: they are replaced.
    assert done.returncode == 0, done.stdout + done.stderr


def test_journal_of_another_version(server: DevServer, run_downloader: Run, stored: Path) -> None:
    database = sqlite3.connect(stored / ".downloader/journal.sqlite")
    with database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    done = run_downloader(server.url, "-o", stored)
    assert done.returncode == 4
    assert "--restart" in one_line(done.stderr, "format 99")


def test_restart_begins_anew(server: DevServer, run_downloader: Run, stored: Path) -> None:
    (stored / TRUTH.name(7)).write_bytes(b"changed")
    before = server.stats()["gets"]
    done = run_downloader(server.url, "-o", stored, "--restart", *EACH_ONCE, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert server.stats()["gets"] - before == TRUTH.files
    assert (report["stored"], report["skipped"], report["resumed"]) == (1, TRUTH.files - 1, False)
    check(stored, TRUTH)


def test_files_outside_the_journal_are_compared_and_replaced(
    server: DevServer, run_downloader: Run, tmp_path: Path
) -> None:
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / TRUTH.name(1)).write_bytes(TRUTH.content(TRUTH.name(1)))
    (dest / TRUTH.name(2)).write_bytes(TRUTH.content(TRUTH.name(2))[:-1] + b"?")
    (dest / TRUTH.name(3)).write_bytes(b"")
    (dest / "mine").write_text("mine")
    done = run_downloader(server.url, "-o", dest, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["stored"], report["skipped"]) == (TRUTH.files - 1, 1)
    check(dest, TRUTH, foreign={"mine"})


def test_retry_failed(server: DevServer, run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    argv = (server.url, "-o", dest, *EACH_ONCE)
    none = run_downloader(*argv, "--retry-failed")
    assert none.returncode == 2
    assert "no journal" in one_line(none.stderr, "error")
    large = {name for name in map(TRUTH.name, range(TRUTH.files)) if len(TRUTH.content(name)) > 1000}
    assert run_downloader(*argv, "--max-size", 1000).returncode == 1
    check(dest, TRUTH, failed=dict.fromkeys(large, "too-large"))
    before = server.stats()
    assert run_downloader(*argv, "--max-size", 1000, "--retry-failed").returncode == 1
    check(dest, TRUTH, failed=dict.fromkeys(large, "too-large"))
    assert run_downloader(*argv, "--retry-failed").returncode == 0
    check(dest, TRUTH)
    after = server.stats()
    assert after["gets"] - before["gets"] == 2 * len(large)
    assert after["lists"] == before["lists"]


def test_retry_failed_of_a_job_that_was_not_read_to_its_end(
    dev_server: Serve, start: Start, run_downloader: Run, tmp_path: Path
) -> None:
    """Exit 0 would mean that everything is stored."""
    truth = Truth(3000)
    server = dev_server(files=truth.files, delay="0-20ms", page=50)
    argv = (server.url, "-o", tmp_path / "dest", "--workers", 1)
    job = start(*argv)
    server.until(lambda counters: counters["gets"] > 300)
    job.kill(signal.SIGINT)
    assert job.wait() == 130
    done = run_downloader(*argv, "--retry-failed")
    assert done.returncode == 4, done.stdout
    assert "leave out --retry-failed" in done.stdout + done.stderr
    assert run_downloader(*argv).returncode == 0
    check(tmp_path / "dest", truth)


def test_file_damaged_between_runs_is_fetched_again(
    start: Start, run_downloader: Run, tmp_path: Path
) -> None:
    """No other item has its name: the ledger recorded that the file was this item's."""
    dest = tmp_path / "dest"
    with Server(files={"a": ok(b"right"), "b": [HANG]}) as origin:
        argv = (origin.url, "-o", dest, "--workers", 1)
        job = start(*argv)
        job.until(lambda: (dest / "a").exists() and origin.count("/get/b"))
        job.kill(signal.SIGINT)
        assert job.wait() == 130
        (dest / "a").write_bytes(b"")  # as after a power cut
        origin.routes["/get/b"] = ok(b"b")
        done = run_downloader(*argv, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["stored"], report["skipped"], report["failed"]) == (2, 0, 0)
    assert (dest / "a").read_bytes() == b"right"


def assert_complete(run_downloader: Run, dest: Path, listed: int, *, read: bool) -> None:
    """`status` says what the report said: complete, whether the source was ``read`` or --limit reached."""
    told = run_downloader("status", dest)
    assert told.returncode == 0, told.stdout
    assert told.stdout.partition("\n")[0].endswith(": complete")
    assert ("  (up to --limit)\n" in told.stdout) is not read
    assert " so far" not in told.stdout
    status = json.loads(run_downloader("status", dest, "--json").stdout)
    assert (status["complete"], status["source_read"], status["listed"]) == (True, read, listed)


def test_limit_then_the_remaining_files(server: DevServer, run_downloader: Run, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    before = server.stats()["gets"]
    for _ in range(2):
        done = run_downloader(server.url, "-o", dest, *EACH_ONCE, "--limit", 100)
        assert done.returncode == 0
        assert done.stdout.partition("\n")[0].endswith(": complete")
        assert_complete(run_downloader, dest, 100, read=False)
        check(dest, Truth(100, 100, 2000), limited=True)
    # A limit that is less than what was read takes nothing back.
    for limit in ((), ("--limit", 10)):
        assert run_downloader(server.url, "-o", dest, *EACH_ONCE, *limit).returncode == 0
        assert_complete(run_downloader, dest, TRUTH.files, read=True)
    check(dest, TRUTH)
    assert server.stats()["gets"] - before == TRUTH.files


# status and verify


KINDS = ("byte", "truncated", "empty", "deleted", "symlink")


def damage_one(path: Path, kind: str) -> None:
    content = path.read_bytes()
    if kind == "byte":
        path.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    elif kind == "truncated":
        path.write_bytes(content[:-1])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "deleted":
        path.unlink()
    else:
        path.unlink()
        path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("kind", slow_but([("byte",), ("deleted",), ("symlink",)], KINDS))
def test_verify_names_damaged_files_and_the_same_command_repairs_them(
    kind: str, server: DevServer, run_downloader: Run, stored: Path
) -> None:
    """The cases with another size, which are found before a byte is read, are slow."""
    name = TRUTH.name(123)
    right = run_downloader("verify", stored)
    assert (right.returncode, right.stdout) == (
        0,
        f"{TRUTH.files} of {TRUTH.files} files agree with the journal\n",
    )
    damage_one(stored / name, kind)
    damaged = run_downloader("verify", stored)
    assert damaged.returncode == 1
    assert f"damaged: {name}" in damaged.stdout
    assert f"{TRUTH.files - 1} of {TRUTH.files}" in damaged.stdout
    status = run_downloader("status", stored, "--json")
    assert status.returncode == 1
    assert json.loads(status.stdout)["failed_by_error"] == {"damaged": 1}
    before = server.stats()["gets"]
    assert run_downloader(server.url, "-o", stored).returncode == 0
    check(stored, TRUTH)
    assert server.stats()["gets"] - before == 1
    assert run_downloader("verify", stored).returncode == 0
    assert run_downloader("status", stored).returncode == 0


def test_status_and_verify_without_a_journal(run_downloader: Run, tmp_path: Path) -> None:
    for command in ("status", "verify"):
        done = run_downloader(command, tmp_path)
        assert done.returncode == 2
        assert "no journal" in one_line(done.stderr, "error")
    assert not list(tmp_path.iterdir())


def test_verify_after_a_kill(dev_server: Serve, start: Start, run_downloader: Run, tmp_path: Path) -> None:
    """What verify finds damaged stays damaged, whatever the ledgers of the killed run say of it."""
    truth = Truth(1000)
    server = dev_server(files=truth.files, delay="0-20ms", page=100)
    argv = (server.url, "-o", tmp_path / "dest", "--workers", 2)
    job = start(*argv)
    server.until(lambda counters: counters["gets"] > 600)
    job.kill()
    job.alone()
    victim = tmp_path / "dest" / truth.name(0)
    victim.write_bytes(b"changed")
    done: Any = run_downloader("verify", tmp_path / "dest")
    assert done.returncode == 1, done.stdout
    assert run_downloader(*argv).returncode == 0
    check(tmp_path / "dest", truth)
