"""Decide whether and where a failed item is tried again: at the same URL, or at a mirror."""

from __future__ import annotations

from collections.abc import Callable
from random import random

from downloader.core.retry import RetryPolicy
from downloader.core.scheduler import Scheduler
from downloader.errors import FetchError
from downloader.http.task import FetchTask
from downloader.worker.requests import TaskBuilder

__all__ = ["Retries"]

# Failures of the file's name or of its kind, which are the same with every mirror.
_OF_THE_ITEM = frozenset(
    {"bad-name", "file-exists", "internal", "name-taken", "poison", "reserved", "too-large"}
)


class Retries:
    """The further attempts at the items of a worker. ``admit`` schedules a task at a URL that is new."""

    def __init__(
        self,
        policy: RetryPolicy,
        schedule: Scheduler[FetchTask],
        builder: TaskBuilder,
        admit: Callable[[FetchTask], None],
    ) -> None:
        self._policy = policy
        self._schedule = schedule
        self._builder = builder
        self._admit = admit

    def again(self, task: FetchTask, error: FetchError, retry: bool, now: float) -> bool:
        """Schedule another attempt after one failed with ``error``; return whether there is one.

        ``retry``: the same URL may succeed. Each mirror is tried once before a pause is made; one that
        failed for good is not tried again.
        """
        if error.code == "checksum-mismatch":
            # Bytes that were damaged on the way are right the next time, others are not.
            task.mismatches += 1
            retry = retry and task.mismatches == 1
        spent = task.attempts - task.extra
        other = None
        if task.item.mirrors and error.code not in _OF_THE_ITEM:
            other = self._builder.next_mirror(task, drop=not retry)
        if not self._policy.allows(spent, retry) and (retry or other is None):
            return False
        pause = self._policy.delay(spent, random(), error.retry_after) if spent > 0 and retry else 0.0
        if other is not None and not pause:
            self._admit(other)
        else:
            self._schedule.add_later(other or task, now + pause)
        return True

    def elsewhere(self, task: FetchTask) -> bool:
        """Schedule ``task``, whose host is given up, at a mirror; return whether there is one."""
        other = self._builder.next_mirror(task, drop=True) if task.item.mirrors else None
        if other is not None:
            self._admit(other)
        return other is not None
