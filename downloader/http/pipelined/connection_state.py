"""The states of a pipelined connection, and what leads from one to the next.

::

    IDLE ──START──► SERVING ──PIPELINE──► PIPELINING ──RECHECK──► RECHECKING ──REST──► RESTING
      ▲               │ ▲ ▲                   │                                          │
      └────FINISH─────┘ │ └──────COMMIT───────┴──────────────────COMMIT──────────────────┘
                        └──COMMIT── AWAITING_CLOSE ◄──AWAIT_CLOSE── SERVING

CLOSE leads to CLOSED from everywhere, COMMIT from RECHECKING to SERVING: a file that was in flight alone is
stored whatever becomes of its recheck.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from downloader.core.state_machine import Transitions

__all__ = ["DEEP", "TRANSITIONS", "ConnectionEvent", "ConnectionState"]


class ConnectionState(Enum):
    """IDLE: open, without a slot. SERVING: one request at a time is in flight, and each response is stored
    at once. PIPELINING: more than one request of the current window was in flight, or it is a file that is
    to be requested again before anything is pipelined; responses are held.
    RECHECKING: all of them are answered, and some of its files are requested again. RESTING: these are
    answered, too; the window is committed if nothing more arrives. AWAITING_CLOSE: the last request that
    the server answers on a connection is answered. CLOSED: the socket is closed."""

    __hash__ = object.__hash__  # that of Enum is written in Python

    IDLE = "idle"
    SERVING = "serving"
    PIPELINING = "pipelining"
    RECHECKING = "rechecking"
    RESTING = "resting"
    AWAITING_CLOSE = "awaiting close"
    CLOSED = "closed"


class ConnectionEvent(Enum):
    """START: the first request of a task is sent. PIPELINE: a second request is in flight. RECHECK: the
    window is complete. REST: it waits to be committed. AWAIT_CLOSE: the server is given the time to close.
    COMMIT: the window is stored. FINISH: there are no more tasks. CLOSE: the socket is closed."""

    __hash__ = object.__hash__

    START = "start"
    PIPELINE = "pipeline"
    RECHECK = "recheck"
    REST = "rest"
    AWAIT_CLOSE = "await close"
    COMMIT = "commit"
    FINISH = "finish"
    CLOSE = "close"


_STATE, _EVENT = ConnectionState, ConnectionEvent

TRANSITIONS: Final[Transitions[ConnectionState, ConnectionEvent]] = {
    _STATE.IDLE: {_EVENT.START: _STATE.SERVING, _EVENT.CLOSE: _STATE.CLOSED},
    _STATE.SERVING: {
        _EVENT.PIPELINE: _STATE.PIPELINING,
        _EVENT.AWAIT_CLOSE: _STATE.AWAITING_CLOSE,
        _EVENT.COMMIT: _STATE.SERVING,
        _EVENT.FINISH: _STATE.IDLE,
        _EVENT.CLOSE: _STATE.CLOSED,
    },
    _STATE.PIPELINING: {
        _EVENT.PIPELINE: _STATE.PIPELINING,
        _EVENT.RECHECK: _STATE.RECHECKING,
        _EVENT.COMMIT: _STATE.SERVING,
        _EVENT.CLOSE: _STATE.CLOSED,
    },
    _STATE.RECHECKING: {
        _EVENT.REST: _STATE.RESTING,
        _EVENT.COMMIT: _STATE.SERVING,
        _EVENT.CLOSE: _STATE.CLOSED,
    },
    _STATE.RESTING: {_EVENT.COMMIT: _STATE.SERVING, _EVENT.CLOSE: _STATE.CLOSED},
    _STATE.AWAITING_CLOSE: {_EVENT.COMMIT: _STATE.SERVING, _EVENT.CLOSE: _STATE.CLOSED},
    _STATE.CLOSED: {_EVENT.CLOSE: _STATE.CLOSED},
}

DEEP: Final = frozenset({ConnectionState.PIPELINING, ConnectionState.RECHECKING, ConnectionState.RESTING})
"""The states in which responses are held, since one too many would shift all that follow."""
