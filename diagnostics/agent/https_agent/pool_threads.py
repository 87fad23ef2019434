"""See whether the threads of a pool of gevent's wait for their turn around the requests that they make.

A thread that connects looks where the others are, once as many as will have come to a connection, too. What
waits in C has no frame, so a lock is known by the names that the waiting function uses. After a login that
is made once, the others come to a connection; so it is a turn only where the same is seen twice in a row.
"""

import opcode
import sys

from . import clocks, fetchers, frames, native, sampler, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, List, Optional, Set

_LOOKS = 8  # as many at most: each holds a request up
_TWICE = 2
_OBSERVES = 0.3  # seconds without a CPU in which others may come to a connection
_QUIET = 0.1  # seconds without another one after which no more are expected
_SLEEPS = 0.01
_NEAR = 4  # instructions


class PoolThreads(object):
    """Where threads were seen; ``waiting``: for their turn, while ``using`` of them have a client."""

    def __init__(self):
        # type: () -> None
        self._arrived = set()  # type: Set[int]  # threads at a connection
        self._looking = self._over = False
        self._left, self._seen = _LOOKS, 0
        self._found = []  # type: List[frames.Spot]
        self.using = 1

    @property
    def waiting(self):
        # type: () -> List[frames.Spot]
        """Return where they wait, with the place of most first."""
        return self._found if self._seen >= _TWICE else []

    def connects(self, frame, pool):
        # type: (Optional[FrameType], Any) -> None
        """Note that the current thread, one of ``pool``, connects or requests; look at the others."""
        self._arrived.add(sampler.get_ident())
        if self._looking or self._over or self._left <= 0 or pool.maxsize < turns.SOME:
            return
        self._looking = True
        try:
            self._left -= 1
            self._look(frame, pool)
        except Exception:  # what the application's objects raise; its own request must not fail of it
            self._over, self._seen = True, 0
        finally:
            self._looking = False

    def _look(self, frame, pool):
        # type: (Optional[FrameType], Any) -> None
        own = sampler.get_ident()
        self._arrived = set([own])
        count, began = 1, _idle()
        last = began
        while _idle() - began < _OBSERVES and _idle() - last < _QUIET:
            sampler._sleep(_SLEEPS)
            if len(self._arrived) > count:
                count, last = len(self._arrived), _idle()
        codes = turns.codes_of(frame) | turns.around_of(frame)
        using, spots = 1, []  # type: int, List[frames.Spot]
        for ident, other in list(sys._current_frames().items()):
            if ident == own or native.pool_of(other) is not pool:
                continue
            if ident in self._arrived or fetchers.is_in_client(other):
                using += 1
                continue
            spot = _waits(other, codes)
            if spot is not None:
                spots.append(spot)
        if turns.stand(using, spots):
            self._seen += 1
            if len(spots) > len(self._found):  # there are ever fewer towards the end
                self._found, self.using = sorted(spots, key=lambda each: -spots.count(each)), using
        elif using > 1:
            self._seen, self._over = 0, True


def _idle():
    # type: () -> float
    return clocks.clock() - clocks.cpu()


def _waits(frame, codes):
    # type: (FrameType, Set[Any]) -> Optional[frames.Spot]
    """Return where a thread waits for a lock in one of the functions ``codes``; None if it does not."""
    outer = turns.outer_frame(frame)
    if outer is None or not codes & (turns.codes_of(outer) | turns.around_of(outer)):
        return None
    called = turns.calls(frame, outer)
    if any(file in turns.OF_QUEUES for _, file, _ in called):
        return None
    names = [name for name, file, _ in called if file in turns.OF_LOCKS]
    if called and not (names and names[-1] in ("acquire", "__enter__")):
        return None
    if not called and not (_enters(outer) or _knows_taken_lock(outer)):
        return None
    return frames.user(outer) or frames.caller(outer)


def _enters(frame):
    # type: (Any) -> bool
    """Return whether ``frame`` is at the beginning of a `with`, where it waits in C."""
    code = bytearray(frame.f_code.co_code)
    before = max(0, frame.f_lasti - 2 * _NEAR)
    names = [opcode.opname[each] for each in code[frame.f_lasti : before - 1 if before else None : -2]]
    # From Python 3.14 on it is a call of what is looked up just before.
    return names[:1] in (["BEFORE_WITH"], ["SETUP_WITH"]) or "LOAD_SPECIAL" in names


def _knows_taken_lock(frame):
    # type: (Any) -> bool
    """Return whether the function of ``frame`` names a lock that is taken."""
    names = frame.f_code.co_names
    values = list(frame.f_locals.values()) + [
        frame.f_globals[name] for name in names if name in frame.f_globals
    ]
    for value in values:
        if _is_taken(value) or any(_is_taken(_attribute(value, name)) for name in names):
            return True
    return False


def _attribute(value, name):
    # type: (Any, str) -> Any
    """Return the attribute of an object or of its class; no code of the application's runs for it."""
    for each in (value,) + type(value).__mro__:
        found = getattr(each, "__dict__", {})
        if name in found:
            return found[name]
    return None


def _is_taken(value):
    # type: (Any) -> bool
    kind = type(value)
    if kind.__module__ not in ("_thread", "thread") or not hasattr(kind, "acquire"):
        return False
    locked = getattr(value, "locked", None)
    return bool(locked()) if locked is not None else repr(value).startswith("<locked")
