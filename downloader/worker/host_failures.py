"""Pause hosts that fail, give up those that are dead, and say when a redirect may be sent to a host."""

from __future__ import annotations

from random import random
from time import monotonic

from downloader.config.config import Config
from downloader.core.host import Host
from downloader.core.scheduler import Scheduler
from downloader.errors import FetchError
from downloader.http.task import FetchTask
from downloader.messages import HostPause
from downloader.process.channel import ChildLink

__all__ = ["HostFailures"]

_PROBES = 5


class HostFailures:
    """The failures of whole hosts, in one worker; the other workers are told of pauses.

    ``refused``: transient failures of hosts that had answered before.
    """

    def __init__(self, config: Config, schedule: Scheduler[FetchTask], link: ChildLink) -> None:
        self._schedule = schedule
        self._policy = config.retry_policy
        self._connect_timeout = config.connect_timeout
        self._link = link
        self.refused = 0

    def failed(self, host: Host, error: FetchError, transient: bool, began: float) -> None:
        """Record that ``host`` failed with ``error``, in a request that began at ``began``."""
        now = monotonic()
        self.refused += transient and host.answered > 0
        rounds = self._schedule.failed(host, began, now)
        # A host that has never answered, and sent no packet in all of --connect-timeout, is dead. Another
        # attempt would take as long, and the end of the run would wait for it.
        dead = not host.answered and (error.unreachable or rounds > self._policy.retries)
        if dead or not transient or rounds > self._policy.retries + 1:
            self._schedule.condemn(host, error.code, error.detail, now)
            return
        pause = self._policy.delay(rounds, random(), error.retry_after)
        if not host.answered and error.retry_after is None:
            # All attempts to reach a host are to take about as long as one that times out.
            pause = min(pause, self._connect_timeout / _PROBES)
        if self._schedule.pause(host, now + pause):
            self._link.send(HostPause(host.key, pause))

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
