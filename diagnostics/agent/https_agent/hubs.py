"""Track one hub: its last tick, and the CPU time and waiting time of its thread."""

import errno
import os

from .clocks import clock, cpu, of_thread
from .sampler import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Tuple

    from .holds import Hold

_OURS = "/proc/thread-self/schedstat"


class Hub(object):
    """The state of a hub; create it in the hub's thread."""

    def __init__(self, hub, tick, old, ticked):
        # type: (Any, float, float, Callable[[Hub], None]) -> None
        """Call ``ticked`` every ``tick`` seconds; a tick that is more than ``old`` seconds late ends a
        hold."""
        self.over = False
        self.hold = None  # type: Optional[Hold]
        self.stamp = self.free = 0.0
        self.bind_thread()

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

    def bind_thread(self):
        # type: () -> None
        """Determine the current thread, and start the accounts of it."""
        self.hold = None
        self.ident = get_ident()
        self.stamp = self.until = self.looked = clock()
        self._path = _schedstat()
        self._clock = of_thread(self.ident)
        self.spent = self.cpu()
        self._waited = (0.0, 0.0)

    def cpu(self):
        # type: () -> float
        """Return the seconds of CPU that the thread has used; those of the process where that is
        unknown."""
        if self._clock is None:
            return cpu()
        try:
            return self._clock()
        except OSError:
            self.over = True  # the thread has ended
            return self.spent

    def starved(self):
        # type: () -> Tuple[float, float]
        """Return the seconds since the last call in which each thread was ready to run and had no CPU.

        The first is the hub's thread, the second the current one; 0 where that is unknown.
        """
        (hub, current) = before = self._waited
        try:
            self._waited = hub, current = _waited(self._path), _waited(self._path and _OURS)
        except (IOError, OSError) as error:
            self.over = error.errno in (errno.ENOENT, errno.ESRCH)  # the thread has ended
        return hub - before[0], current - before[1]


def _schedstat():
    # type: () -> str
    """Return the path of the scheduler's statistics of this thread; "" if there are none."""
    if not os.path.exists(_OURS):
        return ""
    return "/proc/%s/schedstat" % os.readlink("/proc/thread-self")


def _waited(path):
    # type: (str) -> float
    if not path:
        return 0.0
    with open(path) as source:
        return int(source.read().split()[1]) / 1e9
