"""Record where the requests wait that open connections, each time that this has changed.

Whether they wait for each other, one after the other, follows from when each of them went on
(``diagnostics.opened``). Time counts in which the hub's thread neither computed nor was ready to.
"""

from . import sampler
from .clocks import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_STACKS = 100
_CHANGES = 400


class Opening(object):
    """The record of a pass; ``longest``: seconds that count at most between two looks."""

    def __init__(self, longest):
        # type: (float) -> None
        self._longest = longest
        self._spent = sampler.Spent()  # of the hub's thread, which makes it
        self._last = clock()
        self._idle = 0.0
        self._numbers = {}  # type: Dict[Any, int]  # of the stacks
        self._seen = []  # type: List[Any]

    def look(self, waiting):
        # type: (Dict[int, Any]) -> None
        """Record the stacks by greenlet that are ``waiting`` now."""
        now, spent = clock(), sum(self._spent.since())
        # Where the hub was held meanwhile, nobody could go on.
        self._idle += min(max(0.0, now - self._last - spent), self._longest)
        self._last = now
        at = {}  # type: Dict[int, int]
        for greenlet, key in waiting.items():
            if key in self._numbers or len(self._numbers) < _STACKS:
                at[greenlet] = self._numbers.setdefault(key, len(self._numbers))
        if len(self._seen) < _CHANGES and (not self._seen or self._seen[-1][1] != at):
            self._seen.append([self._idle, at])

    def told(self):
        # type: () -> Dict[str, Any]
        """Return the record: the stacks, and ``[idle seconds, [greenlet, number of its stack], ...]``.

        ``ready``: whether the time is known for which the thread was ready.
        """
        stacks = sorted(self._numbers, key=lambda key: self._numbers[key])
        order = {}  # type: Dict[int, int]
        seen = []
        for idle, at in self._seen:
            pairs = [[order.setdefault(each, len(order)), number] for each, number in sorted(at.items())]
            seen.append([idle, pairs])
        self._spent.close()
        return {"stacks": [list(each) for each in stacks], "seen": seen, "ready": self._spent.known}
