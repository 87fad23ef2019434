"""See where the program's greenlets are, and whether those that have no client wait for their turn.

One that waits while another connects may wait for its turn: for a lock that is held around the request,
for the only client of a queue, or for a worker that makes all requests. Or it waits for work, or for a
login that is made once. Which it is shows when the request has ended: it is another's turn, and the rest
still wait. Idle workers wait like that, too, in a queue, for an event or asleep; so there it has to be
seen several times that one of them goes on when a request has ended, and none before (``succession``).
"""

import gc
import os
import sys

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Dict, List, Optional, Set, Tuple

LOCK, QUEUE, RESULT, EVENT, SLEEP = "lock", "queue", "result", "event", "sleep"
SOME = 3  # greenlets that wait; fewer may be on the way
TURNS = (LOCK, QUEUE, RESULT)  # what is waited for where a turn is taken once
_IDLE = (QUEUE, EVENT, SLEEP)  # what idle workers do, too
_LONGEST = 1.0  # seconds; who sleeps for longer does not poll for its turn
_GREENLETS = 100  # that are looked at
OF_LOCKS = ("threading.py", "thread.py", "lock.py", "lock.pyx", "_semaphore.py")
OF_QUEUES = ("queue.py", "Queue.py")
_TAKES = ("acquire", "__enter__", "wait", "wait_for")
# What greenlets wait in that has no frames, by the end of the name of its class.
_KINDS = (
    ("Semaphore", LOCK),
    ("LockType", LOCK),
    ("Queue", QUEUE),
    ("Channel", QUEUE),
    ("AsyncResult", RESULT),
    ("Event", EVENT),
)
_CONDITIONS = ("wait", "wait_for")
# Packages whose frames are inside of a client: those that wait there are in it already.
_CLIENTS = ("requests", "urllib3", "httpx", "httpx2", "httpcore", "httpcore2", "geventhttpclient")
_LISTS = ("list", "deque", "set", "tuple")
_METHODS = ("builtin_function_or_method", "method", "instancemethod", "method-wrapper")


class Place(object):
    """Where a greenlet is: in ``frame``, None before it starts; ``connects``: it has come to a connection.

    ``inside``: the class of the object of gevent's in which it waits, "" if there is none.
    """

    def __init__(self, greenlet, connects, inside):
        # type: (Any, bool, str) -> None
        self.greenlet, self.frame, self.connects = greenlet, greenlet.gr_frame, connects
        self.inside = inside


class Wait(object):
    """A greenlet that waits for a lock, a queue or a result: ``kind``; ``at``: where in the user's code,
    or in a package's where the user's is not on its stack.

    ``turn``: it is a lock around what another does that connects; ``lent``: it is a queue, and the variable
    is not set in which another has its client.
    """

    def __init__(self, greenlet, kind, outer, turn, lent):
        # type: (Any, str, FrameType, bool, bool) -> None
        self.greenlet, self.kind, self.turn, self.lent = greenlet, kind, turn, lent
        self.spot = frames.user(outer) or frames.caller(outer)
        # One that polls may also be asleep in what it asks: gevent's locks let others run there.
        self.at = outer.f_code, outer.f_lasti if kind != SLEEP else None
        self.number = outer.f_lineno
        self._calls = outer, _codes(greenlet.gr_frame, outer)
        self.seconds = 0.0  # for which it sleeps
        self.shares = False  # those that have a client have come through its function
        self.packaged = False  # it waits in a package, called by none of the user's functions

    def lasts(self):
        # type: () -> bool
        """Return whether it still waits there."""
        outer = outer_frame(self.greenlet.gr_frame)
        if outer is not None and self.kind == SLEEP:
            return outer.f_code is self.at[0] and _sleeps(self.greenlet.gr_frame) is not None
        return outer is not None and (outer.f_code, outer.f_lasti) == self.at

    def stays(self):
        # type: () -> bool
        """Return whether it still waits, and has not come back to wait once more.

        One that sleeps comes back each time that it has polled.
        """
        if not self.lasts() or self.kind == SLEEP:
            return self.lasts()
        outer = outer_frame(self.greenlet.gr_frame)
        return self._calls == (outer, _codes(self.greenlet.gr_frame, outer))

    def renew(self):
        # type: () -> bool
        """Return whether it waits there, if for something else; from now on it is seen whether it stays."""
        outer = outer_frame(self.greenlet.gr_frame)
        if outer is None or not self.lasts():
            return False
        self._calls = outer, _codes(self.greenlet.gr_frame, outer)
        return True


def places(arrived, besides):
    # type: (List[Any], Tuple[Any, ...]) -> List[Place]
    """Return where all greenlets but ``besides`` are; first those that have ``arrived`` at a connection."""
    kind = getattr(sys.modules.get("greenlet"), "greenlet", None)  # type: Any
    found, inside = [], {}  # type: List[Any], Dict[int, str]
    for each in gc.get_objects():
        own = type(each)  # type: Any
        # Not isinstance(): it reads __class__ of objects that load themselves when they are looked at.
        if issubclass(own, kind):
            if not any(each is other for other in besides) and not each.dead:
                found.append(each)
        elif str(getattr(own, "__module__", "")).startswith("gevent.") and own.__name__.endswith(_names()):
            inside.update((number, own.__name__) for number in _waiting_in(each))
    seen = [
        Place(each, any(each is other for other in arrived), inside.get(id(each), "")) for each in found
    ]
    return sorted(seen, key=lambda place: not place.connects)[:_GREENLETS]


def _names():
    # type: () -> Tuple[str, ...]
    return tuple(name for name, _ in _KINDS)


def _waiting_in(own, depth=0):
    # type: (Any, int) -> List[int]
    """Return the numbers of the greenlets that ``own`` is to wake: a lock, a queue, a list of theirs."""
    found = []  # type: List[int]
    for each in gc.get_referents(own):
        name = type(each).__name__
        if name in _METHODS:
            found.append(id(getattr(each, "__self__", None)))
        elif name.endswith("Waiter"):
            found.append(id(each.greenlet))
        elif name in _LISTS and depth < 2:
            found += _waiting_in(each, depth + 1)
    return found


def waits_of(places, codes, variables, around):
    # type: (List[Place], Set[CodeType], Dict[CodeType, Set[str]], Set[CodeType]) -> List[Wait]
    """Return how the greenlets at ``places`` wait, of those that wait for what another one gives.

    ``codes``: the user's, on the stacks of those that have a client; ``variables``: which of them have the
    one that is measured; ``around``: packages' functions on these stacks that call the client.
    """
    found = [_wait(place, codes, variables, around) for place in places]
    waits = [each for each in found if each is not None]
    # Who has a package's lock and waits for something else, for work or a rate, makes no request with it.
    others = set(each.at[0] for each in waits if each.packaged and each.kind != LOCK)
    return [each for each in waits if not (each.packaged and each.kind == LOCK and each.at[0] in others)]


def _wait(place, codes, variables, around):
    # type: (Place, Set[CodeType], Dict[CodeType, Set[str]], Set[CodeType]) -> Optional[Wait]
    outer = outer_frame(place.frame)
    if outer is None or place.connects or place.greenlet.parent is None:
        return None
    kind, seconds = _kind(place, outer), _sleeps(place.frame)
    if seconds is not None and seconds > _LONGEST:
        seconds = None  # of a lock, a queue, an event: it is woken, and does not poll
    if kind in ("", EVENT) and seconds is not None:
        kind = SLEEP  # also where an event is to end it earlier
    if not kind:
        return None
    if kind == LOCK and (_is_of_condition(place.frame, outer) or _is_counted(place, outer)):
        kind = EVENT  # workers may wait for work like that
    if not frames.is_users(outer):
        # A package may have idle workers of its own, in functions that no request is made in.
        if kind != RESULT and not around & around_of(outer):
            return None
        found = Wait(place.greenlet, kind, outer, kind == LOCK, False)
        found.packaged = found.shares = True
        found.seconds = seconds or 0.0
        return found
    shares = bool(codes & codes_of(outer))
    turn = kind == LOCK and shares
    lent = kind == QUEUE and _lacks(outer, variables)
    found = Wait(place.greenlet, kind, outer, turn, lent)
    found.shares, found.seconds = shares, seconds or 0.0
    return found


def _sleeps(frame):
    # type: (Any) -> Optional[float]
    """Return for how many seconds ``frame`` sleeps or waits for an event, None where it does not."""
    seconds = None  # type: Any
    while frame is not None and not frames.is_users(frame):
        name, file = frame.f_code.co_name, os.path.basename(frame.f_code.co_filename)
        if name == "sleep" and file == "hub.py":
            seconds = frame.f_locals.get("seconds")
            break
        if name == "wait" and file in OF_LOCKS:
            seconds = frame.f_locals.get("timeout")
        elif seconds is not None or file not in OF_LOCKS:
            break
        frame = frame.f_back
    return float(seconds) if isinstance(seconds, (int, float)) else None


def _lacks(frame, variables):
    # type: (Any, Dict[CodeType, Set[str]]) -> bool
    """Return whether a function is on the stack of ``frame`` of whose ``variables`` none is set."""
    while frame is not None:
        if frame.f_code in variables:
            return not variables[frame.f_code] & set(frame.f_locals)
        frame = frame.f_back
    return False


def _kind(place, outer):
    # type: (Place, FrameType) -> str
    called = calls(place.frame, outer)
    for name, file, _ in called:
        if file in OF_QUEUES:
            return QUEUE
        if name == "result" and file == "_base.py":
            return RESULT
    inside = next((kind for name, kind in _KINDS if place.inside.endswith(name)), "")
    if not called:
        return inside
    # A library may take a lock for what it calls: logging, for one of its handlers.
    name, file, _ = called[0]
    if file not in OF_LOCKS or name not in _TAKES:
        return EVENT if inside else ""  # of a pool of greenlets or threads, for example: it may be idle
    of_locks = [(name, own) for name, file, own in called if file in OF_LOCKS]
    if any(name not in _TAKES or own == "Thread" for name, own in of_locks):
        return ""
    return EVENT if any(own in ("Event", "_Event") for _, own in of_locks) else LOCK


def _is_of_condition(frame, outer):
    # type: (Any, FrameType) -> bool
    names = [name for name, file, _ in calls(frame, outer) if file in OF_LOCKS]
    return bool(names) and names[-1] in _CONDITIONS


def _is_counted(place, outer):
    # type: (Place, FrameType) -> bool
    """Return whether it waits for a semaphore that another function releases: of jobs, perhaps."""
    names = outer.f_code.co_names
    if "acquire" not in names or "release" in names:
        return False
    classes = [own for _, file, own in calls(place.frame, outer) if file in OF_LOCKS]
    return (classes[-1] if classes else place.inside) == "Semaphore"


def _codes(frame, outer):
    # type: (Any, Any) -> List[CodeType]
    found = []
    while frame is not None and frame is not outer:
        found.append(frame.f_code)
        frame = frame.f_back
    return found


def calls(frame, outer):
    # type: (Any, FrameType) -> List[Tuple[str, str, str]]
    """Return the function, file and class of the frames inside of ``outer``, innermost first."""
    found = []
    while frame is not outer:
        own = type(frame.f_locals.get("self")).__name__
        found.append((frame.f_code.co_name, os.path.basename(frame.f_code.co_filename), own))
        frame = frame.f_back
    return found


def codes_of(frame):
    # type: (Optional[FrameType]) -> Set[CodeType]
    """Return the user's functions on the stack of ``frame``."""
    found = set()
    while frame is not None:
        if frames.is_users(frame) and not frames.is_module(frame.f_code):
            found.add(frame.f_code)
        frame = frame.f_back
    return found


def around_of(frame):
    # type: (Optional[FrameType]) -> Set[CodeType]
    """Return the functions of packages on the stack of ``frame`` that are outside of a client."""
    found = set()
    while frame is not None:
        if _is_around(frame):
            found.add(frame.f_code)
        frame = frame.f_back
    return found


def _is_around(frame):
    # type: (FrameType) -> bool
    names = str(frame.f_globals.get("__name__")).split(".")
    # What `cached_property` of older Pythons computes, it does with a lock that all objects have.
    if names == ["functools"]:
        return True
    return frames.kind(frame.f_code) == "package" and not any(each in _CLIENTS for each in names)


def outer_frame(frame):
    # type: (Optional[FrameType]) -> Optional[FrameType]
    """Return the innermost frame of the user's; where there is none, that of a package but of a client."""
    found = user_frame(frame)
    while found is None and frame is not None:
        found = frame if _is_around(frame) else None
        frame = frame.f_back
    return found


def user_frame(frame):
    # type: (Optional[FrameType]) -> Optional[FrameType]
    """Return the innermost frame of the user's in the stack of ``frame``."""
    while frame is not None and not frames.is_users(frame):
        frame = frame.f_back
    return frame


def stand(connecting, waits):
    # type: (int, List[Any]) -> bool
    """Return whether so many wait while so few connect that they may take turns: `verdict.least_slope`."""
    many = connecting + len(waits)
    return len(waits) >= SOME and many >= max(1, connecting) * (1 + (many - 1) / 3.0)


def line(waits):
    # type: (List[Wait]) -> List[Wait]
    """Return those of ``waits``, idle workers perhaps, that wait where and as most do.

    In the same function, the first of them, or in another one that leads to the request.
    """
    idle = [each for each in waits if each.kind in _IDLE]
    ways = [(each.at[0], each.kind) for each in idle]
    code, kind = max(ways, key=ways.count) if ways else (None, "")
    found = [each for each in idle if each.kind == kind and (each.at[0] is code or each.shares)]
    return sorted(found, key=lambda each: each.at[0] is not code)


def held(first, rest, moved, ended, shares, using):
    # type: (List[Wait], List[Wait], bool, bool, bool, int) -> List[Wait]
    """Return who takes turns, of those that waited ``first``, and of the ``rest`` that still do.

    ``moved``: some went on; ``ended``: the request has that was made meanwhile; ``shares``: one that went
    on has the same client; ``using``: how many have a client now.
    """
    if moved and (rest or using > 1):
        return [each for each in rest if each.kind != QUEUE or (each.lent and shares)]
    if ended and not moved:
        return [each for each in first if each.turn]  # the others wait for something else
    # They still wait for the same request, or all have gone on faster than can be seen.
    return [each for each in first if each.turn or each.lent or each.kind == RESULT]
