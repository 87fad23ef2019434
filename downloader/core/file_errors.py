"""Decide what an error of the file system concerns: one file, or the whole destination.

A file that cannot be stored fails, with a code, and the others are stored. A destination that fails ends
the run. Which of the two it is depends on the errno and on what was being done:

=========  =================================================================================
PLACE      a directory of the path is opened or made, the file gets its name, or what has
           the name is looked at: everything that is done with names of the item
CONTENT    the file is made, under no name or a temporary one, and its bytes are written
=========  =================================================================================

File systems do not agree about the errno of a name that they refuse: EINVAL (FAT, NTFS), ENOENT (exFAT over
FUSE, SMB), EPROTO, EACCES. The same numbers can mean that the destination is gone or was made read-only. So
a code is only a supposition: it holds if the destination still takes another file, which the caller tries.
"""

from __future__ import annotations

import enum
import errno
from typing import Final

__all__ = ["Step", "advice", "advice_for_shard", "code_of", "is_of_disk", "is_unreadable", "refusal"]

_UNMOUNTED: Final = "what serves its file system has ended; mount it again, then run the same command again"
_ADVICE: Final = {
    errno.ENOSPC: "no space left; free some, then run the same command again",
    errno.EDQUOT: "the quota is used up; free some space, then run the same command again",
    errno.EIO: "Input/output error: the disk fails (see the kernel's log); mend it, then run the same "
    "command again",
    errno.EROFS: "the file system is read-only; make it writable, then run the same command again",
    errno.EMFILE: "too many open files; raise `ulimit -n` or lower --connections",
    errno.ENFILE: "the machine has too many open files; lower --connections",
    errno.ENOENT: "the destination was removed",
    errno.EFBIG: "its file system, or `ulimit -f`, takes no file of that size; raise that limit, or use "
    "another file system, then run the same command again",
    errno.ENOTCONN: _UNMOUNTED,
    errno.ECONNABORTED: _UNMOUNTED,
    errno.ESTALE: "Stale file handle: what serves its file system has lost it; mount it again, then run "
    "the same command again",
    errno.ENOSYS: "its file system has neither hard links nor a rename that refuses to replace",
}


_SMALLER_SHARDS: Final = "; or give a smaller --shard-files, with another -o"


class Step(enum.Enum):
    """What was being done when an error occurred."""

    PLACE = "place"
    CONTENT = "content"


_NAMES: Final = dict.fromkeys(
    (
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EILSEQ,
        errno.EPROTO,
        errno.ENOENT,
        errno.ENXIO,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
    ),
    "bad-name",
)
# Permission of one directory, an immutable file, a program that runs, a mount point, a directory that takes
# no more directories.
_OBSTACLES: Final = dict.fromkeys(
    (
        errno.EACCES,
        errno.EPERM,
        errno.ETXTBSY,
        errno.EBUSY,
        errno.EEXIST,
        errno.ENOTEMPTY,
        errno.EXDEV,
        errno.EMLINK,
    ),
    "not-writable",
)
_TOO_LARGE: Final = dict.fromkeys((errno.EFBIG, errno.EOVERFLOW), "too-large")

_CODES: Final[dict[Step, dict[int, str]]] = {
    Step.PLACE: {**_NAMES, **_OBSTACLES, **_TOO_LARGE},
    Step.CONTENT: {**_OBSTACLES, **_TOO_LARGE},
}


def code_of(number: int, step: Step) -> str:
    """Return the code with which one file fails, "" if the errno ``number`` is the destination's.

    Those of the destination are, among others, ENOSPC, EDQUOT, EROFS, EIO, ESTALE, ENODEV, ENOTCONN, EMFILE
    and ENFILE, and every one that is not known. The others are the file's only if the destination still
    takes a file.
    """
    return _CODES[step].get(number, "")


def is_of_disk(error: OSError) -> bool:
    """Return whether ``error``, met where a file is looked for or read, says nothing about that file.

    It says that the disk fails, or that what serves the file system is gone.
    """
    return not code_of(error.errno or 0, Step.PLACE)


def is_unreadable(error: OSError) -> bool:
    """Return whether ``error``, met where a stored file is opened or read, leaves open what that has.

    The disk fails, or this user may not read it. Otherwise it has not the name any more that it had.
    """
    return code_of(error.errno or 0, Step.PLACE) != "bad-name"


def advice(error: OSError, number: int | None = None) -> str:
    """Return what happened and what to do next. ``number``: the errno, if not that of ``error``."""
    code = error.errno if number is None else number
    return _ADVICE.get(code or 0, error.strerror or str(error))


def advice_for_shard(error: OSError) -> str:
    """Return the same for ``error``, met while a shard was written."""
    return advice(error) + (_SMALLER_SHARDS if error.errno == errno.EFBIG else "")


def refusal(error: BaseException) -> str:
    """Return which file the system refused and why, "" if ``error`` says no such thing.

    A file that is not there may be a defect.
    """
    if isinstance(error, OSError) and error.filename and not isinstance(error, FileNotFoundError):
        return f"{error.filename}: {advice(error)}"
    return ""
