"""Delay what passes between clients and a server, as a network with a round trip does.

``python -m benchmarks.relay --to 127.0.0.1:8000 --rtt 20ms`` prints ``listening 127.0.0.1:PORT`` and
forwards each connection that is made there. What arrives on one side leaves on the other half a round
trip later, whatever is on its way already: the delay does not limit the throughput. It needs no
privileges, other than ``tc netem``.

The kernel accepts a connection at once. So that the TCP handshake takes a round trip here too, nothing
that a client sends in the first one is read before that is over. What TCP itself does over a long way (a
window that grows, lost segments) is not imitated.

::

    client ──► read ──► queue, in order of due times ──► write ──► server
    client ◄── write ◄──          (the same one)          ◄── read ◄── server
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import sys
from collections import deque
from time import monotonic
from typing import Final

import click

from downloader.core.units import parse_time
from downloader.process.file_descriptors import raise_limit

__all__ = ["Relay"]

_BUFFER: Final = 256 << 10
_BACKLOG: Final = 4096
# Bytes of one direction of a connection on their way, from which on no more are read.
_MAX_ON_WAY: Final = 16 << 20
# epoll waits whole milliseconds, rounded up. What is due within this time leaves now: so the mean is right.
_EARLY: Final = 0.0005
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER with timeout 0: closing sends a reset
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class _End:
    """One of the two sockets of a connection.

    ``on_way``: bytes read here and not yet written to ``peer``; ``unsent``: what the socket had no room
    for; ``ended``: it sends no more; ``finished``: nothing more is written to it; ``events``: what epoll
    watches.
    """

    __slots__ = ("ended", "events", "finished", "on_way", "peer", "sock", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.peer = self
        self.on_way = 0
        self.unsent = bytearray()
        self.ended = self.finished = False
        self.events = 0


class Relay:
    """A relay from ``listener`` to the address ``target``; a round trip takes ``rtt`` seconds longer."""

    def __init__(self, listener: socket.socket, target: tuple[str, int], rtt: float) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._target = target
        self._rtt, self._delay = rtt, rtt / 2
        self._epoll = select.epoll()
        self._epoll.register(listener, _IN)
        self._ends: dict[int, _End] = {}
        self._buffer = memoryview(bytearray(_BUFFER))
        # Each delay is the same, so both queues are in order. Empty data is the end; None is a reset.
        self._queue: deque[tuple[float, _End, bytes | None]] = deque()
        self._handshakes: deque[tuple[float, _End]] = deque()

    def run(self) -> None:
        """Forward until the process ends."""
        poll, ends, listening = self._epoll.poll, self._ends, self._listener.fileno()
        while True:
            for fd, events in poll(self._wait()):
                if fd == listening:
                    self._accept()
                elif end := ends.get(fd):
                    if events & _OUT:
                        self._write(end, b"")
                    if events & ~_OUT and not end.ended:
                        self._read(end)
            self._forward()

    def _wait(self) -> float | None:
        """Return the seconds until something is due, None if nothing will be."""
        due = [queue[0][0] for queue in (self._queue, self._handshakes) if queue]
        return max(min(due) - _EARLY - monotonic(), 0.0) if due else None

    def _accept(self) -> None:
        while True:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                return
            client, server = _End(sock), _End(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            client.peer, server.peer = server, client
            server.sock.connect_ex(self._target)  # an error is found by the first read
            for end in (client, server):
                self._ends[end.sock.fileno()] = end
            self._watch(server, _IN)
            self._handshakes.append((monotonic() + self._rtt, client))

    def _watch(self, end: _End, events: int) -> None:
        if events != end.events:
            if not end.events:
                self._epoll.register(end.sock, events)
            elif events:
                self._epoll.modify(end.sock, events)
            else:
                self._epoll.unregister(end.sock)
            end.events = events

    def _read(self, end: _End) -> None:
        data: bytes | None
        try:
            data = bytes(self._buffer[: end.sock.recv_into(self._buffer)])
        except BlockingIOError:
            return
        except OSError:
            data = None
        self._queue.append((monotonic() + self._delay, end.peer, data))
        if data:
            end.on_way += len(data)
        else:
            end.ended = True
        if not data or end.on_way > _MAX_ON_WAY:
            self._watch(end, end.events & ~_IN)

    def _forward(self) -> None:
        """Write what is due."""
        queue, handshakes, now = self._queue, self._handshakes, monotonic() + _EARLY
        while handshakes and handshakes[0][0] <= now:
            client = handshakes.popleft()[1]
            if client.sock.fileno() >= 0:
                self._watch(client, client.events | _IN)
        while queue and queue[0][0] <= now:
            _, end, data = queue.popleft()
            if end.sock.fileno() < 0:
                continue
            if data is None:
                self._close(end, reset=True)
            elif data:
                self._write(end, data)
            else:
                end.finished = True
                self._finish(end)

    def _write(self, end: _End, data: bytes) -> None:
        """Write ``data``, behind what is unsent."""
        unsent = end.unsent
        if unsent:
            unsent += data
        try:
            sent = end.sock.send(unsent or data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(end, reset=True)
            return
        if unsent:
            del unsent[:sent]
        elif sent < len(data):
            unsent += data[sent:]
        self._watch(end, end.events | _OUT if unsent else end.events & ~_OUT)
        peer = end.peer
        peer.on_way -= sent
        if not peer.ended and not peer.events & _IN and peer.on_way < _MAX_ON_WAY // 2:
            self._watch(peer, peer.events | _IN)
        if end.finished:
            self._finish(end)

    def _finish(self, end: _End) -> None:
        """Pass the end on to ``end``, once all before it is written."""
        if end.unsent:
            return
        if end.peer.finished and not end.peer.unsent:
            self._close(end)
            return
        with contextlib.suppress(OSError):
            end.sock.shutdown(socket.SHUT_WR)

    def _close(self, end: _End, *, reset: bool = False) -> None:
        for each in (end, end.peer):
            if reset:
                with contextlib.suppress(OSError):
                    each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._watch(each, 0)
            del self._ends[each.sock.fileno()]
            each.sock.close()
        end.peer.peer = end.peer  # without the cycle no garbage collection is needed
        end.peer = end


@click.command()
@click.option("--to", "target", required=True, metavar="HOST:PORT", help="The server.")
@click.option("--rtt", default="0", show_default=True, metavar="T", help="The round trip: 20ms, 0.1s.")
def main(target: str, rtt: str) -> None:
    """Forward connections to a server, delayed by a round trip; print where, and run until SIGTERM."""
    host, _, port = target.rpartition(":")
    if not (host and port.isdecimal()):
        raise click.UsageError(f"--to: {target!r} is not HOST:PORT")
    try:
        seconds = parse_time(rtt)
    except ValueError as error:
        raise click.UsageError(f"--rtt: {error}") from error
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    raise_limit()
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    sys.stdout.write(f"listening 127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    Relay(listener, (host, int(port)), seconds).run()


if __name__ == "__main__":
    main()
