"""Raise the limit of file descriptors, close inherited ones, and fit the connections to the limits."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection, Iterable
from typing import NamedTuple

from downloader.core.cgroups import MemoryLimit
from downloader.core.limits import MOST_ADAPTIVE_CONNECTIONS
from downloader.core.units import show_size

__all__ = ["Affordable", "affordable", "close_all_but", "held_directories", "raise_limit"]

_OTHER_FILES = 24  # link, ledger, event loop, and those of libraries
_HELD_DIRECTORIES = 256
_MAX_AWAITED = 1024

# Estimates in bytes: supervisor and feeder, each worker, each connection. Measured over TLS, with bodies of
# 10 kB: 90 MB with two workers, and 56 kB; larger bodies take more, and kernel buffers count, too.
_BASE_MEMORY, _WORKER_MEMORY, _CONNECTION_MEMORY = 48 << 20, 40 << 20, 256 << 10
_FEWEST = 4


def raise_limit() -> None:
    """Raise this process's soft limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports an infinite hard limit, but refuses it as the soft one, which then stays.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def close_all_but(kept: Collection[int]) -> None:
    """Close all descriptors of this process except ``kept``."""
    found: Iterable[int]
    try:
        # Not range(limit): in a container the limit can be a billion.
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = range(_open_files())
    for number in found:
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def held_directories() -> int:
    """Return how many directories may be kept open."""
    return min(_HELD_DIRECTORIES, _open_files() // 8)


class Affordable(NamedTuple):
    """What the descriptors and the memory of a process are enough for.

    ``connections``: with a request each; ``awaited``: further ones that are being opened; ``warning``: why
    there are fewer connections than were asked for, or why they may be too many, or ""; ``ceiling``: what
    limits their number.
    """

    connections: int
    awaited: int
    warning: str = ""
    ceiling: str = "--connections"


def affordable(connections: int, memory: MemoryLimit | None = None, workers: int = 1) -> Affordable:
    """Return how many of ``connections`` each of ``workers`` can have, and how many more can wait.

    0 connections means as many as there can be of --connections auto. A connection with a request needs two
    descriptors, its socket and a file, any other needs one. Memory is an estimate: a number that the user
    chose stays, with a warning.
    """
    enough = _affordable_memory(memory, workers)
    files = _open_files()
    free = files - _OTHER_FILES - held_directories()
    if not connections:
        most = MOST_ADAPTIVE_CONNECTIONS
        found = max(1, min(most, free // 3))
        ceiling = f"{most:,} are the maximum" if found == most else f"only {files} files may be open"
        if memory and enough < found:
            found, ceiling = enough, f"memory is limited to {_shown(memory)}"
        return Affordable(found, max(0, min(_MAX_AWAITED, free - 2 * found)), "", ceiling)
    maximum = max(1, free // 2)
    if connections <= maximum:
        text = ""
        if memory and enough < connections:
            text = (
                f"memory is limited to {_shown(memory)}, which may not be enough for {connections} "
                "connections a worker; give fewer, or raise the limit"
            )
        return Affordable(connections, min(_MAX_AWAITED, free - 2 * connections), text)
    text = f"only {files} files may be open: {maximum} connections instead of {connections}; see ulimit -n"
    return Affordable(maximum, 0, text)


def _affordable_memory(memory: MemoryLimit | None, workers: int) -> int:
    """Return for how many connections of each of ``workers`` the memory is enough."""
    if memory is None:
        return MOST_ADAPTIVE_CONNECTIONS
    free = memory.size - _BASE_MEMORY - workers * _WORKER_MEMORY
    return max(_FEWEST, free // workers // _CONNECTION_MEMORY)


def _shown(memory: MemoryLimit) -> str:
    return f"{show_size(memory.size)} ({memory.name})"


def _open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
