"""--journal: the journal in another directory than the files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest
from harness import DevServer, Job, report_of, run_behind_mount, stored
from servers import Request, Server, Step, Until, ok

from downloader.errors import DestinationError, InUse
from downloader.files.directory import open_home
from downloader.storage.lock import lock
from downloader.storage.verify import HeldRoot

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Serve = Callable[..., DevServer]


def test_journal_is_apart_and_resumed(run_downloader: Run, dev_server: Serve, tmp_path: Path) -> None:
    server = dev_server(files=300)
    dest, journal = tmp_path / "d", tmp_path / "j"
    argv = (server.url, "-o", dest, "--journal", journal, "--workers", "1", "--json")
    assert report_of(run_downloader(*argv, "--limit", "100"))["stored"] == 100
    report = report_of(run_downloader(*argv))
    assert (report["stored"], report["skipped"], report["resumed"]) == (200, 100, True)
    assert len(stored(dest)) == 300
    assert sorted(path.name for path in dest.iterdir() if path.name.startswith(".")) == []
    assert (journal / ".downloader" / "journal.sqlite").is_file()

    status = run_downloader("status", dest, "--journal", journal, "--json")
    assert (status.returncode, json.loads(status.stdout)["stored"]) == (0, 300)
    (dest / "file-0000000007").write_bytes(b"x")
    verified = run_downloader("verify", dest, "--journal", journal, "--json")
    assert (verified.returncode, json.loads(verified.stdout)["damaged"]) == (1, ["file-0000000007"])
    assert report_of(run_downloader(*argv))["stored"] == 1


@pytest.mark.parametrize("store", ["files", "tar"])
def test_verify_of_a_destination_that_is_not_there(
    run_downloader: Run, dev_server: Serve, tmp_path: Path, store: str
) -> None:
    """It was moved or unmounted: no file of it is damaged, and none is fetched again."""
    server = dev_server(files=20)
    dest, away, journal = tmp_path / "d", tmp_path / "away", tmp_path / "j"
    argv = (server.url, "-o", dest, "--journal", journal, "--store", store, "--json")
    assert report_of(run_downloader(*argv))["stored"] == 20
    dest.rename(away)
    done = run_downloader("verify", dest, "--journal", journal)
    assert (done.returncode, f"{dest} is not there; if it was moved" in done.stderr) == (4, True), done
    done = run_downloader(*argv)  # which would make it on another disk, where it was mounted
    assert (done.returncode, "has stored files in it: mount" in done.stderr) == (4, True), done
    assert not dest.exists()
    away.rename(dest)
    assert run_downloader("verify", dest, "--journal", journal).returncode == 0
    with contextlib.closing(HeldRoot(str(dest))) as held:
        held.check()
        dest.rename(away)
        dest.mkdir()
        with pytest.raises(DestinationError, match="was moved, unmounted or replaced"):
            held.check()
    # Where all of it is lost, and an empty directory says so, all is fetched again.
    assert run_downloader("verify", dest, "--journal", journal).returncode == 1
    assert report_of(run_downloader(*argv))["stored"] == 20


def test_two_mounts_of_one_file_system(run_downloader: Run, dev_server: Serve, tmp_path: Path) -> None:
    """Nothing can be renamed between them, although the device is the same: two volumes of a container."""
    server = dev_server(files=300)
    dest, journal = tmp_path / "d", tmp_path / "j"
    mounts = []
    for path in (dest, journal):
        (tmp_path / f"{path.name}-volume").mkdir()
        path.mkdir()
        mounts.append(f"mount --bind {path}-volume {path}")
    argv = (server.url, "-o", dest, "--journal", journal, "--store", "tar", "--shard-files", 100, "--json")
    report = report_of(run_behind_mount(" && ".join(mounts), *argv))
    assert (report["stored"], report["complete"]) == (300, True)
    shutil.copytree(tmp_path / "d-volume", dest, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "j-volume", journal, dirs_exist_ok=True)
    assert run_downloader("verify", dest, "--journal", journal).returncode == 0
    assert not [*dest.glob(".*"), *journal.glob(".downloader/shards/*")]
    assert len([*dest.glob("0000?.tar")]) == 3


def test_journal_of_another_destination_is_refused(
    run_downloader: Run, dev_server: Serve, tmp_path: Path
) -> None:
    server = dev_server(files=10)
    journal = tmp_path / "j"
    assert run_downloader(server.url, "-o", tmp_path / "a", "--journal", journal).returncode == 0
    for argv in (
        (server.url, "-o", tmp_path / "b", "--journal", journal),
        (server.url, "-o", journal),
        ("verify", tmp_path / "b", "--journal", journal),
    ):
        done = run_downloader(*argv)
        assert done.returncode == 2
        assert f"has the journal of {tmp_path / 'a'}" in done.stderr
    assert not stored(tmp_path / "b")


def test_destination_that_was_moved(run_downloader: Run, dev_server: Serve, tmp_path: Path) -> None:
    """A link where it was leads to it. Without one, the message says what to do; then the new path does."""
    server = dev_server(files=10)
    old, new, journal = tmp_path / "d", tmp_path / "disk" / "d d", tmp_path / "j"
    argv = (server.url, "--journal", journal, "--json", "-o")
    assert report_of(run_downloader(*argv, old))["stored"] == 10
    new.parent.mkdir()
    old.rename(new)
    remedy = f"ln -s '{new}' {old}"
    for words in ((*argv, new), ("verify", new, "--journal", journal)):
        done = run_downloader(*words)
        assert (done.returncode, f"if it was moved, run `{remedy}`" in done.stderr) == (2, True), done
    subprocess.run(remedy, shell=True, check=True)
    assert run_downloader("verify", old, "--journal", journal).returncode == 0
    for dest in (old, new):
        assert report_of(run_downloader(*argv, dest))["skipped"] == 10
        assert run_downloader("verify", dest, "--journal", journal).returncode == 0
    old.unlink()
    assert run_downloader("verify", new, "--journal", journal).returncode == 0
    (tmp_path / "other").mkdir()
    done = run_downloader(*argv, tmp_path / "other")
    assert (done.returncode, f"has the journal of {new}" in done.stderr) == (2, True), done
    assert "ln -s" not in done.stderr


def test_two_journals_share_a_destination(run_downloader: Run, dev_server: Serve, tmp_path: Path) -> None:
    server = dev_server(files=200)
    dest = tmp_path / "d"
    first = report_of(run_downloader(server.url, "-o", dest, "--journal", tmp_path / "j", "--json"))
    again = report_of(run_downloader(server.url, "-o", dest, "--journal", tmp_path / "k", "--json"))
    assert (first["stored"], again["stored"], again["skipped"], again["failed"]) == (200, 0, 200, 0)


LEAVES = """
import subprocess, sys
from pathlib import Path
from downloader.files.directory import open_home
from downloader.storage.lock import lock

held = lock(open_home(Path(sys.argv[1]), create=True))
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
print(subprocess.Popen(["sleep", "100"], pass_fds=[held], **quiet).pid)
"""


def test_what_a_killed_run_has_left_is_named(tmp_path: Path) -> None:
    """The lock has the number of a process that is gone: to wait for that one would be in vain."""
    home = tmp_path / "d" / ".downloader"
    home.parent.mkdir()
    left = subprocess.run([sys.executable, "-c", LEAVES, home], capture_output=True, text=True, check=True)
    try:
        with pytest.raises(
            InUse, match=rf"has left that was killed \(process {left.stdout.strip()}\); end"
        ):
            lock(open_home(home))
    finally:
        os.kill(int(left.stdout), signal.SIGKILL)


def test_runs_with_other_journals_do_not_share_a_destination_at_once(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """Each would replace what the other has stored, and both would say that all is there."""
    dest, journal, asked, over = tmp_path / "d", tmp_path / "j", Event(), Event()

    def wait(request: Request) -> Sequence[Step]:
        asked.set()
        return [Until(over), *ok(b"2")]

    with Server(files={"a": ok(b"1"), "b": wait}) as server:
        argv = (server.url, "-o", dest, "--workers", 1, "--pipeline", "off")
        assert run_downloader(*argv, "--journal", journal, "--limit", 1).returncode == 0
        first = start(*argv)
        assert asked.wait(30)
        for more in (("--journal", journal), ("--journal", journal, "--store", "tar", "--restart"), ()):
            second = run_downloader(*argv, *more)
            said = f"{dest} is in use by another run (process {first.pid})"
            assert (second.returncode, said in second.stderr) == (2, True), second
        # What reads a journal of its own goes on.
        assert run_downloader("verify", dest, "--journal", journal).returncode == 0
        assert run_downloader("status", dest, "--journal", journal).returncode == 0
        over.set()
        assert first.wait() == 0
        assert run_downloader(*argv, "--journal", journal).returncode == 0


def test_journal_that_cannot_be_made(run_downloader: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_downloader("http://127.0.0.1:1", "-o", tmp_path / "d", "--journal", tmp_path / "file" / "j")
    assert done.returncode == 2
    assert f"--journal {tmp_path / 'file' / 'j'}: {tmp_path / 'file'} is a file" in done.stderr
