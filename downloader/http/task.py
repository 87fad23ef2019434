"""Define one file to fetch, and the interface of its batch that the clients use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from downloader.core.content_check import Checking, ContentCheck, check_length
from downloader.core.host import Host
from downloader.core.item_states import ItemStates
from downloader.core.latency import Histogram
from downloader.core.stated_checksum import Stated
from downloader.errors import FetchError
from downloader.http.origin import Origin
from downloader.messages import Item, ResponseInfo
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import FileWriter, Unprepared
from downloader.sources.source import Request

__all__ = ["FetchTask", "TaskBatch", "open_writer", "publish_prepared"]


class TaskBatch(Protocol):
    """The batch of a task, which stores its items, counts them and holds their states.

    ``states``, ``marks``: see ``core.item_states``. ``left``: number of items that are not finished.
    ``requests``, ``pipelined``, ``retries``: how many there were, ``pipelined`` by the pipelined client.
    """

    states: memoryview[int]
    marks: ItemStates
    latency: Histogram
    left: int
    requests: int
    pipelined: int
    retries: int

    def forget(self, index: int) -> None:
        """Mark item ``index`` as neither in flight nor published."""

    def attempt_failed(self, code: str) -> None:
        """Count a failed attempt by the ``code`` of its failure."""

    def failed(self, index: int, item: Item, url: str, error: FetchError, attempts: int) -> None:
        """Record that item ``index`` has failed for good."""

    def unverified(self) -> None:
        """Count one item of which nothing states how long it is."""

    def encoded(self) -> None:
        """Count one item that is in a content coding which was not requested."""

    def put_all(self, responses: Iterable[tuple[FetchTask, object]]) -> tuple[int, Exception | None]:
        """Store the leading ``responses`` that are complete small bodies of one host.

        Returns their number, and the error of the next one if it failed.
        """

    def open(self, task: FetchTask) -> FileWriter:
        """Return a writer for the body of ``task``. Raises FetchError, DestinationError."""

    def publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        """Publish the file of ``task`` from ``writer``; return what ``FileWriter.publish`` returns.

        Raises FetchError if the content does not match what the source states, or its name is taken,
        and Unprepared.
        """

    def published(
        self, index: int, size: int, crc: int, how: int, requests: int = 0, pipelined: int = 0
    ) -> None:
        """Count item ``index`` as published after ``requests`` requests, ``pipelined`` of them there."""


class FetchTask(msgspec.Struct, eq=False, gc=False):
    """One item of a batch, and its attempts so far; see ``core.scheduler.Schedulable``.

    ``target`` is the request target; ``url`` is "" if it is derived from the name; ``request`` is None for
    a plain GET, which most sources use. ``promised``: the source states a size or checksum to check.
    ``response``: what the last response says about the file, if that is recorded; ``stated``: the checksum
    that it states of the bytes that are stored, if that is verified. ``mismatches``: attempts that ended in
    ``checksum-mismatch``. ``demotions``: how often it was preempted. ``stranded``: how often it was sent
    again, since its connection brought nothing.
    ``sent``: when it was last requested (seconds, monotonic). ``cut_off``: how often a connection that
    had served others ended before its response; this does not count as an attempt. ``uncharged``: how often
    the pipelined client has requested it in vain, without an attempt. ``path``: its origin,
    None if it does not go through the pipelined client. ``robots_txt``: it is not an item of a source, but
    the robots.txt of its origin. ``extra``: attempts that its mirrors allow in addition to --retries.
    ``movable``: if its host has it wait, another mirror of its item may be requested.
    ``until``: of those of its URLs that led to a host which was paused, when that may be requested.
    ``tried``: the URLs of an item with mirrors that have failed, not only asked to wait.
    ``cookie_tries``: how often it was requested again, at no charge, since a cookie had come.
    ``excused``: how often an attempt was not charged, since its host was at fault. It is a
    Struct because one is created per file.
    """

    batch: TaskBatch
    index: int
    item: Item
    promised: bool
    url: str
    target: bytes
    origin: Origin
    host: Host
    solo: bool
    path: object
    request: Request | None = None
    response: ResponseInfo | None = None
    attempts: int = 0
    sent: float = 0.0
    cut_off: int = 0
    robots_txt: bool = False
    extra: int = 0
    movable: bool = False
    tried: frozenset[str] = frozenset()
    until: dict[str, float] | None = None
    stated: Stated | None = None
    mismatches: int = 0
    demotions: int = 0
    stranded: int = 0
    uncharged: int = 0
    cookie_tries: int = 0
    excused: int = 0

    @property
    def is_retry(self) -> bool:
        """Return whether it has been requested before."""
        return self.attempts + self.excused > 0


def open_writer(task: FetchTask, checking: Checking, length: int = 0) -> CheckedWriter:
    """Return a writer for the body of ``task``, which is checked. ``length``: that of the body, if known.

    Raises FetchError (``too-large``), DestinationError.
    """
    check_length(length, checking.max_size)
    return CheckedWriter(task.batch.open(task), ContentCheck(task.item, checking, task.stated))


def publish_prepared(task: FetchTask, writer: CheckedWriter) -> int:
    """Prepare ``writer`` and publish the file of ``task``; return what ``FileWriter.publish`` returns.

    Other greenlets run meanwhile, but not between the last preparation and the publishing. Raises
    FetchError, DestinationError.
    """
    while True:
        writer.prepare()
        try:
            return task.batch.publish(task, writer)
        except Unprepared:  # what it compares with has changed
            continue
