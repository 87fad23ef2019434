"""Measure how much CPU time this thread wants."""

from __future__ import annotations

import os
from time import thread_time

__all__ = ["cpu_demand"]

_NANOSECONDS = 1e-9


def cpu_demand() -> float:
    """Return the seconds in which this thread had a CPU, or was ready and waited for one.

    Where processes share a CPU, one that gets half of it is still limited by it. The kernel counts the wait
    in ``schedstat`` (Linux, Documentation/scheduler/sched-stats.rst); elsewhere only the time with a CPU is
    known.
    """
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return thread_time()
    try:
        ran, waited, *_ = os.read(file, 100).split()
    except (OSError, ValueError):
        return thread_time()
    finally:
        os.close(file)
    return (int(ran) + int(waited)) * _NANOSECONDS
