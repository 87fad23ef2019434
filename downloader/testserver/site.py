"""Hold the state that all connections of one process share: the served content and the counters."""

from __future__ import annotations

import json
from typing import Final, Protocol
from urllib.parse import parse_qs

from downloader.testserver import content
from downloader.testserver.counters import (
    CONNECTIONS_OPEN,
    CONNECTIONS_OPENED,
    CONNECTIONS_PEAK,
    Counters,
)
from downloader.testserver.drops import Drops
from downloader.testserver.settings import Settings

__all__ = ["Site"]

_READ: Final = 1 << 16


class Abortable(Protocol):
    """A connection."""

    def abort(self) -> None:
        """End it at once."""


class Site:
    """The shared state of all connections of one process."""

    def __init__(self, settings: Settings, counters: Counters, process: int = 0) -> None:
        self.files = settings.files
        self.size = settings.size
        self.page = settings.page
        self.delay = settings.delay
        self.delayed = settings.delay[1] > 0
        self.marker_key = "NextFile" if settings.next_file_alias else "NextMarker"
        self.tls = settings.tls
        self.close_after = settings.close_after
        self.drops = Drops(settings.drop_rate, settings.seed, process) if settings.drop_rate else None
        self.counters = counters
        self.counts = counters.slot(process)
        self.connections: set[Abortable] = set()
        # Shared by all connections: data is parsed before another connection reads.
        self.buffer = memoryview(bytearray(_READ))

    def opened(self, connection: Abortable) -> None:
        """Count a new connection."""
        self.connections.add(connection)
        counts = self.counts
        counts[CONNECTIONS_OPENED] += 1
        counts[CONNECTIONS_OPEN] += 1
        counts[CONNECTIONS_PEAK] = max(counts[CONNECTIONS_PEAK], self.counters.total(CONNECTIONS_OPEN))

    def closed(self, connection: Abortable) -> None:
        """Count the end of a connection."""
        self.connections.discard(connection)
        self.counts[CONNECTIONS_OPEN] -= 1

    def listing(self, query: str) -> bytes | None:
        """Return the page that ``query`` requests, None if its marker is unknown."""
        markers = parse_qs(query, keep_blank_values=True).get("next-marker")
        start: int | None = 0
        if markers is not None:
            start = content.start_of(markers[0], self.files, self.page)
        if start is None or (markers is not None and len(markers) > 1):
            return None
        return content.page_json(start, self.files, self.page, self.marker_key)

    def stats(self) -> bytes:
        """Return the counts of all processes, as JSON."""
        return json.dumps(self.counters.as_dict()).encode()
