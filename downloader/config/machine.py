"""Say what this process may use of the machine: CPUs, and memory where control groups limit it."""

from __future__ import annotations

import functools
import os
from math import ceil, inf
from signal import SIGKILL

from downloader.core.cgroups import MemoryLimit, cpu_quota, memory_limit, oom_kills
from downloader.core.units import show_size

__all__ = ["memory_allowance", "usable_cpus", "usable_memory", "why_killed"]


def usable_cpus() -> int:
    """Return how many CPUs this process may use: its affinity, and the CPU quota of its control group.

    A part of a CPU counts as one: with a quota of 1.5, two processes use it up and one does not.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # pragma: no cover - not Linux
        count = os.cpu_count() or 1
    quota = _cpu_quota()
    return count if quota == inf else max(1, min(count, ceil(quota)))


# Read once: forked processes must agree with the supervisor about the number of workers.
@functools.cache
def _cpu_quota() -> float:
    return cpu_quota(_read)


def memory_allowance() -> MemoryLimit | None:
    """Return the memory limit of this process's control group, None without one."""
    return memory_limit(_read)


def usable_memory() -> int:
    """Return how many bytes of memory the machine has, or the control group of this process allows."""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = memory_allowance()
    return min(size, allowed.size) if allowed is not None else size


def why_killed(signal: int, remedy: str) -> str:
    """Return what to say of a process that ``signal`` ended, with ``remedy``; "" if memory cannot be why.

    It is for SIGKILL where a control group limits memory. Who sent it, no one says.
    """
    limit = memory_allowance() if signal == SIGKILL else None
    if limit is None:
        return ""
    kills = oom_kills(_read)
    so_far = f" has killed {kills} so far" if kills else " may be why"
    return f"; the memory limit of {show_size(limit.size)} ({limit.name}){so_far}: {remedy}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
