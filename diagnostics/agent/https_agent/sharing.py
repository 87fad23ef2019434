"""Find out for how many of its greenlets the program has a client: from where they are when one connects.

Many programs make a client for each call, greenlet or worker. In a probe whose greenlets all go through one
copy of it they would wait for its only connection, or its lock, as no two greenlets of the program do. What
refers to a client does not say which it is: a registry is filled as clients are needed, a weak reference is
not seen, and a job may share its client with greenlets that it starts later. So two greenlets have to be
seen with clients of their own, and more than a few with the same. Where only a few are, both ways are
measured: a heartbeat or a login has a client for itself, and those that share another may not exist yet.
"""

import gc
import sys
from types import BuiltinMethodType, FrameType, MethodType

from . import attributes, frames, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

MANY = 1000  # one for each greenlet
OPTIMIZED = 1  # a flag of code whose locals are its own: of a function
SHARED, OWN, UNCLEAR = "shared", "own", "unclear"
_OF_LOCKS = ("gevent", "threading")


class Sighting(object):
    """A greenlet with a client in its stack.

    ``levels``: what the client consists of, by name: its session, its pool, for example; ``connects``: it
    has come to a connection.
    """

    def __init__(self, levels, frame, connects):
        # type: (Dict[str, Any], Optional[FrameType], bool) -> None
        self.levels = dict((name, each) for name, each in levels.items() if each is not None)
        self.locks = set()  # type: Set[int]  # that nobody else could take now
        for each in self.levels.values():
            self.locks.update(
                id(value) for value in attributes.of(each).values() if _is_lock(value) and _is_taken(value)
            )
        self.spot = frames.user(frame)
        own = turns.user_frame(frame)
        self.code = own.f_code if own is not None else None
        self.codes = turns.codes_of(frame)
        self.around = turns.around_of(frame)
        self.variables = {}  # type: Dict[CodeType, Set[str]]  # of the user's functions, that have the client
        clients = list(self.levels.values())
        while frame is not None:
            if frame.f_code in self.codes and frame.f_code.co_flags & OPTIMIZED:
                names = [
                    name
                    for name, value in list(frame.f_locals.items())
                    if any(value is each for each in clients)
                ]
                if names:
                    self.variables.setdefault(frame.f_code, set()).update(names)
            frame = frame.f_back
        self.connects = connects

    def queued(self):
        # type: () -> int
        """Return how many requests wait now for a worker of the executor that the client has."""
        found = 0
        for each in self.levels.values():
            for value in attributes.of(each).values():
                tasks = getattr(value, "__dict__", {}).get("_work_queue")
                found += tasks.qsize() if tasks is not None else 0
        return found

    def shares(self, name, other):
        # type: (str, Sighting) -> bool
        """Return whether the two have the same at the level ``name``."""
        own = self.levels.get(name)
        return own is not None and own is other.levels.get(name)

    def has_of(self, other):
        # type: (Sighting) -> bool
        """Return whether the two have anything of their clients in common."""
        return any(self.shares(name, other) for name in self.levels)

    def waits_with(self, other):
        # type: (Sighting) -> bool
        """Return whether the two take turns where the client lets one through at a time."""
        # A lock that lets both come to a connection is none of the requests, or has room for more.
        if self.locks & other.locks and not (self.connects and other.connects):
            return True
        if "pool" in self.levels and "pool" in other.levels:
            return self.shares("pool", other)
        return self.has_of(other)


class Sharing(object):
    """What is known of a client: ``many`` copies of it are to be measured.

    ``own``: each has locks of its own; ``evidence``: SHARED, OWN or UNCLEAR; ``seen``: how many greenlets
    were seen with a client, the one that is measured ``at`` a line; ``waiting``: where others waited for
    their turn, while so many were ``using`` one; ``idle``: where they did, for their turn or for work;
    ``handlers``: what the client calls besides, see ``handlers``.
    """

    def __init__(self, many, own, evidence, seen):
        # type: (int, bool, str, int) -> None
        self.many, self.own, self.evidence, self.seen = many, own, evidence, seen
        self.using, self.waiting = seen, []  # type: int, List[frames.Spot]
        self.idle = []  # type: List[frames.Spot]
        self.at = None  # type: Optional[frames.Spot]
        self.handlers = None  # type: Optional[Dict[str, Any]]


def alike(seen):
    # type: (List[Sighting]) -> List[Sighting]
    """Return those that do what most do, the one at whose connection it is best measured first.

    They call from the same function, or take turns at a client. One that calls from elsewhere has a client
    for another purpose: a heartbeat, a login. So the first that connects may be the exception. Where as
    many do one as the other, it is what the first of ``seen`` does.
    """
    most = max(
        _groups(seen, lambda one, other: one.code is other.code or one.waits_with(other)), key=len
    )  # the first of the largest
    largest = max(_groups(most, Sighting.waits_with), key=len)
    if 2 * len(largest) > len(most):
        most = largest  # the same for those of one function
    return sorted(most, key=lambda each: (each is not seen[0], not each.connects))


def judged(seen):
    # type: (List[Sighting]) -> Sharing
    """Return how many clients there are like that of the first of ``seen``, which are alike."""
    first, number = seen[0], len(seen)
    if not first.levels:  # it is made for each request, or none that can be copied
        return Sharing(1, False, SHARED, number)
    if number == 1:
        # Those that wait for the client's own worker share it.
        return Sharing(1, False, SHARED if first.queued() >= turns.SOME else UNCLEAR, 1)
    groups = _groups(seen, Sighting.waits_with)
    largest = max(len(each) for each in groups)
    connecting = sum(each.connects for each in seen)
    apart = not any(first.has_of(each) for each in seen[1:])
    if connecting > 1 and not any(
        one.has_of(other) for number, one in enumerate(seen) for other in seen[:number]
    ):
        return Sharing(MANY, True, OWN, len(seen))  # whatever lock they have in common
    if largest == 1:
        # One session may have a pool for each host, or for each prefix.
        return Sharing(1 if apart else connecting, False, UNCLEAR, number)
    if len(groups[0]) == 1:
        return Sharing(1, False, UNCLEAR, number)  # the one that is at the connection is the exception
    # The greenlets that take turns at one client: as many as at each copy in the probe.
    many = number // largest
    # A few that report or refresh something may have a client for themselves.
    evidence = SHARED if number > turns.SOME else UNCLEAR
    return Sharing(many, many > 1 and len(_different(seen)) > 1, evidence, number)


def _groups(seen, joins):
    # type: (List[Sighting], Callable[[Sighting, Sighting], bool]) -> List[List[Sighting]]
    """Return the sightings by those that ``joins`` holds of, the group of the first one first."""
    groups = []  # type: List[List[Sighting]]
    for each in seen:
        with_it = [group for group in groups if any(joins(each, other) for other in group)]
        if not with_it:
            groups.append([each])
            continue
        with_it[0].append(each)
        for group in with_it[1:]:
            with_it[0].extend(group)
            groups.remove(group)
    return groups


def _different(seen):
    # type: (List[Sighting]) -> Set[int]
    return set(id(each.levels.get("session") or each.levels.get("other")) for each in seen)


def _is_lock(value):
    # type: (Any) -> bool
    kind = type(value)  # type: Any
    if not hasattr(kind, "acquire") or not hasattr(kind, "release"):
        return False
    return str(kind.__module__).partition(".")[0] in _OF_LOCKS


def _is_taken(lock):
    # type: (Any) -> bool
    """Return whether nobody else could take it now."""
    inner = lock
    for name in ("_block", "_RLock__block", "_lock", "_Condition__lock"):  # an RLock's, a condition's
        inner = getattr(inner, name, inner)
    free = getattr(inner, "_value", getattr(inner, "_Semaphore__value", None))  # of threading's semaphore
    if free is not None:
        return bool(free <= 0)
    locked = getattr(inner, "locked", None)
    return locked is None or bool(locked())


def locks_of(own, new=True):
    # type: (Any, bool) -> Callable[[], Dict[str, Any]]
    """Return what makes new locks for those that ``own`` alone has, by attribute; none if not ``new``.

    Others are of several objects. A real lock stays as well: where it is waited for, the hub is held. Who
    knows them is looked up at once: a look goes through all objects.
    """
    kinds = {}
    values = attributes.of(own) if new else {}
    for name, value in list(values.items()):
        kind = type(value)  # type: Any
        if not _is_lock(value) or not _is_of_one(value, own, values):
            continue
        many = getattr(value, "_value", None) or getattr(value, "counter", None) or 1
        kinds[name] = kind, (many,) if "Semaphore" in kind.__name__ else ()
    return lambda: dict((name, kind(*arguments)) for name, (kind, arguments) in kinds.items())


def _is_of_one(lock, own, values):
    # type: (Any, Any, Dict[str, Any]) -> bool
    known, found = getattr(own, "__dict__", None), gc.get_referrers(lock)
    for each in found:  # not in a generator, which would know each as well
        if each is own or each is known or each is values or type(each) is FrameType:
            continue
        if type(each) in (MethodType, BuiltinMethodType) and _is_of_a_call(each, found):
            continue
        if _is_copy(each, values):
            continue
        return False
    return True


def _is_copy(each, values):
    # type: (Any, Dict[str, Any]) -> bool
    """Return whether ``each`` is of ``locks_of``: the local variables of a frame."""
    frame = sys._getframe()  # type: Optional[FrameType]
    while frame is not None:
        if frame.f_code.co_flags & OPTIMIZED and each is frame.f_locals:
            return True
        frame = frame.f_back
    # `list(values.items())` has a tuple for each.
    return type(each) is tuple and len(each) == 2 and values.get(each[0]) is each[1]


def _is_of_a_call(each, found):
    # type: (Any, List[Any]) -> bool
    """Return whether only frames know ``each``, which was ``found``: a method that is being called."""
    return all(type(other) is FrameType or other is found for other in gc.get_referrers(each))
