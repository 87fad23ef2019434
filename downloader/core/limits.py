"""Maximum values of options. Greater values would fail later, with less clear errors."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DEEPEST_PIPELINE",
    "LARGEST_INTEGER",
    "LONGEST_TIME",
    "MOST_ADAPTIVE_CONNECTIONS",
    "MOST_BATCH_ITEMS",
    "MOST_CONNECTIONS",
    "MOST_WORKERS",
]

MOST_WORKERS: Final = 1024
MOST_CONNECTIONS: Final = 16_384  # per worker; each takes a file descriptor
MOST_ADAPTIVE_CONNECTIONS: Final = 1024  # per worker, of --connections auto
DEEPEST_PIPELINE: Final = 1024  # requests in flight on one connection
MOST_BATCH_ITEMS: Final = 1_000_000  # what is read from a journal is damaged if it has more
LONGEST_TIME: Final = 366 * 86_400.0  # seconds; system timers overflow somewhere beyond it
LARGEST_INTEGER: Final = 2**63 - 1  # larger whole numbers do not survive a round trip through JSON
