"""Decide whether and where a failed item is tried again: at the same URL, or at a mirror."""

from __future__ import annotations

from random import random

from downloader.core.retry import RetryPolicy
from downloader.core.scheduler import Scheduler
from downloader.errors import FetchError
from downloader.http.origin import NOT_THERE
from downloader.http.task import FetchTask
from downloader.worker.mirrors import Mirrors
from downloader.worker.requests import TaskBuilder

__all__ = ["Retries"]

# Failures of the file's name or of its kind, which are the same with every mirror.
_OF_THE_ITEM = frozenset(
    {"bad-name", "file-exists", "internal", "name-taken", "poison", "reserved", "too-large"}
)

# How often a file is requested again at one URL, at no charge, since a cookie had come: walls give up to
# three. And for how many files that must be in vain until it is taken for what the site does with each
# response: to set another cookie, or another value of one. No request without a cookie shows that: others
# that are refused may delete the only one again and again, each time just before the file's turn.
_MAX_COOKIE_TRIES = 4
_MAX_COOKIELESS_TRIES = 20
_MAX_VAIN = 3


class Retries:
    """The further attempts at the items of a worker."""

    def __init__(
        self,
        policy: RetryPolicy,
        schedule: Scheduler[FetchTask],
        builder: TaskBuilder,
        mirrors: Mirrors,
    ) -> None:
        self._policy = policy
        self._schedule = schedule
        self._builder = builder
        self._mirrors = mirrors

    def again(self, task: FetchTask, error: FetchError, retry: bool, now: float) -> bool:
        """Schedule another attempt after one failed with ``error``; return whether there is one.

        ``retry``: the same URL may succeed. Each mirror is tried, or left out as its host is paused, before
        a pause is made; one that failed for good is not tried again. Where it was refused without a
        cookie that is there by now, it has an attempt more, whatever --retries is: see ``lacked_cookie``.
        """
        if error.code == "checksum-mismatch":
            # Bytes that were damaged on the way are right the next time, others are not.
            task.mismatches += 1
            retry = retry and task.mismatches == 1
        with_cookie = self.lacked_cookie(task, error)
        if with_cookie:
            retry = True
            task.cookie_tries += 1
            task.extra += 1
        elif not error.cookieless and (error.cookie_came or (error.cookie_renewed and task.cookie_tries)):
            task.origin.note_vain_tries(error.code, another_name=error.cookie_came)
        spent = task.attempts - task.extra
        other, allowed = None, self._policy.allows(spent, retry)
        if task.item.mirrors and not with_cookie and not _is_of_the_item(error, task):
            if not (allowed and error.asks_to_wait):
                task.tried |= {task.item.url}
            other = self._builder.next_mirror(task, drop=not retry)
        if not allowed and (retry or other is None):
            return other is not None and self._last(task)
        if other is not None:
            self._try_mirror(task, other, spent if retry else 0, error, now)
        elif with_cookie and not error.transient:
            self._schedule.requeue(task)  # before others, so that it is soon known whether that is in vain
        else:
            spent = max(spent, task.cookie_tries) if with_cookie else spent
            self._schedule.add_later(task, now + self._pause(spent, error.retry_after))
        return True

    def is_last(self, task: FetchTask) -> bool:
        """Return whether ``task`` has had all its attempts."""
        return not self._policy.allows(task.attempts - task.extra, True)

    def lacked_cookie(self, task: FetchTask, error: FetchError) -> bool:
        """Return whether ``task`` was refused without a cookie, which it is to be requested with.

        Servers set one with the refusal (sessions, bot walls, load balancers), or several one after the
        other, and let in who has them all. What is in flight when one comes was sent without.

        Others set one with each refusal, and let nobody in. So a file is requested again a few times only.
        Where that was in vain for some files of an origin with this status, and a value is all that is new,
        it is not; or once if another one was let in so, and the page may be there: sessions end. One that
        was sent without any cookie may have more tries: see ``_MAX_COOKIELESS_TRIES``.
        """
        if not error.cookie_renewed:
            return False
        sessions = task.origin.lets_in and error.code not in NOT_THERE
        if not task.cookie_tries and (error.cookie_came or sessions):
            return True
        urls = 1 + len(task.item.mirrors)
        if error.cookieless:
            return task.cookie_tries < _MAX_COOKIELESS_TRIES * urls
        tries = task.origin.vain_tries
        vain = tries[error.code, error.cookie_came] if tries is not None else 0
        return vain < _MAX_VAIN and task.cookie_tries < _MAX_COOKIE_TRIES * urls

    def _pause(self, spent: int, asked: float | None = None) -> float:
        return self._policy.delay(spent, random(), asked) if spent > 0 else 0.0

    def _try_mirror(
        self, task: FetchTask, other: FetchTask, spent: int, error: FetchError, now: float
    ) -> None:
        """Schedule ``other``, the next one after ``task``, or a mirror that may be requested before."""
        pause = self._pause(spent, error.retry_after if other.host is task.host else None)
        chosen = self._mirrors.soonest(other)
        if chosen.item.url == task.item.url:
            pause = pause or self._pause(1)
        self._mirrors.add(chosen, now + pause if pause else 0.0)

    def _last(self, task: FetchTask) -> bool:
        """Schedule ``task``, which has no attempts left, at a mirror that was always left out, if any."""
        other = self._builder.untried(task)
        if other is not None:
            self._mirrors.add(other)
        return other is not None

    def elsewhere(self, task: FetchTask) -> bool:
        """Schedule ``task``, whose host is given up, at a mirror; return whether there is one."""
        other = self._builder.next_mirror(task, drop=True) if task.item.mirrors else None
        if other is not None:
            self._mirrors.admit(other)
        return other is not None


def _is_of_the_item(error: FetchError, task: FetchTask) -> bool:
    """Return whether ``error`` is the same with every mirror; a size is, if the source states it."""
    return error.code in _OF_THE_ITEM and (error.code != "too-large" or task.item.size >= 0)
