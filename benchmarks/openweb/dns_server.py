"""``python -m benchmarks.openweb.dns_server``: serve the zone over UDP and TCP, each answer after a delay.

It prints ``listening ADDRESS:PORT``; on SIGUSR1, and when SIGTERM or SIGINT ends it, the counts as a line
of JSON. Queries that arrive together are read together and answered from a queue with one timer, so that
one core answers several times as many as the clients send.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.openweb.names import Addresses, own_addresses
from benchmarks.openweb.zone import Zone

__all__ = ["serve"]

_TOGETHER: Final = 256  # datagrams read before answers that are due are sent
_LARGEST: Final = 4096
_BUFFER: Final = 4 << 20  # a client may send a query for each of its threads at the same time
_LENGTH: Final = struct.Struct("!H")


class _Datagrams:
    """Answers over UDP. All have the same delay, so the queue is in the order in which they are due."""

    def __init__(self, zone: Zone, listener: socket.socket, delay: float) -> None:
        self._zone, self._listener, self._delay = zone, listener, delay
        self._loop = asyncio.get_running_loop()
        self._due: collections.deque[tuple[float, bytes, Any]] = collections.deque()
        self._waiting = False
        self._loop.add_reader(listener, self._read)

    def _read(self) -> None:
        due = self._loop.time() + self._delay
        with contextlib.suppress(BlockingIOError):
            for _ in range(_TOGETHER):
                query, client = self._listener.recvfrom(_LARGEST)
                if (answer := self._zone.answer(query)) is not None:
                    self._due.append((due, answer, client))
        if not self._waiting:
            self._send()

    def _send(self) -> None:
        now = self._loop.time()
        while self._due and self._due[0][0] <= now:
            _, answer, client = self._due.popleft()
            with contextlib.suppress(OSError):  # a full buffer loses it, as a network would
                self._listener.sendto(answer, client)
        self._waiting = bool(self._due)
        if self._waiting:
            self._loop.call_at(self._due[0][0], self._send)


async def _streams(
    zone: Zone, delay: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            answer = zone.answer(await reader.readexactly(length))
            if answer is not None:
                loop.call_later(delay, writer.write, _LENGTH.pack(len(answer)) + answer)
    loop.call_later(delay, writer.close)


async def serve(
    zone: Zone, address: str, port: int, delay: float, say: Callable[[str], None]
) -> dict[str, object]:
    """Serve ``zone`` until a signal ends it, and return the counts; ``delay`` is in seconds."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, lambda: say(json.dumps(zone.counts())))
    streams = await asyncio.start_server(
        lambda reader, writer: _streams(zone, delay, reader, writer), address, port
    )
    port = streams.sockets[0].getsockname()[1]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind((address, port))
        _Datagrams(zone, listener, delay)
        say(f"listening {address}:{port}")
        await ended.wait()
        loop.remove_reader(listener)
    streams.close()
    return zone.counts()


@click.command()
@click.option("--address", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any that is free.")
@click.option("--delay-ms", type=click.FloatRange(0), default=20.0, show_default=True)
@click.option("--live", help="First address of the names that work.")
@click.option("--live-count", type=click.IntRange(1), default=1, show_default=True)
@click.option("--refuse")
@click.option("--void")
@click.option(
    "--servfails", type=(int, int), default=(1, 2), show_default=True, help="Minimum and maximum."
)
@click.option("--counts", type=click.Path(path_type=Path), help="Write the counts there at the end, too.")
def main(
    address: str,
    port: int,
    delay_ms: float,
    live: str | None,
    live_count: int,
    refuse: str | None,
    void: str | None,
    servfails: tuple[int, int],
    counts: Path | None,
) -> None:
    """Serve the names of the open web until SIGTERM or SIGINT."""
    own = own_addresses()
    addresses = Addresses(address, refuse or own.refuse, void or own.void, live or own.live, live_count)
    zone = Zone(addresses, servfails)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    found = json.dumps(asyncio.run(serve(zone, address, port, delay_ms / 1000, say)))
    if counts is not None:
        counts.write_text(found)
    with contextlib.suppress(BrokenPipeError):
        say(found)


if __name__ == "__main__":
    main()
