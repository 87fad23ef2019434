"""Keep what takes long from holding the hub: pause between its steps, or do it in a thread.

A greenlet that never waits lets no other one of its process run, and while a system call lasts, none does.
On a slow disk that may be longer than a worker may be silent. A thread costs some 50 µs, so it is for what
is large.
"""

from __future__ import annotations

import posix
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

__all__ = ["BUSY", "PIECE", "READ_AT_ONCE", "Pauses", "close_file", "give_way", "in_thread", "work_alone"]

BUSY = 0.02
"""Seconds for which a greenlet may work without letting others run."""

READ_AT_ONCE = 1 << 20
"""Bytes of a file that are read or compared without a thread: 20 ms at 50 MB/s."""
PIECE = 8 << 20
"""Bytes that a thread reads, copies or frees in one go: a greenlet that is killed waits for that."""

# Of their own: those of the hub also look up names, and must not wait for a disk.
_THREADS = 4
_Result = TypeVar("_Result")
_pools: dict[int, Any] = {}  # by the id of the hub
_alone: list[Callable[[], None]] = []


def in_thread(function: Callable[..., _Result], *args: object) -> _Result:
    """Return what ``function(*args)`` returns, which is called in a thread. Raises what it raises.

    Call it in a greenlet. If that is killed, the exception is raised when the function has returned:
    nothing that it uses may be closed before.
    """
    result = _pool().spawn(_call, function, args)
    interruption: BaseException | None = None
    while True:
        try:
            value, error = result.get()
            break
        except BaseException as thrown:  # into the greenlet: `_call` raises nothing
            interruption = interruption or thrown
    if interruption is not None:
        raise interruption
    if error is not None:
        raise error
    returned: _Result = value
    return returned


def close_file(fd: int, size: int) -> None:
    """Close a file of ``size`` bytes that may have no name any more: its pages are freed then.

    That takes 0.2 s a GB in memory, more on a disk. A large one is closed in a thread, and nobody waits for
    it: what a greenlet does that is killed must not let others run.
    """
    if size <= PIECE:
        posix.close(fd)
        return
    from gevent.monkey import get_original

    get_original("_thread", "start_new_thread")(posix.close, (fd,))


class Pauses:
    """A function to call between the steps of long work: now and then it lets other greenlets run.

    Where there are none, see ``work_alone``.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = monotonic() + BUSY

    def __call__(self) -> None:
        if monotonic() > self._next:
            give_way(0.001)  # sleep(0) may return before any timer runs
            self._next = monotonic() + BUSY


def give_way(seconds: float = 0.0) -> None:
    """Let other greenlets run, as the one that tells that the process lives; see also ``work_alone``."""
    if _alone:
        _alone[0]()
    elif "gevent" in sys.modules:
        from gevent import sleep

        sleep(seconds)


def work_alone(between: Callable[[], None]) -> None:
    """Have ``give_way`` call ``between`` in this process, which has no greenlets."""
    _alone[:] = [between]


def _pool() -> Any:
    import gevent
    from gevent.threadpool import ThreadPool

    hub = gevent.get_hub()
    pool = _pools.get(id(hub))
    if pool is None or pool.hub is not hub:
        pool = _pools[id(hub)] = ThreadPool(_THREADS, hub=hub)
    return pool


def _call(function: Callable[..., _Result], args: tuple[object, ...]) -> tuple[Any, BaseException | None]:
    """Return what ``function`` returns or raises: gevent prints what is raised in its threads."""
    try:
        return function(*args), None
    except BaseException as error:
        return None, error
