"""Watches the hubs of a process for as long as it lives: what holds one longer than ``max_block``?

A timer of each hub sets a stamp; a real thread looks how old it is, and while it is old takes the stack of
the hub's thread. What was seen is folded and rewritten as one file of the outbox for each process: nobody
has to be listening, nothing can block, the disk cannot fill. After a fork the hub's next tick begins anew.
"""

import atexit
import json
import os
import signal
import sys
import time

from . import holds, hubs, recorder, sampler
from .sampler import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, List, Optional, Tuple


_allocate_lock = sampler.original(sampler.THREAD, "allocate_lock")
_start_new_thread = sampler.original(sampler.THREAD, "start_new_thread")
_sleep = sampler.original("time", "sleep")
_MOST = 50  # stacks that are told apart
_IDLE = 0.0005  # seconds of CPU that one who waits may use
_SEND = 0.25  # seconds between two reports at least


def _nothing():
    # type: () -> None
    pass


class Watch(object):
    """One for each process."""

    def __init__(self, spec):
        # type: (Dict[str, Any]) -> None
        self.limit = spec["max_block"]  # type: float
        self.tick = min(max(self.limit / 10, 0.001), 0.02)
        self.suspect = self.tick + self.limit / 4
        self._nap = min(self.limit / 4, 0.25)
        self._outbox = spec["outbox"]
        self._running = False  # whether there is a thread, or is to be one
        self._paused = True
        self._renew()

    def _renew(self):
        # type: () -> None
        self.pid = os.getpid()
        # The number of a process that ended can come again.
        self._name = "%d-%x" % (self.pid, int(clock() * 1e6))
        self._hubs = []  # type: List[hubs.Hub]
        self._folded = {}  # type: Dict[Tuple[holds.Spot, ...], holds.Folded]
        self._dirty = True
        self._sent = 0.0
        self._trouble = ""

    # the application's threads

    def hub(self, hub):
        # type: (Any) -> None
        """A hub runs for the first time."""
        if self.pid != os.getpid():
            self._renew()
            self._running = False
        self._hubs.append(hubs.Hub(hub, self.tick, self.suspect, self._ticked))
        if not self._running:
            self._begin()

    def _ticked(self, entry):
        # type: (hubs.Hub) -> None
        if self.pid != os.getpid():
            # This is a child: the thread has stayed with the parent, and so have the other hubs.
            entry.settle()
            self._renew()
            self._hubs = [entry]
            self._begin()

    def _begin(self):
        # type: () -> None
        self._stop, self._gone = _allocate_lock(), _allocate_lock()
        self._stop.acquire()
        self._gone.acquire()
        mask = getattr(signal, "pthread_sigmask", None)
        # A signal must not be delivered to a thread that the application does not know.
        before = mask(signal.SIG_BLOCK, _signals()) if mask is not None else None
        try:
            self._running, self._paused = True, False
            _start_new_thread(self._watch, (self._stop, self._gone))
        finally:
            if mask is not None:
                mask(signal.SIG_SETMASK, before)

    def pause(self):
        # type: () -> None
        """Before a fork: with a thread of ours, Python 3.12 would warn of it."""
        if self._running and not self._paused and self.pid == os.getpid():
            self._paused = True
            self._stop.release()
            self._gone.acquire(True, 0.5)

    def resume(self):
        # type: () -> None
        """After a fork, in the parent."""
        if self._running and self._paused and self.pid == os.getpid():
            self._begin()

    def forked(self):
        # type: () -> None
        """After a fork, in the child."""
        self._running = False

    def ends(self):
        # type: () -> None
        """The interpreter ends: what was not sent yet."""
        if self._running and self.pid == os.getpid():
            if sys.version_info[0] > 2:
                self.pause()
            self._running = False
            for entry in self._hubs:
                self._finish(entry, clock() - entry.looked)
            self._send()

    def failed(self, error):
        # type: (Exception) -> None
        """What went wrong with the watching may not be seen in the application; the judge says it."""
        self._trouble = repr(error)
        self._send()

    # our thread

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
            except Exception:  # at its end Python 2 takes its modules apart
                pass
        finally:
            gone.release()

    def _sleeps(self, stop):
        # type: (Any) -> bool
        """Whether this is to end; after a while."""
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
        # When we did not run, the interpreter was locked by one who computes, or the machine was slow, or
        # the process was stopped. Only the first is somebody's fault.
        most = used if since > 2 * self._nap else since
        if entry.hold is not None and entry.hold.stamp != stamp:
            self._finish(entry, min(entry.until - entry.looked, most))
        if now - stamp > self.suspect and not entry.over:
            self._sample(entry, stamp, now, most, used)
        entry.looked, entry.spent = now, spent

    def _sample(self, entry, stamp, now, most, used):
        # type: (hubs.Hub, float, float, float, float) -> None
        # First of all, before anything that gives the interpreter's lock away: one who had it locked goes
        # on then, and would be somewhere else.
        frame = sys._current_frames().get(entry.ident)
        stack, root, known = holds.walk(frame)
        del frame  # or what the application drops is destroyed in this thread
        hold = entry.hold
        if not stack:
            self._finish(entry, 0.0)
            entry.free = now
            return
        since, (starved, ours) = now - entry.looked, entry.starved()
        if hold is not None and known and root == hold.root and stack[0][0] is hold.samples[0][0][0][0]:
            if used > _IDLE:
                # It also waited for the interpreter's lock as long as that was ours and we had no CPU.
                starved += ours
            hold.lasts(since, max(used, since - starved), used)
            hold.seen(stack)
            self._dirty = self._dirty or hold.own >= self.limit
            return
        if hold is not None:
            self._finish(entry, 0.0)
            entry.free = now
        # It has had the hub since the tick failed to come; or, if that was not its fault, since now.
        seconds = max(0.0, now - max(stamp + self.tick, entry.free))
        if most < since:
            seconds = min(seconds, most)
        entry.hold = holds.Hold(stamp, root, stack, seconds, min(used, seconds))

    def _finish(self, entry, seconds):
        # type: (hubs.Hub, float) -> None
        """The hold of ``entry`` is over, ``seconds`` after it was seen last."""
        hold, entry.hold = entry.hold, None
        if hold is None:
            return
        hold.lasts(seconds, seconds, 0.0)
        if hold.own >= self.limit:
            stack, lines = hold.place()
            place = holds.spots(stack, len(lines) > 1)
            if place not in self._folded and len(self._folded) >= _MOST:
                place, lines = (), {}
            self._folded.setdefault(place, holds.Folded()).add(hold, lines)
            self._dirty = True

    def _send(self, after=_nothing):
        # type: (Callable[[], None]) -> None
        """Put down all there is to tell; for ``after`` see ``_put``."""
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
    """Write a file whole or not at all: the judge may be gone, the disk full. Each step gives the
    interpreter's lock away, and one who had it locked since goes on with the next: ``after`` each."""
    try:
        out = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        after()
        try:
            whole = os.write(out, text) == len(text)
            after()
        finally:
            os.close(out)
        after()
        if whole:
            os.rename(path + ".part", path + ".json")
            after()
    except (IOError, OSError):
        pass


def _signals():
    # type: () -> Any
    valid = getattr(signal, "valid_signals", None)
    return valid() if valid is not None else [n for n in range(1, signal.NSIG) if n not in (32, 33)]


class _Finder(object):
    """In front of ``sys.meta_path``: finds nothing itself, see ``recorder``."""

    def __init__(self, change):
        # type: (Callable[[ModuleType], None]) -> None
        self._change = change
        self._within = False

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if name != "gevent.hub" or self._within:
            return None
        self._within = True
        try:
            return recorder._then(self, name, path, target, self._change)
        finally:
            self._within = False

    if sys.version_info[0] == 2:

        def find_module(self, name, path=None):
            # type: (str, Any) -> Any
            return recorder._Loader.of(name, path, self._change) if name == "gevent.hub" else None


def begin(spec):
    # type: (Dict[str, Any]) -> None
    """Watch each hub that will run in this process and in those that it forks."""
    watch = Watch(spec)
    _put(os.path.join(spec["outbox"], "python"), b"")

    def change(module):
        # type: (Any) -> None
        original_run, original_destroy = module.Hub.run, module.Hub.destroy

        def run(self):
            # type: (Any) -> Any
            try:
                watch.hub(self)
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

    atexit.register(watch.ends)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=watch.pause, after_in_parent=watch.resume, after_in_child=watch.forked)
    loaded = sys.modules.get("gevent.hub")
    if loaded is not None:
        change(loaded)
    else:
        sys.meta_path.insert(0, _Finder(change))
