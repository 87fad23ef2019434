"""Which lane a file takes: the wire lane where it will do, the requests lane otherwise."""

from __future__ import annotations

from downloader import patching

patching.require()

from collections.abc import Callable  # noqa: E402

from downloader.config import Config  # noqa: E402
from downloader.errors import FetchError  # noqa: E402
from downloader.lanes.fetch import Fetched, Postponed, RequestsLane  # noqa: E402
from downloader.lanes.reading import HandOver  # noqa: E402
from downloader.lanes.session import LaneSession, Origin  # noqa: E402
from downloader.lanes.wire import WireLane  # noqa: E402
from downloader.sinks import Sink  # noqa: E402

__all__ = ["Lanes"]


class Lanes:
    """Both lanes over one session and one sink; ``gate`` as in ``RequestsLane``."""

    def __init__(
        self, config: Config, session: LaneSession, sink: Sink, gate: Callable[[str], float]
    ) -> None:
        self._requests = RequestsLane(config, session, sink, gate)
        self._wire = WireLane(config, session, sink)
        self.sweep = self._wire.sweep

    def fetch(
        self,
        url: str,
        origin: Origin,
        name: str,
        seq: int,
        index: int,
        *,
        size: int = -1,
        replace: bool = False,
    ) -> Fetched:
        """Store the file at ``url``, of ``origin``, as ``name``, item ``index`` of batch ``seq``.

        ``size`` is what the source promises, or -1. Raises FetchError, DestinationError, Postponed.
        """
        if not self._wire.takes(origin):
            return self._requests.fetch(url, name, seq, index, size=size, replace=replace)
        try:
            return self._wire.fetch(url, origin, name, seq, index, size=size, replace=replace)
        except HandOver:
            pass
        # The request that was handed over has been sent all the same.
        try:
            done = self._requests.fetch(url, name, seq, index, size=size, replace=replace)
        except (FetchError, Postponed) as error:
            error.requests += 1
            error.wire += 1
            raise
        return done._replace(requests=done.requests + 1, wire=1)
