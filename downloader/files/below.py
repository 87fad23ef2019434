"""Tell which of the paths that a user names lead below a directory that others may have prepared."""

from __future__ import annotations

import os

__all__ = ["name_below"]

_MOST_LINKS = 40  # as Linux


def name_below(path: str, directory: str) -> str:
    """Return what of ``path`` is below ``directory``, as its name there; "" if it is not below it.

    Links that lead to ``directory``, or to what is below it, are the user's. Those that are below it are
    anybody's, and are not followed.
    """
    try:
        root = os.stat(directory)
        for _ in range(_MOST_LINKS):
            name = _as_written(path, root) or _in_fact(path, root)
            if name or not os.path.islink(path):
                return name
            path = os.path.join(os.path.dirname(path), os.readlink(path))
    except OSError:
        pass
    return ""


def _as_written(path: str, root: os.stat_result) -> str:
    """Return the segments of ``path`` behind the one that leads to ``root``."""
    at, name = "" if path.startswith("/") else ".", [""]
    is_below = False
    for segment in path.split("/"):
        if segment in ("", "."):
            continue
        if is_below and segment == ".." and len(name) > 1:
            name.pop()
        elif is_below and segment != "..":
            name.append(segment)
        else:
            name, at = [""], f"{at}/{segment}"
        is_below = len(name) > 1 or _is(at, root)
    return "/".join(name[1:])


def _in_fact(path: str, root: os.stat_result) -> str:
    """Return the same for where the directory of ``path`` is, whatever links lead there."""
    above, leaf = os.path.split(path)
    segments = os.path.realpath(above or ".").split("/")
    for depth in range(1, len(segments) + 1):
        if _is("/".join(segments[:depth]) or "/", root):
            return "/".join([*segments[depth:], leaf])
    return ""


def _is(path: str, root: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path or "/"), root)
    except OSError:
        return False
