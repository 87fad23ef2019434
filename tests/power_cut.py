"""Cut the power of a file system: an ext4 on a loop device that is shut down (FS_IOC_SHUTDOWN).

What runs next runs in what it must take for another boot: a mount namespace of its own, with another boot
id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import sqlite3
import struct
import subprocess
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from checker import HOME, ItemStates
from harness import ROOT, command, environment

__all__ = ["LOGFLUSH", "NOLOGFLUSH", "Disk", "after_reboot", "counted", "disk"]

# _IOR('X', 125, __u32): what is in memory is lost; with LOGFLUSH the file system's own journal is written
# first, so that names exist and their bytes do not.
SHUTDOWN, LOGFLUSH, NOLOGFLUSH = 0x8004587D, 1, 2
_ENDS_WITHIN = 60.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"


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
        """Mount the disk again.

        Another test, in a mount namespace of its own (``after_reboot``), may have this disk mounted, too:
        then it would still be the file system that was shut down. So wait until that has ended.
        """
        self.unmount()
        give_up = time.monotonic() + _ENDS_WITHIN
        while self._is_attached():
            assert time.monotonic() < give_up, f"{self._image} is still mounted in another namespace"
            time.sleep(0.05)  # no event tells
        self.mount()

    def _is_attached(self) -> bool:
        """Return whether a loop device has the disk, as long as it is mounted anywhere."""
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):  # it was detached meanwhile
                if path.read_text().strip().startswith(str(self._image)):
                    return True
        return False

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
