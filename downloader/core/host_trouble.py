"""Decide what the failures of a host mean: is a file at fault, or is the host down, or overloaded?

A host is down when nothing of it succeeds. While other requests succeed, a failure belongs to its file,
which has its own retries and backoff, and no other file waits for that. ``errors.Blame`` says which
failures that is about:

=========  ==========================================  ==============================================
blame      while other requests succeed                when none does
=========  ==========================================  ==============================================
FILE       a success: the host answers                 the same
EITHER     the file's                                  the host's, after many first attempts in a row
HOST       the file's                                  the host's: at once if it never answered
NEITHER    the file's                                  the file's: such attempts take long by themselves
=========  ==========================================  ==============================================

Only first attempts count: towards the end of a run nothing but the retries of bad files may be left. But
where retries succeed, those that fail are no bad files: the host has a limit, which must be found.
A host that asks for a pause (Retry-After) gets it in any case.

A host that is down pauses and is probed (``core.scheduler``). If that has not helped, what follows depends
on whether it can be reached. If not, its files fail with its failure. If it can, it is given up: each file
is requested all the same, with its own retries, as no file may end with a status that it did not get.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from downloader.core.throttle import Throttle
from downloader.errors import Blame

__all__ = ["Trouble"]

_IN_A_ROW: Final = 16  # failed first attempts
_MAX_IN_A_ROW: Final = 1000
_CHANCE: Final = 1e-6  # of so many in a row from a host that is up
_BEFORE: Final = 16  # successes that are assumed before the first failure, since they are not counted
_AT_ODDS: Final = 0.01  # as _CHANCE, where too few files are left for more evidence
_MANY_BAD: Final = 0.2  # share of files that fail, from which on the last ones do so by themselves
_RECOVERS: Final = 4.0  # seconds
_UNREACHED_IN_A_ROW: Final = 4  # of a host that has answered before
_UNREACHED_AT_FIRST: Final = (
    3  # of one that has not: one of its machines may be down, or have a wrong certificate
)


@dataclass(slots=True)
class Trouble:
    """The failures of one host, and the successes since the first of them.

    ``streak``: first attempts that have failed since the last success, the first of them sent at
    ``streak_began``; ``failures``, ``successes``: before that. ``asked_since``: when the first one since
    then was sent that ended with a request for a pause. ``unreached``: failures to reach it since it
    was last reached, the first of them by a request sent at ``unreached_since``. ``turned_away``,
    ``turned_away_since``: the same of connections that were closed before anything had come;
    ``turned_away_in_a_row``: those since a new connection was last served.
    ``crowded``: so its files wait for a connection. ``reached_in``: the failed
    round in which it was last reached. ``given_up``: see the module. ``recovered_at``: when a retry last
    succeeded. ``begun_again``: how often its failed rounds began again, since others were answered.
    """

    successes: int = 0
    failures: int = 0
    streak: int = 0
    streak_began: float = 0.0
    asked_since: float = 0.0
    unreached: int = 0
    unreached_since: float = 0.0
    turned_away: int = 0
    turned_away_since: float = 0.0
    turned_away_in_a_row: int = 0
    crowded: bool = False
    reached_in: int = 0
    given_up: bool = False
    recovered_at: float = -math.inf
    begun_again: int = 0
    throttle: Throttle = field(default_factory=Throttle)

    def succeeded(self, count: int, began: float, now: float, *, again: bool = False) -> None:
        """Record ``count`` successful requests.

        ``began``: when the last of them was sent; ``again``: it was a retry.
        """
        if again:
            self.recovered_at = now
        self.failures += self.streak
        self.successes += count
        self.streak = self.unreached = self.turned_away = self.reached_in = self.begun_again = 0
        self.given_up, self.asked_since = False, 0.0
        self.throttle.succeeded(now, began, count)

    def blames_host(
        self,
        blame: Blame,
        *,
        fresh: bool,
        answered: bool,
        down: bool,
        began: float,
        now: float,
        serves: Callable[[float], bool],
        timed_out: bool = False,
    ) -> bool:
        """Record a failure; return whether the host is to blame for it, not only the file.

        ``fresh``: it was the file's first attempt. ``answered``: the host has ever answered. ``down``: it
        was to blame for the failure before this one, and nothing has succeeded since. ``began``: when the
        request was sent. ``serves`` returns whether the host sends, or has sent, a file that was requested
        after a time, and that is not counted as a success yet: it takes long. ``timed_out``: no
        connection in all of the time for it; that is about connections, not about the rate of requests.
        """
        if blame is Blame.HOST:
            self.unreached += 1
            to_blame = down or not answered or self.unreached >= _UNREACHED_IN_A_ROW
            if to_blame and not timed_out:
                self.throttle.interrupted(now)
            elif answered and not timed_out:
                self.throttle.was_refused(now, began)
            return to_blame
        if blame is not Blame.EITHER:
            return False
        self.unreached = 0
        if self.given_up or down:
            return not self.given_up
        if fresh or now - self.recovered_at < _RECOVERS:
            self.throttle.was_refused(now, began)
        if not fresh:
            return False
        if not self.streak:
            self.streak_began = began
        self.streak += 1
        if self.streak < _IN_A_ROW or self.streak < self._unlikely():
            return False
        if serves(self.streak_began):
            self.failures += self.streak
            self.streak = 0
            return False
        self.throttle.discard(now)
        return True

    def asks_to_wait(self, began: float, *, fresh: bool) -> bool:
        """Record a failure that asks for a pause; return whether the host is to blame.

        It says nothing about failures that ask for none, so it does not count with them.
        """
        if fresh and not self.asked_since:
            self.asked_since = began
        return not self.given_up

    def outage_began(self, answered: float) -> float:
        """Return since when the host, which last ``answered`` then, may be down, by few failures.

        A host that has few files left has no first attempts that show it. Infinity if it is more likely
        that some of its files always fail.
        """
        share = self._bad_share
        likely = share > _MANY_BAD and share**self.streak > _AT_ODDS
        began = self.streak_began if self.streak else self.asked_since or answered
        return math.inf if likely or not began else began

    def is_turned_away(self, began: float, *, answered: bool) -> bool:
        """Record that a connection was closed before anything had come for a request sent at ``began``.

        Return whether so many were that it may be the host that takes no more of them, not the file.
        """
        if not self.turned_away:
            self.turned_away_since = began
        self.turned_away += 1
        return not answered or self.turned_away >= _UNREACHED_IN_A_ROW

    @property
    def hardly_tried(self) -> bool:
        """Return whether so few attempts to reach the host have failed that it may be reached yet."""
        return self.unreached < _UNREACHED_AT_FIRST

    def _unlikely(self) -> int:
        """Return how many first attempts hardly fail in a row, by those before, if the host is up."""
        if not self.failures:
            return _IN_A_ROW
        return min(math.ceil(math.log(_CHANCE) / math.log(self._bad_share)), _MAX_IN_A_ROW)

    @property
    def _bad_share(self) -> float:
        """Return the share of first attempts that failed before the streak."""
        return self.failures / (self.failures + self.successes + _BEFORE)
