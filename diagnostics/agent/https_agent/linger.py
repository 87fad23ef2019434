"""Have who has made a request linger where the others wait, as if it had to wait there as well.

Who gives the turn back and takes it again at once, without a switch in between, never lets those have it
that look for it every now and then. That cannot be told from idle workers that look for work while one has
it all, unless the turn is free for as long as they need for a look. The lines at which it lingers are those
at which the others wait, so the program expects a switch there; a request that leads to the next one does
not come past them.
"""

import sys

from . import choice, clocks, frames, succession, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Callable, List, Optional

_MOST = 2  # times after a request: at its first line a `with` is left, too, and the turn not yet given back


class Linger(object):
    """What lingers in the function ``code``, at ``line`` or above, when its request has ended.

    ``pause``: what to do there; ``who``: gives who runs now; ``at_end``: it lingers at the end of the
    outermost of the program's functions, too, since a thread of gevent's pool is not traced in its next
    task. ``ended``: the time, without that of computing, at which the first of the program's lines has run
    after the request; None until then.
    """

    def __init__(self, code, line, pause, who, at_end=False):
        # type: (CodeType, int, Callable[[], None], Callable[[], Any], bool) -> None
        self._code, self._line, self._pause, self._who = code, line, pause, who
        self._at_end = at_end
        self._own = who()
        self._left = _MOST
        self._outermost = None  # type: Optional[FrameType]
        self.ended = None  # type: Optional[float]

    def begin(self, frame):
        # type: (Optional[FrameType]) -> None
        """Begin in the request that is made in ``frame``; nothing where the program traces itself."""
        end()
        if sys.gettrace() is not None:
            return
        while frame is not None:
            if frames.is_users(frame) or frame.f_code is self._code:
                frame.f_trace = self._traced
                self._outermost = frame
            frame = frame.f_back
        sys.settrace(self._called)

    def _called(self, frame, event, argument):
        # type: (FrameType, str, Any) -> Any
        if self._left <= 0:
            sys.settrace(None)  # this may be another thread than that of `end`
            return None
        if self._who() != self._own or frame.f_code is not self._code:
            return None
        return self._traced(frame, "line", argument)

    def _traced(self, frame, event, argument):
        # type: (FrameType, str, Any) -> Any
        # A frame keeps it for longer than it is needed.
        if self._left <= 0 or self._who() != self._own:
            return self._traced
        if self.ended is None:
            self.ended = clocks.idle()
        if event == "line" and frame.f_code is self._code and frame.f_lineno <= self._line:
            self._linger(1 if frame.f_lineno == self._line else _MOST)
        elif self._at_end and event == "return" and frame is self._outermost:
            self._linger(_MOST)
        return self._traced

    def _linger(self, times):
        # type: (int) -> None
        self._left -= times
        if self._left <= 0:
            self._outermost = None
            end()
        self._pause()

    def end(self):
        # type: () -> None
        self._left = 0


def at(waits, sleep):
    # type: (List[turns.Wait], Callable[[float], None]) -> Callable[[Any], None]
    """Return what has the current greenlet, which is at a connection, linger where all ``waits`` are."""
    code = waits[0].at[0]
    line = max(each.number for each in waits if each.at[0] is code)
    seconds = succession.soon_after(waits)

    def begin(frame):
        # type: (Any) -> None
        Linger(code, line, lambda: sleep(seconds), choice.current).begin(frame)

    return begin


def end():
    # type: () -> None
    """End it in the current thread, if it has not ended by itself."""
    own = getattr(sys.gettrace(), "__self__", None)
    if isinstance(own, Linger):
        own.end()
        sys.settrace(None)
