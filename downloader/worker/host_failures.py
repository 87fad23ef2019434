"""Pause hosts that are down or ask for it, give up those that stay so; say when a redirect may be sent.

A host that closes a connection at once, or after a 429 or 5xx as its only response, while it serves others
of this worker takes no more of them: it is sent as many requests as it serves, and no attempt is charged.
What it asks for by Retry-After is about one more then; on a connection that it serves, it is about all.

What a host refuses that refuses all is excused: no attempt is charged, a few times. One that lets so many
requests through in a time is used up by whichever worker is first, and the others try on.

A host that this worker cannot reach, or that closes all its connections at once, may be one that others of
the run use: it takes no more connections than it has processes, or than it allows, and they have them all.
``core.reached_hosts`` tells. Such a host is not down: its files wait here, no attempt at them is charged,
and the others close what they do not use. That ends when no worker reaches the host any more; then the
rules for hosts that are down hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import random
from time import monotonic

import gevent

from downloader.config.options import LimitOptions
from downloader.core.host import Host
from downloader.core.host_trouble import Trouble
from downloader.core.reached_hosts import ReachedHosts
from downloader.core.retry import LEAST_OF_PAUSE
from downloader.core.scheduler import VERDICT, Scheduler
from downloader.errors import Blame, FetchError, failure_kind
from downloader.http.session import HttpSession
from downloader.http.task import FetchTask
from downloader.messages import HostCrowded, HostPause
from downloader.process.channel import ChildLink

__all__ = ["NOTE_EVERY", "HostFailures"]

NOTE_EVERY = 1.0
"""Seconds between two notes that a host is reached."""

_PROBES = 5
_LATE = 0.9  # of a pause
_IN_A_ROW = 6  # connections that are turned away until it is the host that takes no more
_CHANCES = 2  # times that a file is excused, which is turned away, until it is at fault
_EXCUSES = 8  # the same of one that is refused as all others are
_BRIEF = 1.0  # seconds; attempts at a file that take less cannot show that its host is down
_LONGEST_EXCUSE = 4  # the attempt whose backoff is the longest that such a file waits for
_BEGINS_AGAIN = 5  # times, of the failed rounds of a host that answers others
_CROWDED = 2.0  # seconds between two attempts to get a connection that others have
_ROOM = 30.0  # seconds for which others close what they do not use
_SERVED = 5.0  # seconds in which others note again that a host serves them
_SPAN = 2 * NOTE_EVERY  # seconds by which a note may be late


class HostFailures:
    """What becomes of the hosts of a worker that fail; other workers are told of pauses that hosts ask for.

    ``reached``: the hosts that any worker has reached. ``refused``: failures of hosts that had answered
    before, which fewer requests at once would prevent. ``receives`` returns whether something has come from
    a host since a time, or can: responses may be held for seconds until they count as successes.
    ``serving`` returns how many connections a host serves, ``serves_since`` whether it sends a file that
    was requested after a time, or has sent one that is not counted as a success yet.
    """

    def __init__(
        self,
        config: LimitOptions,
        schedule: Scheduler[FetchTask],
        link: ChildLink,
        session: HttpSession,
        reached: ReachedHosts,
    ) -> None:
        self._schedule = schedule
        self._policy = config.retry_policy
        self._connect_timeout = config.connect_timeout
        self._link = link
        self._session = session
        self._reached = reached
        # A connection that others use brings something in this time, or ends.
        self._in_use = config.read_timeout + _SPAN
        self.refused = 0
        self.receives: Callable[[Host, float], bool] = lambda host, since: False
        self.serving: Callable[[Host], int] = lambda host: 0
        self.serves_since: Callable[[Host, float], bool] = lambda host, since: False

    def reached(self, host: Host, now: float) -> None:
        """Note, for all workers, that ``host`` was reached."""
        if now - host.noted > NOTE_EVERY:
            host.noted = now
            self._reached.note(host.key, now)

    def answers(self, host: Host, now: float) -> None:
        """Note, for all workers, that ``host`` has answered."""
        if now - host.noted_answer > NOTE_EVERY:
            host.noted = host.noted_answer = now
            self._reached.note(host.key, now, answered=True)

    def opened(self, host: Host) -> None:
        """Note that a connection to ``host`` is open.

        Of a host that has never answered the first ones count only, until a request has ended in silence:
        the kernel accepts connections for a process that hangs.
        """
        if host.answered or not host.silent:
            self.reached(host, monotonic())

    def make_room(self, wanted: HostCrowded) -> None:
        """Close the connections to a host that are not used, since another worker waits for one."""
        host = self._schedule.host(wanted.host)
        host.crowded_until = monotonic() + wanted.seconds
        self._session.close_idle(wanted.host)

    def failure(self, host: Host, now: float) -> tuple[str, str] | None:
        """Return the failure that a job for ``host`` must end with at once, None if there is none."""
        failure = self._schedule.failure(host, now)
        if failure is not None and self._reached.at(host.key) > host.failed_until - VERDICT:
            self._schedule.acquit(host)
            return None
        return failure

    def failed(
        self,
        host: Host,
        error: FetchError,
        fresh: bool,
        began: float,
        excused: int = 0,
        *,
        last: bool = False,
    ) -> float | None:
        """Record that a request to ``host`` that began at ``began`` failed with ``error``.

        ``fresh``: it was the first attempt at its file, beside those that were ``excused``; ``last``: the
        last one. Returns None if an attempt is charged to the file. Else it says nothing about the file,
        which is to wait for so many seconds, and for the host.
        """
        wait = self._failed(host, error, fresh, began, excused)
        return self._last_chance(host, error, excused) if wait is None and last else wait

    def _last_chance(self, host: Host, error: FetchError, excused: int) -> float | None:
        """Return in how many seconds a file has an attempt more that ``host`` refuses as all others.

        None if the file is at fault. A server may take longer to start than all attempts at a file do, and
        a host that has few files left does not pause as one does that many files show to be down.
        """
        trouble, policy = host.trouble, self._policy
        refused = error.transient and failure_kind(error.code).blame is Blame.EITHER
        if trouble is None or not refused or policy.shortest < _BRIEF or excused >= _EXCUSES:
            return None
        began = trouble.outage_began(host.answered)
        lasts, longest = monotonic() - began, policy.outage
        if not policy.shortest <= lasts < longest or self._reached.answered_at(host.key) > began + _SPAN:
            return None
        return longest - lasts

    def _failed(
        self, host: Host, error: FetchError, fresh: bool, began: float, excused: int
    ) -> float | None:
        """Record a failure, as ``failed`` does, of an attempt that may be followed by others."""
        now, schedule = monotonic(), self._schedule
        if self.failure(host, now):
            return None  # what is known about it holds until then
        trouble = host.trouble = host.trouble or Trouble()
        blame, asked = failure_kind(error.code).blame, error.asks_to_wait
        if error.unreachable and (host.answered > began or self.receives(host, began)):
            # It has answered meanwhile, so it takes no more connections than it has.
            self.refused += error.transient
            return self._policy.delay(1, random())
        if error.turned_away and self._lacks_room(host, trouble, began, excused, now):
            # Its other connections are served: what it asks for is about one more.
            return self._policy.delay(1, random(), error.retry_after) if asked else 0.0
        down = host.rounds > 0
        known, elsewhere = self._look_around(host, trouble, blame, began, now)
        if asked:
            to_blame = trouble.asks_to_wait(began, fresh=fresh)
        else:
            # A 429 is about the host, whichever attempt it answers.
            to_blame = trouble.blames_host(
                blame,
                fresh=fresh or error.code == "http-429",
                answered=known,
                timed_out=error.unreachable,
                down=down,
                began=began,
                now=now,
                serves=partial(self.serves_since, host),
            )
        host.gap = trouble.throttle.gap
        self.refused += host.answered > 0 and (
            asked or trouble.throttle.helps or (blame is Blame.HOST and error.transient)
        )
        if not to_blame or (elsewhere and not error.transient):
            return None
        before, failed_at = host.rounds, host.failed_at
        rounds = schedule.failed(host, began, now)
        begins = rounds > before
        if before and begins and self._refuses_this_worker_only(host, trouble, blame, failed_at):
            rounds = host.rounds = 1
        if elsewhere:
            self._wait_for_room(host, trouble, now, begins=begins)
            return 0.0
        if blame is not Blame.HOST:
            trouble.reached_in = rounds
            # It may be starting: one round more than a file has attempts, unless it says itself when.
            if rounds > self._policy.retries + (not asked):
                trouble.given_up = True
                schedule.give_up(host)
                return None
        else:
            trouble.given_up = False
            rounds -= trouble.reached_in
            # A host that has never answered, and sent no packet in all of --connect-timeout, is dead.
            # Another attempt would take as long, and the end of the run would wait for it.
            dead = not known and error.unreachable
            last = not error.transient or rounds > self._policy.retries + known
            # Another attempt may meet another machine behind the name; but a name is there or not.
            if dead or (last and (error.code == "dns" or not trouble.hardly_tried)):
                schedule.fail_host(host, error.code, error.detail, now)
                return None
        pause = self._pause(host, rounds, error if asked else None, now, unreached=blame is Blame.HOST)
        if begins:
            self._renew(host, error, rounds, pause, now)
        return self._excuse(error, excused)

    def _renew(self, host: Host, error: FetchError, rounds: int, pause: float, now: float) -> None:
        """Have connections to ``host`` closed that may be why it refuses, before its ``pause`` ends.

        What is in flight has failed then, and its connections are idle.
        """
        # One that answers may have meant its connections only, if the first pause has not helped.
        renew = (
            self._session.try_elsewhere if rounds == 1 or not error.answered else self._session.renew_idle
        )
        gevent.spawn_later(pause * _LATE, renew, host.key, now)
        if error.turned_away:
            # A worker whose files have ended may have all the connections that it takes.
            self._ask_for_room(host, pause)

    def _excuse(self, error: FetchError, excused: int) -> float | None:
        """Return when a file may be requested again that its host has refused, None if it is charged.

        What a host refuses that refuses all is not at fault; its turn comes behind others, which may not
        be refused. But what is always refused must fail.
        """
        refused = failure_kind(error.code).blame is Blame.EITHER and not error.asks_to_wait
        if not refused or excused >= _EXCUSES:
            return None
        return self._policy.delay(min(excused + 1, _LONGEST_EXCUSE), random())

    def _refuses_this_worker_only(
        self, host: Host, trouble: Trouble, blame: Blame, failed_at: float
    ) -> bool:
        """Return whether ``host`` has answered others since ``failed_at``, and this worker is to try on.

        What it takes in a time is used up by others then. But these files may be those that it refuses.
        """
        if blame is not Blame.EITHER or trouble.begun_again >= _BEGINS_AGAIN:
            return False
        refuses = self._reached.answered_at(host.key) > max(host.noted_answer, failed_at)
        trouble.begun_again += refuses
        return refuses

    def _look_around(
        self, host: Host, trouble: Trouble, blame: Blame, began: float, now: float
    ) -> tuple[bool, bool]:
        """Return whether any worker has reached ``host`` before, and whether others reach it now."""
        known = host.answered > 0
        if blame is Blame.EITHER:
            self.reached(host, now)
        elif blame is Blame.NEITHER:
            self._schedule.went_silent(host, began)
        elif blame is Blame.HOST:
            if not trouble.unreached:
                trouble.unreached_since = began
            self._schedule.takes_any(host)
            reached_at = self._reached.at(host.key)
            since = trouble.unreached_since if known else 0.0
            return known or reached_at > 0.0, reached_at > max(since, now - self._in_use)
        return known, False

    def _lacks_room(self, host: Host, trouble: Trouble, began: float, excused: int, now: float) -> bool:
        """Return whether ``host`` has closed a connection at once since it takes no more of them."""
        # One client may keep those open that the other one is refused for.
        self._session.close_idle(host.key)
        return self._has_one_too_many(host, trouble, began, excused, now) or self._takes_no_more(
            host, trouble, began, now
        )

    def _has_one_too_many(
        self, host: Host, trouble: Trouble, began: float, excused: int, now: float
    ) -> bool:
        """Return whether ``host``, which has closed a connection at once, takes no more of this worker.

        It serves others, and has served no new one for a while. Where it has taken as many before, and the
        same file was ``excused`` so often before, the file is at fault.
        """
        trouble.turned_away_in_a_row += excused < _CHANCES
        serving = self.serving(host) or int(host.answered > began)
        if not host.takes and (not serving or trouble.turned_away_in_a_row < _IN_A_ROW):
            return False
        if host.active > host.takes:
            # Also where it serves none just now: those that it serves may be between two files.
            self._schedule.takes_at_most(host, max(serving, host.takes), now)
            return True
        return serving > 0 and excused < _CHANCES

    def serves(self, host: Host, now: float) -> None:
        """Note that a new connection to ``host`` has brought a file: others are not all turned away."""
        self.answers(host, now)
        if host.trouble is not None:
            host.trouble.turned_away_in_a_row = 0
        self.serves_more(host, now)

    def serves_more(self, host: Host, now: float) -> None:
        """Try more requests of ``host``, which has sent a file, if it has closed connections."""
        if host.takes:
            self._schedule.serves(host, self.serving(host), now)

    def _takes_no_more(self, host: Host, trouble: Trouble, began: float, now: float) -> bool:
        """Pause ``host``, which has closed a connection at once, if others have all that it takes."""
        schedule, before, was_crowded = self._schedule, host.rounds, trouble.crowded
        trouble.crowded = self._others_are_answered(host, trouble, began, now)
        if trouble.crowded:
            begins = schedule.failed(host, began, now) > before
            self._wait_for_room(host, trouble, now, begins=begins)
        elif was_crowded and host.asked_until < now:
            schedule.make_roomy(host)
        return trouble.crowded

    def _others_are_answered(self, host: Host, trouble: Trouble, began: float, now: float) -> bool:
        """Return whether ``host`` answers other workers, and closes each connection of this one at once."""
        if not trouble.is_turned_away(began, answered=host.answered > 0):
            return False
        since = trouble.turned_away_since if host.answered else 0.0
        # What this worker has noted itself says nothing about others.
        return self._reached.answered_at(host.key) > max(since, host.noted_answer, now - _SERVED)

    def _wait_for_room(self, host: Host, trouble: Trouble, now: float, *, begins: bool) -> None:
        """Pause ``host``, which takes no connection though others reach it; ``begins``: a round."""
        pause = _CROWDED * (0.75 + random() / 4)
        trouble.reached_in = 0
        self._schedule.crowded(host, now + pause)
        if begins:
            self._ask_for_room(host, pause)

    def _ask_for_room(self, host: Host, pause: float) -> None:
        """Have the other workers close what they do not use of ``host`` before its ``pause`` ends."""
        gevent.spawn_later(pause * _LATE, self._link.send, HostCrowded(host.key, _ROOM))

    def _pause(
        self, host: Host, rounds: int, request: FetchError | None, now: float, *, unreached: bool
    ) -> float:
        """Pause ``host`` after ``rounds`` failed rounds; return for how long.

        ``request``: the error that asks for a pause. ``unreached``: this one could not be reached.
        """
        pause = self._policy.delay(rounds, LEAST_OF_PAUSE + random() * (1 - LEAST_OF_PAUSE))
        if request is not None:
            pause = max(pause, self._policy.delay(rounds, random(), request.retry_after))
            if self._schedule.pause(host, now + pause):
                self._link.send(HostPause(host.key, pause))
            return pause
        if unreached and not host.answered:
            # All attempts to reach a host are to take about as long as one that times out.
            pause = min(pause, self._connect_timeout / _PROBES)
        self._schedule.pause(host, now + pause, asked=False)
        return pause

    def gate(self, key: str) -> float:
        """Return when a redirect to host ``key`` may be followed.

        Raises FetchError when the host is condemned.
        """
        now = monotonic()
        if failure := self.failure(self._schedule.host(key), now):
            raise FetchError(*failure)
        return self._schedule.rests_until(key, now)

    def reserve_redirect(self, key: str) -> float:
        """Return when a redirect may be sent to host ``key``; count it as sent then."""
        return self._schedule.turn(key, monotonic())
