"""Write a file of the run's own: whole or not at all, by default readable by its owner only."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from downloader.errors import DestinationError

__all__ = ["publish"]


def publish(path: str, write: Callable[[BinaryIO], object], mark: str = "", mode: int = 0o600) -> None:
    """Let ``write`` write to ``path``: beside it, and then under its name.

    /dev/stderr, /dev/null or a named pipe are written to, never replaced. ``mark`` makes the name beside it
    unique, by default the process; where it stays the same, what a killed process has left is replaced.
    ``mode``: of the new file, less the umask. Raises DestinationError.
    """
    try:
        if _is_stream(path):
            with open(path, "wb") as file:
                write(file)
            return
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f".downloader-{mark or os.getpid()}.tmp")
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with open(fd, "wb") as file:
                write(file)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DestinationError(f"{path} cannot be written: {error.strerror or error}") from error


def _is_stream(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
