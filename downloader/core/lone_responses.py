"""Know which stored files are in doubt when a response comes that nobody asked for.

With one request in flight, each response is stored at once. One too many that arrives behind the next
request is taken for the response to that, and all that follow on its connection are those of the requests
before them. It shows when a response comes and no request waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["LoneResponses"]

_KEPT = 4096  # bytes of a body to compare


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

    def doubtful(self, held: Sequence[object], surplus: object) -> int:
        """Return how many stored files may have the body of another, since ``surplus`` has come.

        ``held``: the responses before it that are not stored. What is no response, as the rest of a body
        that is longer than its length, shifts nothing. Nor has anything been shifted before two equal
        responses in a row: they are the one that was sent twice.
        """
        last = _beginning(surplus)
        if last is None:
            return 0
        row = [each for each in (self._last, *map(_beginning, held)) if each is not None]
        twice = any(first[: len(then)] == then for first, then in pairwise([*row, last]))
        return 0 if twice else self.count


def _beginning(body: object) -> bytes | bytearray | None:
    if isinstance(body, (bytes, bytearray)):
        return body if len(body) <= _KEPT else body[:_KEPT]
    return None
