"""Run the command line over files that somebody else has made: with little memory, and not for ever."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from harness import ROOT, command, environment

__all__ = ["MOST_MEMORY", "Done", "Outside", "bounded", "check"]

MOST_MEMORY = 700 << 20  # bytes, of one process; pyarrow alone takes 100 MB
WITHIN = 60.0
CODES = {0, 1, 2, 4}


class Outside:
    """A directory beside the destination, which must stay as it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "inner").mkdir(parents=True)
        (root / "precious").write_bytes(b"precious")
        (root / "inner" / "kept").write_bytes(b"kept")
        self.before = self.now()

    def now(self) -> dict[str, object]:
        return {
            str(path.relative_to(self.root)): (
                path.lstat().st_mode,
                path.lstat().st_mtime_ns,
                path.read_bytes() if path.is_file() else b"",
            )
            for path in [self.root, *self.root.rglob("*")]
        }


class Done(NamedTuple):
    code: int
    out: str
    err: str


def bounded(*args: object) -> Done:
    """Run the command line with little memory, and end it if it waits."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command(*args),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        timer = threading.Timer(WITHIN, lambda: os.killpg(process.pid, signal.SIGKILL))
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        done = Done(process.returncode, out.read(), err.read())
    # A process begins with the peak of the one that has started it (Linux).
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert usage.ru_maxrss < max(MOST_MEMORY >> 10, own + 1), f"{args}: {usage.ru_maxrss:,} KiB"
    return done


def check(what: str, victim: str, done: Done) -> None:
    """Check that ``done`` ended as documented and, if with an error, said it in one line."""
    shown = f"{victim} as {what}: {done}"
    assert done.code in CODES, shown
    assert "defect" not in done.err, shown
    assert "Traceback" not in done.err, shown
    assert not any(ord(char) < 32 and char != "\n" for char in done.out + done.err), shown
    errors = [line for line in done.err.splitlines() if line.startswith("downloader: error: ")]
    assert len(errors) <= 1, shown
    if done.code == 2 or (done.code == 4 and "stopped" not in done.out and "complete" not in done.out):
        assert len(errors) == 1, shown
