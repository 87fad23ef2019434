"""Know which stored files are in doubt when a response comes that nobody asked for.

With one request in flight, each response is stored at once. One too many that arrives behind the next
request is taken for the response to that, and all that follow on its connection are those of the requests
before them. It shows when a response comes and no request waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["LoneResponses", "Received"]

Received = tuple[object, object]
"""A request, by its identity, and the body of the response that was taken for its own."""

# Bytes of a body to compare: at most, and at least where more of it is to come.
_KEPT, _ENOUGH = 4096, 512


class LoneResponses:
    """The responses of a connection that were stored alone, since it was last known to be in step.

    ``count``: how many of them may be those to other requests.
    """

    __slots__ = ("_begun", "_last", "count")

    def __init__(self) -> None:
        self.count = 0
        self._begun = False
        self._last: bytes | bytearray | None = None

    def add(self, body: object) -> None:
        """Record that a response with ``body`` is stored. The first one of a connection is in step."""
        self.count += self._begun
        self._begun = True
        self._last = _beginning(body)

    def in_step(self) -> None:
        """Record that the connection is in step."""
        self.count, self._begun = 0, True

    def doubtful(self, row: Sequence[Received], surplus: object, *, whole: bool) -> int:
        """Return how many stored files may have the body of another, since ``surplus`` has come.

        ``row``: what was received before it and is not stored; ``whole``: ``surplus`` has come to its end.
        What is no response, as the rest of a body that is longer than its length, shifts nothing. Nor has
        anything been shifted before two equal responses in a row: they are the one that was sent twice,
        unless they may be those to one request and its repetition, each one too late.
        """
        if not isinstance(surplus, (bytes, bytearray)):
            return 0
        bodies = [self._last, *(_beginning(body) for _, body in row), _beginning(surplus)]
        requests = [object(), object(), *(request for request, _ in row)]  # the first two are not known
        equal = [bool(first) and first == then for first, then in pairwise(bodies)]
        if not whole and (last := bodies[-2]) is not None:
            equal[-1] = len(surplus) >= _ENOUGH and last[: len(surplus)] == bodies[-1]
        repeated = [first is then for first, then in pairwise(requests)]
        twice = any(same and not again for same, again in zip(equal, repeated, strict=True))
        return 0 if twice else self.count


def _beginning(body: object) -> bytes | bytearray | None:
    if isinstance(body, (bytes, bytearray)):
        return body if len(body) <= _KEPT else body[:_KEPT]
    return None
