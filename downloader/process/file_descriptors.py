"""Raise the limit of file descriptors, close inherited ones, and fit the connections to the limit."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection, Iterable

__all__ = ["affordable", "close_all_but", "held_directories", "raise_limit"]

_OTHER_FILES = 24  # link, ledger, event loop, and those of libraries
_HELD_DIRECTORIES = 256
_MAX_AWAITED = 1024


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


def affordable(connections: int) -> tuple[int, int, str]:
    """Return at most ``connections``, how many more may be waited for, and a sentence.

    Each connection needs two descriptors: its socket and a file. One that is waited for has no file. The
    sentence says why there are fewer than ``connections``, or is "".
    """
    files = _open_files()
    free = files - _OTHER_FILES - held_directories()
    maximum = max(1, free // 2)
    if connections <= maximum:
        return connections, min(_MAX_AWAITED, free - 2 * connections), ""
    text = f"only {files} files may be open: {maximum} connections instead of {connections}; see ulimit -n"
    return maximum, 0, text


def _open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
