"""Decide when a measurement is given up. Pure.

On a busy machine a thread may be without a CPU for most of the time. The program does not cause that, so
that time does not count, up to a maximum, since the controller's patience is limited, too.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_MAX_EXTENSION = 2  # in limits: by how much a measurement without a CPU may take longer


class Patience(object):
    """The time limits of a measurement.

    ``limit``: seconds for all of it; ``stuck``: seconds without a sign of the hub. In the methods,
    ``starved`` is the total of seconds in which the hub's thread was ready and had no CPU.
    """

    def __init__(self, limit, stuck, began):
        # type: (float, float, float) -> None
        self._limit = limit
        self._stuck = stuck
        self.ends = began + limit

    def is_over(self, now, starved):
        # type: (float, float) -> bool
        """Return whether the time limit of the whole measurement has passed."""
        return now - min(starved, _MAX_EXTENSION * self._limit) >= self.ends

    def needs_more(self, now, starved):
        # type: (float, float) -> bool
        """Return whether it continues although the limit has passed."""
        return now >= self.ends and not self.is_over(now, starved)

    def exhausted(self, now, starved, sign, starved_then):
        # type: (float, float, float, float) -> Optional[float]
        """Return the seconds after which it is given up; None if it continues.

        ``sign``: the time of the hub's last sign; ``starved_then``: ``starved`` at that time.
        """
        if self.is_over(now, starved):
            return now - self.ends + self._limit
        if now - sign - (starved - starved_then) >= self._stuck:
            return min(self._limit, now - sign)
        return None
