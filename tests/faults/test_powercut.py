"""Power cuts: an ext4 on a loop device is shut down during a run (FS_IOC_SHUTDOWN), at random instants.

The next run happens in what it must take for another boot: a mount namespace of its own, with another boot
id. A cut's seed is in its name; ``POWERCUTS=50`` makes 50 of them, ``POWERCUTS_SEED`` changes the seeds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shlex
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from checker import HOME, ItemStates, Truth, check
from harness import ROOT, DevServer, Job, command, environment, serving

CUTS = int(os.environ.get("POWERCUTS", "1"))
FIRST = int(os.environ.get("POWERCUTS_SEED", "0"))
TRUTH = Truth(4000, 100, 3000)
# _IOR('X', 125, __u32): what is in memory is lost; with LOGFLUSH the file system's own journal is written
# first, so that names exist and their bytes do not.
SHUTDOWN, LOGFLUSH, NOLOGFLUSH = 0x8004587D, 1, 2
BOOT_ID = "/proc/sys/kernel/random/boot_id"
Start = Callable[..., Job]


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    with serving(files=TRUTH.files, size="100-3000", delay="0-2ms", page=100) as server:
        yield server


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def tried(*argv: str) -> None:
    """Run a command as root; skip the test with the reason where that fails."""
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]}: no such command")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{shlex.join(argv)}: {done.stderr.strip()}")


class Disk:
    """An ext4 in a file, mounted at ``path``."""

    def __init__(self, directory: Path) -> None:
        self._image = directory / "disk.img"
        self.path = directory / "disk"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(96 << 20)
        tried("mkfs.ext4", "-q", "-N", "20000", str(self._image))
        self.mount()

    def mount(self) -> None:
        # With a short commit interval of the file system, a cut leaves names without bytes and half of a
        # run.
        tried("mount", "-o", "loop,commit=1", str(self._image), str(self.path))

    def cut(self, how: int) -> None:
        """Cut the power."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", how))
        except OSError as error:
            pytest.skip(f"FS_IOC_SHUTDOWN: {error.strerror}")
        finally:
            os.close(fd)

    def comes_back(self) -> None:
        """Mount the disk again."""
        self.unmount()
        self.mount()

    def unmount(self) -> None:
        if os.path.ismount(self.path):
            subprocess.run(["umount", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with contextlib.ExitStack() as stack:
        made = Disk(tmp_path)
        stack.callback(made.unmount)
        yield made


def after_reboot(directory: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in another boot."""
    boot = directory / "boot-id"
    boot.write_text(f"{uuid.uuid4()}\n")
    line = f"mount --bind {shlex.quote(str(boot))} {BOOT_ID} && exec {shlex.join(command(*args))}"
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", line],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def counted(dest: Path) -> set[str]:
    """Return the files that the journal counts as stored: those of done batches."""
    with tempfile.TemporaryDirectory() as copy:
        # In a copy: SQLite would repair what the next run must find unchanged.
        for path in (dest / HOME).glob("journal.sqlite*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, copy)
        return _counted(Path(copy) / "journal.sqlite")


def _counted(path: Path) -> set[str]:
    names: set[str] = set()
    database = sqlite3.connect(path)
    try:
        if database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'batch'").fetchone()[0]:
            rows = database.execute(
                "SELECT count, names, marks FROM batch JOIN listing USING (seq)"
                " JOIN published USING (seq) WHERE done = 1"
            ).fetchall()
            for count, packed, marks in rows:
                listed = msgspec.msgpack.decode(zlib.decompress(packed), type=list[str])
                names |= {listed[index] for index in ItemStates.of(zlib.decompress(marks), count).published}
    finally:
        database.close()
    return names


def damaged(dest: Path, names: set[str]) -> set[str]:
    """Return those of ``names`` that are not what the server sent."""
    return {name for name in names if not _right(dest / name, TRUTH.content(name))}


def _right(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def cut_in_mid_run(
    seed: int, fsync: bool, server: DevServer, disk: Disk, start: Start
) -> tuple[Path, bool]:
    """Run, and cut at a random instant; return the destination afterwards, and whether the run had ended
    before."""
    rng = random.Random(seed)
    dest = disk.path / "dest"
    depth = rng.choice(("off", "16", "auto"))
    argv: list[object] = [server.url, "-o", dest, "--workers", 2, "--connections", 8, "--pipeline", depth]
    before = server.stats()["gets"]
    job = start(*argv, *(["--fsync"] if fsync else []))
    count = rng.randrange(500, TRUTH.files - 100)
    while server.stats()["gets"] - before < count and job.process.poll() is None:
        pass
    if not fsync:
        # So that there is data that the kernel has written by itself.
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.process.wait(rng.uniform(0, 1.5))
    how = rng.choice((LOGFLUSH, NOLOGFLUSH))
    disk.cut(how)
    code = job.wait(60)
    assert code in (0, 4), job.out + job.err
    assert "Traceback" not in job.err
    job.alone()
    disk.comes_back()
    say(f"seed {seed}: cut after {count} requests, flag {how}, depth {depth}; the run ended with {code}")
    return dest, code == 0


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CUTS))
def test_files_counted_as_stored_survive_with_fsync(
    seed: int, server: DevServer, disk: Disk, start: Start, tmp_path: Path
) -> None:
    dest, _ = cut_in_mid_run(seed, True, server, disk, start)
    stored = counted(dest)
    lost = damaged(dest, stored)
    say(f"seed {seed}: {len(lost)} damaged of {len(stored)} counted stored")
    assert not lost
    done = after_reboot(tmp_path, server.url, "-o", dest, "--fsync")
    assert done.returncode == 0, done.stdout + done.stderr
    check(dest, TRUTH, foreign={"lost+found"})


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CUTS))
def test_without_fsync_every_damaged_file_is_found(
    seed: int, server: DevServer, disk: Disk, start: Start, tmp_path: Path
) -> None:
    """The next run finds it, or verify does; the same command then repairs it."""
    dest, ended = cut_in_mid_run(seed, False, server, disk, start)
    lost = damaged(dest, counted(dest))
    say(f"seed {seed}: {len(lost)} damaged of {len(counted(dest))} counted stored")
    done = after_reboot(tmp_path, server.url, "-o", dest)
    assert done.returncode == 0, done.stdout + done.stderr
    left = damaged(dest, {TRUTH.name(index) for index in range(TRUTH.files)})
    assert left <= lost
    if lost and not ended:
        assert "went down" in done.stderr
    verified = after_reboot(tmp_path, "verify", dest)
    assert verified.returncode == (1 if left else 0), verified.stdout
    found = {line.removeprefix("damaged: ") for line in verified.stdout.splitlines()[:-1]}
    assert found <= left
    assert len(found) == min(len(left), 1000)
    assert f"{TRUTH.files - len(left):,} of {TRUTH.files:,} files agree" in verified.stdout
    assert after_reboot(tmp_path, server.url, "-o", dest).returncode == 0
    check(dest, TRUTH)
