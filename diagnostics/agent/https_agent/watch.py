"""Watch the hubs of a process for its whole lifetime: report what holds one longer than ``max_block``.

A timer of each hub sets a time stamp. A real thread checks the age of the stamps, and takes the stack of
the hub's thread while its stamp is old. The samples are aggregated, and rewritten as one file of the outbox
for each process. So no reader needs to be present, nothing can block, and the disk cannot fill. After a
fork, the hub's next tick starts anew.
"""

import atexit
import json
import os
import signal
import sys
import time

from . import holds, hubs, imports, sampler
from .clocks import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, List, Optional, Tuple


_allocate_lock = sampler.original(sampler.THREAD, "allocate_lock")
_start_new_thread = sampler.original(sampler.THREAD, "start_new_thread")
_sleep = sampler._sleep
_MAX_STACKS = 50  # stacks that are distinguished
_IDLE = 0.0005  # seconds of CPU that waiting code may use
_SEND = 0.25  # minimum seconds between two reports


def _nothing():
    # type: () -> None
    pass


class Watch(object):
    """The watch of one process."""

    def __init__(self, spec):
        # type: (Dict[str, Any]) -> None
        self.limit = spec["max_block"]  # type: float
        self.tick = min(max(self.limit / 10, 0.001), 0.02)
        self.suspect = self.tick + self.limit / 4
        self._nap = min(self.limit / 4, 0.25)
        self._outbox = spec["outbox"]
        self._running = False  # True while there is a thread, or is to be one
        self._paused = True
        self._renew()

    def _renew(self):
        # type: () -> None
        self.pid = os.getpid()
        # The id of a process that ended can be reused.
        self._name = "%d-%x" % (self.pid, int(clock() * 1e6))
        self._hubs = []  # type: List[hubs.Hub]
        self._folded = {}  # type: Dict[Tuple[holds.Spot, ...], holds.Folded]
        self._dirty = True
        self._sent = 0.0
        self._trouble = ""

    # the application's threads

    def add_hub(self, hub):
        # type: (Any) -> None
        """Add a hub that runs for the first time."""
        if self.pid != os.getpid():
            self._renew()
            self._running = False
        self._hubs.append(hubs.Hub(hub, self.tick, self.suspect, self._ticked))
        if not self._running:
            self._begin()

    def _ticked(self, entry):
        # type: (hubs.Hub) -> None
        if self.pid != os.getpid():
            # In a forked child, neither the watching thread nor the other hubs exist.
            entry.bind_thread()
            self._renew()
            self._hubs = [entry]
            self._begin()

    def _begin(self):
        # type: () -> None
        self._stop, self._gone = _allocate_lock(), _allocate_lock()
        self._stop.acquire()
        self._gone.acquire()
        mask = getattr(signal, "pthread_sigmask", None)
        # The kernel must not deliver the application's signals to this thread.
        before = mask(signal.SIG_BLOCK, _signals()) if mask is not None else None
        try:
            self._running, self._paused = True, False
            _start_new_thread(self._watch, (self._stop, self._gone))
        finally:
            if mask is not None:
                mask(signal.SIG_SETMASK, before)

    def pause(self):
        # type: () -> None
        """End the thread before a fork, as Python 3.12 would warn of a fork with a second thread."""
        if self._running and not self._paused and self.pid == os.getpid():
            self._paused = True
            self._stop.release()
            self._gone.acquire(True, 0.5)

    def resume(self):
        # type: () -> None
        """Restart the thread after a fork, in the parent."""
        if self._running and self._paused and self.pid == os.getpid():
            self._begin()

    def forked(self):
        # type: () -> None
        """Forget the thread after a fork, in the child."""
        self._running = False

    def at_exit(self):
        # type: () -> None
        """Send what was not sent yet, as the interpreter exits."""
        if self._running and self.pid == os.getpid():
            if sys.version_info[0] > 2:
                self.pause()
            self._running = False
            for entry in self._hubs:
                self._finish(entry, clock() - entry.looked)
            self._send()

    def failed(self, error):
        # type: (Exception) -> None
        """Report an error of the watching itself; the controller prints it, not the application."""
        self._trouble = repr(error)
        self._send()

    # the watching thread

    def _watch(self, stop, gone):
        # type: (Any, Any) -> None
        try:
            while True:
                self._look_around()
                if self._dirty and clock() - self._sent > _SEND:
                    self._send(self._look_around)
                if not self._running or self._sleeps(stop):
                    break
        except Exception as error:
            try:
                self.failed(error)
            except Exception:  # Python 2 clears its modules at exit
                pass
        finally:
            gone.release()

    def _sleeps(self, stop):
        # type: (Any) -> bool
        """Sleep for a while; return whether the thread is to end."""
        if sys.version_info[0] > 2:
            ended = stop.acquire(True, self._nap)  # type: bool
            return ended
        _sleep(self._nap)
        return False

    def _look_around(self):
        # type: () -> None
        now = clock()
        for entry in list(self._hubs):
            self._look(entry, now)
            if entry.over:
                self._finish(entry, 0.0)
                self._hubs.remove(entry)

    def _look(self, entry, now):
        # type: (hubs.Hub, float) -> None
        stamp, since, spent = entry.stamp, now - entry.looked, entry.cpu()
        used = spent - entry.spent
        # If this thread did not run, a computing thread had the GIL, or the machine was slow, or the
        # process was stopped. Only the first of these is a hold.
        credited = used if since > 2 * self._nap else since
        if entry.hold is not None and entry.hold.stamp != stamp:
            self._finish(entry, min(entry.until - entry.looked, credited))
        if now - stamp > self.suspect and not entry.over:
            self._sample(entry, stamp, now, credited, used)
        entry.looked, entry.spent = now, spent

    def _sample(self, entry, stamp, now, credited, used):
        # type: (hubs.Hub, float, float, float, float) -> None
        # Take the stack before anything that releases the GIL: the thread that had the GIL would continue
        # then, and be somewhere else.
        frame = sys._current_frames().get(entry.ident)
        stack, root, known = holds.walk(frame)
        del frame  # else objects that the application drops would be destroyed in this thread
        hold = entry.hold
        if not stack:
            self._finish(entry, 0.0)
            entry.free = now
            return
        since, (starved, ours) = now - entry.looked, entry.starved()
        if hold is not None and known and root == hold.root and stack[0][0] is hold.samples[0][0][0][0]:
            if used > _IDLE:
                # It also waited for the GIL while this thread had it and was without a CPU.
                starved += ours
            hold.lasts(since, max(used, since - starved), used)
            hold.seen(stack)
            self._dirty = self._dirty or hold.own >= self.limit
            return
        if hold is not None:
            self._finish(entry, 0.0)
            entry.free = now
        # It has held the hub since the missing tick was due; or, if other code held it before, since that
        # ended.
        seconds = max(0.0, now - max(stamp + self.tick, entry.free))
        if credited < since:
            seconds = min(seconds, credited)
        entry.hold = holds.Hold(stamp, root, stack, seconds, min(used, seconds))

    def _finish(self, entry, seconds):
        # type: (hubs.Hub, float) -> None
        """End the hold of ``entry``, ``seconds`` after it was seen last."""
        hold, entry.hold = entry.hold, None
        if hold is None:
            return
        hold.lasts(seconds, seconds, 0.0)
        if hold.own >= self.limit:
            stack, lines = hold.place()
            place = holds.spots(stack, len(lines) > 1)
            if place not in self._folded and len(self._folded) >= _MAX_STACKS:
                place, lines = (), {}
            self._folded.setdefault(place, holds.Folded()).add(hold, lines)
            self._dirty = True

    def _send(self, after=_nothing):
        # type: (Callable[[], None]) -> None
        """Write the report; for ``after`` see ``_put``."""
        self._dirty, self._sent = False, clock()
        lasting = []
        for entry in self._hubs:
            hold = entry.hold
            if hold is not None and hold.own >= self.limit:
                stack, lines = hold.place()
                folded = holds.Folded()
                folded.add(hold, lines)
                lasting.append(folded.told(holds.spots(stack, len(lines) > 1)))
        report = {
            "pid": self.pid,
            "held": [folded.told(key) for key, folded in list(self._folded.items())],
            "lasting": lasting,
            "trouble": self._trouble,
        }
        _put(os.path.join(self._outbox, self._name), json.dumps(report).encode("utf-8"), after)


def _put(path, text, after=_nothing):
    # type: (str, bytes, Callable[[], None]) -> None
    """Write a file completely or not at all; ignore errors, as the controller may be gone or the disk full.

    Each step releases the GIL. A thread that took it meanwhile moves on at the next step, so ``after`` is
    called after each one, to sample it.
    """
    try:
        out = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        after()
        try:
            complete = os.write(out, text) == len(text)
            after()
        finally:
            os.close(out)
        after()
        if complete:
            os.rename(path + ".part", path + ".json")
            after()
    except (IOError, OSError):
        pass


def _signals():
    # type: () -> Any
    valid = getattr(signal, "valid_signals", None)
    return valid() if valid is not None else [n for n in range(1, signal.NSIG) if n not in (32, 33)]


def begin(spec):
    # type: (Dict[str, Any]) -> None
    """Watch each hub that will run in this process and in the processes that it forks."""
    watch = Watch(spec)
    _put(os.path.join(spec["outbox"], "python"), b"")

    def change(module):
        # type: (Any) -> None
        original_run, original_destroy = module.Hub.run, module.Hub.destroy

        def run(self):
            # type: (Any) -> Any
            try:
                watch.add_hub(self)
            except Exception as error:
                watch.failed(error)
            return original_run(self)

        def destroy(self, *args, **kwargs):
            # type: (Any, *Any, **Any) -> Any
            known = getattr(self, "_https_agent", None)
            if known is not None:
                entry, timer = known
                entry.over = True
                if entry.ident == sampler.get_ident():
                    timer.stop()
            return original_destroy(self, *args, **kwargs)

        run.__doc__, destroy.__doc__ = original_run.__doc__, original_destroy.__doc__
        module.Hub.run, module.Hub.destroy = run, destroy

    atexit.register(watch.at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=watch.pause, after_in_parent=watch.resume, after_in_child=watch.forked)
    loaded = sys.modules.get("gevent.hub")
    if loaded is not None:
        change(loaded)
    else:
        imports.observe(lambda name: change if name == "gevent.hub" else None)
