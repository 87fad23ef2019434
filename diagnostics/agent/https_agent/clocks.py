"""Read clocks that the program under check cannot stop or replace.

Libraries for tests stop the time (freezegun, time-machine), programs put functions of their own into the
module ``time``, and a library that is loaded in front of the C library (libfaketime) changes what it
returns. So the functions are taken before anything of the user's is imported. They are kept in a
dictionary, since freezegun replaces what it knows in the attributes of every module; none of them is one
that time-machine changes. The kernel's count of its ticks, which libfaketime leaves alone, takes over where
it contradicts the finer clock.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

_TRIES = 3
_LOOKS = 100000  # at the ticks, at most
_COMPARED = 0.05  # seconds for which the clocks are compared
_ROOM = 0.03  # seconds by which they may differ: a tick is 0.01 s


def _built_in(function):
    # type: (Any) -> bool
    """Return whether it is the interpreter's: where the agent comes late, it may be replaced already."""
    return type(function) is type(len)


def _finest(ticks):
    # type: (Callable[[], float]) -> Callable[[], float]
    """Return the finest clock that is not replaced; ``ticks`` if there is none."""
    read = getattr(time, "clock_gettime", None)
    number = getattr(time, "CLOCK_MONOTONIC", None)
    if _built_in(read) and number is not None:
        return lambda: float(read(number))  # type: ignore[misc]
    for name in ("monotonic", "time"):  # Python 2 has only the last one
        function = getattr(time, name, None)  # type: Any
        if _built_in(function):
            return lambda: float(function())
    return ticks


def _begin():
    # type: () -> Dict[str, Any]
    times = os.times

    def ticks():
        # type: () -> float
        return float(times()[4])

    return {
        "ticks": ticks,
        "clock": _finest(ticks),
        "times": times,
        "of_thread": getattr(time, "pthread_getcpuclockid", None),
        "read": getattr(time, "clock_gettime", None),
    }


_taken = _begin()


def clock():
    # type: () -> float
    """Return the time in seconds, since an unknown point of time."""
    return _taken["clock"]()  # type: ignore[no-any-return]


def cpu():
    # type: () -> float
    """Return the seconds of CPU that this process has used."""
    spent = _taken["times"]()
    return float(spent[0] + spent[1])


def idle():
    # type: () -> float
    """Return a time that does not pass while the process computes: clients make TLS contexts."""
    return clock() - cpu()


def of_thread(ident):
    # type: (int) -> Optional[Callable[[], float]]
    """Return the clock of the CPU time of a thread; None where there is none."""
    if _taken["of_thread"] is None:
        return None
    read, number = _taken["read"], _taken["of_thread"](ident)
    return lambda: float(read(number))


def compare(sleep):
    # type: (Callable[[float], None]) -> None
    """Let the kernel's count of ticks, 100 a second, be the clock if the finer one goes at another speed.

    This takes 0.05 s, or three times that where they differ. ``sleep`` may return early.
    """
    fine, ticks = _taken["clock"], _taken["ticks"]
    if fine is ticks:
        return
    for _ in range(_TRIES):
        began, ticked = fine(), ticks()
        passed = 0.0
        for _ in range(_LOOKS):
            sleep(_COMPARED / 20)
            passed = ticks() - ticked
            if passed >= _COMPARED:
                break
        else:
            return  # a system that counts no ticks
        if abs(fine() - began - passed) <= _ROOM + passed / 4:
            return
    ahead = fine() - ticks()  # it goes on from where the other one is
    _taken["clock"] = lambda: ticks() + ahead
