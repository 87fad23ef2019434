"""Tell which of the paths that a user names lead below a directory that others may have prepared."""

from __future__ import annotations

import os

__all__ = ["name_below"]


def name_below(path: str, directory: str) -> str:
    """Return what of ``path`` is below ``directory``, as its name there; "" if it is not below it.

    Links that lead to ``directory`` are the user's, those below it anybody's: they are not followed.
    """
    try:
        root = os.stat(directory)
    except OSError:
        return ""
    segments = os.path.abspath(path).split("/")
    for depth in range(1, len(segments)):
        try:
            found = os.stat("/".join(segments[:depth]) or "/")
        except OSError:
            return ""
        if os.path.samestat(found, root):
            return "/".join(segments[depth:])
    return ""
