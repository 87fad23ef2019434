"""Classify what greenlets wait for, from their stacks, and find what limits how many wait at once. Pure.

A program may limit its requests on purpose: by a rate, or by a pool of a few connections. That is no
serialization. It is reported by name, since the time is far above that of N simultaneous requests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from diagnostics.source_places import Spot

__all__ = [
    "asleep",
    "blocking_arguments",
    "in_future",
    "in_look_up",
    "in_network",
    "in_pool",
    "in_queue",
    "in_sleep",
    "in_turn",
    "limit_of",
    "pool_made",
    "queued",
    "stand_in_line",
]

# The functions that take a connection from a pool: urllib3's, geventhttpclient's, httpx's.
_POOLS: Final[dict[str, str | tuple[str, ...]]] = {
    "_get_conn": "connectionpool.py",
    "get_socket": "geventhttpclient/connectionpool.py",
    "wait_for_connection": ("httpcore/_sync/connection_pool.py", "httpcore2/_sync/connection_pool.py"),
}
# The files of the frames inside of those functions while a greenlet waits in the pool's queue.
_QUEUES = re.compile(r"/([Qq]ueue|threading|_synchronization)\.py$|/gevent/(?!_?select)")
_NETWORK = (
    "ssl.py",
    "gevent/_socket2.py",
    "gevent/_socket3.py",
    "gevent/_socketcommon.py",
    "gevent/_ssl3.py",
    "gevent/select.py",
    "OpenSSL/SSL.py",
)
_LOOK_UPS = {"getaddrinfo", "gethostbyname", "gethostbyname_ex"}
_GEVENT = re.compile(r"/gevent/")
_LOCKS = re.compile(r"/gevent/(thread|lock|_semaphore|_abstract_linkable)\.py$")
# Fractions of the time in which the greenlets were observed.
_MOSTLY = 0.5
_SOME = 0.4


def _file(spot: Spot) -> str:
    return str(spot[0]).replace("\\", "/")


def in_pool(stack: Sequence[Spot]) -> bool:
    """Return whether it waits for a connection of a pool: in the pool's queue.

    Other calls of the pool, such as the check whether an idle connection is still open, wait for no other
    greenlet.
    """
    for number, spot in enumerate(stack[:10]):
        if spot[2] in _POOLS and _file(spot).endswith(_POOLS[spot[2]]):
            return all(_QUEUES.search(_file(inner)) for inner in stack[:number])
    return False


def pool_made(stack: Sequence[Spot]) -> tuple[str, ...]:
    """Return patterns for the line that creates the pool in which ``stack`` waits, the likeliest first."""
    files = " ".join(_file(spot) for spot in stack)
    if "/httpcore/" in files or "/httpcore2/" in files:
        return (r"\bmax_connections\s*=",)
    if "/geventhttpclient/" in files:
        return (r"\b(HTTPClient|UserAgent|Session)\b.*\(",)
    return tuple(rf"\b{name}\s*=\s*True" for name in blocking_arguments(stack))


def blocking_arguments(stack: Sequence[Spot]) -> tuple[str, str]:
    """Return the arguments that let requests wait for a connection where ``stack`` does.

    The likelier one first: that of an adapter of requests, or that of a pool of urllib3.
    """
    of_requests = any(_file(spot).endswith("/requests/adapters.py") for spot in stack)
    return ("pool_block", "block") if of_requests else ("block", "pool_block")


def in_sleep(stack: Sequence[Spot]) -> bool:
    """Return whether it sleeps in gevent, by ``gevent.sleep`` or a patched ``time.sleep``."""
    return any(spot[2] == "sleep" and _GEVENT.search(_file(spot)) for spot in stack[:4])


def in_future(stack: Sequence[Spot]) -> bool:
    """Return whether it waits for what an executor runs."""
    return any(
        spot[2] == "result" and _file(spot).endswith("concurrent/futures/_base.py") for spot in stack
    )


def in_queue(stack: Sequence[Spot]) -> bool:
    """Return whether it waits in a queue, for something to come or to be taken."""
    return any(spot[2] in ("get", "put") and _file(spot).endswith("queue.py") for spot in stack[:8])


def in_look_up(stack: Sequence[Spot]) -> bool:
    """Return whether it waits for a name to be looked up, not for a lock of a program's own look-up."""
    for number, spot in enumerate(stack[:8]):
        if spot[2] in _LOOK_UPS:
            files = [_file(each) for each in stack[: number + 1]]
            in_gevent = any(_GEVENT.search(each) and not _LOCKS.search(each) for each in files)
            return in_gevent or files[-1].endswith("/socket.py")
    return False


def in_network(stack: Sequence[Spot]) -> bool:
    """Return whether it waits for its own connection."""
    return any(_file(spot).endswith(_NETWORK) for spot in stack[:6])


def in_turn(stack: Sequence[Spot]) -> bool:
    """Return whether it waits for other greenlets: for a connection of a pool, a lock, a semaphore."""
    return not (in_network(stack) or in_look_up(stack) or in_sleep(stack))


def asleep(result: dict[str, Any]) -> dict[str, Any] | None:
    """Return where greenlets slept most, if they slept for most of the time; else None."""
    parked: list[dict[str, Any]] = result["parked"]
    slept = [each for each in parked if in_sleep(each["stack"])]
    if sum(each["during"] for each in slept) < _MOSTLY * max(result["looked"], 0.1):
        return None
    return max(slept, key=lambda each: float(each["during"]))


def queued(result: dict[str, Any], many: int, together: float) -> dict[str, Any] | None:
    """Return where greenlets waited in a queue, if most of the rest did; else None.

    The rest are those of the ``many`` that were not among the ones whose requests were made ``together``.
    """
    minimum = max(2.0, 0.6 * (many - together))
    parked: list[dict[str, Any]] = result["parked"]
    return next((each for each in parked if each["most"] >= minimum and in_turn(each["stack"])), None)


def stand_in_line(result: dict[str, Any], many: float) -> bool:
    """Return whether ``many`` greenlets waited in one queue, and some for a good part of the time."""
    parked: list[dict[str, Any]] = result["parked"]
    minimum = _SOME * max(result["looked"], 0.1)
    return any(
        each["most"] >= many and each["during"] >= minimum and in_turn(each["stack"]) for each in parked
    )


def limit_of(result: dict[str, Any], many: int, together: float) -> str:
    """Return how the program limits its requests: ``rate-limit``, ``small-pool``, or "".

    A pool that lets less than a fifth of ``many`` through ``together`` is no limit in this sense.
    """
    if asleep(result) is not None:
        return "rate-limit"
    return "small-pool" if together >= many / 5 and queued(result, many, together) is not None else ""
