"""See where the program's greenlets are, and whether those that have no client wait for their turn.

One that waits while another connects may wait for its turn: for a lock that is held around the request,
for the only client of a queue, or for a worker that makes all requests. Or it waits for work, or for a
login that is made once. Which it is shows when the request has ended: it is another's turn, and the rest
still wait.
"""

import gc
import os
import sys

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Dict, List, Optional, Set, Tuple

LOCK, QUEUE, RESULT = "lock", "queue", "result"
SOME = 3  # greenlets that wait; fewer may be on the way
_GREENLETS = 100  # that are looked at
_OF_LOCKS = ("threading.py", "thread.py", "lock.py", "lock.pyx", "_semaphore.py")
_OF_QUEUES = ("queue.py", "Queue.py")
_TAKES = ("acquire", "__enter__", "wait", "wait_for")
# What greenlets wait in that has no frames, by the end of the name of its class.
_KINDS = (
    ("Semaphore", LOCK),
    ("LockType", LOCK),
    ("Queue", QUEUE),
    ("Channel", QUEUE),
    ("AsyncResult", RESULT),
)
_LISTS = ("list", "deque", "set")
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
    """A greenlet that waits for a lock, a queue or a result: ``kind``; ``at``: where in the user's code.

    ``turn``: it is a lock around what another does that connects; ``lent``: it is a queue, and the variable
    is not set in which another has its client.
    """

    def __init__(self, greenlet, kind, outer, turn, lent):
        # type: (Any, str, FrameType, bool, bool) -> None
        self.greenlet, self.kind, self.turn, self.lent = greenlet, kind, turn, lent
        self.spot = frames.user(outer)
        self.at = outer.f_code, outer.f_lasti

    def lasts(self):
        # type: () -> bool
        """Return whether it still waits there."""
        outer = user_frame(self.greenlet.gr_frame)
        return outer is not None and (outer.f_code, outer.f_lasti) == self.at


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
        elif name == "Waiter":
            found.append(id(each.greenlet))
        elif name in _LISTS and depth < 2:
            found += _waiting_in(each, depth + 1)
    return found


def wait(place, codes, variables):
    # type: (Place, Set[CodeType], Dict[CodeType, Set[str]]) -> Optional[Wait]
    """Return how the greenlet at ``place`` waits, None if not for what another one gives.

    ``codes``: the user's, on the stacks of those that have a client; ``variables``: which of them have the
    one that is measured.
    """
    outer = user_frame(place.frame)
    if outer is None or place.connects or place.greenlet.parent is None:
        return None
    kind = _kind(place, outer)
    turn = kind == LOCK and bool(codes & codes_of(outer))
    lent = kind == QUEUE and _lacks(outer, variables)
    return Wait(place.greenlet, kind, outer, turn, lent) if kind else None


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
    called = _calls(place.frame, outer)
    for name, file, _ in called:
        if file in _OF_QUEUES:
            return QUEUE
        if name == "result" and file == "_base.py":
            return RESULT
    if not called:
        return next((kind for name, kind in _KINDS if place.inside.endswith(name)), "")
    # A library may take a lock for what it calls: logging, for one of its handlers.
    name, file, _ = called[0]
    if file not in _OF_LOCKS or name not in _TAKES:
        return ""
    for name, file, own in called:
        if file in _OF_LOCKS and (name not in _TAKES or own in ("Event", "_Event", "Thread")):
            return ""
    return LOCK


def _calls(frame, outer):
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


def user_frame(frame):
    # type: (Optional[FrameType]) -> Optional[FrameType]
    """Return the innermost frame of the user's in the stack of ``frame``."""
    while frame is not None and not frames.is_users(frame):
        frame = frame.f_back
    return frame


def stand(connecting, waits):
    # type: (int, List[Wait]) -> bool
    """Return whether so many wait while so few connect that they may take turns: `verdict.least_slope`."""
    many = connecting + len(waits)
    return len(waits) >= SOME and many >= max(1, connecting) * (1 + (many - 1) / 3.0)


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
