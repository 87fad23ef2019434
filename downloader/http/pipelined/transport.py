"""The socket of one connection of the wire lane, without a greenlet: bytes in and out, as they come.

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

__all__ = ["BUFFER", "LEAST_REST", "MUCH", "Blocked", "Stream"]

BUFFER = 512 << 10
_WIDE = 2 << 20
_READ, _WRITE = 1, 2
_RECORD = 16 << 10  # the most that one record of TLS holds
_FULL = _RECORD // 2
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux

LEAST_REST = 0.002 if _QUICKACK is not None else 0.25
"""So many seconds must nothing come before it counts as nothing: see ``acknowledge``."""

MUCH = 32 << 10
"""So many bytes in one go are acknowledged at once while more is awaited: see ``acknowledge``."""

Blocked = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What ``receive`` raises when nothing is there."""


class Stream:
    """Calls ``readable`` when there is something to ``receive``; what either raises goes to ``lost``.

    ``receive(many)`` gives the number of bytes that it has read into the buffer, 0 at the end; ``many``:
    several answers are awaited. It raises Blocked when nothing is there, and OSError.
    """

    __slots__ = (
        "_buffer",
        "_connection",
        "_end",
        "_lost",
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
        lost: Callable[[Exception], None],
    ) -> None:
        self._connection = connection
        self._lost = lost
        self.key: tuple[str, int] = connection.key
        sock = connection.sock
        self._tls: Any = getattr(sock, "_sslobj", None)
        # gevent's sockets are non-blocking underneath.
        self._raw = sock._sock
        self._buffer = buffer
        self._end: OSError | None = None
        self.receive: Callable[[bool], int] = self._receive if self._tls is None else self._receive_tls
        self._unsent = b""
        self._wide = False
        self._writable: Any = None
        self._watcher = gevent.get_hub().loop.io(sock.fileno(), _READ)
        self._watcher.start(self.guarded, readable)

    def guarded(self, react: Callable[[], None]) -> None:
        """For what the hub calls: what goes wrong must end the process, not be printed by the hub."""
        try:
            react()
        except Exception as error:
            self._lost(error)

    def _receive(self, many: bool) -> int:
        return int(self._raw.recv_into(self._buffer))

    def _receive_tls(self, many: bool) -> int:
        """A record at a time comes out of TLS. Where another is likely it is tried for at once, since to
        come back for it takes a turn of the loop; where it is not, that would be a call for nothing."""
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
        """Whether more can be received that no watcher would tell of: it has been read already."""
        return self._tls is not None and (self._end is not None or bool(self._tls.pending()))

    def send(self, data: bytes) -> None:
        """Send; what the socket does not take at once is sent as it does.

        A connection that has broken is noticed by reading, after what the server said before.
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
        """The server has answered."""
        if self._tls is not None:
            sock = self._connection.sock
            with contextlib.suppress(OSError):
                sock.context.remember(sock)

    def acknowledge(self) -> None:
        """Tell the server now that all has arrived.

        Its kernel may keep the last small piece until then (Nagle, RFC 896), or what does not fit into the
        window that it knows of; and ours waits 40 to 200 ms for something to say along with it, as long as
        no more than one segment has come, which on loopback is 64 kB. Where ours cannot be told,
        LEAST_REST is longer than that.
        """
        if _QUICKACK is not None:
            with contextlib.suppress(OSError):
                self._raw.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    def widen(self, length: int) -> None:
        """A body of ``length`` bytes has begun: if the kernel may as well take it in whole, let it.

        To wait for so much makes its buffer twice as large at once (tcp_set_rcvlowat() of Linux; SO_RCVBUF
        would end its own tuning and is limited more). Then we wait for any byte again.
        """
        if 0 < length <= _WIDE and not self._wide:
            self._wide = True
            for least in (_WIDE, 1):
                with contextlib.suppress(OSError):
                    self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)

    def usable(self) -> bool:
        """Whether it is open and nothing has arrived that nobody asked for."""
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
