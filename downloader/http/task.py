"""One file to fetch, as the clients have it, and what they ask of the batch that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from downloader.core.latency import Histogram
from downloader.core.scheduler import Host
from downloader.messages import Item
from downloader.sinks.sink import Sink, Writer

__all__ = ["FetchTask", "TaskBatch"]


class TaskBatch(Protocol):
    """The batch of a task: it stores, counts, and keeps the states of its items.

    ``states``: see ``core.item_states``; ``claims``: who owns the name of which item; ``left``: how many
    items have not reached their end.
    """

    seq: int
    states: Any
    claims: dict[int, int]
    latency: Histogram
    left: int

    def put_all(
        self, sink: Sink, responses: Iterable[tuple[FetchTask, object]]
    ) -> tuple[int, Exception | None]:
        """Store as many of ``responses`` as are whole small bodies of one host; return how many that are,
        and what went wrong with the next."""

    def publish(self, index: int, writer: Writer) -> int:
        """Publish what ``writer`` has as item ``index``; return what ``Writer.publish`` does."""

    def published(
        self, index: int, size: int, crc: int, how: int, requests: int = 0, wire: int = 0
    ) -> None:
        """Count item ``index``, which is published, after ``requests``, ``wire`` of them pipelined."""


class FetchTask(msgspec.Struct, eq=False, gc=False):
    """One item of a batch, and its attempts so far; see ``core.scheduler.Schedulable``.

    ``target`` is what the request line contains; ``url`` is "" where the source derives it from the name.
    ``sent``: when it was last requested (seconds, monotonic). ``cut_off``: how often a connection that
    had served others ended before its response, which is not counted as an attempt. ``path``: its origin,
    None for what does not go through the pipelined client. A Struct, since one is made for every file.
    """

    batch: Any
    index: int
    item: Item
    name: str
    size: int
    url: str
    target: bytes
    origin: Any
    host: Host
    solo: bool
    path: object
    attempts: int = 0
    sent: float = 0.0
    cut_off: int = 0
