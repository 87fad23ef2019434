"""Describe why a name cannot be stored: a directory or a file is in the way.

With --layout mirror, `/a` and `/a/b` may be files of one job, and `a` cannot be a file and a directory. The
one that comes second fails; its message says what is in the way, and how to store both.
"""

from __future__ import annotations

import os
import posix
import stat

from downloader.core.naming import SafeName, hashed
from downloader.errors import FetchError

__all__ = ["not_a_directory", "taken_by_directory"]

_BOTH = "another -o with --layout hashed stores both"
_AWAY = "move it away"


def taken_by_directory(directory: int, leaf: str, name: str, layout: str) -> FetchError:
    """Return the failure of the file ``name``, because ``leaf`` in ``directory`` is a directory."""
    inside = _first_in(directory, leaf)
    has = f", with {name}/{inside} in it" if inside else ""
    advice = _BOTH if _may_be_ours(name, layout) else _AWAY
    return FetchError("bad-name", f"{name} is a directory{has}, so no file can be stored there; {advice}")


def not_a_directory(directory: int, segment: str, depth: int, name: str, layout: str) -> FetchError:
    """Return the failure of the file ``name``, because part of its path is not a directory.

    It is the ``depth``-th part, which is ``segment`` in ``directory``.
    """
    path = hashed(SafeName(name)) if layout == "hashed" else name
    upper = "/".join(path.split("/")[:depth])
    advice = _BOTH if _may_be_ours(name, layout) else _AWAY
    mode = os.stat(segment, dir_fd=directory, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        kind, advice = "a symbolic link, which is not followed", _AWAY
    else:
        kind = "a file" if stat.S_ISREG(mode) else "not a directory"
    return FetchError("bad-name", f"{upper} is {kind}, so {name} cannot be stored below it; {advice}")


def _may_be_ours(name: str, layout: str) -> bool:
    """Return whether the obstacle may belong to the same job: only with mirror, names have directories."""
    return layout != "hashed" and "/" in name


def _first_in(parent: int, leaf: str) -> str:
    """Return the name of an entry of the directory; "" if it is empty or cannot be read."""
    try:
        fd = os.open(leaf, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            with os.scandir(fd) as entries:
                return next((os.fsencode(e.name).decode("utf-8", "replace") for e in entries), "")
        finally:
            posix.close(fd)
    except OSError:
        return ""
