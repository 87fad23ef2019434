"""Record when each request of a round began and ended, and which request held the hub when."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List, Optional, Tuple

    from . import frames

_REQUESTS = 50  # that are recorded
_HOLDS = 1000
_FRAMES = 1500  # more than the limit of recursion


class Timeline(object):
    """The record of one round. All times are of the probe's clock.

    The request of a hold is known by the frame that makes it, which stays the outermost of its greenlet.
    """

    def __init__(self, began):
        # type: (float) -> None
        self._began = began
        self._requests = {}  # type: Dict[int, List[Any]]
        self._frames = {}  # type: Dict[int, int]
        self._holds = []  # type: List[List[Any]]

    def begin(self, index, frame, now):
        # type: (int, FrameType, float) -> None
        """Record that request ``index`` begins, in ``frame``."""
        self._frames[id(frame)] = index
        if index < _REQUESTS:
            self._requests[index] = [now, None, False]

    def end(self, index, frame, now, failed):
        # type: (int, FrameType, float, bool) -> None
        """Record that request ``index`` ends. Call it before ``frame`` does: an address is used again."""
        self._frames.pop(id(frame), None)
        if index in self._requests:
            self._requests[index][1:] = [now, failed]

    def held(self, frame, sign, since, now, spot):
        # type: (Optional[FrameType], float, float, float, Optional[frames.Spot]) -> None
        """Record that the hub was held at ``spot`` from ``since`` to ``now``, by the code in ``frame``.

        ``sign``: the time of the hub's last sign; the first hold after it began there.
        """
        owner, depth = None, 0
        while frame is not None and owner is None and depth < _FRAMES:
            owner = self._frames.get(id(frame))
            frame, depth = frame.f_back, depth + 1
        place = [spot[0], spot[1] or 0, spot[2]] if spot else None  # a frame may be at no line
        last = self._holds[-1] if self._holds else None
        if last is not None and last[1] >= since and last[2] == owner and _same(last[3], place):
            last[1] = now
        elif len(self._holds) < _HOLDS:
            self._holds.append([max(sign, last[1] if last else self._began), now, owner, place])

    def told(self):
        # type: () -> Dict[str, Any]
        """Return the record: by request ``[index, began, ended, failed]``, and the holds."""
        seen = sorted(self._requests.copy().items())
        requests = [(index, began, ended, failed) for index, (began, ended, failed) in seen]
        return {"began": self._began, "requests": requests, "holds": self._holds[:]}


def _same(one, other):
    # type: (Any, Any) -> bool
    """Return whether two places are in the same function."""
    return one == other or bool(one and other and one[0] == other[0] and one[2] == other[2])
