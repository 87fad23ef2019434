"""See whether requests follow one another, each of another greenlet and as soon as the last one has ended.

Those that wait may be idle workers, and each request the work of the next one. So nobody else may begin one
meanwhile, although each is held up for longer than the last: work that comes by itself comes then. And it
has to be seen several times: first requests, for robots.txt, may lead to one another. Who has the turn may
make several requests, and do something else with it.
"""

from . import behind, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, List, Optional

_TIMES = 3  # how often the turn has to be passed on
_MORE = 4  # the same where it is not passed on at once
_REQUESTS = 12  # that are let on meanwhile, at most
_LOOKS = 0.01
_SOON = 0.1  # seconds after a request in which it is another's turn
_LATE = 0.5  # the same where who has it does something else first
_LONGER = 0.25  # seconds by which each next request is held up longer; all of them more than _LATE
_ENDS = 2.0  # seconds in which a request should end


class Request(object):
    """The request that a greenlet makes now."""

    def __init__(self, greenlet):
        # type: (Any) -> None
        self._greenlet = greenlet
        outer, frame = turns.outer_frame(greenlet.gr_frame), greenlet.gr_frame
        while frame is not None and frame.f_back is not outer:
            frame = frame.f_back
        self._frame = frame  # type: Optional[FrameType]  # of the call of the user's that makes it
        # Who makes it, and what has started that for it.
        self.who = [greenlet] + behind.of(greenlet)

    def has_ended(self):
        # type: () -> bool
        """Return whether the call has returned."""
        frame = self._greenlet.gr_frame
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is None


class Succession(object):
    """The requests that are made while ``waits`` wait, one at a time.

    ``using``: gives the greenlets that make one; ``came``: how many of them are stopped at it; ``let_on``:
    lets these go on; ``pause``: lets the program go on for so many seconds.
    """

    def __init__(self, waits, using, came, let_on, pause):
        # type: (List[turns.Wait], Callable[[], List[Any]], Callable[[], int], Callable[[], None], Callable[[float], None]) -> None
        self._line, self._using, self._came = waits, using, came
        self._let_on, self._pause = let_on, pause
        self._polls = polls_of(waits)
        self._waits = waits  # those of them that waited during the last request
        self._known = behind.alive()
        self._had = []  # type: List[Any]  # those that have had the turn
        self._passed, self._late = 0, False

    def is_of_turns(self):
        # type: () -> bool
        """Return whether the turn is passed on with each of them, or with the last one of several."""
        self._await_next()
        self._late = False
        request = self._next(None)
        for _ in range(_REQUESTS):
            if request is None or not self._ends(request):
                return False
            self._await_next()
            request = self._next(request)
            if request is not None and self._passed >= (_MORE if self._late else _TIMES):
                return True
        return False

    def _next(self, last):
        # type: (Optional[Request]) -> Optional[Request]
        """Return the only request that is made now, and count whether the turn was passed on for it."""
        found = self._using()
        if len(found) != 1:
            return None
        request = Request(found[0])
        if last is not None:
            self._passed += self._is_passed_on(last, request)
            self._had += last.who
        return request

    def _is_passed_on(self, last, request):
        # type: (Request, Request) -> bool
        gone = self._gone()
        if gone:
            return len(gone) == 1
        others = _without(request.who, last.who)
        new = _without(others, self._known)
        self._known += new
        if len(_without(others, self._had)) < len(others):
            return True  # it waited for its next turn, beside those that still do
        # One that was started since is ahead of those that poll, each time.
        return bool(new) and all(each.kind == turns.SLEEP and each.shares for each in self._waits)

    def _ends(self, request):
        # type: (Request) -> bool
        """Let ``request`` end, and return whether all others wait until it has."""
        others = [each for each in self._line if _without([each.greenlet], request.who)]
        self._waits = [each for each in others if each.renew()]
        if self._came():
            self._pause(soon_after(self._line) + _LONGER * self._passed)
        if self._came() > 1 or self._gone():
            return False  # not for this request
        self._let_on()
        for _ in range(int(_ENDS / _LOOKS)):
            if request.has_ended():
                return True
            if self._gone():
                break
            self._pause(_LOOKS)
        return request.has_ended()

    def _await_next(self):
        # type: () -> None
        for number in range(int((self._polls + _LATE) / _LOOKS)):
            if self._came():
                self._late = self._late or number * _LOOKS > soon_after(self._line)
                break
            self._pause(_LOOKS)
        self._pause(self._polls)

    def _gone(self):
        # type: () -> List[turns.Wait]
        """Return those that have gone on; one that polls may ask whether it is its turn."""
        found = self._waits
        for _ in range(3):
            found = [each for each in found if not each.stays()]
            if found:
                self._pause(_LOOKS)
        return [each for each in found if not each.stays()]


def polls_of(waits):
    # type: (List[turns.Wait]) -> float
    """Return for how many seconds they sleep between two looks."""
    return max([each.seconds for each in waits] or [0.0])


def soon_after(waits):
    # type: (List[turns.Wait]) -> float
    """Return the seconds after a request in which one of them goes on, if it is its turn."""
    return polls_of(waits) + _SOON


def _without(greenlets, others):
    # type: (List[Any], List[Any]) -> List[Any]
    return [each for each in greenlets if not any(each is other for other in others)]
