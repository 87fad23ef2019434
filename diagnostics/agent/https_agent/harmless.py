"""Keep what the agent does beside a program from ending it.

A program may have anything: objects that load themselves when they are looked at, and fail; calls from C,
without a frame. What the agent fails at is missing in its recording, and is told.
"""

import functools
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List

faults = []  # type: List[str]
_MOST = 5


def made(function):
    # type: (Callable[..., Any]) -> Callable[..., Any]
    """Return ``function`` as one that raises nothing but what ends a greenlet or the process.

    It returns None where ``function`` raises.
    """

    @functools.wraps(function)
    def harmless(*args, **kwargs):
        # type: (*Any, **Any) -> Any
        try:
            return function(*args, **kwargs)
        except Exception as error:
            _note(function, error)
            return None

    return harmless


def _note(function, error):
    # type: (Any, Exception) -> None
    trace = sys.exc_info()[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "line %d of %s" % (trace.tb_lineno, trace.tb_frame.f_code.co_filename) if trace else "?"
    text = "%s: %s at %s" % (function.__name__, type(error).__name__, place)
    if len(faults) < _MOST and text not in faults:
        faults.append(text)
