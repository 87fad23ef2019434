"""List figures published by others, each with its source. None of them was measured by this project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["BILLION", "MILLION", "SESSIONS", "Million", "Session"]


@dataclass(frozen=True)
class Million:
    """A row of "Making 1 million requests with python-aiohttp".

    ``memory_mb`` is None where the article gives none.
    """

    seconds: float
    memory_mb: float | None


@dataclass(frozen=True)
class Session:
    """A row of "requests vs httpx vs aiohttp", in seconds: of the whole run, and of one request."""

    total: float
    mean: float
    median: float
    deviation: float


# Paweł Miech, "Making 1 million requests with python-aiohttp" (2016): requests to a local aiohttp
# server with a semaphore of 1,000, after "I'm going to reset server delays to zero now"; memory is
# GNU time's maxresident.
MILLION: Final = {
    1_000: Million(7.14, 53.704),
    10_000: Million(23.0, None),
    100_000: Million(53.0, 419.216),
    1_000_000: Million(545.17, 3811.64),
}

# "requests vs httpx vs aiohttp" (2023): ten sessions, 1,000 requests in all, to a public HTTPS server.
SESSIONS: Final = {
    "ten sessions: requests": Session(4.5194, 0.0448, 0.0414, 0.0279),
    "ten sessions: httpx": Session(4.4529, 0.0423, 0.0412, 0.0092),
    "ten sessions: aiohttp": Session(4.2363, 0.0418, 0.0390, 0.0132),
}

# James Saryerwinnie, "Downloading a Billion Files in Python" (talk): seconds per request, on a machine with
# 16 cores, over a network.
BILLION: Final = {
    "sequential": 0.003,
    "threads (10)": 0.0036,
    "threads (100)": 0.0042,
    "processes": 0.00032,
    "asyncio": 0.00056,
    "combo": 0.0000303,
}
