"""File descriptors: as many as the system allows, and no more connections than they are enough for."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection, Iterable

__all__ = ["affordable", "close_all_but", "held_directories", "raise_limit"]

_OTHER_FILES = 24  # the link, the ledger, the event loop, libraries' own
_HELD_DIRECTORIES = 256


def raise_limit() -> None:
    """Raise this process's limit of open files to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS has no limit by name and refuses it; then the soft limit has to do.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def close_all_but(kept: Collection[int]) -> None:
    """Close all descriptors of this process but ``kept``."""
    found: Iterable[int]
    try:
        # Not all numbers up to the limit: in a container that can be a billion.
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = range(_open_files())
    for number in found:
        if number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


def held_directories() -> int:
    """How many directories are kept open."""
    return min(_HELD_DIRECTORIES, _open_files() // 8)


def affordable(connections: int) -> tuple[int, str]:
    """At most ``connections``, each of which needs its socket and a file; and, where they are fewer, the
    sentence that says why."""
    files = _open_files()
    most = max(1, (files - _OTHER_FILES - held_directories()) // 2)
    if connections <= most:
        return connections, ""
    text = f"only {files} files may be open: {most} connections instead of {connections}; see ulimit -n"
    return most, text


def _open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
