"""See whether the threads of a pool of gevent's wait for their turn around the requests that they make.

A thread that connects looks where the others are, once as many as will have come to a connection, too. What
waits in C has no frame, so a lock is known by the names that the waiting function uses. After a login that
is made once, the others come to a connection; so it is a turn only where the same is seen twice in a row.

Who waits otherwise in a function that leads to the request, for a condition, in a queue or asleep, may be
idle. There it is a turn if several times in a row one of them is at a connection soon after the last
request of another has ended, and nobody before (``_is_handed_on``).
"""

import opcode

from . import clocks, fetchers, frames, linger, native, sampler, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List, Optional, Set

_LOOKS = 12  # as many at most: each holds a request up
_TWICE = 2
_TIMES = 3  # the first requests may lead to one another
_MORE = 4  # the same where one is not soon at its connection
_SOON = 0.15  # seconds without a CPU after a request in which the next one is at its connection
_LATE = 0.5  # the same where who has had the turn does something else first
_LINGERS = 0.1
# Seconds by which each next one is held up longer: work that comes regularly comes meanwhile. The second
# where one was not soon there.
_LONGER, _LONGER_THEN = 0.1, 0.25
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
        self._last = None  # type: Optional[_Seen]  # what the last one saw that came alone
        self._had = set()  # type: Set[int]  # threads that have had a turn
        self._handed, self._late = 0, False  # how often in a row one has followed on another; not soon

    @property
    def waiting(self):
        # type: () -> List[frames.Spot]
        """Return where they wait, with the place of most first."""
        if self._over:
            return []
        return self._found if self._seen >= _TWICE or self._is_turn else []

    @property
    def is_undecided(self):
        # type: () -> bool
        """Return whether one has followed on another, and it is not known yet whether all do."""
        return bool(self._handed and self._left > 0 and not self._over and not self._is_turn)

    @property
    def _is_turn(self):
        # type: () -> bool
        return self._handed >= (_MORE if self._late else _TIMES)

    def connects(self, frame, pool):
        # type: (Optional[FrameType], Any) -> None
        """Note that the current thread, one of ``pool``, connects or requests; look at the others."""
        self._arrived.add(sampler.get_ident())
        if self._last is not None and self._last.own == sampler.get_ident() and not self._last.has_ended:
            return  # for the same request
        if self._looking or self._over or self._left <= 0 or pool.maxsize < turns.SOME:
            return
        if self._last is not None and self._last.own == sampler.get_ident() and len(self._arrived) == 1:
            self._last.lingers.begin(frame)  # it has the turn still
            return
        self._looking = True
        try:
            self._left -= 1
            self._handed = self._handed + 1 if self._is_handed_on() else 0
            self.end()
            self._look(frame, pool)
        except Exception:  # what the application's objects raise; its own request must not fail of it
            self._over = True
        finally:
            self._looking = False

    def end(self):
        # type: () -> None
        """Have nobody linger any more."""
        if self._last is not None:
            self._had.add(self._last.own)
            self._last.lingers.end()
            self._last = None

    def _is_handed_on(self):
        # type: () -> bool
        """Return whether the current thread follows on the last one, while all others still wait."""
        last, own = self._last, sampler.get_ident()
        if last is None or last.own == own or not (own in last.line or own in self._had):
            return False
        ended, threads = last.lingers.ended, native.current_frames()
        if ended is None or clocks.idle() - ended > _LATE:
            return False
        self._late = self._late or clocks.idle() - ended > _SOON
        return all(_is_in(threads.get(each), code) for each, code in last.line.items() if each != own)

    def _look(self, frame, pool):
        # type: (Optional[FrameType], Any) -> None
        own = sampler.get_ident()
        self._arrived = set([own])
        self._let_arrive(_OBSERVES, _QUIET)
        codes = turns.codes_of(frame) | turns.around_of(frame)
        using, spots, line = 1, [], []  # type: int, List[frames.Spot], List[Any]
        for ident, other in list(native.current_frames().items()):
            if ident == own or native.pool_of(other) is not pool:
                continue
            if ident in self._arrived or fetchers.is_in_client(other):
                using += 1
                continue
            spot = _waits(other, codes)
            if spot is not None:
                spots.append(spot)
            outer = turns.outer_frame(other)
            if outer is not None and codes & (turns.codes_of(outer) | turns.around_of(outer)):
                line.append(
                    (ident, outer.f_code, outer.f_lineno, frames.user(outer) or frames.caller(outer))
                )
        if turns.stand(using, spots):
            self._seen += 1
            if len(spots) > len(self._found):  # there are ever fewer towards the end
                self._found, self.using = sorted(spots, key=lambda each: -spots.count(each)), using
        elif using > 1:
            self._over = True
        codes_of = [code for _, code, _, _ in line]
        line = [each for each in line if codes_of.count(each[1]) == max(map(codes_of.count, codes_of))]
        if using == 1 and turns.stand(1, line):
            seconds = (_LONGER_THEN if self._late else _LONGER) * (1 + self._handed)
            self._let_arrive(seconds, seconds)
            if len(self._arrived) == 1:
                self._begin(frame, line)
                self._left = 0 if self._is_turn else self._left  # that is enough
            else:
                self._over = True

    def _let_arrive(self, seconds, quiet):
        # type: (float, float) -> None
        """Let others come to a connection, for so many seconds, until nobody has for ``quiet`` seconds."""
        count, began = len(self._arrived), clocks.idle()
        last = began
        while clocks.idle() - began < seconds and clocks.idle() - last < quiet:
            sampler._sleep(_SLEEPS)
            if len(self._arrived) > count:
                count, last = len(self._arrived), clocks.idle()

    def _begin(self, frame, line):
        # type: (Optional[FrameType], List[Any]) -> None
        """See who follows on the request of the current thread, which is alone, while a ``line`` waits."""
        code = line[0][1]
        line = [each for each in line if each[1] is code]
        spots = [spot for _, _, _, spot in line]
        if self._seen < _TWICE and len(spots) > len(self._found):
            self._found = sorted(spots, key=lambda each: -spots.count(each))
        # Not the last one of them: who has had the turn may be at its end still.
        numbers = [number for _, _, number, _ in line]
        number = max(numbers, key=numbers.count)
        lingers = linger.Linger(code, number, lambda: sampler._sleep(_LINGERS), sampler.get_ident, True)
        self._last = _Seen(sampler.get_ident(), lingers, dict((ident, code) for ident, _, _, _ in line))
        lingers.begin(frame)


class _Seen(object):
    """What the thread ``own`` has seen at its connection: ``line``: the functions of those that wait."""

    def __init__(self, own, lingers, line):
        # type: (int, linger.Linger, Dict[int, Any]) -> None
        self.own, self.lingers, self.line = own, lingers, line

    @property
    def has_ended(self):
        # type: () -> bool
        return self.lingers.ended is not None


def _is_in(frame, code):
    # type: (Optional[FrameType], Any) -> bool
    """Return whether a thread is in the function ``code`` still, and makes no request."""
    outer = turns.outer_frame(frame)
    return outer is not None and outer.f_code is code


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
