"""What to say of a name that cannot be stored, since a directory or a file stands in its way.

Under mirror `/a` and `/a/b` may be files of one job, and `a` cannot be a file and a directory: whichever
comes second fails, and is told what is in its way and what stores both.
"""

from __future__ import annotations

import os
import stat

from downloader.core.naming import SafeName, hashed
from downloader.errors import FetchError

__all__ = ["not_a_directory", "taken_by_directory"]

_BOTH = "another -o with --layout hashed stores both"
_AWAY = "move it away"


def taken_by_directory(directory: int, leaf: str, name: str, layout: str) -> FetchError:
    """Return the failure of the file ``name``: a directory stands at ``leaf`` in ``directory``."""
    inside = _first_in(directory, leaf)
    has = f", with {name}/{inside} in it" if inside else ""
    advice = _BOTH if _may_be_ours(name, layout) else _AWAY
    return FetchError("bad-name", f"{name} is a directory{has}, so no file can be stored there; {advice}")


def not_a_directory(directory: int, segment: str, depth: int, name: str, layout: str) -> FetchError:
    """Return the failure of the file ``name``: the ``depth``-th part of its path, which is ``segment`` in
    ``directory``, is no directory."""
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
    """Whether what is in the way may be of the same job: names have directories under mirror only."""
    return layout != "hashed" and "/" in name


def _first_in(parent: int, leaf: str) -> str:
    """The name of something in the directory; "" where there is nothing, or it cannot be read."""
    try:
        fd = os.open(leaf, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            with os.scandir(fd) as entries:
                return next((os.fsencode(e.name).decode("utf-8", "replace") for e in entries), "")
        finally:
            os.close(fd)
    except OSError:
        return ""
