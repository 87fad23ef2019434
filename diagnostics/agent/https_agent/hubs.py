"""What is known of one hub: when its tick came last, and what its thread has used and waited for."""

import errno
import os
import sys
import time

from .sampler import clock, cpu, get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple

    from .holds import Hold

_OURS = "/proc/thread-self/schedstat"


class Hub(object):
    """Made in the thread of the hub."""

    def __init__(self, hub, tick, old, ticked):
        # type: (Any, float, float, Callable[[Hub], None]) -> None
        """A tick each ``tick`` seconds, then ``ticked``; one that is ``old`` seconds late ends a hold."""
        self.over = False
        self.hold = None  # type: Optional[Hold]
        self.stamp = self.free = 0.0
        self.settle()

        def ticks():
            # type: () -> None
            now = clock()
            if now - self.stamp > old:
                self.until = now
            self.stamp = now
            ticked(self)

        timer = hub.loop.timer(tick, tick, ref=False)
        timer.start(ticks)
        hub._https_agent = (self, timer)

    def settle(self):
        # type: () -> None
        """Find out which thread this is."""
        self.hold = None
        self.ident = get_ident()
        self.stamp = self.until = self.looked = clock()
        self._path = _schedstat()
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        self._clock = clock_of(self.ident) if clock_of is not None else None
        self.spent = self.cpu()
        self._waited = (0.0, 0.0)

    def cpu(self):
        # type: () -> float
        """Seconds of CPU that the thread has used; the process, where it cannot be told."""
        if self._clock is None:
            return cpu()
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            self.over = True  # the thread is gone
            return self.spent

    def starved(self):
        # type: () -> Tuple[float, float]
        """Seconds since this was asked last in which the thread, and ours, was ready to run and had no CPU;
        0 where it cannot be told."""
        (hub, ours) = before = self._waited
        try:
            self._waited = hub, ours = _waited(self._path), _waited(self._path and _OURS)
        except (IOError, OSError) as error:
            self.over = error.errno in (errno.ENOENT, errno.ESRCH)  # the thread is gone
        return hub - before[0], ours - before[1]


def _schedstat():
    # type: () -> str
    """The file with the scheduler's account of this thread, if there is one."""
    if not os.path.exists(_OURS):
        return ""
    return "/proc/%s/schedstat" % os.readlink("/proc/thread-self")


def _waited(path):
    # type: (str) -> float
    if not path:
        return 0.0
    with open(path) as source:
        return int(source.read().split()[1]) / 1e9
