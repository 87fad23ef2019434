"""Stop the program's greenlets at their connections, let them on, and see what the others do meanwhile.

The probe begins at the connection of one of them. Those that come to one while it is observed are stopped
there, so that they do not slow the probe down; those that wait for the request of another, or for work,
show which it is when a request has ended (``turns``, ``succession``).
"""

import sys

from . import choice, clocks, frames, linger, succession, turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Optional

    from .fetchers import Connecting
    from .pause import Pause

_OBSERVES = 0.3  # seconds in which the program's other greenlets may come to a connection
_QUIET = 0.1  # seconds without another one after which no more are expected
_LOOKS = 0.01
_ENDS = 2.0  # seconds in which a request of the program should end for which others wait
_LATE = 0.5  # seconds in which a result follows
_STEPS = 4  # requests after which those that have had the turn must be as many as make no turns


class Arrivals(object):
    """The greenlets that come to a connection while the program is observed; ``stopped`` is the first.

    ``frame``: where it connects; ``pause``: what stops them, for ``limit`` seconds at most.
    """

    def __init__(self, pause, stopped, frame, limit):
        # type: (Pause, Any, Optional[FrameType], float) -> None
        self._pause, self._stopped, self._limit = pause, stopped, limit
        self._sleep = sys.modules["gevent.hub"].sleep  # type: Callable[[float], None]
        self._came = []  # type: List[Any]  # those that are stopped now
        self._at = {id(stopped): frame}  # type: Dict[int, Any]  # of each that was: the frame that connects
        self._waits = []  # type: List[turns.Wait]  # those that waited while the first of them was stopped
        # What a greenlet does that is let on, while it is seen whether the turn is passed on.
        self._lingers = None  # type: Optional[Callable[[Any], None]]

    def has(self, greenlet):
        # type: (Any) -> bool
        """Return whether ``greenlet`` was stopped before, and may make a further request with that turn."""
        with_it = all(each.stays() for each in self._waits)
        return self._lingers is None and id(greenlet) in self._at and with_it

    def stop(self, greenlet, frame):
        # type: (Any, Optional[FrameType]) -> None
        """Stop the current ``greenlet``, which connects in ``frame``."""
        if frames.is_within(frame, self._at.get(id(greenlet))):
            return  # it was let on, and is a step further: from the socket to TLS
        self._came.append(greenlet)
        self._at[id(greenlet)] = frame
        self._pause.wait(self._limit)
        if self._lingers is not None:
            self._lingers(frame)

    def observe(self, connecting, requests):
        # type: (Connecting, int) -> None
        """Let the other greenlets go on until they connect, ``requests`` of them at most, and look at them.

        It is observed with which clients they do, and whether they wait for their turn.
        """
        self._until_quiet(most=_OBSERVES * 10, idle=_OBSERVES, enough=requests)
        places = self._places(self._stopped)
        connecting.look_at(places)
        if not connecting.may_take_turns():
            return
        alone = not connecting.using(places)
        self._waits = connecting.waits + connecting.line
        self._look_again(connecting)
        if connecting.may_be_idle():
            if self._pass_on(connecting):
                connecting.take_turns()
            else:
                connecting.let_idle()
        elif alone and connecting.sharing.waiting and self._spreads(connecting):
            connecting.let_on()

    def _places(self, *besides):
        # type: (*Any) -> List[turns.Place]
        return turns.places(self._came, besides + (choice.current(),))

    def _let_on(self):
        # type: () -> None
        self._came = []
        self._pause.let_on()

    def _until_quiet(self, goes_on=lambda: False, most=_ENDS, idle=_ENDS, enough=sys.maxsize):
        # type: (Callable[[], bool], float, float, int) -> bool
        """Return when somebody ``goes_on`` or has come to a connection, and since then nobody more has.

        Return whether anybody did; ``goes_on`` is called at each look, for ``most`` seconds, of which the
        process computes in all but ``idle``; ``enough`` connections end it, too.
        """
        latest, ends = clocks.clock() + most, clocks.idle() + idle
        last, count = None, 0  # type: Optional[float], int
        while clocks.clock() < latest and clocks.idle() < ends and len(self._came) < enough:
            if last is not None and clocks.idle() - last >= _QUIET:
                break
            self._sleep(_LOOKS)
            if (goes_on() and last is None) or len(self._came) > count:
                last, count = clocks.idle(), len(self._came)
        return last is not None

    def _look_again(self, connecting):
        # type: (Connecting) -> None
        """Let the request end for which others may wait, and see what they do then."""
        seen = {"moved": False, "ended": False}

        def goes_on():
            # type: () -> bool
            seen["moved"] = seen["moved"] or not all(each.stays() for each in connecting.waits)
            seen["ended"] = seen["ended"] or connecting.has_ended(self._stopped)
            return any(seen.values()) or not all(each.stays() for each in connecting.line)

        self._let_on()
        self._until_quiet(goes_on)
        if not seen["moved"] and connecting.awaits_results():
            # Who makes the request may do something else before it gives the result.
            self._until_quiet(lambda: goes_on() and seen["moved"], _LATE)
        # One that connects once more has come to the next request.
        ended = seen["ended"] or self._is_stopped_in(self._came)
        connecting.look_again(self._places(), self._stopped, seen["moved"], ended)

    def _is_stopped_in(self, greenlets):
        # type: (List[Any]) -> bool
        return any(each is self._stopped for each in greenlets)

    def _spreads(self, connecting):
        # type: (Connecting) -> bool
        """Return whether those that have had their turn go on without it, and more and more of them do.

        A login may have a turn, and what is done with it none.
        """
        if not self._is_stopped_in(connecting.using(self._places())):
            return False
        for _ in range(_STEPS):
            self._let_on()
            if not self._until_quiet():
                return False
            if not connecting.waits_for(self._places()):
                return True
        return False

    def _pass_on(self, connecting):
        # type: (Connecting) -> bool
        """Let one request after the other go on, and return whether they are made in turns."""
        self._lingers = linger.at(connecting.line, self._sleep)
        try:
            return succession.Succession(
                connecting.line,
                lambda: connecting.using(self._places()),
                lambda: len(self._came),
                self._let_on,
                self._sleep,
            ).is_of_turns()
        finally:
            self._lingers = None
            linger.end()
