"""Read and write the socket of one pipelined connection, without a greenlet.

urllib3 has opened and verified the connection. A watcher, created once, waits for data. Data is read into
a buffer that all connections share (a large ``recv`` maps, remaps and unmaps memory for every response).
TLS is read and written through the SSL object below gevent's socket.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any

import gevent

from downloader.http.connection_pool import UrllibConnection, is_unacknowledged, system_poll
from downloader.process.private_parts import raw_socket, tls_object

__all__ = ["ACKNOWLEDGED_AT_ONCE", "BUFFER", "SHORTEST_REST", "Blocked", "Transport"]

BUFFER = 512 << 10
_WIDE = 2 << 20
_READ, _WRITE = 1, 2
_RECORD = 16 << 10  # maximum size of a TLS record
_FULL = _RECORD // 2
_PEEK = socket.MSG_PEEK
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux

SHORTEST_REST = 0.005 if _QUICKACK is not None else 0.25
"""Seconds within which what the server has sent arrives: see ``Transport.acknowledge``."""

ACKNOWLEDGED_AT_ONCE = 32 << 10
"""Bytes in one read from which on they are acknowledged at once: see ``acknowledge``."""

Blocked = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""The exceptions that ``receive`` raises if nothing has arrived."""


def _closed(many: bool) -> int:
    raise OSError(errno.EBADF, "the connection is closed")


class Transport:
    """A non-blocking transport that calls ``readable`` when data has arrived.

    Exceptions of ``readable`` are passed to ``on_error``.

    ``receive(many)`` returns the number of bytes read into the buffer, 0 at the end; ``many``: several
    responses are outstanding. It raises Blocked if nothing has arrived, and OSError.
    """

    __slots__ = (
        "_buffer",
        "_connection",
        "_end",
        "_on_error",
        "_poll",
        "_raw",
        "_tls",
        "_unsent",
        "_watcher",
        "_wide",
        "_writable",
        "key",
        "receive",
    )

    def __init__(
        self,
        connection: UrllibConnection,
        buffer: memoryview,
        readable: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._connection = connection
        self._on_error = on_error
        self.key: tuple[str, int] = connection.key
        sock = connection.sock
        self._tls: Any = tls_object(sock)
        # gevent's sockets are non-blocking underneath.
        self._raw = raw_socket(sock)
        self._poll = system_poll(sock)
        self._buffer = buffer
        self._end: OSError | None = None
        self.receive: Callable[[bool], int] = self._receive if self._tls is None else self._receive_tls
        self._unsent = b""
        self._wide = False
        self._writable: Any = None
        self._watcher = gevent.get_hub().loop.io(sock.fileno(), _READ)
        self._watcher.start(self.guarded, readable)

    def guarded(self, react: Callable[[], None]) -> None:
        """Call ``react`` and report its exceptions, which the hub would only print."""
        try:
            react()
        except Exception as error:
            self._on_error(error)

    def _receive(self, many: bool) -> int:
        return int(self._raw.recv_into(self._buffer))

    def _receive_tls(self, many: bool) -> int:
        """Read TLS records.

        If another record is likely, it is read at once, to save an iteration of the event loop. If not,
        that would be a wasted call.
        """
        if self._end is not None:
            raise self._end
        read, buffer = self._tls.read, self._buffer
        count = filled = int(read(BUFFER, buffer))
        try:
            while count and (many or count >= _FULL) and filled < BUFFER - _RECORD:
                count = read(BUFFER - filled, buffer[filled:])
                filled += count
            if not count and filled:
                # Nothing shows it again where the server waits for our close_notify before it closes.
                self._end = ssl.SSLZeroReturnError(ssl.SSL_ERROR_ZERO_RETURN, "the server has ended TLS")
        except Blocked:
            pass
        except OSError as error:
            self._end = error  # raised by the next call, after the data that arrived before it
        return filled

    @property
    def is_untaken(self) -> bool:
        """Return whether the server's system has not acknowledged what was sent."""
        return is_unacknowledged(self._raw)

    def pending(self) -> bool:
        """Return whether there is more to receive that the TLS layer has read from the socket already."""
        return self._tls is not None and (self._end is not None or bool(self._tls.pending()))

    def send(self, data: bytes) -> None:
        """Send ``data``; the part that the socket does not accept at once is sent later.

        Errors are not raised: reading reports a broken connection, after the data that the server sent
        before.
        """
        if self._unsent:
            self._unsent += data
            return
        if self._raw is None:
            return
        try:
            sent = self._raw.send(data) if self._tls is None else self._tls.write(data)
        except Blocked:
            sent = 0
        except OSError:
            return
        if sent < len(data):
            self._unsent = data[sent:]
            if self._writable is None:
                self._writable = gevent.get_hub().loop.io(self._raw.fileno(), _WRITE)
            self._writable.start(self.guarded, self._send_unsent)

    def _send_unsent(self) -> None:
        self._writable.stop()
        data, self._unsent = self._unsent, b""
        self.send(data)

    def proven(self) -> None:
        """Keep the TLS session for later connections; call this after the first response."""
        if self._tls is not None:
            sock = self._connection.sock
            with contextlib.suppress(OSError):
                sock.context.remember(sock)

    def succeeded(self) -> None:
        """Record that a request through it has succeeded; see ``connection_pool``."""
        self._connection.good = True

    def failed(self) -> None:
        """Record that its machine is of no use now; see ``connection_pool``."""
        self._connection.good = False

    def acknowledge(self) -> None:
        """Acknowledge all received data immediately.

        Until then, the server's kernel may hold back the last small segment (Nagle, RFC 896), or data that
        does not fit into the window that it knows of. The local kernel delays the acknowledgement by 40 to
        200 ms, to send it with other data, as long as no more than one segment has arrived (on loopback, a
        segment is 64 kB). Where the local kernel has no such option, SHORTEST_REST is longer than
        that.
        """
        if _QUICKACK is not None:
            with contextlib.suppress(OSError):
                self._raw.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def widen(self, length: int) -> None:
        """Let the kernel buffer a whole body of ``length`` bytes, if it is small enough.

        Setting SO_RCVLOWAT immediately makes the receive buffer twice as large as that value
        (tcp_set_rcvlowat() in Linux; SO_RCVBUF would disable autotuning and has a lower limit). Afterwards
        SO_RCVLOWAT is reset to 1.
        """
        if 0 < length <= _WIDE and not self._wide:
            self._wide = True
            for minimum in (_WIDE, 1):
                with contextlib.suppress(OSError):
                    self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, minimum)

    def usable(self) -> bool:
        """Return whether the idle connection is open and nothing has arrived on it."""
        return bool(self._connection.is_connected)

    def unread(self) -> bool:
        """Return whether data has arrived that is not read yet; an end is none. Cheaper than ``usable``."""
        if not self._poll.poll(0) or self._raw is None:
            return False
        try:
            return bool(self._raw.recv(1, _PEEK))
        except OSError:
            return False

    def end_sending(self) -> None:
        """Shut down the half of the connection that sends."""
        with contextlib.suppress(OSError):
            self._raw.shutdown(socket.SHUT_WR)

    def close(self, *, abruptly: bool = False) -> None:
        """Close the connection; ``abruptly``: shut it down first, without waiting for data in transit."""
        for watcher in (self._watcher, self._writable):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._watcher = self._writable = None
        self._unsent = b""
        if abruptly:
            with contextlib.suppress(OSError):
                self._raw.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        # This object lives until the garbage collector finds it, which does not see what TLS takes.
        self._raw = self._tls = None
        self.receive = _closed
