"""Sample the hub from a real thread: which frame holds it while it does not run, and for how long.

The functions of the standard library are taken as they were before anything is patched. A timer of the hub
sets a time stamp. While the stamp is old, the hub does not run, and the current stack of its thread is what
holds it.
"""

import os
import signal
import sys

from . import frames
from .clocks import clock, cpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Optional, Tuple

    Stack = Tuple[frames.Spot, ...]


def original(module, name):
    # type: (str, str) -> Any
    """Return the function that is not gevent's, even when a ``.pth`` file has already patched it."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey.get_original(module, name) if monkey else getattr(__import__(module), name)


THREAD = "_thread" if sys.version_info[0] > 2 else "thread"
get_ident = original(THREAD, "get_ident")
start_new_thread = original(THREAD, "start_new_thread")
_sleep = original("time", "sleep")
if sys.version_info >= (3, 11) and hasattr(signal, "sigtimedwait"):
    # time.sleep waits there until a time of the clock, which libfaketime may have moved by years.
    _wait = signal.sigtimedwait

    def _sleep(seconds):
        # type: (float) -> None
        """Sleep for about ``seconds``."""
        _wait((), seconds)


TICK = 0.005
HELD = 0.03  # seconds without a sign from the hub
_DEEP = 40
_IDLE = ("gevent/hub.py", "gevent/_hub_primitives.py", "gevent/libev/corecffi.py", "gevent/_ffi/loop.py")


def waits_in_loop(frame):
    # type: (FrameType) -> bool
    """Return whether ``frame`` is the hub's own loop, which waits for events, or runs on a slow machine."""
    name = frame.f_code.co_filename.replace("\\", "/")
    return name.endswith(_IDLE) and frame.f_code.co_name in ("run", "run_callback")


def no_threads():
    # type: () -> str
    """Return why no thread can be started now, which a probe needs; "" if one can."""
    try:
        start_new_thread(_nothing, ())
    except RuntimeError:
        version = ".".join(map(str, sys.version_info[:2]))
        return "Python %s starts no threads when a program ends: let it run on, or use another" % version
    return ""


def _nothing():
    # type: () -> None
    pass


class Spent(object):
    """The time that the current thread spends: seconds of CPU, and seconds of being ready without a CPU.

    A thread is ready without a CPU when the machine is busy. The rest of the time it waited for something.
    The numbers are from ``/proc/self/task/TID/schedstat`` (Linux); elsewhere only from the process's CPU
    time.
    """

    def __init__(self):
        # type: () -> None
        self._file = None  # type: Optional[int]
        try:
            own = os.readlink("/proc/thread-self")
            self._file = os.open("/proc/%s/schedstat" % own, os.O_RDONLY)
        except (OSError, AttributeError):
            pass
        self.known = self._file is not None  # whether the time of being ready is known
        self._last = self._now()

    def _now(self):
        # type: () -> Tuple[float, float]
        if self._file is not None:
            try:
                os.lseek(self._file, 0, 0)
                told = os.read(self._file, 200).split()
                return int(told[0]) / 1e9, int(told[1]) / 1e9
            except (OSError, ValueError, IndexError):
                pass
        return cpu(), 0.0

    def since(self):
        # type: () -> Tuple[float, float]
        """Return the seconds of CPU and of being ready since the last call."""
        last, self._last = self._last, self._now()
        return max(0.0, self._last[0] - last[0]), max(0.0, self._last[1] - last[1])

    def close(self):
        # type: () -> None
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Sampler(object):
    """A thread that samples the hub for as long as a measurement takes.

    - ``held``: by stack, the seconds of wall time, of CPU, of being ready without a CPU, and the samples;
    - ``gap``: the longest time in which the hub did not run, in seconds;
    - ``stamp``: the time of the hub's last sign;
    - ``starved``: seconds in which its thread was ready and had no CPU, ``starved_then`` at the last sign.
    """

    def __init__(self, hub, tick=TICK, minimum=HELD):
        # type: (Any, float, float) -> None
        self.held = {}  # type: Dict[Stack, list[float]]
        self.gap = 0.0
        self.starved = self.starved_then = 0.0
        self.over = False
        self._spent = Spent()  # of the current thread, which is the hub's
        self._tick = tick
        self._minimum = minimum
        self._ident = get_ident()
        self.stamp = clock()
        self._timer = hub.loop.timer(tick, tick, ref=False)
        self.on_tick = None  # type: Optional[Callable[[], None]]
        # Called with the frame, the time of the hub's last sign, from when to when it was held, the place.
        self.on_held = None  # type: Optional[Callable[..., None]]

    def start(self):
        # type: () -> None
        """Start sampling; call it in the hub's thread."""
        self._timer.start(self._set_stamp)
        start_new_thread(self._watch, ())

    def stop(self):
        # type: () -> None
        """Stop sampling; the thread ends within a tick."""
        self.over = True
        self._timer.stop()

    def _set_stamp(self):
        # type: () -> None
        now = clock()
        self.gap = max(self.gap, now - self.stamp)
        self.stamp = now
        self.starved_then = self.starved

    def _watch(self):
        # type: () -> None
        before = clock()
        self._spent.since()
        while not self.over:
            _sleep(self._tick)
            now, (used, ready) = clock(), self._spent.since()
            self.starved += ready
            if now - self.stamp > self._minimum:
                frame = sys._current_frames().get(self._ident)
                if frame is not None and not waits_in_loop(frame):
                    key = tuple(frames.stack(frame)[:_DEEP])
                    entry = self.held.setdefault(key, [0.0, 0.0, 0.0, 0])
                    entry[0] += now - before
                    entry[1] += used
                    entry[2] += ready
                    entry[3] += 1
                    if self.on_held is not None:
                        self.on_held(frame, self.stamp, before, now, key[0] if key else None)
            before = now
            if self.on_tick is not None:
                self.on_tick()
        self._spent.close()

    def found(self):
        # type: () -> list[Dict[str, Any]]
        """Return what held the hub, longest first."""
        ranked = sorted(self.held.items(), key=lambda pair: -pair[1][0])
        return [
            {"stack": list(key), "seconds": seen[0], "cpu": seen[1], "ready": seen[2], "samples": seen[3]}
            for key, seen in ranked[:40]
        ]
