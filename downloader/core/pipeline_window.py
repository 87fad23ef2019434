"""How many requests a pipelined connection may send next. Pure.

A window is what is held until the connection is known to be in step: its requests are sent without storing
a response of them.
"""

from __future__ import annotations

__all__ = ["room", "room_in_window"]

# A window is so many times the depth, and so many requests at least.
_TIMES_DEPTH, _MIN_REQUESTS = 8, 256


def room_in_window(depth: int, max_requests: int, sent: int) -> int:
    """Return how many more requests the window takes that has ``sent`` ones."""
    return min(max_requests, max(depth * _TIMES_DEPTH, _MIN_REQUESTS)) - sent


def room(free: int, limit: int, sent: int, *, alone: bool) -> int:
    """Return how many of ``free`` requests may be sent on a connection that has ``sent`` ones, where its
    server closes after ``limit`` (0: that is not known).

    The request after which a server closes is sent when it is ``alone``, that is once all before it are in
    step. Within a window, one response too many would make up for the one that the close leaves out.
    """
    if not limit:
        return free
    left = limit - sent
    return min(free, left if left == 1 and alone else left - 1)
