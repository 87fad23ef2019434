"""Say what an error of the file system means for the destination, and what to do about it."""

from __future__ import annotations

import errno

from downloader.errors import DestinationError

__all__ = ["advice", "destination_error"]

_ADVICE = {
    errno.ENOSPC: "no space left; free some, then run the same command again",
    errno.EDQUOT: "the quota is used up; free some space, then run the same command again",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "too many open files; raise `ulimit -n` or lower --connections",
    errno.ENFILE: "the machine has too many open files; lower --connections",
    errno.ENOENT: "the destination was removed",
    errno.ENOSYS: "its file system has neither hard links nor a rename that refuses to replace",
}


def destination_error(error: OSError, name: str, number: int | None = None) -> DestinationError:
    """Return the DestinationError of ``name``. ``number``: the errno, if not that of ``error``."""
    return DestinationError(f"cannot store {name}: {advice(error, number)}")


def advice(error: OSError, number: int | None = None) -> str:
    """Return what happened and what to do next. ``number``: the errno, if not that of ``error``."""
    code = error.errno if number is None else number
    return _ADVICE.get(code or 0, error.strerror or str(error))
