"""Stop the program's connections while it is probed, and let them go on where the probe waits for them.

The greenlet at whose connection the probe starts may hold a lock, a slot of a semaphore or of a pool, or
the only worker of an executor, that the requests of the probe need. It shows in that the first request
comes to no connection. Then the program goes on, and the probe has its turn.

It goes on as it was stopped: one connection after the other, with the time between them that there was.
Its server may allow so many requests a second, and would refuse all that were held up together.
"""

import sys

from . import choice, clocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Tuple


class Pause(object):
    """The pause of a program while ``during`` probes it; for the greenlets of one hub."""

    def __init__(self):
        # type: () -> None
        import gevent
        from gevent.event import Event

        self._gevent = gevent
        self._event = Event
        self._sleep = sys.modules["gevent.hub"].sleep  # type: Callable[[float], None]
        self._over = self._releases = False
        self._stopped = []  # type: List[Tuple[float, Any]]  # since when, and what each waits for
        self._hub = choice.hub()
        self._done = Event()  # the probe has ended
        self._probe = None  # type: Any  # the greenlet that probes

    def during(self, measure, stops):
        # type: (Callable[[], None], bool) -> None
        """Call ``measure``; where it ``stops`` the current greenlet, return when the pause is over.

        Otherwise return when it has returned.
        """

        def run():
            # type: () -> None
            try:
                measure()
            finally:
                self.end()
                self._done.set()

        if not stops:
            self._probe = choice.current()
            run()
            return
        self._probe = self._gevent.spawn(run)
        self._stop(None)
        if not self._done.is_set():
            self._let_end_before_threads()

    def wait(self, limit):
        # type: (float) -> None
        """Return when the pause is over, or at ``let_on``; after ``limit`` seconds at the latest."""
        if choice.hub() is self._hub and (self._releases or not self._over):
            self._stop(limit)

    def _stop(self, limit):
        # type: (Any) -> None
        event = self._event()
        self._stopped.append((clocks.clock(), event))
        event.wait(limit)

    def let_on(self):
        # type: () -> None
        """Let those go on that are stopped, and stop those that come later."""
        stopped, self._stopped = self._stopped, []
        for _, event in stopped:
            event.set()

    def end(self):
        # type: () -> None
        """Let the program go on."""
        if not self._over:
            self._over = self._releases = True
            self._gevent.spawn(self._release)

    def _release(self):
        # type: () -> None
        """Let go on what is stopped, and what comes meanwhile, each as much later as the first of them."""
        later = clocks.clock() - self._stopped[0][0] if self._stopped else 0.0
        while self._stopped:
            since, event = self._stopped.pop(0)
            self._sleep(max(0.0, since + later - clocks.clock()))
            event.set()
        self._releases = False

    def let_end(self):
        # type: () -> None
        """Return when the probe has ended, called where the program ends meanwhile."""
        if choice.hub() is self._hub and choice.current() is not self._probe:
            self._done.wait()

    def _let_end_before_threads(self):
        # type: () -> None
        """Have a program that ends wait for the probe before its executors refuse more work."""
        register = getattr(sys.modules.get("threading"), "_register_atexit", None)
        if register is not None:
            try:
                register(self.let_end)
            except RuntimeError:
                pass  # it ends already
