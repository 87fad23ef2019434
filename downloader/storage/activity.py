"""Record when the runs of a job are active (``core.run_times``).

The journal has when they began and ended. The end of one that was killed is known by the time of a file in
the journal's directory, which is touched while the run goes on; so is the end of one that could not record
it: to change a file in place takes no room on a full disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from downloader.core import run_times
from downloader.core.run_times import Times
from downloader.errors import JournalError
from downloader.files.directory import Directory, UnsafeFile
from downloader.storage.journal import Journal

__all__ = ["Activity"]

_NAME = "active"
_ACTIVE, _ENDED = b"active\n", b"ended \n"
_SLACK_NS = 10 * 10**9  # that a run may be active after it has touched the file, on a busy machine


class Activity:
    """The time of the run that begins, with those of the runs before it: ``times``.

    ``clock``: returns the time of the file system that stamps the files of the job. ``resumed``: it is the
    job of an earlier run. ``crashed``: the machine went down since, or may have. That the run is active in
    ``boot`` is recorded in ``journal``. Raises JournalError; UnsafeFile if the file is a link, or another
    user's.
    """

    def __init__(
        self,
        home: Directory,
        journal: Journal,
        boot: str,
        clock: Callable[[], int],
        *,
        resumed: bool,
        crashed: bool,
    ) -> None:
        self._file = _ActiveFile(home)
        self._journal = journal
        self._clock = clock
        now, since = clock(), self._file.since_ns
        times = journal.runs or (((0, 0),) if resumed else ())  # an earlier version has recorded none
        if since is not None and not crashed:
            times = run_times.end(times, now - since)
        self.times: Times = run_times.begin(times, now)
        self.idle = False
        """Whether the run has stored nothing, so that what has changed meanwhile it has not changed."""
        journal.run(boot, self.times)

    def touch(self) -> None:
        """Record that the run is active."""
        self._file.touch()

    def end(self) -> None:
        """Record that the run has ended. On failure, it counts as interrupted."""
        times = self.times[:-1] if self.idle else run_times.end(self.times, self._clock())
        self._file.end()
        with contextlib.suppress(JournalError):
            self._journal.run("", times)


class _ActiveFile:
    """The file of a run that begins in ``home``.

    ``since_ns``: for how long the run before it has been over, as far as is known, else None.
    """

    def __init__(self, home: Directory) -> None:
        self.since_ns: int | None = None
        self._fd = -1
        try:
            self._fd = (home / _NAME).open(os.O_RDWR | os.O_CREAT)
            before, at_ns = os.pread(self._fd, len(_ENDED), 0), os.fstat(self._fd).st_mtime_ns
            self._write(_ACTIVE)
            since_ns = os.fstat(self._fd).st_mtime_ns - at_ns
        except UnsafeFile:
            raise
        except OSError:
            return
        if before in (_ACTIVE, _ENDED):
            self.since_ns = max(0, since_ns - (_SLACK_NS if before == _ACTIVE else 0))

    def touch(self) -> None:
        """Record that the run is active."""
        with contextlib.suppress(OSError):
            os.utime(self._fd)

    def end(self) -> None:
        """Record that the run has ended, and close the file."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._write(_ENDED)
            os.close(self._fd)
            self._fd = -1

    def _write(self, state: bytes) -> None:
        os.pwrite(self._fd, state, 0)
        os.utime(self._fd)
