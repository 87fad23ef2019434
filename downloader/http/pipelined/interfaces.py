"""Define the interfaces between a pipelined connection and its client, and the client and its worker."""

from __future__ import annotations

from typing import Protocol, TypeVar

from downloader.core.host import Host
from downloader.core.throughput import Pace
from downloader.errors import FetchError
from downloader.http.origin import Origin
from downloader.http.pipelined.commit_queue import CommitQueue
from downloader.http.pipelined.header_shape import HeaderShape
from downloader.http.pipelined.origin_state import OriginState
from downloader.http.pipelined.parser import Body, ParserOwner, ResponseParser
from downloader.http.task import FetchTask, TaskBatch
from downloader.sinks.checked_writer import CheckedWriter

__all__ = ["ConnectionOwner", "Owner"]

_Connection = TypeVar("_Connection", contravariant=True)


class Owner(Protocol):
    """The worker, as the pipelined client calls it. No call waits."""

    def next_tasks(self, host: Host, origin: Origin, most: int, *, stay: bool) -> list[FetchTask]:
        """Return up to ``most`` tasks of ``host`` and ``origin`` that need no slot of their own.

        ``stay``: even if other hosts wait for a slot.
        """

    def batch_finished(self, batch: TaskBatch) -> None:
        """Report that all items of ``batch`` are finished."""

    def attempt_failed(self, task: FetchTask, error: FetchError, began: float) -> None:
        """Report that an attempt at ``task``, sent at ``began``, has failed."""

    def fall_back(self, task: FetchTask, refused: FetchError | None = None) -> None:
        """Fetch ``task`` through the requests client; ``refused``: what its host has answered."""

    def requeue(self, tasks: list[FetchTask]) -> None:
        """Queue unanswered ``tasks`` again without charging an attempt."""

    def requested_again(self, tasks: list[FetchTask]) -> None:
        """Count one more request for each of ``tasks``, whose responses are held."""

    def out_of_order(self, host: str, files: int) -> None:
        """Tell that ``host`` answers out of order, so that ``files`` stored files may be wrong."""

    def moved(self, host: str, files: int) -> None:
        """Tell that ``host`` sent a response too many, so that ``files`` stored files may be wrong."""

    def demote(self, task: FetchTask) -> None:
        """Queue ``task``, which was preempted, behind all others without charging an attempt."""

    def occupy(self, host: Host) -> None:
        """Use one more slot of ``host``, until ``release``."""

    def release(self, host: Host) -> None:
        """Free a slot of ``host``."""

    def host_serves(self, host: Host) -> None:
        """Report that one more connection to ``host`` has brought a file, if it is not stored yet."""

    def host_succeeded(self, host: Host, began: float, count: int = 1, *, again: bool = False) -> None:
        """Report ``count`` successful responses of ``host``.

        ``began``: when the last of these requests was sent; ``again``: it was a retry.
        """

    def fatal(self, error: Exception) -> None:
        """Report that the worker must stop: the destination failed, or there is a bug."""


class ConnectionOwner(Protocol[_Connection]):
    """The client, as a connection calls it; the argument ``connection`` is always the calling one.

    ``buffer``: the receive buffer of all connections. ``window``, ``window_bytes``: the maximum number of
    responses, and of their bytes, that a connection may hold until it is known to be in step. ``depths``:
    number of requests sent, by depth. ``verifies``: files are compared with the checksums that the source
    gives.
    """

    buffer: memoryview
    commit_queue: CommitQueue
    depths: dict[int, int]
    max_size: int
    secrets: tuple[str, ...]
    verifies: bool
    cacert: str
    window: int
    window_bytes: int

    def new_parser(
        self, owner: ParserOwner, shapes: dict[tuple[bytes, ...], HeaderShape]
    ) -> ResponseParser:
        """Return the parser of a new connection."""

    def new_pace(self) -> Pace | None:
        """Return the measurement for --min-speed of a new connection, None without --min-speed."""

    def next_tasks(self, connection: _Connection, most: int) -> list[FetchTask]:
        """Return up to ``most`` tasks that ``connection`` may send next."""

    def depth_reached(self, depth: int) -> None:
        """Keep enough tasks ready for ``depth``, which an origin uses from now on."""

    def host_serves(self, host: Host) -> None:
        """See ``Owner``."""

    def idle(self, connection: _Connection) -> None:
        """Take back ``connection``, which has nothing to do, and free its slot."""

    def forget(self, connection: _Connection) -> None:
        """Remove ``connection``, which is being closed."""

    def requeue(self, tasks: list[FetchTask]) -> None:
        """See ``Owner``."""

    def requested_again(self, tasks: list[FetchTask]) -> None:
        """See ``Owner``."""

    def out_of_order(self, host: str, files: int) -> None:
        """See ``Owner``."""

    def moved(self, host: str, files: int) -> None:
        """See ``Owner``."""

    def demote(self, task: FetchTask) -> None:
        """See ``Owner``."""

    def deliver(self, task: FetchTask, body: Body) -> None:
        """Store ``body``, whose connection is in step, after other connections have been read."""

    def store_completed(self, origin_state: OriginState, completed: list[tuple[FetchTask, Body]]) -> None:
        """Store the files among ``completed`` now, and report failures."""

    def open_writer(self, task: FetchTask, length: int = 0) -> CheckedWriter:
        """See ``task.open_writer``."""

    def release(self, host: Host) -> None:
        """See ``Owner``."""

    def fatal(self, error: Exception) -> None:
        """See ``Owner``."""
