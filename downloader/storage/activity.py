"""Keep in a file of the journal's directory when a run was last active.

The journal has when runs began and ended (``core.run_times``). That of one that was killed is known by the
time of this file, which is touched while the run goes on; so is that of one which could not be recorded: to
change a file in place takes no room on a full disk.
"""

from __future__ import annotations

import contextlib
import os

from downloader.files.directory import Directory, UnsafeFile

__all__ = ["Activity"]

_NAME = "active"
_ACTIVE, _ENDED = b"active\n", b"ended \n"
_SLACK_NS = 10 * 10**9  # that a run may be active after it has touched the file, on a busy machine


class Activity:
    """The file of a run that begins in ``home``. Raises UnsafeFile if it is a link, or another user's.

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
