"""Find the greenlets for which another one makes a request: what has started it, and waits for it.

Who has the turn may start a greenlet or a thread for the request, and belongs to the request as its callers
do.
"""

import gc
import sys

from . import turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

_MOST = 5  # greenlets that have started one another


def of(greenlet):
    # type: (Any) -> List[Any]
    """Return what has started ``greenlet``, and what has started that; the nearest first.

    What waits for its end is not known: the links of gevent's compiled class are not visible.
    """
    found = []  # type: List[Any]
    starter = _starter(greenlet)
    while starter is not None and len(found) < _MOST:
        found.append(starter)
        starter = _starter(starter)
    return found


def alive():
    # type: () -> List[Any]
    """Return the greenlets that have started and not ended; a pool has made the next one already."""
    kind = getattr(sys.modules.get("greenlet"), "greenlet", None)  # type: Any
    # Not isinstance(): it reads __class__ of objects that load themselves when they are looked at.
    found = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    return [each for each in found if each.gr_frame is not None]


def _starter(greenlet):
    # type: (Any) -> Any
    """Return what has started ``greenlet`` and is still in the function that did; None if there is none.

    gevent notes it from 1.3 on, with its stack.
    """
    reference, stack = (
        getattr(greenlet, "spawning_greenlet", None),
        getattr(greenlet, "spawning_stack", None),
    )
    starter = reference() if reference is not None else None
    if starter is None or getattr(starter, "parent", None) is None:
        return None  # the main greenlet starts all
    own = turns.codes_of(starter.gr_frame)
    while stack is not None and stack.f_code not in own:
        stack = stack.f_back
    return starter if stack is not None else None
