"""What a pipelined connection asks of its client, and the client of its worker."""

from __future__ import annotations

from typing import Any, Protocol

from downloader.core.scheduler import Host
from downloader.core.throughput import Pace
from downloader.errors import FetchError
from downloader.http.pipelined.commit_queue import CommitQueue
from downloader.http.pipelined.origin_state import OriginState
from downloader.http.pipelined.parser import Body, ParserOwner, ResponseParser
from downloader.http.session import Origin
from downloader.http.task import FetchTask
from downloader.sinks.checked_writer import CheckedWriter

__all__ = ["ConnectionOwner", "Owner"]


class Owner(Protocol):
    """What the client asks of its worker. No call waits."""

    def next_tasks(self, host: Host, origin: Origin, most: int) -> list[FetchTask]:
        """Return up to ``most`` tasks of ``host`` and ``origin`` that need no slot of their own."""

    def batch_finished(self, batch: Any) -> None:
        """The last item of ``batch``, a ``TaskBatch``, has reached its end."""

    def attempt_failed(self, task: FetchTask, error: FetchError, began: float) -> None:
        """An attempt at ``task``, sent at ``began``, has failed."""

    def fall_back(self, task: FetchTask) -> None:
        """Fetch ``task`` through the requests client."""

    def requeue(self, tasks: list[FetchTask]) -> None:
        """Queue unanswered ``tasks`` again without charging an attempt."""

    def release(self, host: Host) -> None:
        """Free a slot of ``host``."""

    def host_succeeded(self, host: Host) -> None:
        """``host`` has responded as it should."""

    def fatal(self, error: Exception) -> None:
        """The worker cannot go on: the destination failed, or this is a defect."""


class ConnectionOwner(Protocol):
    """What a connection asks of its client; ``connection`` is always the one that asks.

    ``buffer``: shared by all connections. ``window``, ``window_bytes``: how many responses, and bytes of
    them, a connection may hold before it is known to be in step. ``depths``: requests sent, by depth.
    """

    buffer: memoryview
    commit_queue: CommitQueue
    depths: dict[int, int]
    max_size: int
    secrets: tuple[str, ...]
    window: int
    window_bytes: int

    def new_parser(self, owner: ParserOwner, shapes: dict[tuple[bytes, ...], Any]) -> ResponseParser:
        """Return the parser of a new connection."""

    def new_pace(self) -> Pace | None:
        """Return what measures bodies under --min-speed."""

    def next_tasks(self, connection: Any, most: int) -> list[FetchTask]:
        """Return up to ``most`` tasks that ``connection`` may send next."""

    def depth_reached(self, depth: int) -> None:
        """An origin is used at ``depth`` from now on: keep that many tasks ready."""

    def idle(self, connection: Any) -> None:
        """``connection`` has nothing to do; its slot is free."""

    def forget(self, connection: Any) -> None:
        """``connection`` is being closed."""

    def requeue(self, tasks: list[FetchTask]) -> None:
        """See ``Owner``."""

    def deliver(self, task: FetchTask, body: Body) -> None:
        """Store ``body``, whose connection is in step, soon."""

    def store_completed(self, origin_state: OriginState, completed: list[tuple[FetchTask, Body]]) -> None:
        """Store the files among ``completed`` and report the others, now."""

    def open_writer(self, task: FetchTask) -> CheckedWriter:
        """Return a writer for the body of ``task``. Raises FetchError, DestinationError."""

    def release(self, host: Host) -> None:
        """See ``Owner``."""

    def fatal(self, error: Exception) -> None:
        """See ``Owner``."""
