"""Compute how many requests a pipelined connection may send next.

The requests of a window are sent before any of their responses is stored. The responses are held until the
connection is known to be in step.
"""

from __future__ import annotations

__all__ = ["room", "room_in_window"]

# The size of a window: a multiple of the depth, and a minimum.
_TIMES_DEPTH, _MIN_REQUESTS = 8, 256


def room_in_window(depth: int, max_requests: int, sent: int) -> int:
    """Return how many more requests fit in a window of which ``sent`` were sent."""
    return min(max_requests, max(depth * _TIMES_DEPTH, _MIN_REQUESTS)) - sent


def room(free: int, limit: int, sent: int, *, alone: bool) -> int:
    """Return how many of ``free`` requests may be sent on a connection that has sent ``sent`` requests.

    ``limit``: the number of responses after which the server closes, 0 if unknown. The last request before
    that is sent only ``alone``: when all before it are in step. In a window with others, a surplus response
    could hide that the response to the last request is missing.
    """
    if not limit:
        return free
    left = limit - sent
    return min(free, left if left == 1 and alone else left - 1)
