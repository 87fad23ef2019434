"""Carry out what the driver asks of Ray: the process that calls Ray, one call at a time.

Calls and answers are frames. A call that Ray does not return from is not answered; the driver gives it up.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from downloader.cluster.driver.fleet import Fleet
from downloader.cluster.node.task import SliceTask
from downloader.core.frames import Unpacker, pack
from downloader.errors import DownloaderError

__all__ = ["LOST", "Answer", "Call", "serve"]

LOST = "lost"
"""The kind of an answer that says that the cluster is lost."""
_CHUNK = 256 << 10
_encode = msgspec.msgpack.encode


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call of a method of a Fleet; ``given`` is the MessagePack of its arguments, an array."""

    method: str
    given: bytes


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What the call has returned, in MessagePack; or the error, by the name of its class, or LOST."""

    value: bytes = b""
    kind: str = ""
    text: str = ""


def serve(calls: int, address: str, temporary: str) -> int:
    """Connect to the cluster at ``address``, and answer calls until the other end is closed.

    ``temporary``: the directory of a cluster that is started here.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=calls)
    decode = msgspec.msgpack.Decoder(Call).decode
    fleet: Fleet | None = None
    unpacker = Unpacker()
    with contextlib.suppress(OSError):
        while data := link.recv(_CHUNK):
            for frame in unpacker.feed(data):
                call = decode(frame)
                if call.method == "open":
                    (limit,) = msgspec.msgpack.decode(call.given, type=tuple[float])
                    answer, fleet = _open(address, temporary, limit)
                elif fleet is None:
                    answer = Answer(kind=LOST, text="it is not open")
                else:
                    answer = _answer(fleet, call)
                link.sendall(pack(_encode(answer)))
    if fleet is not None:
        fleet.close()
    return 0


def _open(address: str, temporary: str, limit: float) -> tuple[Answer, Fleet | None]:
    try:
        return Answer(), Fleet(address, temporary, limit)
    except DownloaderError as error:
        return Answer(kind=type(error).__name__, text=str(error)), None


def _answer(fleet: Fleet, call: Call) -> Answer:
    types, method = _METHODS[call.method]
    try:
        value = method(fleet, *msgspec.msgpack.decode(call.given, type=types))
        return Answer(_encode(value))
    except DownloaderError as error:
        return Answer(kind=type(error).__name__, text=str(error))
    except Exception as error:  # of Ray, which has many
        text = str(error).strip().partition("\n")[0]
        return Answer(kind=LOST, text=f"{type(error).__name__}: {text}"[:500])


_METHODS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "slots": (tuple[int], lambda fleet, workers: [fleet.slots(workers), fleet.nodes]),
    "configure": (tuple[bytes], Fleet.configure),
    "start": (tuple[SliceTask, int], Fleet.start),
    "wait": (tuple[float], lambda fleet, seconds: list(fleet.wait(seconds))),
    "collect": (tuple[float, bool], Fleet.collect),
    "disks": (tuple[str, str], lambda fleet, output, plan: sorted(fleet.disks(output, plan))),
    "cancel": (tuple[()], Fleet.cancel),
}
