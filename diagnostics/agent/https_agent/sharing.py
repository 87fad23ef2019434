"""Find out for how many of its greenlets the program has a client: from what refers to it.

Many programs make a client for each call, greenlet or worker. In a probe whose greenlets all go through one
copy of it they would wait for its only connection, or its lock, as no two greenlets of the program do.
"""

import gc
import sys
from types import BuiltinMethodType, FrameType, MethodType, ModuleType

from . import choice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

MANY = 1000  # one for each greenlet
OPTIMIZED = 1  # a flag of code whose locals are its own: of a function
_LEVELS = 16
_OBJECTS = 3000
_CONTAINERS = ("list", "tuple", "dict", "OrderedDict", "set", "frozenset", "deque", "defaultdict")
_OF_A_GREENLET = ("_localimpl_dict_entry",)  # of gevent.local
_OF_LOCKS = ("gevent", "threading")


def clients_like(client, besides=()):
    # type: (Any, Tuple[Any, ...]) -> int
    """Return how many clients like ``client`` the program has for its greenlets: 1 where they share it.

    It is ``MANY`` where only the current greenlet knows it: its frames, what it was started with, its
    local data. It is the number of those in a container, of ten workers with one each, for example. What
    else refers to it is followed up to a module, a class or another greenlet. ``besides`` does not count.

    This goes through all objects of the process, once for each level.
    """
    return _Search(besides).up_from(client)


class _Search(object):
    def __init__(self, besides):
        # type: (Tuple[Any, ...]) -> None
        self._ours = set(id(each) for each in besides)  # what is not followed
        self._ours.add(id(besides))
        self._of_others = set()  # type: Set[int]  # local variables of other greenlets
        self._others = set()  # type: Set[int]  # frames of other greenlets
        self._modules = set(
            id(vars(each)) for each in list(sys.modules.values()) if type(each) is ModuleType
        )
        self._greenlet = getattr(sys.modules.get("greenlet"), "greenlet", ())  # type: Any
        self._current = choice.current()
        threading = sys.modules.get("threading")  # type: Any
        ident = getattr(threading, "get_ident", None) or getattr(threading, "_get_ident", None)
        self._thread = threading._active.get(ident()) if ident is not None else None
        frame = sys._getframe()  # type: Optional[FrameType]
        while frame is not None:
            self._ours.add(id(frame))
            if frame.f_code.co_flags & OPTIMIZED:  # elsewhere the locals are those of a module or a class
                self._ours.add(id(frame.f_locals))
            frame = frame.f_back
        for each in gc.get_objects():
            if issubclass(type(each), self._greenlet) and each is not self._current:
                self._look_into(each.gr_frame)

    def _look_into(self, frame):
        # type: (Optional[FrameType]) -> None
        """Note what ``frame`` and its callers know; a running or stopped one is not among the referrers."""
        while frame is not None:
            self._others.add(id(frame))
            if frame.f_code.co_flags & OPTIMIZED:
                self._of_others.update(id(value) for value in frame.f_locals.values())
            frame = frame.f_back

    def up_from(self, client):
        # type: (Any) -> int
        """Return the least number on any way up."""
        # For each object that leads to the client: how many like it there are, the same if it is the
        # dictionary of an object, and the type of what it has.
        self._reached = {id(client): (1, 1, None)}  # type: Dict[int, Tuple[int, int, Any]]
        self._least = 1 if id(client) in self._of_others else MANY
        level, kept = [client], [client]  # an id is valid as long as the object is kept
        # These lists refer to what they have, too.
        self._ours.update((id(kept), id(vars(self)), id(self._reached)))
        for _ in range(_LEVELS):
            self._ours.add(id(level))
            level = self._above(level)
            if self._least == 1 or not level:
                return self._least
            if len(kept) > _OBJECTS:
                break
            kept.extend(level)
        return 1

    def _above(self, level):
        # type: (List[Any]) -> List[Any]
        """Return what refers to the objects of ``level``, without what is not followed."""
        above, within = [], dict((id(each), each) for each in level)  # type: List[Any], Dict[int, Any]
        passed = tuple(level)  # from Python 3.13 on, the call has another tuple beside this one
        self._ours.update((id(above), id(within), id(passed)))
        for each in gc.get_referrers(*passed):
            if id(each) in self._ours or id(each) in self._reached or self._is_of_this_greenlet(each):
                continue
            below = [within[key] for key in set(map(id, gc.get_referents(each))) if key in within]
            if not below:
                continue
            ways = [_from(each, child, self._reached) for child in below]
            if self._is_of_all(each):
                self._least = min([self._least] + ways)
                continue
            number = max(ways + [_alike(each, below, self._reached)])
            kind = self._reached[id(below[0])][2] if _is_of(below[0], each) else type(below[0])
            self._reached[id(each)] = number, max(ways), kind
            if id(each) in self._of_others:
                self._least = min(self._least, number)
            above.append(each)
        return above

    def _is_of_this_greenlet(self, each):
        # type: (Any) -> bool
        return each is self._current or each is self._thread or type(each).__name__ in _OF_A_GREENLET

    def _is_of_all(self, each):
        # type: (Any) -> bool
        """Return whether other greenlets know ``each``: it is of a module, a class or one of them."""
        kind = type(each)
        if issubclass(kind, dict):
            return id(each) in self._modules or dict.__contains__(each, "__builtins__")
        if kind is FrameType:
            return id(each) in self._others
        return issubclass(kind, (type, ModuleType, self._greenlet)) or kind.__name__ == "classobj"


def _is_of(found, own):
    # type: (Any, Any) -> bool
    """Return whether ``found`` is the dictionary of the object ``own``."""
    if type(found) is not dict:
        return False
    try:
        return object.__getattribute__(own, "__dict__") is found
    except Exception:  # whatever a property of that name raises
        return False


def _from(each, child, reached):
    # type: (Any, Any, Dict[int, Tuple[int, int, Any]]) -> int
    number, inside, _ = reached[id(child)]
    return inside if _is_of(child, each) else number


def _alike(each, below, reached):
    # type: (Any, List[Any], Dict[int, Tuple[int, int, Any]]) -> int
    """Return how many clients the container ``each`` has for those of ``below`` that lead to this one."""
    if type(each).__name__ not in _CONTAINERS:
        return 1
    kind, has = type(below[0]), reached[id(below[0])][2]
    same = dict((id(value), value) for value in gc.get_referents(each) if type(value) is kind)
    if has is not None:
        same = dict((key, value) for key, value in same.items() if _has(value, has))
    # Ten workers that know one session have one.
    return len(same) // max(1, sum(id(child) in same for child in below))


def _has(value, kind):
    # type: (Any, Any) -> bool
    for each in gc.get_referents(value):
        if type(each) is kind:
            return True
        if type(each) is dict and any(type(other) is kind for other in gc.get_referents(each)):
            return True
    return False


def locks_of(own, new=True):
    # type: (Any, bool) -> Callable[[], Dict[str, Any]]
    """Return what makes new locks for those that ``own`` alone has, by attribute; none if not ``new``.

    Others are of several objects. A real lock stays as well: where it is waited for, the hub is held. Who
    knows them is looked up at once: a look goes through all objects.
    """
    kinds = {}
    attributes = getattr(own, "__dict__", {}) if new else {}  # type: Dict[str, Any]
    for name, value in list(attributes.items()):
        kind = type(value)  # type: Any
        if not hasattr(kind, "acquire") or not hasattr(kind, "release"):
            continue
        if str(kind.__module__).partition(".")[0] not in _OF_LOCKS or not _is_of_one(value, own):
            continue
        many = getattr(value, "_value", None) or getattr(value, "counter", None) or 1
        kinds[name] = kind, (many,) if "Semaphore" in kind.__name__ else ()
    return lambda: dict((name, kind(*arguments)) for name, (kind, arguments) in kinds.items())


def _is_of_one(lock, own):
    # type: (Any, Any) -> bool
    attributes, found = own.__dict__, gc.get_referrers(lock)
    for each in found:  # not in a generator, which would know each as well
        if each is own or each is attributes or type(each) is FrameType:
            continue
        if type(each) in (MethodType, BuiltinMethodType) and _is_of_a_call(each, found):
            continue
        if _is_copy(each, attributes):
            continue
        return False
    return True


def _is_copy(each, attributes):
    # type: (Any, Dict[str, Any]) -> bool
    """Return whether ``each`` is of ``locks_of`` or ``up_from``: the local variables of a frame."""
    frame = sys._getframe()  # type: Optional[FrameType]
    while frame is not None:
        if frame.f_code.co_flags & OPTIMIZED and each is frame.f_locals:
            return True
        frame = frame.f_back
    # `list(attributes.items())` has a tuple for each.
    return type(each) is tuple and len(each) == 2 and attributes.get(each[0]) is each[1]


def _is_of_a_call(each, found):
    # type: (Any, List[Any]) -> bool
    """Return whether only frames know ``each``, which was ``found``: a method that is being called."""
    return all(type(other) is FrameType or other is found for other in gc.get_referrers(each))
