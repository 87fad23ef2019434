"""The socket of one pipelined connection, without a greenlet: bytes in and out, as they come.

urllib3 has opened and verified the connection. Waiting is done on a watcher that is made once; reading
goes into a buffer that all connections share (a large ``recv`` maps, remaps and unmaps memory for every
answer). TLS is read and written through the SSL object below gevent's socket.
"""

from __future__ import annotations

from downloader.process import patching

patching.require()

import contextlib  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402  (only in a patched process)
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

from downloader.process.library_internals import raw_socket, tls_object  # noqa: E402

__all__ = ["ACKNOWLEDGED_AT_ONCE", "BUFFER", "MIN_REST", "Blocked", "Transport"]

BUFFER = 512 << 10
_WIDE = 2 << 20
_READ, _WRITE = 1, 2
_RECORD = 16 << 10  # the most that one record of TLS holds
_FULL = _RECORD // 2
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux

MIN_REST = 0.002 if _QUICKACK is not None else 0.25
"""Seconds without a byte after which nothing more is expected: see ``acknowledge``."""

ACKNOWLEDGED_AT_ONCE = 32 << 10
"""Bytes in one read that are acknowledged at once while more is awaited: see ``acknowledge``."""

Blocked = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What ``receive`` raises when nothing has arrived."""


class Transport:
    """Calls ``readable`` when there is something to ``receive``; what that raises goes to ``on_error``.

    ``receive(many)`` returns the number of bytes that it has read into the buffer, 0 at the end; ``many``:
    several responses are awaited. It raises Blocked when nothing has arrived, and OSError.
    """

    __slots__ = (
        "_buffer",
        "_connection",
        "_end",
        "_on_error",
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
        connection: Any,
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
        self._buffer = buffer
        self._end: OSError | None = None
        self.receive: Callable[[bool], int] = self._receive if self._tls is None else self._receive_tls
        self._unsent = b""
        self._wide = False
        self._writable: Any = None
        self._watcher = gevent.get_hub().loop.io(sock.fileno(), _READ)
        self._watcher.start(self.guarded, readable)

    def guarded(self, react: Callable[[], None]) -> None:
        """Call ``react``; report what it raises, which the hub would only print."""
        try:
            react()
        except Exception as error:
            self._on_error(error)

    def _receive(self, many: bool) -> int:
        return int(self._raw.recv_into(self._buffer))

    def _receive_tls(self, many: bool) -> int:
        """Read records of TLS. Where another one is likely it is read at once, since coming back for it
        takes a turn of the loop; where it is not, that would be a wasted call."""
        if self._end is not None:
            raise self._end
        read, buffer = self._tls.read, self._buffer
        count = filled = int(read(BUFFER, buffer))
        try:
            while count and (many or count >= _FULL) and filled < BUFFER - _RECORD:
                count = read(BUFFER - filled, buffer[filled:])
                filled += count
        except Blocked:
            pass
        except OSError as error:
            self._end = error  # after what has come before it
        return filled

    def pending(self) -> bool:
        """Return whether there is more to receive that was read from the socket already."""
        return self._tls is not None and (self._end is not None or bool(self._tls.pending()))

    def send(self, data: bytes) -> None:
        """Send ``data``; what the socket does not take at once is sent later.

        A broken connection is noticed by reading, after what the server sent before.
        """
        if self._unsent:
            self._unsent += data
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
            self._writable.start(self.guarded, self._send_on)

    def _send_on(self) -> None:
        self._writable.stop()
        data, self._unsent = self._unsent, b""
        self.send(data)

    def proven(self) -> None:
        """Keep the TLS session for later connections: the server has answered."""
        if self._tls is not None:
            sock = self._connection.sock
            with contextlib.suppress(OSError):
                sock.context.remember(sock)

    def acknowledge(self) -> None:
        """Acknowledge all that has arrived at once.

        The server's kernel may keep the last small piece until then (Nagle, RFC 896), or what does not fit
        into the window that it knows of; and ours waits 40 to 200 ms for something to say along with it, as
        long as no more than one segment has come, which on loopback is 64 kB. Where ours cannot be told,
        MIN_REST is longer than that.
        """
        if _QUICKACK is not None:
            with contextlib.suppress(OSError):
                self._raw.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def widen(self, length: int) -> None:
        """Let the kernel take in the whole of a body of ``length`` bytes, if that is small enough.

        To wait for so much makes its buffer twice as large at once (tcp_set_rcvlowat() of Linux; SO_RCVBUF
        would end its own tuning and is limited more). Then we wait for any byte again.
        """
        if 0 < length <= _WIDE and not self._wide:
            self._wide = True
            for least in (_WIDE, 1):
                with contextlib.suppress(OSError):
                    self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def usable(self) -> bool:
        """Return whether it is open and nothing has arrived without a request."""
        return bool(self._connection.is_connected)

    def close(self, *, abruptly: bool = False) -> None:
        """Close; ``abruptly``: without waiting for what is still on its way."""
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
