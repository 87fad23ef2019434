"""Exchange messages of supervisor and children: MessagePack in length-prefixed frames over a socketpair.

``Link`` is the supervisor's end, ``ChildLink`` that of a patched child; sending never blocks on either.
``PlainChildLink`` is that of a child without gevent.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from downloader.core.frames import Unpacker, pack
from downloader.errors import UNDECODABLE
from downloader.messages import FromChild, Message, ToChild
from downloader.process.private_parts import raw_socket
from downloader.process.readiness import readable

__all__ = ["ChildLink", "Link", "PlainChildLink"]

_CHUNK = 256 << 10
_encode = msgspec.msgpack.Encoder().encode
_from_child = msgspec.msgpack.Decoder(FromChild)
_to_child = msgspec.msgpack.Decoder(ToChild)


class Link:
    """The supervisor's end. What cannot be sent at once stays in ``outgoing``, whose size credit bounds."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._unpacker = Unpacker()
        self._broken = False
        self.outgoing = bytearray()

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._sock.fileno()

    def send(self, message: Message) -> None:
        """Send as much as the socket accepts; a peer that has exited is noticed when receiving."""
        self.outgoing += pack(_encode(message))
        self.flush()

    def flush(self) -> None:
        """Continue sending."""
        try:
            while self.outgoing:
                sent = self._sock.send(self.outgoing)
                del self.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.outgoing.clear()

    def receive(self) -> tuple[list[FromChild], bool]:
        """Return the messages that have arrived, and whether the child's end is still open.

        A child that is killed may leave half a frame; it is dropped with the link.
        """
        messages: list[FromChild] = []
        if self._broken:
            return messages, False  # the start of the next frame is not known
        # Limited, so that one busy child does not delay the others.
        for _ in range(16):
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError:
                return messages, True
            except OSError:
                return messages, False
            if not data:
                return messages, False
            try:
                messages += [_from_child.decode(frame) for frame in self._unpacker.feed(data)]
            except UNDECODABLE:
                self._broken = True
                return messages, False
        return messages, True

    def close(self) -> None:
        """Close this end."""
        self._sock.close()


class PlainChildLink:
    """The child's end, over any kind of socket. ``send`` waits until the socket accepts all."""

    def __init__(self, fileno: int) -> None:
        self._sock: Any = self._socket(fileno)
        self._unpacker = Unpacker()

    def _socket(self, fileno: int) -> Any:
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fileno)

    def send(self, message: Message) -> None:
        """Send messages in order. Raises OSError when the supervisor has exited."""
        self._sock.sendall(pack(_encode(message)))

    def flush(self) -> None:
        """Wait until all has been sent."""

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def receive(self, within: float | None = None) -> list[ToChild] | None:
        """Wait for messages, ``within`` seconds at most; return those that arrived whole.

        Returns None when the supervisor has closed its end or died.
        """
        try:
            # Not the socket's timeout, which would hold for what another greenlet sends meanwhile.
            if within is not None and not readable(self._sock, within):
                return []
            data = self._sock.recv(_CHUNK)
        except OSError:
            return None
        return [_to_child.decode(frame) for frame in self._unpacker.feed(data)] if data else None

    def messages(self) -> Iterator[ToChild]:
        """Yield what the supervisor sends, until it closes its end or dies."""
        while (arrived := self.receive()) is not None:
            yield from arrived


class ChildLink(PlainChildLink):
    """The child's end, over gevent's socket.

    ``send`` never blocks and may be called from anywhere, callbacks of the hub included. A greenlet sends
    what the socket does not accept at once. Credit bounds how much that can be.
    """

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno)
        self._raw = raw_socket(self._sock)
        self._waiting = bytearray()
        self._writer: Any = None

    def _socket(self, fileno: int) -> Any:
        from gevent.socket import socket as gevent_socket

        return gevent_socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fileno)

    def send(self, message: Message) -> None:
        """Send messages in order; that the supervisor has exited is noticed when receiving."""
        import gevent

        frame = pack(_encode(message))
        if self._writer is None:
            try:
                sent = self._raw.send(frame)
            except BlockingIOError:
                sent = 0
            except OSError:
                return
            if sent == len(frame):
                return
            frame = frame[sent:]
            self._waiting += frame
            self._writer = gevent.spawn(self._write)
            return
        self._waiting += frame

    def _write(self) -> None:
        try:
            while self._waiting:
                data = bytes(self._waiting)
                self._waiting.clear()
                self._sock.sendall(data)
        except OSError:
            self._waiting.clear()  # the reader of `messages` notices that the peer has exited
        finally:
            self._writer = None

    def flush(self) -> None:
        """Wait until all has been sent."""
        if self._writer is not None:
            self._writer.join()
