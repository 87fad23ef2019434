"""Say what an error of the file system means for a file or the destination, and what to do about it."""

from __future__ import annotations

import errno

from downloader.core.file_errors import Step, code_of
from downloader.errors import DestinationError, FetchError
from downloader.files.directory import UnsafeFile

__all__ = ["advice", "content_error", "destination_error", "file_error", "name_taken_text"]

_ADVICE = {
    errno.ENOSPC: "no space left; free some, then run the same command again",
    errno.EDQUOT: "the quota is used up; free some space, then run the same command again",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "too many open files; raise `ulimit -n` or lower --connections",
    errno.ENFILE: "the machine has too many open files; lower --connections",
    errno.ENOENT: "the destination was removed",
    errno.EFBIG: "its file system, or `ulimit -f`, takes no file of that size; with another -o, "
    "give a smaller --shard-files",
    errno.ENOSYS: "its file system has neither hard links nor a rename that refuses to replace",
}


_REASONS = {
    "bad-name": "the file system of DEST refuses this name",
    "too-large": "the file system of DEST, or `ulimit -f`, takes no file of that size",
    "not-writable": "it cannot be written where it belongs",
}


def file_error(error: OSError, name: str, code: str) -> FetchError:
    """Return the FetchError of the file ``name``, with a ``code`` of ``core.file_errors``."""
    return FetchError(code, f"{name}: {_REASONS[code]} ({error.strerror})")


def content_error(error: OSError, name: str) -> FetchError | DestinationError:
    """Return what ``error``, met while the content of ``name`` was written to a file of ours, means.

    Only the size of such a file depends on the item.
    """
    code = code_of(error.errno or 0, Step.CONTENT)
    return file_error(error, name, code) if code == "too-large" else destination_error(error, name)


def destination_error(error: OSError, name: str, number: int | None = None) -> DestinationError:
    """Return the DestinationError of ``name``. ``number``: the errno, if not that of ``error``."""
    if isinstance(error, UnsafeFile):
        return error
    return DestinationError(f"cannot store {name}: {advice(error, number)}")


def advice(error: OSError, number: int | None = None) -> str:
    """Return what happened and what to do next. ``number``: the errno, if not that of ``error``."""
    code = error.errno if number is None else number
    return _ADVICE.get(code or 0, error.strerror or str(error))


def name_taken_text(root: str, name: str) -> str:
    """Return the message about a file of somebody else that has the name of one of a shard."""
    return (
        f"{root} has {name}, which is not of this job, and --existing forbids to replace it; move it away, "
        "and run the same command again"
    )
