"""When a measurement is given up. Pure.

On a busy machine a thread may be without a CPU for most of the time. That is not the program's doing, so
it does not count, up to a bound: the judge waits, too.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_MOST = 2  # limits that a measurement may take longer where it has no CPU


class Patience(object):
    """``limit``: seconds for all of it; ``stuck``: seconds without a sign of the hub. ``starved`` are the
    seconds so far in which the hub's thread was ready and had no CPU."""

    def __init__(self, limit, stuck, began):
        # type: (float, float, float) -> None
        self._limit = limit
        self._stuck = stuck
        self.ends = began + limit

    def is_over(self, now, starved):
        # type: (float, float) -> bool
        """Return whether the time for all of it is over."""
        return now - min(starved, _MOST * self._limit) >= self.ends

    def needs_more(self, now, starved):
        # type: (float, float) -> bool
        """Return whether it goes on although the limit has passed."""
        return now >= self.ends and not self.is_over(now, starved)

    def exhausted(self, now, starved, sign, starved_then):
        # type: (float, float, float, float) -> Optional[float]
        """Return the seconds after which it is given up, None when it is not.

        ``sign``: when the hub gave its last one; ``starved_then``: as ``starved`` was then.
        """
        if self.is_over(now, starved):
            return now - self.ends + self._limit
        if now - sign - (starved - starved_then) >= self._stuck:
            return min(self._limit, now - sign)
        return None
