"""Tell which of the paths that a user names lead below a directory that others may have prepared.

Or to a descriptor, which is what the user has opened, wherever that is.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

__all__ = ["descriptor_of", "is_closed", "is_mount_point", "name_below", "on_disk", "seen_from"]

_MOST_LINKS = 40  # as Linux
_DESCRIPTORS = ("/dev/fd", "/proc/self/fd", "/proc/thread-self/fd")


def name_below(path: str, directory: str) -> str:
    """Return what of ``path`` is below ``directory``, as its name there; "" if it is not below it.

    Links that lead to ``directory``, or to what is below it, are the user's. Those that are below it are
    anybody's, and are not followed.
    """
    try:
        root = os.stat(directory)
        for each in _links(path):
            if name := _as_written(each, root) or _in_fact(each, root) or _mounted(each, directory):
                return name
    except OSError:
        pass
    return ""


def seen_from(directory: str, path: str) -> str:
    """Return where the file ``path`` is, without links; below ``directory`` if it is there in any way."""
    real = os.path.realpath(path)
    name = name_below(real, directory)
    return os.path.join(os.path.realpath(directory), name) if name else real


def descriptor_of(path: str, directory: str = "") -> int | None:
    """Return the descriptor of this process that ``path`` is, also by links; None if it is none.

    Also None for a path below ``directory``: a link there may be anybody's.
    """
    try:
        *_, last = _links(path)
    except OSError:
        return None
    found = _number(last)
    return None if found is not None and directory and name_below(path, directory) else found


def is_closed(descriptor: int) -> bool:
    """Return whether ``descriptor``, if it is a standard stream, was closed when the process began.

    It is open by now, so that no file of the run gets it.
    """
    standard = sys.__stdin__, sys.__stdout__, sys.__stderr__
    return descriptor < len(standard) and standard[descriptor] is None


def _links(path: str) -> Iterator[str]:
    """Yield ``path``, and what it leads to by one link after the other, as far as a descriptor."""
    for _ in range(_MOST_LINKS):
        yield path
        if _number(path) is not None or not os.path.islink(path):
            return
        path = os.path.join(os.path.dirname(path), os.readlink(path))


def _number(path: str) -> int | None:
    """Return the number of the descriptor that ``path`` is without further links, None if it is none."""
    above, leaf = os.path.split(path)
    if not (leaf.isascii() and leaf.isdigit()):
        return None
    # /proc/self/fd is /proc/PID/fd, which may be written so, too.
    own = {os.path.realpath(each) for each in _DESCRIPTORS}
    return int(leaf) if os.path.realpath(above or ".") in own else None


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


def _mounted(path: str, directory: str) -> str:
    """Return the same where a part of ``directory`` has another place, too (mount --bind)."""
    table, (above, leaf) = _mounts(), os.path.split(path)
    device, at = on_disk(table, os.path.realpath(above or "."))
    for part, (device_there, there) in _parts(table, os.path.realpath(directory)):
        if device and device == device_there and at.startswith(there):
            name = part + at.removeprefix(there) + leaf
            # Something else may be mounted over it in ``directory``.
            inner = os.path.join(directory, os.path.dirname(name))
            if os.path.isdir(inner) and os.path.samestat(os.stat(above or "."), os.stat(inner)):
                return name
    return ""


def is_mount_point(path: str) -> bool:
    """Return whether something is mounted at ``path``, which may be a file: it can be no other one then."""
    real = os.path.realpath(path)
    return any(point == real for _, _, point in _entries(_mounts()))


def _mounts() -> str:
    """Return the table of what is mounted; "" on systems other than Linux."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _entries(table: str) -> Iterator[tuple[str, str, str]]:
    """Yield the device, the directory on it, and the mount point of each entry."""
    for line in filter(None, table.split("\n")):
        _, _, device, root, point, *_ = map(_unescaped, line.split(" "))
        yield device, root, point


def _parts(table: str, directory: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield ``directory`` and what is mounted below it: its name there, with a slash; where on disk."""
    yield "", on_disk(table, directory)
    for device, root, point in _entries(table):
        if point.startswith(f"{directory}/"):
            yield point.removeprefix(f"{directory}/") + "/", (device, f"{root.rstrip('/')}/")


def on_disk(table: str, path: str) -> tuple[str, str]:
    """Return the device of the directory ``path``, which has no links, and its path there, with a slash.

    ``table``: /proc/self/mountinfo. ("", "/") if that does not say.
    """
    found, longest = ("", "/"), 0
    for device, root, at in _entries(table):
        point = at.rstrip("/") + "/"
        if f"{path.rstrip('/')}/".startswith(point) and len(point) >= longest:  # the last one is on top
            longest = len(point)
            found = device, f"{root.rstrip('/')}/{path.rstrip('/')[longest:]}".rstrip("/") + "/"
    return found


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda hit: chr(int(hit[1], 8)), field)


def _is(path: str, root: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path or "/"), root)
    except OSError:
        return False
