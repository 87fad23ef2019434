"""Bound what a step of this process may allocate, where a library takes what a file from outside says.

A file of some kB can stand for gigabytes: repeated, compressed, or by a length that it states. The kernel
then refuses memory to the step, which fails, in place of the machine that runs out of it.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["bounded_memory"]

_DATA = 5  # the field of /proc/self/statm with what RLIMIT_DATA counts, in pages


@contextmanager
def bounded_memory(most: int) -> Iterator[None]:
    """Let this process allocate at most ``most`` bytes more meanwhile.

    What cannot have them raises MemoryError, or what the library makes of it. All threads share them. Where
    the kernel does not say what a process has, nothing is bounded.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            used = int(file.read().split()[_DATA]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):  # pragma: no cover - not Linux
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [used + most, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
