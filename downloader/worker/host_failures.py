"""Pause hosts that are down or ask for it, give up those that stay so; say when a redirect may be sent."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from time import monotonic

import gevent

from downloader.config.config import Config
from downloader.core.host import Host
from downloader.core.host_trouble import Trouble
from downloader.core.scheduler import Scheduler
from downloader.errors import Blame, FetchError, failure_kind
from downloader.http.task import FetchTask
from downloader.messages import HostPause
from downloader.process.channel import ChildLink

__all__ = ["HostFailures"]

_PROBES = 5
_LATE = 0.9  # of a pause


class HostFailures:
    """What becomes of the hosts of a worker that fail; other workers are told of pauses that hosts ask for.

    ``try_elsewhere`` is called with the key of a host that is down, before it is probed again. ``refused``:
    failures of hosts that had answered before, which fewer requests at once would prevent.
    """

    def __init__(
        self,
        config: Config,
        schedule: Scheduler[FetchTask],
        link: ChildLink,
        try_elsewhere: Callable[[str], None],
    ) -> None:
        self._schedule = schedule
        self._policy = config.retry_policy
        self._connect_timeout = config.connect_timeout
        self._link = link
        self._try_elsewhere = try_elsewhere
        self.refused = 0

    def failed(self, host: Host, error: FetchError, fresh: bool, began: float) -> None:
        """Record that a request to ``host`` that began at ``began`` failed with ``error``.

        ``fresh``: it was the first attempt at its file.
        """
        now, schedule = monotonic(), self._schedule
        if schedule.verdict(host, now):
            return  # what is known about it holds until then
        trouble = host.trouble = host.trouble or Trouble()
        blame, asked = failure_kind(error.code).blame, error.asks_to_wait
        down = host.rounds > 0
        if asked:
            to_blame = not trouble.given_up
        else:
            # A 429 is about the host, whichever attempt it answers.
            to_blame = trouble.blames_host(
                blame,
                fresh=fresh or error.code == "http-429",
                answered=host.answered > 0,
                down=down,
                now=now,
            )
        host.gap = trouble.throttle.gap
        self.refused += host.answered > 0 and (
            asked or trouble.throttle.helps or (blame is Blame.HOST and error.transient)
        )
        if not to_blame:
            return
        before = host.rounds
        rounds = schedule.failed(host, began, now)
        begins = rounds > before
        if blame is not Blame.HOST:
            trouble.reached_in = rounds
            if rounds > self._policy.retries:
                trouble.given_up = True
                schedule.give_up(host)
                return
        else:
            trouble.given_up = False
            rounds -= trouble.reached_in
            # A host that has never answered, and sent no packet in all of --connect-timeout, is dead.
            # Another attempt would take as long, and the end of the run would wait for it.
            dead = not host.answered and error.unreachable
            last = not error.transient or rounds > self._policy.retries + (host.answered > 0)
            # Another attempt may meet another machine behind the name; but a name is there or not.
            if dead or (last and (error.code == "dns" or not trouble.hardly_tried)):
                schedule.condemn(host, error.code, error.detail, now)
                return
        pause = self._pause(host, rounds, error if asked else None, now)
        if begins and not asked:
            # Before it ends, and when what is in flight has failed and its connections are idle.
            gevent.spawn_later(pause * _LATE, self._try_elsewhere, host.key)

    def _pause(self, host: Host, rounds: int, request: FetchError | None, now: float) -> float:
        """Pause ``host`` after ``rounds`` failed rounds; return for how long.

        ``request``: the error that asks for a pause.
        """
        if request is not None:
            pause = self._policy.delay(rounds, random(), request.retry_after)
            if self._schedule.pause(host, now + pause):
                self._link.send(HostPause(host.key, pause))
            return pause
        # In the upper quarter: the pauses together are to be longer than a restart of the server takes.
        pause = self._policy.delay(rounds, 0.75 + random() / 4)
        if not host.answered:
            # All attempts to reach a host are to take about as long as one that times out.
            pause = min(pause, self._connect_timeout / _PROBES)
        self._schedule.pause(host, now + pause, asked=False)
        return pause

    def gate(self, key: str) -> float:
        """Return when a redirect to host ``key`` may be followed.

        Raises FetchError when the host is condemned.
        """
        now = monotonic()
        if verdict := self._schedule.verdict(self._schedule.host(key), now):
            raise FetchError(*verdict)
        return self._schedule.rests_until(key, now)

    def reserve_redirect(self, key: str) -> float:
        """Return when a redirect may be sent to host ``key``; count it as sent then."""
        return self._schedule.turn(key, monotonic())
