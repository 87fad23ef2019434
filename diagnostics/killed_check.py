"""End the program under check, and remove the folder of its check, where the check itself is killed.

The program leads a session of its own, so no terminal reaches it: a server would keep its port. A process
waits for the end of a pipe that the check holds open, which comes whatever ends the check.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from diagnostics.processes import end_all, started
from downloader.process import isolation

__all__ = ["ended_if_killed", "main"]

_NOBODY = -1  # in place of the leader of a session: by the time it is read, its number may be another's


@contextlib.contextmanager
def ended_if_killed(pid: int, mark: str, folder: Path) -> Iterator[None]:
    """In the block, have the process ``pid`` ended, and its ``folder`` removed, if this one is killed.

    ``mark``: see ``processes.end_all``.
    """
    argv, env = isolation.child(
        "diagnostics.killed_check:main", str(pid), str(started(pid)), mark, str(folder)
    )
    waiting = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with waiting:
        try:
            yield
        finally:
            waiting.kill()


def main() -> int:
    """Wait until the check has ended, then end what it has left, as its arguments say."""
    pid, since, mark, folder = sys.argv[1:]
    os.read(0, 1)
    end_all(_NOBODY, mark, {int(pid): int(since)})
    shutil.rmtree(folder, ignore_errors=True)
    return 0
