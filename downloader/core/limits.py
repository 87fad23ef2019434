"""The most that a run can be told; more would only break in a stranger place."""

from __future__ import annotations

from typing import Final

__all__ = ["DEEPEST_PIPELINE", "LONGEST_TIME", "MOST_CONNECTIONS", "MOST_WORKERS"]

MOST_WORKERS: Final = 1024
MOST_CONNECTIONS: Final = 16_384  # of one worker; each takes a descriptor
DEEPEST_PIPELINE: Final = 1024  # requests in flight on one connection
LONGEST_TIME: Final = 366 * 86_400.0  # seconds; timers of the system end somewhere beyond it
