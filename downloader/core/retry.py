"""Define the retry policy, and parse Retry-After.

Nothing here sleeps, reads the clock or draws random numbers: the caller does.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

__all__ = ["LEAST_OF_PAUSE", "RetryPolicy", "parse_retry_after"]

LEAST_OF_PAUSE: Final = 0.75
"""The least of ``random`` for a pause of a host: together they are longer than a server's restart."""

_LONGEST: Final = 1e12  # seconds; longer values are as good as never
_BLANKS: Final = " \t\r\n"
_SECONDS: Final = re.compile(r"0*([0-9]+)").fullmatch
# The three forms of HTTP-date (RFC 9110 §5.6.7), loosely: weekday first, hh:mm:ss somewhere.
_DATE: Final = re.compile(
    r"[A-Za-z]{3,9},? [ 0-9A-Za-z\-]{1,40}[0-9]{2}:[0-9]{2}:[0-9]{2}[ 0-9A-Za-z+\-]{0,20}"
).fullmatch


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of retries and the delays between them; times in seconds.

    Raises ValueError for a negative or infinite value.
    """

    retries: int = 5
    backoff: float = 0.5
    max_retry_after: float = 120.0

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must be 0 or more, not {self.retries}")
        for name, value in (("backoff", self.backoff), ("max_retry_after", self.max_retry_after)):
            if not (0 <= value < math.inf):
                raise ValueError(f"{name} must be a time of 0 s or more, not {value}")

    def allows(self, attempt: int, retryable: bool) -> bool:
        """Return whether another attempt is allowed after ``attempt`` (1 = the first) failed."""
        return retryable and attempt <= self.retries

    @property
    def shortest(self) -> float:
        """Return the minimum of seconds from the second attempt at a file to the last one."""
        return sum(self.delay(attempt, 0.0) for attempt in range(2, self.retries + 1))

    @property
    def outage(self) -> float:
        """Return the minimum of seconds in which a host refuses everything until it is given up."""
        return sum(self.delay(attempt, LEAST_OF_PAUSE) for attempt in range(1, self.retries + 2))

    def delay(self, attempt: int, random: float, retry_after: float | None = None) -> float:
        """Return the seconds to wait after failed attempt ``attempt`` (1 = the first).

        ``random`` is in [0, 1). This is "equal jitter" of the AWS architecture blog (Exponential Backoff
        And Jitter): uniform between half of ``backoff * 2 ** (attempt - 1)`` and that. Their "full jitter"
        makes fewer calls, but some files have all their retries within a third of the time: those were
        lost where a server starts for as long. The delay is never more than ``max_retry_after``.

        ``retry_after``, the delay that the server asked for, is a minimum: up to a tenth of it or
        ``backoff``, whichever is more, is added, so that clients that were given the same delay do not
        all return at once, and it never makes a delay shorter than it would be without: a server that is
        down for longer than it thinks would see all retries in a few seconds. If it is more than
        ``max_retry_after``, the delay is within the last tenth before that.
        """
        most = self.max_retry_after
        doublings = min(max(attempt - 1, 0), 64)
        ceiling = min(self.backoff * 2.0**doublings, most)
        floor = min(max(ceiling, self.backoff) / 2, ceiling)
        delay = floor + random * (ceiling - floor)
        if retry_after is None:
            return delay
        if retry_after > most:
            return max(delay, most - random * most / 10)
        asked = max(retry_after, 0.0)
        return max(delay, min(asked + random * max(asked / 10, self.backoff), most))


def parse_retry_after(value: str | None, now: float, date: str | None = None) -> float | None:
    """Return the seconds from ``now`` (Unix time) that a Retry-After header gives; None if it is invalid.

    RFC 9110 §10.2.3: digits, or an HTTP-date. A date in the past is 0.0; more than 1e12 s is 1e12.
    ``1e9``, ``1.5``, ``+5`` and ``-5`` are not in the grammar: None. ``date``: the Date header of the same
    response; where it is valid, a date counts from that, so that no clock has to be right but in how fast
    it goes. Never raises.
    """
    if value is None:
        return None
    match = _SECONDS(value.strip(_BLANKS))
    if match:
        return min(float(match[1]), _LONGEST) if len(match[1]) <= 15 else _LONGEST
    moment, sent = _moment(value), _moment(date) if date else None
    if moment is None:
        return None
    # A date names a second, which may have just begun: it is over when the next one begins.
    seconds = moment - sent if sent is not None else moment + 1 - now
    return min(max(seconds, 0.0), _LONGEST)


def _moment(value: str) -> float | None:
    """Return the Unix time of an HTTP-date, None if it is invalid."""
    value = value.strip(_BLANKS)
    if len(value) > 80 or not _DATE(value):
        return None
    # Imported where it is needed: the supervisor starts without it.
    from email.utils import parsedate_tz

    try:
        parsed = parsedate_tz(value)
        if parsed is None:
            return None
        # No zone (asctime) means GMT here; email.utils.mktime_tz would take the local one.
        year, month, day, hour, minute, second = parsed[:6]
        at = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
        return at.timestamp() - (parsed[9] or 0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
