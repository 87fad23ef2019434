"""Say where the main greenlet of this process is, also where it runs no Python code meanwhile."""

import os
import signal
import sys

from . import choice, frames, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List, Optional

# Answered in C: it does not matter what the main thread does.
DUMP_SIGNAL = signal.SIGRTMAX - 6 if hasattr(signal, "SIGRTMAX") else 0
_HIGH = 400  # a descriptor that no program counts on


def stack(frame):
    # type: (Optional[FrameType]) -> List[frames.Spot]
    """Return the stack of the main greenlet, in a signal handler that interrupted ``frame``."""
    greenlet = sys.modules.get("greenlet")  # type: Any
    if greenlet is not None:
        main = current = greenlet.getcurrent()
        while main.parent is not None:
            main = main.parent
        frame = frame if main is current else main.gr_frame
    return frames.stack(frame)[:30]


def told(frame):
    # type: (Optional[FrameType]) -> Dict[str, Any]
    """Return the fields of a report: the stack, what its places are shown with, how much is imported.

    Where gevent patches meanwhile, they have the function of gevent that was called for it, where, and the
    stack within that.
    """
    return {
        "at": stack(frame),
        "patching": _patching(frame),
        "modules": len(sys.modules),
        "facts": {
            "cwd": frames.absolute("."),
            "sources": places.sources,
            "path": [folder for folder in sys.path if isinstance(folder, str)],
            "executable": sys.executable,
            "library": os.path.dirname(os.path.abspath(os.__file__)),
        },
    }


def _patching(frame):
    # type: (Optional[FrameType]) -> Optional[Dict[str, Any]]
    found = choice.patching(frame)
    if found is None:
        return None
    at, call = found
    within = frames.stack(at, call)[:30]
    return {"function": call.f_code.co_name, "by": frames.caller(call.f_back), "stack": within}


def dump_at_signal(folder):
    # type: (str) -> None
    """Have the current stack written to a file of ``folder`` at ``DUMP_SIGNAL``; from Python 3.3 on."""
    try:
        import faulthandler
        import fcntl

        path = os.path.join(folder, "stack-%d" % os.getpid())
        low = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        finally:
            os.close(low)
        faulthandler.register(DUMP_SIGNAL, file=high, all_threads=False)
    except (ImportError, AttributeError, IOError, OSError, ValueError):
        pass  # Python 2, another system, too few descriptors
