"""What the pipelined client knows of one origin, and what it measures of it."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from dataclasses import dataclass  # noqa: E402
from time import thread_time  # noqa: E402
from typing import Any  # noqa: E402

from downloader.core import pipeline_depth as depths  # noqa: E402
from downloader.http.session import Origin  # noqa: E402
from downloader.http.task import FetchTask  # noqa: E402

__all__ = ["OriginState", "StorageCost"]

# A measurement of goodput takes so long at least (seconds), and so many responses.
_EPOCH, _SAMPLES = 0.05, 400
# After so many requests Apache and nginx close a connection by default.
_USUAL_LIMITS = (100, 1000)


@dataclass(slots=True)
class StorageCost:
    """What the client has stored so far: ``files``, and the ``seconds`` of CPU that it took."""

    files: int = 0
    seconds: float = 0.0


class OriginState:
    """The request template of an origin, its depth, and how its server treats connections.

    ``limit``: after how many requests the server closes a connection, 0 where that is not known.
    ``no_keepalive``: the server sent a response without a request, so each connection is used once.
    ``trusted``: the server has answered several requests in step, so a new connection need not begin with
    a single one. ``fallback_count``: responses in a row that were for the requests client.
    """

    __slots__ = (
        "_broke_at",
        "_head",
        "_joint",
        "_responses",
        "_since",
        "_stored",
        "_storing",
        "_tail",
        "_waited",
        "_worked",
        "depth",
        "fallback_count",
        "limit",
        "no_keepalive",
        "origin",
        "shapes",
        "trusted",
    )

    def __init__(
        self, origin: Origin, template: tuple[bytes, bytes], depth: depths.Depth, stored: StorageCost
    ) -> None:
        self.origin = origin
        self._stored = stored
        self._head, self._tail = template
        self._joint = self._tail + self._head
        self.depth = depth
        self.fallback_count = self.limit = self._broke_at = 0
        self.no_keepalive = self.trusted = False
        self.shapes: dict[tuple[bytes, ...], Any] = {}
        self._since = self._worked = self._waited = self._storing = 0.0
        self._responses = 0

    def requests(self, tasks: list[FetchTask]) -> bytes:
        """Return the bytes of the requests for ``tasks``."""
        if self.origin.has_extra_headers:
            return b"".join([self._request(task) for task in tasks])
        return self._head + self._joint.join([task.target for task in tasks]) + self._tail

    def _request(self, task: FetchTask) -> bytes:
        """Return the bytes of the request for ``task``, with the headers that are its own."""
        extra = task.request.headers if task.request is not None else ()
        lines = b"".join([f"{name}: {value}\r\n".encode("latin-1") for name, value in extra])
        return self._head + task.target + self._tail[:-2] + lines + b"\r\n"

    def record_responses(self, now: float, count: int, latency: float) -> None:
        """Record ``count`` more responses, the slowest after ``latency`` seconds."""
        self._responses += count
        self._waited += latency * count
        elapsed = now - self._since
        if elapsed < _EPOCH or (self._responses < _SAMPLES and elapsed < 10 * _EPOCH):
            return
        responses, stored, worked = self._responses, self._stored, thread_time()
        if elapsed < 20 * _EPOCH:  # longer: there was nothing to do
            busy = min((worked - self._worked) / elapsed, 1.0)
            owed = responses * stored.seconds / stored.files if stored.files else 0.0
            debt = (owed - (stored.seconds - self._storing)) / elapsed
            sample = depths.Sample(responses / elapsed, self._waited / responses, busy, debt)
            self.depth = depths.measured(self.depth, sample)
        self._since, self._worked, self._storing = now, worked, stored.seconds
        self._responses, self._waited = 0, 0.0

    def discard_sample(self) -> None:
        """Discard the current measurement: there were fewer tasks than could have been sent."""
        self._since = 0.0

    def broke(self) -> None:
        """A connection ended with requests unanswered."""
        self._set_depth(depths.broke(self.depth))

    def broke_at(self, served: int) -> None:
        """A connection ended after ``served`` responses, unannounced: the same twice is a limit."""
        if served == self._broke_at:
            self.limit = served
        self._broke_at = served

    def closes_early(self, served: int) -> None:
        """The server closed, or is about to, after ``served`` responses, within a window or with its last.

        One response too many before that would look the same, so the window is not believed.
        """
        self.broke_at(served)
        if self.limit != served:
            self.broke()

    def window_end(self, committed: int) -> int:
        """Return the request after which the server may close a connection with ``committed`` responses in
        step, by its limit or a usual one: a window ends before it. 0: none is known."""
        return self.limit or next((usual for usual in _USUAL_LIMITS if committed < usual), 0)

    def closes(self, served: int) -> None:
        """The server closed, or is about to, after ``served`` responses."""
        if self.no_keepalive:
            return
        self.limit = served
        if served == 1:
            self.disable_pipelining("one request a connection")

    def disable_pipelining(self, why: str) -> None:
        """Send one request at a time from now on."""
        self._set_depth(depths.shut(self.depth, why))

    def large_body(self) -> None:
        """A large body has come."""
        self._set_depth(depths.large(self.depth))

    def desynchronized(self) -> None:
        """A response came without a request: no connection is trusted with a second one."""
        self.disable_pipelining("an answer that nobody asked for")
        self.no_keepalive = True
        self.limit = 1

    def _set_depth(self, depth: depths.Depth) -> None:
        """Go on at ``depth``; what a new connection can take has to be seen again."""
        self.trusted = False
        self.depth = depth
