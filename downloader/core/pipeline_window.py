"""Compute how many requests a pipelined connection may send next.

The requests of a window are sent before any of their responses is stored. The responses are held until the
connection is known to be in step. For that it must rest without a request, so a window has as many
requests as fit; but where responses are slow, it ends after some time.
"""

from __future__ import annotations

__all__ = ["is_long", "long_rest", "longest_drain", "rest_after", "room", "room_in_window"]

# The size of a window: a multiple of the depth, and a minimum.
_TIMES_DEPTH, _MIN_REQUESTS = 8, 256
# The duration of a window in seconds, until its last response, and as a multiple of the rest behind it.
_LONG, _TIMES_REST = 4.0, 7
_SHORT_REST, _MAX_REST = 1.0, 5.0  # seconds
_LONG_REST, _TIMES_LONGER = 0.25, 4
_DRAINS = 3  # how many times the usual time a drain may take while held responses are awaited


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


def is_long(age: float, slowest: float, gap: float) -> bool:
    """Return whether a window has lasted long enough, so that no more requests are sent in it.

    ``age``: seconds since it began; ``slowest``: its longest latency, which the responses in flight may
    take; ``gap``: the longest time between two responses. A rest is about as long as ``gap`` where
    responses are slow.
    """
    return age + slowest >= max(_LONG, _TIMES_REST * gap)


def rest_after(slowest: float, gap: float, elapsed: float, shortest: float) -> float:
    """Return after how many seconds of silence no more data is expected on a connection.

    ``slowest``: the longest latency of the window; ``gap``: the longest time between two responses;
    ``elapsed``: seconds since its last request was sent; ``shortest``: the least that is returned.

    If there was a surplus response, the last request is still unanswered, and each latency after it was
    measured too short, by one gap at most. So an answer that takes no longer than the others arrives
    ``slowest + gap`` after its request. On a connection whose requests wait for one another that is sooner
    than ``slowest`` from now. Nothing is gained by that in less than a second.
    """
    rest = min(slowest, max(slowest + gap - elapsed, _SHORT_REST))
    return min(max(rest, shortest), _MAX_REST)


def long_rest(seconds: float) -> float:
    """Return how long to rest where ``seconds`` may be too short, and nothing is gained by a short one.

    A file that was in flight alone is another one when it is requested again. It has changed, as few files
    do; or its response was one too many, and the true one is late, on a server whose others came at once.
    """
    return min(max(seconds * _TIMES_LONGER, _LONG_REST), _MAX_REST)


def longest_drain(grace: float) -> float:
    """Return how many seconds a drain may take if held responses become storable meanwhile.

    ``grace``: how long it takes at most otherwise.
    """
    return _DRAINS * grace
