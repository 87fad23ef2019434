"""One file to fetch, as the clients have it, and what they ask of the batch that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from downloader.core.latency import Histogram
from downloader.core.scheduler import Host
from downloader.messages import Item, ResponseInfo
from downloader.sinks.checked_writer import CheckedWriter
from downloader.sinks.sink import FileWriter
from downloader.sources.source import Request

__all__ = ["FetchTask", "TaskBatch"]


class TaskBatch(Protocol):
    """The batch of a task: it stores, counts, and keeps the states of its items.

    ``states``: see ``core.item_states``; ``left``: how many items have not reached their end.
    """

    states: Any
    latency: Histogram
    left: int

    def put_all(self, responses: Iterable[tuple[FetchTask, object]]) -> tuple[int, Exception | None]:
        """Store as many of ``responses`` as are whole small bodies of one host; return how many that are,
        and what went wrong with the next."""

    def open(self, task: FetchTask) -> FileWriter:
        """Return a writer for the body of ``task``. Raises FetchError, DestinationError."""

    def publish(self, task: FetchTask, writer: CheckedWriter) -> int:
        """Publish what ``writer`` has for ``task``; return what ``FileWriter.publish`` does.

        Raises FetchError where the content is not as promised, or its name cannot be had.
        """

    def published(
        self, index: int, size: int, crc: int, how: int, requests: int = 0, wire: int = 0
    ) -> None:
        """Count item ``index``, which is published, after ``requests``, ``wire`` of them pipelined."""


class FetchTask(msgspec.Struct, eq=False, gc=False):
    """One item of a batch, and its attempts so far; see ``core.scheduler.Schedulable``.

    ``target`` is what the request line contains; ``url`` is "" where it is derived from the name;
    ``request`` is None for a plain GET, which is all that most sources need. ``promised``: the source says
    something of the content that must hold. ``response``: what the last response says of the file, where
    the sink wants to know.
    ``sent``: when it was last requested (seconds, monotonic). ``cut_off``: how often a connection that
    had served others ended before its response, which is not counted as an attempt. ``path``: its origin,
    None for what does not go through the pipelined client. A Struct, since one is made for every file.
    """

    batch: Any
    index: int
    item: Item
    promised: bool
    url: str
    target: bytes
    origin: Any
    host: Host
    solo: bool
    path: object
    request: Request | None = None
    response: ResponseInfo | None = None
    attempts: int = 0
    sent: float = 0.0
    cut_off: int = 0
