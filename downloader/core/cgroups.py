"""Find the CPU quota and the memory limit of a process's control groups, of version 1 and 2.

A limit of any ancestor applies, too. In a container, the paths in /proc/self/cgroup may be those of the
host (version 1 without a namespace: the mount has the same root), relative to the namespace, or outside of
it (``/../…``); then only the mount point is known. See cgroups(7), cgroup_namespaces(7), proc(5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

__all__ = ["MemoryLimit", "cpu_quota", "directories", "memory_limit", "oom_kills"]

Read = Callable[[str], str]
"""Returns the content of a file; "" if it cannot be read."""

_UNLIMITED = 1 << 60  # version 1 says "no limit" with the largest multiple of a page
_ESCAPE = re.compile(r"\\([0-7]{3})")


class MemoryLimit(NamedTuple):
    """A limit in bytes, and the name of the file that has it."""

    size: int
    name: str


class _Mount(NamedTuple):
    root: str
    point: str
    controllers: frozenset[str]  # "" is version 2


def directories(read: Read, controller: str) -> list[str]:
    """Return the directories of the process's groups with ``controller``, and of all their ancestors.

    ``controller`` as in version 1; "" for the tree of version 2, which has all of them.
    """
    path = _path(read("/proc/self/cgroup"), controller)
    mounts = [each for each in _mounts(read("/proc/self/mountinfo")) if controller in each.controllers]
    if path is None or not mounts:
        return []
    # The narrowest of the mounts that contain the group.
    mount = max(mounts, key=lambda each: len(each.root) if _below(path, each.root) is not None else -1)
    parts = _below(path, mount.root) or []
    return [
        mount.point.rstrip("/") + "".join(f"/{part}" for part in parts[:count])
        for count in range(len(parts), -1, -1)
    ]


def cpu_quota(read: Read) -> float:
    """Return how many CPUs the process may use on average; infinity without a quota."""
    quotas = [inf]
    for directory in directories(read, ""):
        quota, _, period = read(f"{directory}/cpu.max").partition(" ")
        quotas.append(_ratio(quota, period))
    for directory in directories(read, "cpu"):
        quota, period = (read(f"{directory}/cpu.cfs_{name}_us") for name in ("quota", "period"))
        quotas.append(_ratio(quota, period))
    return min(quotas)


def memory_limit(read: Read) -> MemoryLimit | None:
    """Return the smallest limit of memory, None if there is none."""
    files = [
        f"{directory}/{name}"
        for controller, names in (
            ("", ("memory.max", "memory.high")),
            ("memory", ("memory.limit_in_bytes",)),
        )
        for directory in directories(read, controller)
        for name in names
    ]
    found = [MemoryLimit(_integer(read(file)), file.rpartition("/")[2]) for file in files]
    return min((limit for limit in found if 0 < limit.size < _UNLIMITED), default=None)


def oom_kills(read: Read) -> int:
    """Return how many processes of the group, and of those below it, were killed for want of memory."""
    files = (
        *(f"{directory}/memory.events" for directory in directories(read, "")[:1]),
        *(f"{directory}/memory.oom_control" for directory in directories(read, "memory")[:1]),
    )
    words = (line.split() for file in files for line in read(file).splitlines())
    return sum(_integer(pair[1]) for pair in words if len(pair) == 2 and pair[0] == "oom_kill")


def _path(cgroup: str, controller: str) -> str | None:
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(",") and (controller or number == "0"):
            return path
    return None


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        root, point = (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), text) for text in fields[3:5])
        if kind[0] == "cgroup2":
            yield _Mount(root, point, frozenset({""}))
        elif kind[0] == "cgroup":
            yield _Mount(root, point, frozenset(kind[2].split(",")))


def _below(path: str, root: str) -> list[str] | None:
    """Return the parts of ``path`` below ``root``, None if it is not there."""
    parts, above = ([part for part in text.split("/") if part] for text in (path, root))
    if ".." in parts or ".." in above or parts[: len(above)] != above:
        return None
    return parts[len(above) :]


def _ratio(quota: str, period: str) -> float:
    """Return quota/period; infinity without a quota: "max", -1, no such file."""
    whole, part = _integer(quota), _integer(period)
    return whole / part if whole > 0 and part > 0 else inf


def _integer(text: str) -> int:
    """Return the number in ``text``, 0 if there is none."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() else 0
