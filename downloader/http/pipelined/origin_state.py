"""Keep the state of one origin in the pipelined client, and measure its goodput."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from dataclasses import dataclass, replace
from time import monotonic, thread_time
from typing import Protocol

from downloader.core import pipeline_depth as depths
from downloader.core.goodput import Meter
from downloader.core.pipeline_order import OUT_OF_ORDER, Order, Verdict, contradicted, is_repeatable
from downloader.core.spent_connections import Patience
from downloader.http.origin import Origin
from downloader.http.pipelined.depth_trial import DepthTrial
from downloader.http.pipelined.header_shape import HeaderShape
from downloader.http.task import FetchTask

__all__ = ["Connections", "OriginState", "StorageCost"]

# Seconds without a connection after which a measurement is discarded. In less, one that was closed is
# replaced, which is a part of what is measured.
_IDLE = 1.0
# The number of requests after which Apache and nginx close a connection by default.
_USUAL_LIMITS = (100, 1000)


_NEW = Order()


@dataclass(slots=True)
class StorageCost:
    """The cost of storing so far: the number of ``files``, and the CPU ``seconds`` they took."""

    files: int = 0
    seconds: float = 0.0


class Connections(Protocol):
    """The connections of the client."""

    def in_flight(self, state: OriginState) -> int:
        """Return the number of requests to the origin of ``state`` that have no response yet."""


class OriginState:
    """The request template of an origin, its depth, and its server's handling of connections.

    ``limit``: number of requests after which the server closes a connection, 0 if unknown.
    ``no_keepalive``: the server sent a response without a request, so each connection is used once.
    ``trusted``: the server has responded to several requests in step, so a new connection need not begin
    with a single one. ``fallback_count``: responses in a row that needed the requests client. ``shapes``:
    see ``parser``; other origins share them. ``waits``: the number of connections is being adapted, and a
    slow server's depth waits for that. ``held``: fewer are being tried, and the depth stays. ``trial``:
    that of the next depth, None if none is under way.
    ``by_trial``: the depth was reached by a trial, and is not measured until the connections are adapted.
    ``order``: of its responses. ``patience``: with connections that refuse.
    """

    __slots__ = (
        "_active",
        "_began",
        "_body_size",
        "_broke_at",
        "_client",
        "_head",
        "_joint",
        "_meter",
        "_pipelined",
        "_stopped",
        "_stored",
        "_tail",
        "by_trial",
        "depth",
        "fallback_count",
        "held",
        "limit",
        "no_keepalive",
        "order",
        "origin",
        "patience",
        "shapes",
        "trial",
        "trusted",
        "waits",
    )

    def __init__(
        self,
        origin: Origin,
        template: tuple[bytes, bytes],
        depth: depths.Depth,
        stored: StorageCost,
        shapes: dict[tuple[bytes, ...], HeaderShape],
        client: Connections,
    ) -> None:
        self.origin = origin
        self._stored = stored
        self._head, self._tail = template
        self._joint = self._tail + self._head
        self.depth = depth
        self.order = _NEW
        self.patience = Patience()
        self._pipelined = 0  # files stored of windows
        self.fallback_count = self.limit = self._broke_at = self._body_size = 0
        self.no_keepalive = self.trusted = self.waits = self.held = self.by_trial = False
        self.trial: DepthTrial | None = None
        self.shapes = shapes
        self._client = client
        self._began = monotonic()
        self._active = 0
        self._stopped = 0.0
        self._meter = Meter()

    def requests(self, tasks: list[FetchTask]) -> bytes:
        """Return the bytes of the requests for ``tasks``."""
        if self.origin.has_extra_headers:
            return b"".join([self._request(task) for task in tasks])
        return self._head + self._joint.join([task.target for task in tasks]) + self._tail

    def _request(self, task: FetchTask) -> bytes:
        """Return the bytes of the request for ``task``, including its own header fields."""
        extra = task.request.headers if task.request is not None else ()
        lines = b"".join([f"{name}: {value}\r\n".encode("latin-1") for name, value in extra])
        return self._head + task.target + self._tail[:-2] + lines + b"\r\n"

    def record_window(self, count: int, size: int, *, deep: bool) -> None:
        """Record that ``count`` responses with ``size`` bytes in all are in step, ``deep``: of several."""
        self.trusted = self.trusted or deep
        if count:
            self._body_size = size // count

    def depth_of(self, connection: object) -> int:
        """Return how many requests may be in flight on ``connection``, which may try another depth."""
        if self.trial is not None and connection in self.trial.deep:
            return depths.next_depth(self.depth)
        return self.depth.now

    def depth_within(self, connection: object, memory: int) -> int:
        """Return the same for a ``connection`` whose responses have so much memory."""
        depth = self.depth_of(connection)
        return min(depth, max(1, memory // self._body_size)) if self._body_size else depth

    def wants_repeats(self) -> bool:
        """Return whether the next file that is in flight alone is to be requested again."""
        return not (is_repeatable(self.order) or self.order.why)

    def record_responses(self, now: float, count: int) -> None:
        """Record ``count`` more responses; the depth may change."""
        if not self._meter.record(now, count):
            return
        stored = self._stored
        per_file = stored.seconds / stored.files if stored.files else 0.0
        sample = self._meter.sample(
            now, self._client.in_flight(self), thread_time(), stored.seconds, per_file
        )
        if sample is None or self.held:
            return
        if self.waits and (self.by_trial or depths.waits(self.depth, sample.seconds)):
            return
        before, self.depth = self.depth, depths.measured(self.depth, sample)
        if self.depth.now != before.now:
            self._meter.stepped(before.now)

    @property
    def responses(self) -> int:
        """Return the number of responses so far."""
        return self._meter.total

    def deepens(self, now: float) -> bool:
        """Return whether the depth is still growing, and connections should not be added meanwhile."""
        return self._may_grow() and not self.is_slow(now)

    def is_slow(self, now: float) -> bool:
        """Return whether connections are added while the depth is tried."""
        return self._may_grow() and (self.by_trial or depths.waits(self.depth, now - self._began))

    def _may_grow(self) -> bool:
        return self.depth.most > 1 and not self.depth.stopped

    def end_trial(self, *, pays: bool | None) -> None:
        """Use the depth that follows from the trial; ``pays``: None if it was given up."""
        self.trial = None
        if pays is not None:
            self.depth = depths.tried(self.depth, pays=pays)
            self.by_trial = pays
            self._meter.restart()

    def record_starvation(self, requests: int) -> None:
        """Record that ``requests`` more could have been sent, but there were no tasks."""
        self._meter.record_starvation(requests)

    def restart_measurement(self) -> None:
        """Discard the current measurement: the number of connections has changed."""
        self._meter.restart()

    def connection_started(self, now: float) -> None:
        """Record that a connection has taken a slot."""
        if not self._active and now - self._stopped > _IDLE:
            self._meter.restart()
        self._active += 1

    def connection_stopped(self, now: float) -> None:
        """Record that a connection has freed its slot."""
        self._active -= 1
        if not self._active:
            self._stopped = now

    def window_judged(self, verdict: Verdict, count: int) -> int | None:
        """Act on ``verdict`` on a window of ``count``.

        Returns how many stored files are in doubt where it has found disorder, None where it has not.
        """
        before, self.order = self.order, verdict.order
        self._pipelined += count if verdict.store else 0
        if self.order.why and not before.why:
            self.disable_pipelining(self.order.why)
        if not self.order.why == OUT_OF_ORDER != before.why:
            return None
        files, self._pipelined = self._pipelined, 0
        return files

    def distrust(self) -> int | None:
        """Pipeline no more, since responses are out of order; return what ``window_judged`` does."""
        return self.window_judged(Verdict(replace(self.order, why=OUT_OF_ORDER), store=False), 0)

    def contradicted(self) -> None:
        """Recheck more files, since a response is not what the source states."""
        self.order = contradicted(self.order)

    def broke(self) -> None:
        """Reduce the depth after a connection ended with requests unanswered."""
        self._set_depth(depths.broke(self.depth))

    def broke_at(self, served: int) -> None:
        """Record that a connection ended unannounced after ``served`` responses.

        If two connections in a row end after the same number, it becomes the limit.
        """
        if served == self._broke_at:
            self.limit = served
        self._broke_at = served

    def closes_early(self, served: int) -> None:
        """Record that the server closes after ``served`` responses, within a window or with its last one.

        A surplus response before the close would look the same, so the window must not be stored.
        """
        self.broke_at(served)
        if not served or self.limit != served:
            self.broke()

    def window_end(self, committed: int) -> int:
        """Return the request after which the server may close the connection, 0 if none is known.

        It is the server's limit or the next usual one after ``committed`` responses in step. A window ends
        before this request.
        """
        return self.limit or next((usual for usual in _USUAL_LIMITS if committed < usual), 0)

    def closes(self, served: int) -> None:
        """Record that the server closed, or is about to close, after ``served`` responses."""
        if self.no_keepalive:
            return
        self.limit = served
        if served == 1:
            self.disable_pipelining("one request a connection")

    def disable_pipelining(self, why: str) -> None:
        """Send one request at a time from now on."""
        self._set_depth(depths.shut(self.depth, why))

    def limits_requests(self) -> None:
        """Reduce the depth after a response said that there were too many requests."""
        self._set_depth(depths.limited(self.depth))

    def large_body(self) -> None:
        """Reset the depth after a large body."""
        self._set_depth(depths.large(self.depth))

    def desynchronized(self) -> None:
        """Use each connection for one request only, since a response arrived without a request."""
        self.disable_pipelining("an answer that nobody asked for")
        self.no_keepalive = True
        self.limit = 1

    def _set_depth(self, depth: depths.Depth) -> None:
        """Continue at ``depth``; new connections begin with a single request again."""
        self.trusted = False
        if depth.now != self.depth.now:
            self._meter.restart()
        self.depth = depth
